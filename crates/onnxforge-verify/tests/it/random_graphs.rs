//! Random graphs: what inference says holds in every run, and ONNX Runtime computes the same.
//!
//! `ONNXFORGE_GRAPHS` says how many graphs each property is tried on; `ONNXFORGE_SEED` where to start; `ONNXFORGE_SHOW` shows each
//! graph before it is tried, for crashes of ONNX Runtime.
//! `ORT_DYLIB_PATH` names ONNX Runtime's library; `cargo xtask test` sets it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use onnxforge_ir::dim::{Dim, Symbol};
use onnxforge_ir::{Accuracy, DType, Entry, Model, ValueId};
use onnxforge_ops::eval::{Options, Session};
use onnxforge_ops::eval_call::Memory;
use onnxforge_ops::infer::{self, Inference};
use onnxforge_ops::{Array, Value, apply};
use onnxforge_rewrite::passes::pipeline::{self, optimize, optimize_watched};
use onnxforge_testing::graphs::Graph;
use onnxforge_testing::required;
use onnxforge_verify::local::Local;
use rayon::prelude::*;

/// Nodes of a graph.
const NODES: usize = 12;
/// How long ONNX Runtime may take for one graph.
const PATIENCE: Duration = Duration::from_secs(30);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let start = number("ONNXFORGE_SEED", 0);
    start..start + number("ONNXFORGE_GRAPHS", default)
}

/// Runs `property` on many graphs and shows the first one that fails.
fn for_all(default: u64, property: impl Fn(&Graph) -> Result<(), String> + Sync) {
    let failure = seeds(default).into_par_iter().find_map_any(|seed| {
        let graph = Graph::random(seed, NODES);
        if std::env::var_os("ONNXFORGE_SHOW").is_some() {
            eprintln!("seed {seed}:\n{}", graph.text);
        }
        property(&graph).err().map(|why| format!("seed {seed}: {why}\n{}", graph.text))
    });
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

#[test]
fn inference_holds_in_every_run() {
    for_all(500, |graph| {
        let model = graph.model();
        let may_be_empty = graph.sizes.values().any(|&size| size == 0);
        let options = infer::Options { may_be_empty, ..infer::Options::default() };
        let inference = Inference::with(&model, &options);
        if let Some(conflict) = inference.conflicts().first() {
            return Err(format!("a graph that runs has a contradiction: {}", conflict.kind));
        }
        let wanted: Vec<ValueId> =
            model.scope(model.main()).outputs().iter().map(|port| port.value).collect();
        let values = Session::new(&model, Options::default())
            .run_values(&graph.inputs, &wanted)
            .map_err(|error| error.to_string())?;
        // Symbols of the inputs have the sizes of this run; others get theirs where they first stand alone.
        let mut sizes: HashMap<Symbol, i64> = HashMap::new();
        for (name, size) in &graph.sizes {
            if let Some(symbol) = inference.symbols().get(name) {
                sizes.insert(symbol, *size);
            }
        }
        let mut pairs = Vec::new();
        for (&id, value) in wanted.iter().zip(&values) {
            let name = model.value(id).name();
            inference
                .fact(id)
                .admits(value)
                .map_err(|why| format!("{name}: {:?}, but {why}", inference.fact(id)))?;
            let (Some(fact), Value::Tensor(array)) = (inference.tensor(id), value) else { continue };
            let dims = fact.shape.iter().flatten().cloned();
            let shape = array.shape().iter().map(|&size| size as i64);
            pairs.extend(dims.zip(shape).map(|(dim, size)| (name.clone(), dim, size)));
            if let (Some(dims), Ok(found)) = (fact.dims(), array.to_i64s()) {
                pairs.extend(dims.into_iter().zip(found).map(|(dim, value)| (name.clone(), dim, value)));
            }
        }
        for (_, dim, size) in &pairs {
            if let Some(symbol) = dim.as_symbol() {
                sizes.entry(symbol).or_insert(*size);
            }
        }
        for (name, dim, size) in &pairs {
            let expected = Dim::evaluate(dim, &|symbol| sizes.get(&symbol).copied());
            if expected.is_some_and(|expected| expected != *size) {
                let shown = dim.display(inference.symbols()).to_string();
                return Err(format!("{name}: {shown} is {size}, not {expected:?} (sizes {:?})", graph.sizes));
            }
        }
        for (symbol, size) in &sizes {
            if inference.symbols().lower(*symbol).is_some_and(|lower| lower > *size) {
                return Err(format!("a symbol that is {size} is said to be at least more"));
            }
        }
        Ok(())
    });
}

#[test]
fn passes_keep_what_graphs_compute() {
    for_all(300, |graph| {
        // Passes take it that inputs have elements.
        if graph.sizes.values().any(|&size| size == 0) {
            return Ok(());
        }
        keeps(graph, &graph.model())?;
        keeps(graph, &graph.model_of_ends()).map_err(|why| format!("with fewer outputs: {why}"))
    });
}

/// All passes together keep what the outputs of a model are, and a second run of them finds nothing.
fn keeps(graph: &Graph, model: &Model) -> Result<(), String> {
    let run = |model: &Model| Session::new(model, Options::default()).run(&graph.inputs);
    let before = run(model).map_err(|error| error.to_string())?;
    let mut changed = model.clone();
    let mut local = Local::new(Duration::from_secs(60));
    optimize_watched(&mut changed, &pipeline::Options::default(), Some(&mut local));
    if let Some(wrong) = local.wrong {
        return Err(format!("a check says that an edit is wrong: {wrong:?}"));
    }
    changed.validate().map_err(|error| format!("{error:?}"))?;
    let edits = changed.journal().len();
    optimize(&mut changed, &pipeline::Options::default());
    if changed.journal().len() > edits {
        return Err(format!("a second run finds more: {:?}", changed.journal()[edits]));
    }
    let exact = |entry: &Entry| matches!(entry.accuracy, Accuracy::BitExact | Accuracy::ValueExact);
    let tolerance = if changed.journal().iter().all(exact) { 0.0 } else { 1e-5 };
    let after = run(&changed).map_err(|error| format!("after the passes: {error}"))?;
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        let (before, after) = (before.array().unwrap(), after.array().unwrap());
        if before.shape() != after.shape() || before.dtype() != after.dtype() {
            return Err(format!("{name}: {:?} became {:?}", before.shape(), after.shape()));
        }
        let (a, b) = (before.to_f64s().unwrap(), after.to_f64s().unwrap());
        let scale = a.iter().fold(1.0, |scale: f64, x| scale.max(x.abs()));
        let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * scale;
        if let Some((a, b)) = a.iter().zip(&b).find(|(a, b)| !same(**a, **b)) {
            return Err(format!("{name}: {a} became {b}"));
        }
    }
    Ok(())
}

