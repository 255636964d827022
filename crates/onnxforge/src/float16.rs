//! Models whose floats have 16 bits instead of 32: half of the weights, the same graph.
//!
//! A node computes in 16 bits if its operator does. It stays in 32 bits where that would not do:
//!
//! - it was asked for, by name or by operator;
//! - its operator has no form for float16, has bodies, or accumulates (sums, means, powers, logarithms);
//! - a value that it reads or makes is too large or too small. The original runs on synthetic inputs for this, with every float in 64 bits, and
//!   constants are looked at;
//! - its result is not finite when the converted model runs, and was in the original.
//!
//! Casts stand where the two meet, one for each value. Bodies and local functions stay as they are. What comes out is run beside the original, and
//! refused where it differs by more than is accepted.

use std::collections::{BTreeMap, HashMap, HashSet};

use onnxforge_ir::dtype::DType;
use onnxforge_ir::io::external::ExternalFiles;
use onnxforge_ir::io::message::to_inline_message;
use onnxforge_ir::io::tensor::from_proto;
use onnxforge_ir::io::{LinkPolicy, Source};
use onnxforge_ir::tensor::TensorError;
use onnxforge_ir::value::{Constant, Def, Use};
use onnxforge_ir::{Model, NodeId, Tensor, ValueId};
use onnxforge_ops::callee::Functions;
use onnxforge_ops::eval::sample::{self, sample};
use onnxforge_ops::eval::{self, Session};
use onnxforge_ops::infer::Inference;
use onnxforge_ops::signature::{Lookup, Param, Signature, signature};
use onnxforge_ops::{Array, Value};
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::progress::{Progress, Silent, Unit};
use onnxforge_proto::schema::{AttributeProto, GraphProto, NodeProto, TensorProto, TensorType};
use onnxforge_verify::compare::numbers;
use onnxforge_verify::engine::Engine;
use onnxforge_verify::memory;
use onnxforge_verify::runtime::Runtime;
use serde::Serialize;

use crate::Error;

/// Values beyond this stay in 32 bits: the largest float16 is eight times as large, which real inputs need that synthetic ones do not show.
const LARGEST: f64 = 65_504.0 / 8.0;
/// The smallest float16 that has all of its digits.
const SMALLEST: f64 = 6.103_515_625e-5;
/// Into how many parts the values of a run are split at most, so that they fit into memory.
const MOST_PARTS: usize = 64;

const FLOAT: i32 = 1;
const FLOAT16: i32 = 10;

/// Operators that add up many numbers, or stretch small differences.
const ACCUMULATES: &[&str] = &[
    "CumSum",
    "Log",
    "Pow",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMean",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Softplus",
];
/// Operators whose numbers are parameters rather than data, or that draw or count.
const EXACT: &[&str] = &[
    "Bernoulli",
    "Constant",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "EyeLike",
    "Multinomial",
    "NonMaxSuppression",
    "QuantizeLinear",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Range",
];
/// Operators that hand on what is small: a tiny ε below a root is still tiny above it.
const HANDS_ON_SMALL: &[&str] = &["Pow", "Reciprocal", "Sqrt"];
/// Inputs that stay as they are although the operator would take float16.
const PARAMETERS: &[(&str, usize)] = &[("Resize", 1), ("Resize", 2), ("Upsample", 1)];

/// How a model is converted. The default: inputs and outputs stay as they are, two samples, a hundredth of the scale.
#[derive(Clone, Debug)]
pub struct Float16Options {
    /// Names of nodes that stay in 32 bits; `*` stands for anything.
    pub keep: Vec<String>,
    /// Operators that stay in 32 bits.
    pub keep_operators: Vec<String>,
    /// Inputs and outputs become float16, too.
    pub interface: bool,
    /// The most that an output may differ from the float64 run of the original, as a share of its largest magnitude.
    pub tolerance: f64,
    /// How many inputs are tried.
    pub samples: usize,
    /// What synthetic inputs start from.
    pub seed: u64,
    /// Inputs that are given; others are synthetic.
    pub given: HashMap<String, Value>,
    /// Sizes of named dimensions in synthetic inputs.
    pub dims: HashMap<String, usize>,
}

impl Default for Float16Options {
    fn default() -> Self {
        Self {
            keep: Vec::new(),
            keep_operators: Vec::new(),
            interface: false,
            tolerance: 0.01,
            samples: 2,
            seed: 0,
            given: HashMap::new(),
            dims: HashMap::new(),
        }
    }
}

