//! The forms in which a model can say that a Relu belongs to the Conv before it, and what becomes of each.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use comfy_table::Cell;
use onnxforge::blob::Blob;
use onnxforge::check::{Severity, check};
use onnxforge::io::external::ExternalFiles;
use onnxforge::io::load::decode_model;
use onnxforge::io::save::save_message;
use onnxforge::io::{LinkPolicy, LoadOptions, load, to_bytes};
use onnxforge::ir::{Model, Node};
use onnxforge::loading::HARMLESS;
use onnxforge::passes::target::ort_conv_activation;
use onnxforge::passes::{Pass, pipeline};
use onnxforge::progress::Silent;
use onnxforge::proto::Str;
use onnxforge::proto::schema::{
    AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto,
};
use onnxforge::runtime::{Level, Runtime};
use onnxforge::verify::engine::Engine;
use onnxforge::verify::{self, Verdict as Said, verify};
use onnxforge_cli::failure::{Failure, Verdict};
use onnxforge_cli::output::{Output, number, table};
use serde::Serialize;

/// The attribute that forms A and B give a Conv, and the key that form F writes.
const ACTIVATION: &str = "activation";

/// Write every Conv with a Relu behind it in each form that was proposed, and try which of them ONNX Runtime takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Other seeds make up other inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// Convs with a Relu behind them that nothing else reads.
    pairs: usize,
    forms: Vec<Tried>,
}

/// What becomes of a form.
#[derive(Debug, Serialize)]
struct Tried {
    form: &'static str,
    what: &'static str,
    nodes: usize,
    /// What is wrong with it by the standard.
    invalid: Option<String>,
    /// Why ONNX Runtime does not take it.
    refused: Option<String>,
    /// What is said of its results.
    verdict: Option<Said>,
    /// The largest difference of an output from that of the plain model.
    difference: Option<f64>,
    /// Nodes that ONNX Runtime runs after fusions of its own.
    run_nodes: Option<usize>,
}

/// How a form is made of the plain model.
enum Form {
    Edit(fn(&mut GraphProto, &[Pair])),
    Pass(&'static Pass),
}

/// The forms, by the letters under which they were proposed.
const FORMS: [(&str, &str, Form); 7] = [
    ("A", "an attribute of the Conv instead of the Relu", Form::Edit(attribute_instead)),
    ("B", "an attribute of the Conv, and the Relu", Form::Edit(attribute_beside)),
    ("C", "Clip from 0 instead of Relu", Form::Edit(clip)),
    ("D, runtime", "two models: the runtime's is as it was", Form::Edit(|_, _| {})),
    ("D, converter", "two models: the converter's is form A", Form::Edit(attribute_instead)),
    ("E", "FusedConv of com.microsoft", Form::Pass(&ort_conv_activation::PASS)),
    ("F", "a line in the metadata of the Conv", Form::Edit(metadata)),
];

/// The places of a Conv and of its Relu among the nodes.
struct Pair {
    conv: usize,
    relu: usize,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let runtime = Runtime::get()?;
    let model = output.files.load(&args.model)?;
    let folder = tempfile::tempdir()?;
    let (mut forms, mut found) = (Vec::new(), 0);
    if has_pairs(&model) {
        let plain = message(&model)?;
        let pairs = pairs(&plain);
        found = pairs.len();
        for (form, what, make) in FORMS {
            let mut changed = plain.clone();
            match make {
                Form::Edit(edit) => {
                    if let Some(graph) = &mut changed.graph {
                        edit(graph, &pairs);
                    }
                }
                Form::Pass(pass) => {
                    let mut fused = model.clone();
                    let options = pipeline::Options { passes: vec![pass], ..pipeline::Options::default() };
                    pipeline::optimize(&mut fused, &options);
                    changed = message(&fused)?;
                }
            }
            let path = folder.path().join("form.onnx");
            save_message(&changed, &path)?;
            forms.push(tried(form, what, &model, &changed, &path, runtime, args.seed)?);
        }
    }
    let report = Report { schema: 1, pairs: found, forms };
    output.result(&report, |out| {
        let mut rows = table(&["form", "nodes", "valid", "ONNX Runtime", "difference", "nodes it runs"]);
        let said = |problem: &Option<String>| Cell::new(problem.as_deref().unwrap_or("yes"));
        for form in &report.forms {
            rows.add_row([
                Cell::new(format!("{}: {}", form.form, form.what)),
                number(form.nodes),
                said(&form.invalid),
                said(&form.refused),
                number(
                    form.difference.map_or_else(|| "-".to_owned(), |difference| format!("{difference:.1e}")),
                ),
                number(form.run_nodes.map_or_else(|| "-".to_owned(), |nodes| nodes.to_string())),
            ]);
        }
        writeln!(out, "{} Convs with a Relu\n{rows}", report.pairs)
    })?;
    Ok(Verdict::Yes)
}

/// The model as a message that holds its weights.
fn message(model: &Model) -> Result<ModelProto, Failure> {
    let bytes = to_bytes(model).map_err(Failure::new)?;
    decode_model(&Blob::owned_by(bytes)).map_err(Failure::new)
}

fn tried(
    form: &'static str,
    what: &'static str,
    plain: &Model,
    changed: &ModelProto,
    path: &std::path::Path,
    runtime: &Runtime,
    seed: u64,
) -> Result<Tried, Failure> {
    let problems = check(changed, &mut ExternalFiles::new(None, LinkPolicy::default()));
    let wrong = problems
        .iter()
        .find(|problem| problem.severity == Severity::Error && !HARMLESS.contains(&problem.rule));
    let mut found = Tried {
        form,
        what,
        nodes: changed.graph.as_ref().map_or(0, |graph| graph.node.len()),
        invalid: wrong.map(|problem| problem.message.clone()),
        refused: None,
        verdict: None,
        difference: None,
        run_nodes: None,
    };
    match runtime.rewritten(path, Level::Extended) {
        Ok(operators) => found.run_nodes = Some(operators.values().sum()),
        Err(error) => {
            // Without the file that only this experiment had.
            let text = error.to_string();
            found.refused = Some(text.split_once("failed:").map_or(text.as_str(), |(_, why)| why).to_owned());
            return Ok(found);
        }
    }
    let options = verify::Options { seed, ..verify::Options::new(Engine::Ort) };
    match verify(plain, &load(path, &LoadOptions::default())?, &options, &Silent) {
        Ok(report) => {
            found.verdict = Some(report.verdict);
            found.difference = Some(report.by_sample.iter().copied().fold(0.0, f64::max));
        }
        Err(error) => found.refused = Some(error.to_string()),
    }
    Ok(found)
}

/// Whether there is a Conv with a Relu; the message of a model of several gigabytes is not asked for nothing.
fn has_pairs(model: &Model) -> bool {
    let source = |node: &Node| Some(model.node(model.value(node.input(0)?).node()?).op().is("Conv"));
    model.nodes().any(|(_, node)| node.op().is("Relu") && source(node) == Some(true))
}

/// Counts how often nodes read each name, bodies included.
fn count_reads<'m>(nodes: &'m [NodeProto], reads: &mut HashMap<&'m Str, usize>) {
    for node in nodes {
        node.input.iter().for_each(|name| *reads.entry(name).or_default() += 1);
        for attribute in &node.attribute {
            let bodies = attribute.g.iter().map(|body| &**body).chain(&attribute.graphs);
            bodies.for_each(|body| count_reads(&body.node, reads));
        }
    }
}