#[test]
fn fully_static_graphs_are_fully_known() {
    for_all(200, |graph| {
        let model = graph.model_of_sizes();
        let inference = Inference::of(&model);
        // What depends on elements of inputs, and what comes after it, stays open.
        if graph.text.contains("NonZero") {
            return Ok(());
        }
        for (_, node) in model.nodes_in(model.main()) {
            let output = node.output(0).unwrap();
            let known = inference.tensor(output).is_some_and(|fact| fact.static_shape().is_some());
            if !known {
                return Err(format!(
                    "{} is not known: {:?}",
                    model.value(output).name(),
                    inference.fact(output)
                ));
            }
        }
        Ok(())
    });
}

#[test]
#[ignore = "needs ONNX Runtime's library in ORT_DYLIB_PATH; cargo xtask test provides it"]
fn onnxruntime_computes_the_same() {
    let library = required("ORT_DYLIB_PATH");
    let environment = Arc::new(ort::init_from(library).expect("ONNX Runtime loads").build().unwrap());
    // It refuses some graphs that are valid, such as pads of a scalar, and now and then it does not return; those are
    // counted.
    let (tried, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for_all(500, |graph| {
        tried.fetch_add(1, Ordering::Relaxed);
        let (answer, found) = mpsc::channel();
        let (environment, question) = (environment.clone(), Question::of(graph));
        std::thread::spawn(move || answer.send(theirs(&environment, &question)));
        match found.recv_timeout(PATIENCE) {
            Ok(Ok(found)) => agree(graph, &found),
            Ok(Err(_)) => {
                refused.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(_) => {
                eprintln!("ONNX Runtime does not return from seed {}:\n{}", graph.seed, graph.text);
                refused.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    });
    let (tried, refused) = (tried.into_inner(), refused.into_inner());
    eprintln!("ONNX Runtime refused {refused} of {tried} graphs");
    assert!(refused * 4 < tried, "ONNX Runtime refused {refused} of {tried} graphs");
}

/// Every value that a node computes, by ONNX Runtime without optimizations.
type Found = HashMap<String, Array>;

/// What ONNX Runtime is asked: a model, inputs for it, and the names and element types of what is wanted.
struct Question {
    model: Vec<u8>,
    inputs: HashMap<String, Value>,
    wanted: Vec<(String, DType)>,
}

impl Question {
    fn of(graph: &Graph) -> Self {
        let wanted = graph.values.iter().map(|known| (known.name.clone(), known.array.dtype())).collect();
        Self { model: graph.bytes(), inputs: graph.inputs.clone(), wanted }
    }
}

fn theirs(environment: &ort::environment::Environment, question: &Question) -> Result<Found, String> {
    let described = |error: ort::Error| error.to_string();
    let builder = ort::session::Session::builder(environment).map_err(described)?;
    let builder = builder
        .with_optimization_level(ort::session::builder::GraphOptimizationLevel::Disable)
        .map_err(|error| error.to_string())?;
    let builder = builder.with_log_level(ort::logging::LogLevel::Fatal).map_err(|error| error.to_string())?;
    let mut builder = builder.with_intra_threads(1).map_err(|error| error.to_string())?;
    let mut session = builder.commit_from_memory(&question.model).map_err(described)?;
    let inputs: Vec<(String, ort::session::SessionInputValue<'_>)> =
        question.inputs.iter().map(|(name, value)| (name.clone(), handed_over(value))).collect();
    let outputs = session.run(inputs).map_err(described)?;
    let value =
        |(name, dtype): &(String, DType)| Ok((name.clone(), taken_back(&outputs[name.as_str()], *dtype)?));
    question.wanted.iter().map(value).collect()
}

/// Each node gives what ONNX Runtime gives, on the inputs that it has there: a rounding that a later node blows up, as
/// Sign and Floor do, is no difference.
fn agree(graph: &Graph, found: &Found) -> Result<(), String> {
    let model = graph.model();
    let mut values: HashMap<String, Value> = graph.inputs.clone();
    for (_, node) in model.nodes_in(model.main()) {
        let name = |id: ValueId| model.value(id).name().to_string();
        if node.bodies().next().is_some() {
            // What its body captures stands outside of the call; all that counts is what the nodes after it get.
            let outputs = node.outputs().iter().flatten().map(|&id| name(id));
            values.extend(outputs.filter_map(|name| Some((name.clone(), found.get(&name)?.clone().into()))));
            continue;
        }
        let input = |id: &Option<ValueId>| id.map(|id| values[&name(id)].clone());
        let inputs = node.inputs().iter().map(input).collect();
        let call = apply::call(node, model.opset(model.main(), ""), None).unwrap();
        let memory = Memory::new(1 << 30);
        let settings = apply::Settings { memory: &memory, scopes: &apply::NoBodies, wide: false, seed: 0 };
        let ours = apply::evaluate(call, inputs, settings)
            .map_err(|error| format!("{} fails on their inputs: {error}", node.op()))?;
        for (id, ours) in node.outputs().iter().zip(ours) {
            let Some(name) = id.map(name) else { continue };
            let Some(theirs) = found.get(&name) else {
                values.insert(name, ours);
                continue;
            };
            let ours = ours.array().unwrap();
            if ours.shape() != theirs.shape() {
                return Err(format!(
                    "{name}: theirs has the shape {:?}, ours {:?}",
                    theirs.shape(),
                    ours.shape()
                ));
            }
            let (a, b) = (ours.to_f64s().unwrap(), theirs.to_f64s().unwrap());
            let scale = b.iter().fold(1.0, |scale: f64, x| scale.max(x.abs()));
            if let Some((a, b)) = a.iter().zip(&b).find(|(a, b)| (*a - *b).abs() > 1e-5 * scale) {
                return Err(format!("{name}: ours {a}, theirs {b}"));
            }
            values.insert(name, theirs.clone().into());
        }
    }
    Ok(())
}

fn handed_over(value: &Value) -> ort::session::SessionInputValue<'static> {
    let array: &Array = value.array().unwrap();
    let shape: Vec<i64> = array.shape().iter().map(|&dim| dim as i64).collect();
    match array.dtype() {
        DType::F32 => {
            ort::value::Tensor::from_array((shape, array.slice::<f32>().unwrap().to_vec())).unwrap().into()
        }
        DType::I64 => {
            ort::value::Tensor::from_array((shape, array.slice::<i64>().unwrap().to_vec())).unwrap().into()
        }
        DType::Bool => {
            ort::value::Tensor::from_array((shape, array.slice::<bool>().unwrap().to_vec())).unwrap().into()
        }
        other => panic!("{other}"),
    }
}

fn taken_back(value: &ort::value::DynValue, dtype: DType) -> Result<Array, String> {
    macro_rules! extract {
        ($type:ty) => {{
            let (shape, data) = value.try_extract_tensor::<$type>().map_err(|error| error.to_string())?;
            let shape: Vec<usize> = shape.iter().map(|&dim| dim as usize).collect();
            Array::new(shape, data.to_vec()).map_err(|error| error.to_string())?
        }};
    }
    Ok(match dtype {
        DType::F32 => extract!(f32),
        DType::F64 => extract!(f64),
        DType::I64 => extract!(i64),
        DType::I32 => extract!(i32),
        DType::I8 => extract!(i8),
        DType::Bool => extract!(bool),
        other => return Err(format!("an output of type {other}")),
    })
}