/// Why a model is not converted.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Float16Error {
    #[error("no node is called {name:?}, and none fits that pattern")]
    NoNode { name: String },
    #[error("the model has no {name} nodes to keep in 32 bits")]
    NoOperator { name: String },
    #[error("output {output} of the converted model is not finite where the original's is")]
    NotFinite { output: String },
    #[error(
        "output {output} differs by {error:.1e} of its scale, and {tolerance:.1e} is accepted; keep more nodes in 32 bits, or accept more"
    )]
    Differs { output: String, error: f64, tolerance: f64 },
    #[error("the converted model does not run: {why}")]
    Broken { why: String },
    #[error("ONNX Runtime loads the original and not the converted model: {why}")]
    Refused { why: String },
}

/// What became of a model.
#[derive(Debug, Serialize)]
pub struct Float16Report {
    /// Version of this layout.
    pub schema: u32,
    /// Nodes of the graph that compute in 16 bits now.
    pub converted: usize,
    /// Nodes with floats that stay in 32 bits.
    pub kept: Vec<Kept>,
    /// Casts that were added.
    pub casts: usize,
    /// Bytes of constants, before and after.
    pub constants: (u64, u64),
    /// Whether ONNX Runtime loads the result; nothing where it is not there, or does not load the original.
    pub loads: Option<bool>,
    /// How far outputs are from the float64 run of the original.
    pub outputs: Vec<OutputError>,
    /// Why the model was not run: then ranges are those of constants alone.
    pub unverified: Option<String>,
}

/// A node that stays in 32 bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The node.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// Why.
    pub reason: String,
}

/// How far an output is from the float64 run of the original.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputError {
    /// Its name.
    pub name: String,
    /// The largest difference, as a share of the largest magnitude; for other elements than floats, the share of those that differ.
    pub error: f64,
}

/// A converted model, and what was done.
#[derive(Debug)]
pub struct Float16 {
    /// The model.
    pub model: Model,
    /// What was done.
    pub report: Float16Report,
}

/// Lets a model compute with floats of 16 bits wherever that does.
pub fn float16(model: &Model, options: &Float16Options) -> Result<Float16, Error> {
    float16_with(model, options, &Silent)
}

/// The same, with somebody who hears about progress.
pub fn float16_with(
    model: &Model,
    options: &Float16Options,
    progress: &dyn Progress,
) -> Result<Float16, Error> {
    eval::check_given(model, &options.given)?;
    let mut plan = Plan::new(model, options)?;
    let trials = Trials::new(model, options, progress);
    let (mut ranges, mut unverified) = (HashMap::new(), None);
    match &trials {
        Ok(trials) => ranges = trials.ranges(&plan.floats),
        Err(why) => unverified = Some(why.clone()),
    }
    plan.decide(&ranges);
    let (converted, casts, outputs) = loop {
        let (converted, casts) = plan.convert()?;
        let Ok(trials) = &trials else { break (converted, casts, Vec::new()) };
        match trials.compare(&Session::new(&converted, running(false)), options.interface) {
            Ok(outputs) => break (converted, casts, outputs),
            // Each round keeps a node, of which there are only so many.
            Err(Float16Error::NotFinite { .. }) if plan.keep_overflowing(&converted, trials) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let too_far = |output: &&OutputError| output.error.is_nan() || output.error > options.tolerance;
    if let Some(worst) = outputs.iter().find(too_far) {
        let (output, error) = (worst.name.clone(), worst.error);
        return Err(Float16Error::Differs { output, error, tolerance: options.tolerance }.into());
    }
    let report = Float16Report {
        schema: 1,
        converted: plan.nodes.iter().filter(|&&id| plan.is_half(id)).count(),
        kept: plan.kept(),
        casts,
        constants: (model.stored_bytes(), converted.stored_bytes()),
        loads: loads(model, &converted)?,
        outputs,
        unverified,
    };
    Ok(Float16 { model: converted, report })
}

/// Whether ONNX Runtime, where it is there and takes the original, takes what was made of it.
fn loads(original: &Model, converted: &Model) -> Result<Option<bool>, Float16Error> {
    if Runtime::get().is_err() || Engine::Ort.open(original).is_err() {
        return Ok(None);
    }
    match Engine::Ort.open(converted) {
        Ok(_) => Ok(Some(true)),
        Err(why) => Err(Float16Error::Refused { why: why.to_string() }),
    }
}

fn running(wide: bool) -> eval::Options {
    eval::Options { wide, memory: memory::allowed(), keep_constants: false, ..eval::Options::default() }
}

/// The original on synthetic inputs.
struct Trials<'m> {
    model: &'m Model,
    inputs: Vec<HashMap<String, Value>>,
    /// Its outputs, every float in 64 bits.
    outputs: Vec<Vec<(Str, Value)>>,
}

impl<'m> Trials<'m> {
    /// Runs the original; says why where that is not possible.
    fn new(model: &'m Model, options: &Float16Options, progress: &dyn Progress) -> Result<Self, String> {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let session = Session::new(model, running(true));
        progress.begin("samples", options.samples as u64, Unit::Runs);
        for index in 0..options.samples.max(1) {
            let settings = sample::Options {
                seed: options.seed.wrapping_add(index as u64),
                dims: options.dims.clone(),
                ..sample::Options::default()
            };
            let mut values = sample(model, &settings, &options.given).map_err(|error| error.to_string())?;
            values.extend(options.given.clone());
            outputs.push(session.run(&values).map_err(|error| error.to_string())?);
            inputs.push(values);
            progress.advance(1);
        }
        progress.end();
        Ok(Self { model, inputs, outputs })
    }

    /// The largest and the smallest magnitude, but for 0, that values take; nothing of those that do not fit into memory.
    fn ranges(&self, values: &HashSet<ValueId>) -> HashMap<ValueId, Range> {
        let mut wanted: Vec<ValueId> = values.iter().copied().collect();
        wanted.sort_unstable();
        let session = Session::new(self.model, running(true));
        let mut found: HashMap<ValueId, Range> = HashMap::new();
        let mut parts = 1;
        'split: while parts <= MOST_PARTS {
            found.clear();
            for part in wanted.chunks(wanted.len().div_ceil(parts).max(1)) {
                for inputs in &self.inputs {
                    let Ok(values) = session.run_values(inputs, part) else {
                        parts *= 4;
                        continue 'split;
                    };
                    for (&id, value) in part.iter().zip(&values) {
                        let range = numbers(value).map(|numbers| Range::of(numbers.into_iter()));
                        found.entry(id).or_default().extend(range.unwrap_or_default());
                    }
                }
            }
            return found;
        }
        found
    }

    /// How far the outputs of a converted model are from these.
    fn compare(&self, converted: &Session<'_>, interface: bool) -> Result<Vec<OutputError>, Float16Error> {
        let broken = |why: String| Float16Error::Broken { why };
        let mut worst: BTreeMap<usize, OutputError> = BTreeMap::new();
        for (inputs, expected) in self.inputs.iter().zip(&self.outputs) {
            let found =
                converted.run(&narrowed(inputs, interface)).map_err(|error| broken(error.to_string()))?;
            for (place, ((name, wanted), (_, got))) in expected.iter().zip(&found).enumerate() {
                let (Some(wanted), Some(got)) = (numbers(wanted), numbers(got)) else { continue };
                if wanted.len() != got.len() {
                    continue;
                }
                let name = name.to_string();
                if wanted
                    .iter()
                    .zip(&got)
                    .any(|(wanted, got)| wanted.is_finite() && wanted.abs() <= 65_504.0 && !got.is_finite())
                {
                    return Err(Float16Error::NotFinite { output: name });
                }
                let error = difference(&wanted, &got);
                let entry = worst.entry(place).or_insert(OutputError { name, error });
                entry.error = entry.error.max(error);
            }
        }
        Ok(worst.into_values().collect())
    }
}

