//! One large product and a Split against three small ones: what they cost in ONNX Runtime, at the sizes that a model has.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use comfy_table::Cell;
use onnxforge::blob::Blob;
use onnxforge::io::save::save_message;
use onnxforge::io::{LoadOptions, load};
use onnxforge::ir::{Model, Node, NodeId};
use onnxforge::ops::Array;
use onnxforge::progress::Silent;
use onnxforge::proto::schema::{ModelProto, TensorProto};
use onnxforge::random::Random;
use onnxforge::text;
use onnxforge::verify::engine::Engine;
use onnxforge::verify::{self, verify};
use onnxforge_cli::arguments::seconds;
use onnxforge_cli::failure::{Failure, Verdict};
use onnxforge_cli::output::{Output, number, table};
use onnxforge_cli::process::{Limits, run as run_process};
use serde::Serialize;
use serde_json::Value;

use crate::program;

/// Rows of the value that is multiplied: one token after the other, and many at once.
const ROWS: [usize; 3] = [1, 16, 128];

/// Measure three products of one value against one, at the sizes of the first product in a model that a Split cuts into three.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A model after fuse_attention_qkv.
    model: PathBuf,
    /// How long to measure each number of rows.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// How many products of each size there are, in the order in which they come.
    sizes: Vec<Counted>,
    /// The largest difference of an output at the first size.
    difference: Option<f64>,
    verdict: Option<verify::Verdict>,
    rows: Vec<Row>,
}