/// Every Conv whose only reader is a Relu, with that.
fn pairs(model: &ModelProto) -> Vec<Pair> {
    let Some(graph) = &model.graph else { return Vec::new() };
    let is = |node: &NodeProto, op: &str| {
        node.op_type.as_deref() == Some(op) && node.domain.as_deref().unwrap_or_default().is_empty()
    };
    let convs = graph.node.iter().enumerate().filter(|(_, node)| is(node, "Conv"));
    let made: HashMap<&Str, usize> =
        convs.filter_map(|(place, node)| Some((node.output.first()?, place))).collect();
    let mut readers: HashMap<&Str, usize> = HashMap::new();
    count_reads(&graph.node, &mut readers);
    let outputs: HashSet<&Str> = graph.output.iter().filter_map(|value| value.name.as_ref()).collect();
    let relus = graph.node.iter().enumerate().filter(|(_, node)| is(node, "Relu"));
    relus
        .filter_map(|(relu, node)| {
            let source = node.input.first()?;
            let conv = *made.get(source)?;
            (readers.get(source) == Some(&1) && !outputs.contains(source)).then_some(Pair { conv, relu })
        })
        .collect()
}

/// Forms A and B: what no standard knows.
fn annotate(conv: &mut NodeProto) {
    conv.attribute.push(AttributeProto {
        name: Some(ACTIVATION.into()),
        s: Some(Blob::owned_by(*b"Relu")),
        r#type: Some(3),
        ..AttributeProto::default()
    });
}

fn attribute_instead(graph: &mut GraphProto, pairs: &[Pair]) {
    for pair in pairs {
        let output = graph.node[pair.relu].output.clone();
        let conv = &mut graph.node[pair.conv];
        annotate(conv);
        conv.output = output;
    }
    let gone: HashSet<usize> = pairs.iter().map(|pair| pair.relu).collect();
    let mut place = 0;
    graph.node.retain(|_| {
        place += 1;
        !gone.contains(&(place - 1))
    });
}

fn attribute_beside(graph: &mut GraphProto, pairs: &[Pair]) {
    pairs.iter().for_each(|pair| annotate(&mut graph.node[pair.conv]));
}

/// Max with 0 by another name: the bound has the element type of the Conv's weights.
fn clip(graph: &mut GraphProto, pairs: &[Pair]) {
    const ZERO: &str = "onnxforge_zero";
    let weights = |conv: &NodeProto| {
        let name = conv.input.get(1)?;
        let stored = graph.initializer.iter().find(|tensor| tensor.name.as_ref() == Some(name))?;
        stored.data_type
    };
    let mut types: Vec<i32> = Vec::new();
    let places: Vec<(usize, i32)> =
        pairs.iter().map(|pair| (pair.relu, weights(&graph.node[pair.conv]).unwrap_or(FLOAT))).collect();
    for (relu, dtype) in places {
        if !types.contains(&dtype) {
            types.push(dtype);
        }
        let relu = &mut graph.node[relu];
        relu.op_type = Some("Clip".into());
        relu.input.push(format!("{ZERO}_{dtype}").into());
    }
    // Zero is zero bytes in every type of floats.
    let width = |dtype: i32| match dtype {
        DOUBLE => 8,
        FLOAT => 4,
        _ => 2,
    };
    graph.initializer.extend(types.into_iter().map(|dtype| TensorProto {
        data_type: Some(dtype),
        name: Some(format!("{ZERO}_{dtype}").into()),
        raw_data: Some(Blob::owned_by(vec![0u8; width(dtype)]).into()),
        ..TensorProto::default()
    }));
}

/// Element types, by their numbers in files.
const FLOAT: i32 = 1;
const DOUBLE: i32 = 11;

fn metadata(graph: &mut GraphProto, pairs: &[Pair]) {
    for pair in pairs {
        graph.node[pair.conv].metadata_props.push(StringStringEntryProto {
            key: Some(ACTIVATION.into()),
            value: Some("Relu".into()),
            ..StringStringEntryProto::default()
        });
    }
}