/// Inputs as a model with narrow ones takes them.
fn narrowed(inputs: &HashMap<String, Value>, interface: bool) -> HashMap<String, Value> {
    let narrow = |value: &Value| match value {
        Value::Tensor(array) if interface && array.dtype() == DType::F32 => {
            let numbers = array.slice::<f32>().ok()?.iter().map(|&x| half::f16::from_f32(x)).collect();
            Array::new(array.shape(), numbers).ok().map(Value::from)
        }
        _ => None,
    };
    inputs
        .iter()
        .map(|(name, value)| (name.clone(), narrow(value).unwrap_or_else(|| value.clone())))
        .collect()
}

/// The largest difference, as a share of the largest magnitude.
fn difference(wanted: &[f64], got: &[f64]) -> f64 {
    let scale = wanted.iter().copied().filter(|x| x.is_finite()).fold(0.0, |most: f64, x| most.max(x.abs()));
    let finite = wanted.iter().zip(got).filter(|(wanted, got)| wanted.is_finite() && got.is_finite());
    let most = finite.map(|(wanted, got)| (wanted - got).abs()).fold(0.0, f64::max);
    if most == 0.0 { 0.0 } else { most / scale }
}

/// The magnitudes that a value takes.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    largest: f64,
}

impl Range {
    fn of(numbers: impl Iterator<Item = f64>) -> Self {
        Self { largest: numbers.filter(|x| x.is_finite()).fold(0.0, |most, x| most.max(x.abs())) }
    }

    fn extend(&mut self, other: Self) {
        self.largest = self.largest.max(other.largest);
    }

    /// Why 16 bits do not hold it.
    fn problem(self) -> Option<String> {
        match self.largest {
            large if large > LARGEST => Some(format!("values up to {large:.1e}")),
            small if small > 0.0 && small < SMALLEST => Some(format!("no value above {small:.1e}")),
            _ => None,
        }
    }
}