/// Rows of the weights, and columns of each of the three parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Size {
    depth: usize,
    widths: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Counted {
    #[serde(flatten)]
    size: Size,
    count: usize,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Row {
    rows: usize,
    /// Milliseconds of three products, and of one with a Split.
    three: Option<f64>,
    one: Option<f64>,
    /// How many times as fast one is: `median`, `low` and `high`.
    speed: Value,
    verdict: Value,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    program::check(&output.program)?;
    let model = output.files.load(&args.model)?;
    let mut sizes: Vec<Counted> = Vec::new();
    for size in self::sizes(&model) {
        match sizes.iter_mut().find(|known| known.size == size) {
            Some(known) => known.count += 1,
            None => sizes.push(Counted { size, count: 1 }),
        }
    }
    let mut report = Report { schema: 1, sizes, difference: None, verdict: None, rows: Vec::new() };
    if let Some(Counted { size, .. }) = report.sizes.first() {
        let folder = tempfile::tempdir()?;
        let [three, one] = ["three.onnx", "one.onnx"].map(|name| folder.path().join(name));
        save_message(&block(size, false)?, &three)?;
        save_message(&block(size, true)?, &one)?;
        let dims = HashMap::from([("rows".to_owned(), ROWS[2])]);
        let options = verify::Options { dims, ..verify::Options::new(Engine::Ort) };
        let [first, second] = [&three, &one].map(|path| load(path, &LoadOptions::default()));
        let compared = verify(&first?, &second?, &options, &Silent).map_err(Failure::new)?;
        report.difference = Some(compared.by_sample.iter().copied().fold(0.0, f64::max));
        report.verdict = Some(compared.verdict);
        for rows in ROWS {
            let mut bench = program::onnxforge(&output.program)?;
            bench.arg("bench").args([&three, &one]);
            bench.arg(format!("--set-dim=rows={rows}"));
            bench.args(["--sessions=6", "--warmup=1", "--json=-"]);
            bench.arg(format!("--seconds={}", args.seconds.as_secs_f64()));
            let ended = run_process(&mut bench, Limits::default())?;
            let found: Value =
                serde_json::from_slice(&ended.out).map_err(|_| Failure::new(ended.said.trim()))?;
            let median = |which: usize| found["models"][which]["latency_ms"]["median"].as_f64();
            let beside = &found["models"][1]["against_first"];
            report.rows.push(Row {
                rows,
                three: median(0),
                one: median(1),
                speed: beside["speed"].clone(),
                verdict: beside["verdict"].clone(),
            });
        }
    }
    output.result(&report, |out| {
        for Counted { size, count } in &report.sizes {
            writeln!(out, "{count} products: {} → {:?}", size.depth, size.widths)?;
        }
        let mut rows = table(&["rows", "three, ms", "one, ms", "speed of one", "verdict"]);
        let shown =
            |value: Option<f64>| number(value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}")));
        for row in &report.rows {
            let verdict = Cell::new(row.verdict.as_str().unwrap_or("-"));
            rows.add_row([
                number(row.rows),
                shown(row.three),
                shown(row.one),
                shown(row.speed["median"].as_f64()),
                verdict,
            ]);
        }
        writeln!(out, "{rows}")
    })?;
    Ok(Verdict::Yes)
}

/// The sizes of products with weights that a Split cuts into three.
fn sizes(model: &Model) -> impl Iterator<Item = Size> {
    let maker = |node: &Node, input: usize| -> Option<NodeId> { model.value(node.input(input)?).node() };
    let size = move |node: &Node| {
        let parts = node.outputs().len();
        let widths: Vec<i64> = match node.attr_ints("split") {
            Some(widths) => widths.to_vec(),
            None => Array::from_tensor(model.constant(node.input(1)?)?).ok()?.to_i64s().ok()?,
        };
        let mut product = model.node(maker(node, 0)?);
        if product.op().is("Add") {
            let sources = [0, 1].into_iter().filter_map(|input| maker(product, input));
            product = sources.map(|id| model.node(id)).find(|source| source.op().is("MatMul"))?;
        }
        let weights = model
            .constant(product.input(1)?)
            .filter(|_| product.op().is("MatMul") || product.op().is("Gemm"))?;
        let widths = widths.iter().map(|&width| usize::try_from(width).ok()).collect::<Option<Vec<_>>>()?;
        let total = widths.iter().try_fold(0usize, |sum, &width| sum.checked_add(width))?;
        let &[rows, columns] = weights.shape() else { return None };
        let depth = match (rows, columns) {
            (rows, columns) if columns == total => rows,
            (rows, columns) if rows == total => columns,
            _ => return None,
        };
        (parts == 3 && widths.len() == 3).then_some(Size { depth, widths })
    };
    model.nodes().filter(|(_, node)| node.op().is("Split")).filter_map(move |(_, node)| size(node))
}

/// A model of such products with sums: three of them, or one and a Split.
fn block(size: &Size, together: bool) -> Result<ModelProto, Failure> {
    let Size { depth, widths } = size;
    let outputs: Vec<String> =
        widths.iter().enumerate().map(|(part, width)| format!("float[1, rows, {width}] y{part}")).collect();
    let nodes = match together {
        true => "p = MatMul(x, w) a = Add(p, b) y0, y1, y2 = Split<axis: int = -1>(a, s)".to_owned(),
        false => (0..widths.len())
            .map(|part| format!("p{part} = MatMul(x, w{part}) y{part} = Add(p{part}, b{part}) "))
            .collect(),
    };
    let text = format!(
        "<ir_version: 10, opset_import: [\"\" : 17]> block (float[1, rows, {depth}] x) => ({}) {{ {nodes} }}",
        outputs.join(", ")
    );
    let mut model = text::parse(&text).map_err(Failure::new)?;
    let mut random = Random::new(0);
    let weights: Vec<Vec<f32>> = widths
        .iter()
        .map(|width| (0..depth * width).map(|_| random.normal() as f32 * 0.02).collect())
        .collect();
    let biases: Vec<Vec<f32>> =
        widths.iter().map(|width| (0..*width).map(|_| random.normal() as f32).collect()).collect();
    let Some(graph) = &mut model.graph else { return Ok(model) };
    if together {
        let row = |row: usize| {
            weights
                .iter()
                .zip(widths)
                .flat_map(move |(part, width)| part[row * width..][..*width].iter().copied())
        };
        let side_by_side: Vec<f32> = (0..*depth).flat_map(row).collect();
        let width = widths.iter().sum::<usize>();
        graph.initializer.push(floats("w", &[*depth, width], &side_by_side));
        graph.initializer.push(floats("b", &[width], &biases.concat()));
        graph.initializer.push(TensorProto {
            dims: vec![widths.len() as i64],
            data_type: Some(7),
            name: Some("s".into()),
            raw_data: Some(
                Blob::owned_by(
                    widths.iter().flat_map(|&width| (width as i64).to_le_bytes()).collect::<Vec<u8>>(),
                )
                .into(),
            ),
            ..TensorProto::default()
        });
    } else {
        for (part, width) in widths.iter().enumerate() {
            graph.initializer.push(floats(&format!("w{part}"), &[*depth, *width], &weights[part]));
            graph.initializer.push(floats(&format!("b{part}"), &[*width], &biases[part]));
        }
    }
    Ok(model)
}

fn floats(name: &str, shape: &[usize], numbers: &[f32]) -> TensorProto {
    TensorProto {
        dims: shape.iter().map(|&size| size as i64).collect(),
        data_type: Some(1),
        name: Some(name.into()),
        raw_data: Some(
            Blob::owned_by(numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
                .into(),
        ),
        ..TensorProto::default()
    }
}
