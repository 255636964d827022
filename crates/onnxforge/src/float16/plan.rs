//! Which nodes compute in 16 bits, and why others do not.

use std::collections::{HashMap, HashSet};

use onnxforge_ir::dtype::DType;
use onnxforge_ir::io::Source;
use onnxforge_ir::io::message::to_inline_message;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Model, NodeId, Tensor, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::callee::Functions;
use onnxforge_ops::eval::Session;
use onnxforge_ops::infer::Inference;
use onnxforge_ops::signature::{Lookup, Param, Signature, signature};
use onnxforge_verify::compare::numbers;

use super::trials::{Range, SMALLEST, Trials, narrowed, running};
use super::writer::{FLOAT16, Writer};
use super::{Float16Error, Float16Options, Kept};
use crate::Error;

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

/// What becomes of every node.
pub struct Plan<'m> {
    pub model: &'m Model,
    pub options: &'m Float16Options,
    /// Nodes of the graph, in order.
    pub nodes: Vec<NodeId>,
    /// Values of the graph that are float tensors of 32 bits.
    pub floats: HashSet<ValueId>,
    functions: Functions,
    /// Why nodes stay; others are converted.
    reasons: HashMap<NodeId, String>,
    /// Values that bodies read.
    pub captured: HashSet<ValueId>,
}

impl<'m> Plan<'m> {
    pub fn new(model: &'m Model, options: &'m Float16Options) -> Result<Self, Float16Error> {
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
    pub fn follows(&self, id: NodeId, place: usize) -> bool {
        let node = self.model.node(id);
        let signature = self.signature(id);
        let param = signature.and_then(|found| found.input(place));
        let is_variable = param.is_some_and(|param| {
            signature.is_some_and(|found| found.constraints.iter().any(|(name, _)| *name == param.ty))
        });
        is_variable && !PARAMETERS.contains(&(&*node.op().name, place))
    }

    /// Whether an output of a node becomes narrow with it.
    pub fn makes(&self, id: NodeId, value: ValueId) -> bool {
        let place = self.model.node(id).outputs().iter().position(|output| *output == Some(value));
        let signature = self.signature(id);
        let param = place.and_then(|place| signature.and_then(|found| found.output(place)));
        param.is_some_and(|param| {
            signature.is_some_and(|found| found.constraints.iter().any(|(name, _)| *name == param.ty))
        })
    }

    /// Whether a node computes in 16 bits.
    pub fn is_half(&self, id: NodeId) -> bool {
        !self.reasons.contains_key(&id) && !self.ports(id).is_empty()
    }

    /// Decides which nodes stay.
    pub fn decide(&mut self, ranges: &HashMap<ValueId, Range>) {
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
    pub fn keep_overflowing(&mut self, converted: &Model, trials: &Trials<'_>) -> bool {
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
    pub fn kept(&self) -> Vec<Kept> {
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
    pub fn convert(&self) -> Result<(Model, usize), Error> {
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