/// What becomes of every node.
struct Plan<'m> {
    model: &'m Model,
    options: &'m Float16Options,
    /// Nodes of the graph, in order.
    nodes: Vec<NodeId>,
    /// Values of the graph that are float tensors of 32 bits.
    floats: HashSet<ValueId>,
    functions: Functions,
    /// Why nodes stay; others are converted.
    reasons: HashMap<NodeId, String>,
    /// Values that bodies read.
    captured: HashSet<ValueId>,
}

impl<'m> Plan<'m> {
    fn new(model: &'m Model, options: &'m Float16Options) -> Result<Self, Float16Error> {
        let main = model.main();
        let inference = Inference::of(model);
        let is_float = |id: ValueId| {
            let known = inference.tensor(id).and_then(|fact| fact.dtype);
            known.or(model.constant(id).map(Tensor::dtype)) == Some(DType::F32)
        };
        let own = model.values().filter(|(id, value)| value.is_live() && model.scope_of(*id) == Some(main));
        let floats = own.map(|(id, _)| id).filter(|&id| is_float(id)).collect();
        let nodes: Vec<NodeId> = model.nodes_in(main).map(|(id, _)| id).collect();
        let captured = model.values().filter(|(id, value)| {
            let inside = |used: &Use| match *used {
                Use::Input { node, .. } => model.node(node).scope() != main,
                Use::Output { scope, .. } => scope != main,
            };
            model.scope_of(*id) == Some(main) && value.uses().iter().any(inside)
        });
        let captured = captured.map(|(id, _)| id).collect();
        for name in &options.keep {
            if !nodes.iter().any(|&id| {
                fits(name, &model.node_label(id)) || model.node(id).name().is_some_and(|own| fits(name, own))
            }) {
                return Err(Float16Error::NoNode { name: name.clone() });
            }
        }
        for name in &options.keep_operators {
            if !nodes.iter().any(|&id| *model.node(id).op().name == **name) {
                return Err(Float16Error::NoOperator { name: name.clone() });
            }
        }
        let functions = Functions::of(model);
        Ok(Self { model, options, nodes, floats, functions, reasons: HashMap::new(), captured })
    }

    fn signature(&self, id: NodeId) -> Option<&'static Signature> {
        let op = self.model.node(id).op();
        let opset = self.model.opset(self.model.main(), &op.domain)?;
        match signature(&op.domain, &op.name, opset) {
            Lookup::Found(found) | Lookup::Deprecated(found) if self.functions.get(op).is_none() => {
                Some(found)
            }
            _ => None,
        }
    }

    /// The float inputs and outputs of a node that would become narrow with it.
    fn ports(&self, id: NodeId) -> Vec<(ValueId, Option<&'static Param>)> {
        let node = self.model.node(id);
        let signature = self.signature(id);
        let inputs = (0..node.inputs().len()).map(|place| {
            let is_parameter = PARAMETERS.contains(&(&*node.op().name, place));
            (node.input(place), signature.and_then(|found| found.input(place)), is_parameter)
        });
        let outputs = (0..node.outputs().len())
            .map(|place| (node.output(place), signature.and_then(|found| found.output(place)), false));
        let floats = inputs.chain(outputs).filter_map(|(value, param, is_parameter)| {
            let value = value.filter(|value| self.floats.contains(value))?;
            let is_fixed = param.is_some_and(|param| {
                signature.is_some_and(|found| found.constraints.iter().all(|(name, _)| *name != param.ty))
            });
            (!is_fixed && !is_parameter).then_some((value, param))
        });
        floats.collect()
    }

    /// Whether an input of a node is one that becomes narrow with it.
    fn follows(&self, id: NodeId, place: usize) -> bool {
        let node = self.model.node(id);
        let signature = self.signature(id);
        let param = signature.and_then(|found| found.input(place));
        let is_variable = param.is_some_and(|param| {
            signature.is_some_and(|found| found.constraints.iter().any(|(name, _)| *name == param.ty))
        });
        is_variable && !PARAMETERS.contains(&(&*node.op().name, place))
    }

    /// Whether an output of a node becomes narrow with it.
    fn makes(&self, id: NodeId, value: ValueId) -> bool {
        let place = self.model.node(id).outputs().iter().position(|output| *output == Some(value));
        let signature = self.signature(id);
        let param = place.and_then(|place| signature.and_then(|found| found.output(place)));
        param.is_some_and(|param| {
            signature.is_some_and(|found| found.constraints.iter().any(|(name, _)| *name == param.ty))
        })
    }

    /// Whether a node computes in 16 bits.
    fn is_half(&self, id: NodeId) -> bool {
        !self.reasons.contains_key(&id) && !self.ports(id).is_empty()
    }

    /// Decides which nodes stay.
    fn decide(&mut self, ranges: &HashMap<ValueId, Range>) {
        let mut small = Vec::new();
        for &id in &self.nodes.clone() {
            let reason = self.wanted(id).or_else(|| self.unable(id)).or_else(|| {
                let (why, is_small) = self.out_of_range(id, ranges)?;
                if is_small {
                    small.push(id);
                }
                Some(why)
            });
            if let Some(reason) = reason {
                self.reasons.insert(id, reason);
            }
        }
        // What is tiny is so after a root, and matters where something is divided by it.
        while let Some(id) = small.pop() {
            let outputs = self.model.node(id).outputs().iter().flatten();
            let readers = outputs
                .flat_map(|&value| self.model.value(value).uses())
                .filter_map(|used| self.model.reader(used));
            for reader in readers.collect::<Vec<_>>() {
                if self.model.node(reader).scope() == self.model.main() && !self.reasons.contains_key(&reader)
                {
                    self.reasons.insert(reader, "reads what may be tiny".to_owned());
                    if HANDS_ON_SMALL.contains(&&*self.model.node(reader).op().name) {
                        small.push(reader);
                    }
                }
            }
        }
        self.settle();
    }

    /// Lets nodes stay that stand between nodes that stay: there and back costs two casts, and digits.
    fn settle(&mut self) {
        loop {
            let between = |&&id: &&NodeId| {
                let stays = |id: Option<NodeId>| id.is_some_and(|id| self.reasons.contains_key(&id));
                let node = self.model.node(id);
                let read = node.inputs().iter().flatten().filter(|value| self.floats.contains(value));
                let computed: Vec<_> = read.filter(|&&value| self.model.constant(value).is_none()).collect();
                let made = node.outputs().iter().flatten().filter(|value| self.floats.contains(value));
                let uses: Vec<_> = made.flat_map(|&value| self.model.value(value).uses()).collect();
                self.is_half(id)
                    && !computed.is_empty()
                    && !uses.is_empty()
                    && computed.iter().all(|&&value| stays(self.model.value(value).node()))
                    && uses.iter().all(|used| stays(self.model.reader(used)))
                    && !["Conv", "ConvTranspose", "Gemm", "MatMul"].contains(&&*node.op().name)
            };
            let found: Vec<NodeId> = self.nodes.iter().filter(between).copied().collect();
            if found.is_empty() {
                return;
            }
            self.reasons
                .extend(found.into_iter().map(|id| (id, "stands between nodes that stay".to_owned())));
        }
    }

    /// Whether somebody wants the node to stay.
    fn wanted(&self, id: NodeId) -> Option<String> {
        let node = self.model.node(id);
        let by_name = |name: &String| {
            fits(name, &self.model.node_label(id)) || node.name().is_some_and(|own| fits(name, own))
        };
        let by_operator = |name: &String| **name == *node.op().name;
        let asked =
            self.options.keep.iter().any(by_name) || self.options.keep_operators.iter().any(by_operator);
        asked.then(|| "asked for".to_owned())
    }

    /// Why the operator does not compute in 16 bits.
    fn unable(&self, id: NodeId) -> Option<String> {
        let node = self.model.node(id);
        let name = &*node.op().name;
        if node.bodies().next().is_some() {
            return Some("has bodies".to_owned());
        }
        if EXACT.contains(&name) || ACCUMULATES.contains(&name) {
            let why = if EXACT.contains(&name) {
                "its numbers are parameters"
            } else {
                "adds up or stretches what it reads"
            };
            return Some(why.to_owned());
        }
        if self.signature(id).is_none() {
            return Some("operator of unknown types".to_owned());
        }
        let narrow = |(_, param): &(ValueId, Option<&Param>)| {
            param.is_some_and(|param| param.types.allows_tensor(FLOAT16))
        };
        (!self.ports(id).iter().all(narrow)).then(|| "the operator takes no float16".to_owned())
    }

    /// Why 16 bits do not hold what the node reads and makes, and whether that is too small rather than too large.
    fn out_of_range(&self, id: NodeId, ranges: &HashMap<ValueId, Range>) -> Option<(String, bool)> {
        self.ports(id).into_iter().find_map(|(value, _)| {
            let range = match self.model.constant(value) {
                Some(tensor) => constant_range(tensor),
                None => ranges.get(&value).copied().unwrap_or_default(),
            };
            Some((range.problem()?, range.largest < SMALLEST))
        })
    }

    /// Lets the first nodes stay that make something infinite of what is finite; whether there are any.
    fn keep_overflowing(&mut self, converted: &Model, trials: &Trials<'_>) -> bool {
        let own = converted.values().filter(|(id, _)| converted.scope_of(*id) == Some(converted.main()));
        let named: HashMap<&str, ValueId> = own.map(|(id, value)| (&**value.name(), id)).collect();
        let results = self.nodes.iter().filter(|&&id| self.is_half(id)).flat_map(|&id| {
            let outputs = self.model.node(id).outputs().iter().flatten();
            outputs
                .filter_map(|&value| Some((id, *named.get(&**self.model.value(value).name())?)))
                .collect::<Vec<_>>()
        });
        let results: Vec<(NodeId, ValueId)> = results.collect();
        let session = Session::new(converted, running(false));
        for inputs in &trials.inputs {
            let wanted: Vec<ValueId> = results.iter().map(|&(_, value)| value).collect();
            let Ok(values) = session.run_values(&narrowed(inputs, self.options.interface), &wanted) else {
                continue;
            };
            let infinite =
                |value: &Value| numbers(value).is_some_and(|numbers| numbers.iter().any(|x| !x.is_finite()));
            if let Some(&(id, _)) = values.iter().position(infinite).and_then(|place| results.get(place)) {
                self.reasons.insert(id, "overflows in 16 bits".to_owned());
                self.settle();
                return true;
            }
        }
        false
    }

    /// The nodes with floats that stay, in order.
    fn kept(&self) -> Vec<Kept> {
        let with_floats = self
            .nodes
            .iter()
            .filter(|&&id| !self.ports(id).is_empty() && !self.model.node(id).op().is("Constant"));
        let stays = with_floats.filter_map(|&id| {
            let reason = self.reasons.get(&id)?.clone();
            let operator = self.model.node(id).op().to_string();
            Some(Kept { node: self.model.node_label(id), operator, reason })
        });
        stays.collect()
    }

    /// The converted model, and how many casts it has more.
    fn convert(&self) -> Result<(Model, usize), Error> {
        let mut message =
            to_inline_message(self.model).map_err(|error| Float16Error::Broken { why: error.to_string() })?;
        let Some(graph) = message.graph.as_mut() else {
            return Err(Float16Error::Broken { why: "there is no graph".to_owned() }.into());
        };
        let mut writer = Writer::new(self, graph);
        writer.work(graph)?;
        let casts = writer.casts;
        let path = self.model.source().map_or_else(|| "model".into(), ToOwned::to_owned);
        Ok((Source::of_message(message, &path).into_model()?, casts))
    }
}

/// The magnitudes of a constant. One that is large as a whole is judged by its largest element.
fn constant_range(tensor: &Tensor) -> Range {
    let Ok(bytes) = tensor.bytes() else { return Range::default() };
    Range::of(bytes.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))))
}

/// Whether a name is what a pattern says; `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(place) = rest.find(part) else { return false };
        rest = &rest[place + part.len()..];
    }
    rest.ends_with(last)
}

/// Names of a value in its two widths, as far as they are needed.
#[derive(Default)]
struct Widths {
    wide: Option<Str>,
    narrow: Option<Str>,
    /// The node that makes it makes it narrow.
    is_made_narrow: bool,
}

/// Writes a graph with both widths.
struct Writer<'p, 'm> {
    plan: &'p Plan<'m>,
    values: HashMap<ValueId, Widths>,
    taken: HashSet<Str>,
    casts: usize,
}

impl<'p, 'm> Writer<'p, 'm> {
    fn new(plan: &'p Plan<'m>, graph: &GraphProto) -> Self {
        let mut taken: HashSet<Str> = plan.model.values().map(|(_, value)| value.name().clone()).collect();
        taken.extend(graph.node.iter().filter_map(|node| node.name.clone()));
        Self { plan, values: HashMap::new(), taken, casts: 0 }
    }

    fn fresh(&mut self, hint: &str) -> Str {
        let mut name: Str = hint.into();
        for number in 1.. {
            if self.taken.insert(name.clone()) {
                break;
            }
            name = format!("{hint}_{number}").into();
        }
        name
    }

    /// Finds out in which widths each value is needed, and what it is called in them.
    fn names(&mut self) {
        let (plan, model) = (self.plan, self.plan.model);
        let main = model.main();
        let mut floats: Vec<ValueId> = plan.floats.iter().copied().collect();
        floats.sort_unstable();
        for id in floats {
            let value = model.value(id);
            let maker = value.node().filter(|&node| model.node(node).scope() == main);
            let is_input = matches!(value.def(), Def::Input { default: None, .. });
            let is_captured = plan.captured.contains(&id);
            let is_output =
                value.uses().iter().any(|used| matches!(used, Use::Output { scope, .. } if *scope == main));
            let changes_port =
                plan.options.interface && !is_captured && (maker.is_some() || (is_input && !is_output));
            let narrow_output = is_output && plan.options.interface && !is_captured && maker.is_some();
            let (mut wide, mut narrow) = (is_captured || (is_output && !narrow_output), narrow_output);
            for used in value.uses() {
                if let Use::Input { node, index } = *used
                    && model.node(node).scope() == main
                {
                    match plan.is_half(node) && plan.follows(node, index as usize) {
                        true => narrow = true,
                        false => wide = true,
                    }
                }
            }
            let is_made_narrow = match maker {
                Some(node) => plan.is_half(node) && plan.makes(node, id),
                None => is_input && changes_port,
            };
            let is_pinned_wide = is_captured || (is_output && !narrow_output);
            let own = value.name().clone();
            // A value keeps its name in the width in which others know it: outside, or where it is made.
            let keeps_narrow = match (is_pinned_wide, narrow_output) {
                (true, _) => false,
                (_, true) => true,
                _ => is_made_narrow || (value.constant().is_some() && maker.is_none() && !is_input && !wide),
            };
            let mut widths = Widths { is_made_narrow, ..Widths::default() };
            if keeps_narrow {
                widths.narrow = Some(own.clone());
                widths.wide = (wide || !is_made_narrow && maker.is_some())
                    .then(|| self.fresh(&format!("{own}_float32")));
            } else {
                widths.wide = Some(own.clone());
                widths.narrow = (narrow || is_made_narrow).then(|| self.fresh(&format!("{own}_float16")));
            }
            self.values.insert(id, widths);
        }
    }

    fn cast(&mut self, from: &Str, to: &Str, kind: i32, like: Option<&NodeProto>) -> NodeProto {
        self.casts += 1;
        NodeProto {
            input: vec![from.clone()],
            output: vec![to.clone()],
            name: Some(self.fresh(&format!("Cast_{to}"))),
            op_type: Some("Cast".into()),
            attribute: vec![integer("to", kind.into())],
            metadata_props: like.map(|node| node.metadata_props.clone()).unwrap_or_default(),
            ..NodeProto::default()
        }
    }

    fn work(&mut self, graph: &mut GraphProto) -> Result<(), Float16Error> {
        self.names();
        let (plan, model) = (self.plan, self.plan.model);
        let broken = |why: &dyn std::fmt::Display| Float16Error::Broken { why: why.to_string() };
        let mut nodes = Vec::new();
        for port in model.scope(model.main()).inputs() {
            self.both(port.value, None, &mut nodes);
        }
        self.constants(graph, &mut nodes).map_err(|error| broken(&error))?;
        let written = std::mem::take(&mut graph.node);
        if written.len() < plan.nodes.len() {
            return Err(broken(&"nodes are missing"));
        }
        for (mut proto, &id) in written.into_iter().zip(&plan.nodes) {
            let node = model.node(id);
            let is_half = plan.is_half(id);
            for (place, value) in node.inputs().iter().enumerate() {
                let Some(widths) = value.and_then(|value| self.values.get(&value)) else { continue };
                let name = if is_half && plan.follows(id, place) { &widths.narrow } else { &widths.wide };
                if let (Some(name), Some(slot)) = (name, proto.input.get_mut(place)) {
                    *slot = name.clone();
                }
            }
            let mut made = Vec::new();
            for (place, value) in node.outputs().iter().enumerate() {
                let Some((value, widths)) = value.and_then(|value| Some((value, self.values.get(&value)?)))
                else {
                    continue;
                };
                let name = if widths.is_made_narrow { &widths.narrow } else { &widths.wide };
                if let (Some(name), Some(slot)) = (name, proto.output.get_mut(place)) {
                    *slot = name.clone();
                }
                made.push(value);
            }
            if is_half {
                narrow_attributes(
                    &mut proto,
                    node.outputs()
                        .iter()
                        .flatten()
                        .any(|&value| plan.floats.contains(&value) && plan.makes(id, value)),
                )?;
            }
            nodes.push(proto);
            let like = nodes.last().cloned();
            for value in made {
                self.both(value, like.as_ref(), &mut nodes);
            }
        }
        graph.node = nodes;
        self.declare(graph);
        Ok(())
    }

    /// Makes a value in the width in which it is not made, where both are needed.
    fn both(&mut self, value: ValueId, like: Option<&NodeProto>, nodes: &mut Vec<NodeProto>) {
        let Some(Widths { wide: Some(wide), narrow: Some(narrow), is_made_narrow }) = self.values.get(&value)
        else {
            return;
        };
        let (wide, narrow) = (wide.clone(), narrow.clone());
        let cast = match is_made_narrow {
            true => self.cast(&narrow, &wide, FLOAT, like),
            false => self.cast(&wide, &narrow, FLOAT16, like),
        };
        nodes.push(cast);
    }

    /// Constants of the graph in the widths in which they are read.
    fn constants(&mut self, graph: &mut GraphProto, nodes: &mut Vec<NodeProto>) -> Result<(), TensorError> {
        let model = self.plan.model;
        let dense = model.initializers_in(model.main()).filter_map(|(id, constant)| match constant {
            Constant::Dense(tensor) => Some((id, tensor)),
            Constant::Sparse(_) => None,
        });
        let mut narrow: HashMap<Str, TensorProto> = HashMap::new();
        for (id, tensor) in dense {
            let Some(widths) = self.values.get(&id) else { continue };
            // What callers may override is made narrow when the model runs.
            let (Some(name), false) = (&widths.narrow, matches!(model.value(id).def(), Def::Input { .. }))
            else {
                continue;
            };
            let mut proto = halved(tensor)?;
            proto.name = Some(name.clone());
            narrow.insert(model.value(id).name().clone(), proto);
        }
        let mut kept = Vec::new();
        for tensor in std::mem::take(&mut graph.initializer) {
            let own = tensor.name.clone().unwrap_or_default();
            match narrow.remove(&own) {
                Some(half) if half.name.as_ref() == Some(&own) => kept.push(half),
                Some(half) => kept.extend([tensor, half]),
                None => kept.push(tensor),
            }
        }
        graph.initializer = kept;
        let sparse = model
            .initializers_in(model.main())
            .filter(|(_, constant)| matches!(constant, Constant::Sparse(_)));
        for id in sparse.map(|(id, _)| id).collect::<Vec<_>>() {
            self.both(id, None, nodes);
        }
        Ok(())
    }

    /// Declarations in the widths that values have now.
    fn declare(&self, graph: &mut GraphProto) {
        let narrow: HashSet<&Str> =
            self.values.values().filter_map(|widths| widths.narrow.as_ref()).collect();
        let infos = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
        for info in infos {
            if let (Some(name), Some(ty)) = (&info.name, info.r#type.as_mut())
                && narrow.contains(name)
                && let Some(tensor) = ty.tensor_type.as_mut()
            {
                let tensor: &mut TensorType = tensor;
                tensor.elem_type = Some(FLOAT16);
            }
        }
    }
}

fn integer(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: Some(name.into()), i: Some(value), r#type: Some(2), ..AttributeProto::default() }
}

/// The element type that a node states in an attribute.
fn narrow_attributes(proto: &mut NodeProto, makes_narrow: bool) -> Result<(), Float16Error> {
    if !makes_narrow {
        return Ok(());
    }
    match proto.op_type.as_deref() {
        Some("Cast") => {
            for attribute in &mut proto.attribute {
                if attribute.name.as_deref() == Some("to") {
                    attribute.i = Some(FLOAT16.into());
                }
            }
        }
        Some("ConstantOfShape") => {
            let stored = proto.attribute.iter().find(|attribute| attribute.name.as_deref() == Some("value"));
            let number = match stored.and_then(|attribute| attribute.t.as_deref()) {
                Some(tensor) => first_float(tensor).ok_or_else(|| Float16Error::Broken {
                    why: "the value of ConstantOfShape cannot be read".to_owned(),
                })?,
                None => 0.0,
            };
            let bytes = half::f16::from_f32(number).to_le_bytes().to_vec();
            let tensor = TensorProto {
                dims: vec![1],
                data_type: Some(FLOAT16),
                raw_data: Some(Blob::from(bytes).into()),
                ..TensorProto::default()
            };
            let value = AttributeProto {
                name: Some("value".into()),
                t: Some(Box::new(tensor)),
                r#type: Some(4),
                ..AttributeProto::default()
            };
            proto.attribute.retain(|attribute| attribute.name.as_deref() != Some("value"));
            proto.attribute.push(value);
        }
        _ => {}
    }
    Ok(())
}

/// The only element of a tensor of floats.
fn first_float(tensor: &TensorProto) -> Option<f32> {
    let mut files = ExternalFiles::new(None, LinkPolicy::default());
    let tensor = from_proto(tensor.clone(), &mut files).ok()?;
    let bytes = tensor.bytes().ok()?;
    Some(f32::from_le_bytes(*bytes.first_chunk()?))
}

/// A tensor of floats in 16 bits, rounded to the nearest.
fn halved(tensor: &Tensor) -> Result<TensorProto, TensorError> {
    let wide = tensor.bytes()?;
    let numbers = wide.as_chunks::<4>().0.iter().map(|bytes| half::f16::from_f32(f32::from_le_bytes(*bytes)));
    let bytes: Vec<u8> = numbers.flat_map(half::f16::to_le_bytes).collect();
    Ok(TensorProto {
        dims: tensor.shape().iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect(),
        data_type: Some(FLOAT16),
        raw_data: Some(Blob::from(bytes).into()),
        ..TensorProto::default()
    })
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("/enc/*/norm*", "/enc/layer.0/norm/Mul", true),
            ("/enc/*/norm", "/enc/layer.0/norm/Mul", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
