//! fold_constants: a node whose inputs are all constants becomes a constant.
//!
//! **Matches** nodes of known, deterministic operators without bodies whose inputs are constants that no caller can override.
//! **Accuracy** `BitExact` for layout, integers and the operations that IEEE 754 defines exactly; `ValueExact` for those that
//! choose among numbers; `Rounding` for other float arithmetic, where runtimes differ in the last places among themselves.
//! **Proof** The evaluator computes what the runtime would compute at every run.
//! **Never** random operators; DequantizeLinear, which keeps weights small; results that make the model grow by more than the budget;
//! work beyond the time budget; values that leave their scope, whose name and producer stay.

use std::time::{Duration, Instant};

use crate::ir::dim::{Dim, Symbols};
use crate::ir::tensor::Tensor;
use crate::ir::value::Use;
use crate::ir::{Accuracy, EditError, Model, NodeId, Rewrite, ScopeId, ValueId};
use crate::ops::apply::{self, NoBodies, Settings};
use crate::ops::call::Call;
use crate::ops::error::OpError;
use crate::ops::eval::Memory;
use crate::ops::{Array, Fact, TensorFact, Value};

/// The name of this pass.
pub const NAME: &str = "fold_constants";

/// How much folding may cost.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Bytes by which all folding together may make the model larger. Constants that nothing reads any more are
    /// subtracted.
    pub growth: u64,
    /// The longest that one node may be computed.
    pub time: Duration,
    /// Bytes that the results of one node may take.
    pub result: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { growth: 1 << 20, time: Duration::from_secs(10), result: 1 << 30 }
    }
}

/// Why a node with constant inputs was not folded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Skip {
    /// It draws random numbers.
    #[error("its result is random")]
    Random,
    /// It expands a quantized weight.
    #[error("it would store a quantized weight in full")]
    Dequantizes,
    /// A result is an output of its scope.
    #[error("its result is an output")]
    Exposed,
    /// The model would grow beyond the budget.
    #[error("it would add {0} bytes, more than the budget has left")]
    Growth(u64),
    /// Computing it would take too long.
    #[error("computing it would take too long")]
    Time,
    /// The evaluator has no answer.
    #[error("{0}")]
    Evaluation(OpError),
    /// The edit was refused.
    #[error("{0}")]
    Edit(EditError),
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Nodes that are constants now.
    pub folded: Vec<NodeId>,
    /// Nodes with constant inputs that stay, each with the reason.
    pub skipped: Vec<(NodeId, Skip)>,
    /// Change of the bytes of constants.
    pub bytes: i64,
}

/// Operators that expand quantized weights.
const DEQUANTIZERS: [&str; 2] = ["DequantizeLinear", "MatMulNBits"];
/// Float operators whose result IEEE 754 defines to the last bit.
const BIT_EXACT: [&str; 18] = [
    "Abs",
    "Add",
    "Cast",
    "CastLike",
    "Ceil",
    "Div",
    "Equal",
    "Floor",
    "Greater",
    "GreaterOrEqual",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "Mul",
    "Neg",
    "Sqrt",
    "Sub",
];
/// Float operators that only choose among numbers: runtimes differ in the sign of a zero and in what is not a number.
const VALUE_EXACT: [&str; 6] = ["Clip", "Max", "Min", "Relu", "Round", "Sign"];
/// Operators that only give the elements another shape.
const RESHAPERS: [&str; 5] = ["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"];
/// Multiplications per second that the time budget counts on.
const SPEED: f64 = 1e9;
/// Constants from this size on are transposed only when they are written.
const LAZY: u64 = 1 << 20;

/// Folds every node that can be folded, in all scopes.
pub fn fold_constants(model: &mut Model, policy: &Policy) -> Report {
    let mut report = Report::default();
    let scopes: Vec<ScopeId> = model.scopes().map(|(scope, _)| scope).collect();
    for scope in scopes {
        let nodes: Vec<NodeId> = model.nodes_in(scope).map(|(id, _)| id).collect();
        for id in nodes {
            if !model.node(id).is_live() {
                continue;
            }
            match fold(model, id, policy, report.bytes) {
                None => {}
                Some(Ok(bytes)) => {
                    report.bytes += bytes;
                    report.folded.push(id);
                }
                Some(Err(skip)) => report.skipped.push((id, skip)),
            }
        }
    }
    report
}

/// Folds one node; `None` when its inputs are not all constants. Answers by how many bytes the constants grew.
fn fold(model: &mut Model, id: NodeId, policy: &Policy, grown: i64) -> Option<Result<i64, Skip>> {
    let node = model.node(id);
    let call = apply::call(node, model.opset(node.scope(), &node.op().domain), None)?;
    let constant = |input: &Option<ValueId>| match input {
        None => Some(None),
        Some(input) => model.constant(*input).cloned().map(Some),
    };
    let inputs: Vec<Option<Tensor>> = node.inputs().iter().map(constant).collect::<Option<_>>()?;
    if node.bodies().next().is_some() || call.def.eval.is_err() {
        return None;
    }
    Some(plan(model, id, call, &inputs, policy, grown).and_then(|(tensors, growth, accuracy)| {
        commit(model, id, tensors, accuracy).map(|()| growth).map_err(Skip::Edit)
    }))
}

type Plan = (Vec<(ValueId, Tensor)>, i64, Accuracy);

/// The constants that the node's outputs become, by how many bytes the model grows, and what is promised.
fn plan(
    model: &Model,
    id: NodeId,
    call: Call<'_>,
    inputs: &[Option<Tensor>],
    policy: &Policy,
    grown: i64,
) -> Result<Plan, Skip> {
    let node = model.node(id);
    if call.def.random || call.signature.is_some_and(|signature| !signature.deterministic) {
        return Err(Skip::Random);
    }
    if DEQUANTIZERS.contains(&call.def.name) {
        return Err(Skip::Dequantizes);
    }
    let outputs: Vec<ValueId> = node.outputs().iter().flatten().copied().collect();
    if outputs.iter().any(|&output| model.value(output).is_exposed()) {
        return Err(Skip::Exposed);
    }
    let results = match lazily(call, inputs) {
        Some(tensor) => vec![tensor],
        None => evaluate(call, inputs, policy)?,
    };
    let mut tensors = Vec::new();
    for (index, output) in node.outputs().iter().enumerate() {
        match (output, results.get(index)) {
            (Some(output), Some(tensor)) => tensors.push((*output, tensor.clone())),
            (Some(_), None) => {
                let missing = OpError::Unsupported(format!("output {index} of {}", node.op()));
                return Err(Skip::Evaluation(missing));
            }
            (None, _) => {}
        }
    }
    let added: u64 = tensors.iter().map(|(_, tensor)| tensor.byte_len()).sum();
    let growth = added as i64 - freed(model, id) as i64;
    if growth > 0 && grown.saturating_add(growth) > i64::try_from(policy.growth).unwrap_or(i64::MAX) {
        return Err(Skip::Growth(growth as u64));
    }
    Ok((tensors, growth, accuracy(call, inputs)))
}

/// Bytes of the constants that nothing but this node reads, and of those in its attributes.
fn freed(model: &Model, id: NodeId) -> u64 {
    let node = model.node(id);
    let only_here = |value: ValueId| {
        model.value(value).uses().iter().all(|used| matches!(used, Use::Input { node, .. } if *node == id))
    };
    let mut inputs: Vec<ValueId> = node.inputs().iter().flatten().copied().collect();
    inputs.sort_unstable();
    inputs.dedup();
    let read = inputs.into_iter().filter(|&input| only_here(input));
    let read = read.filter_map(|input| model.constant(input)).map(Tensor::byte_len);
    let held = node.attrs().iter().map(|attr| match &attr.value {
        crate::ir::AttrValue::Tensor(tensor) => tensor.byte_len(),
        _ => 0,
    });
    read.chain(held).sum()
}

/// The result of a pure change of layout, without touching the elements.
fn lazily(call: Call<'_>, inputs: &[Option<Tensor>]) -> Option<Tensor> {
    let data = inputs.first()?.as_ref()?;
    if call.def.name == "Transpose" && data.byte_len() >= LAZY {
        let rank = data.shape().len();
        let perm = match call.opt_ints("perm").ok()? {
            Some(perm) => crate::ops::call::axes(&perm, rank).ok().filter(|perm| perm.len() == rank)?,
            None => (0..rank).rev().collect(),
        };
        return data.transposed(&perm).ok();
    }
    if RESHAPERS.contains(&call.def.name) && data.byte_len() >= LAZY {
        let fact = |tensor: &Tensor| {
            let shape = tensor.shape().iter().map(|&dim| Dim::from(dim as i64)).collect();
            match Array::from_tensor(tensor) {
                Ok(array) if tensor.byte_len() < LAZY => TensorFact::constant(array).into(),
                _ => TensorFact::new(tensor.dtype(), shape).into(),
            }
        };
        let facts: Vec<Option<Fact>> = inputs.iter().map(|input| input.as_ref().map(fact)).collect();
        let (facts, _) = apply::infer(call, &facts, &mut Symbols::default(), &mut NoBodies);
        return data.reshaped(facts.first()?.tensor()?.static_shape()?).ok();
    }
    None
}

fn evaluate(call: Call<'_>, inputs: &[Option<Tensor>], policy: &Policy) -> Result<Vec<Tensor>, Skip> {
    if work(inputs, call.def.name) > policy.time.as_secs_f64() * SPEED {
        return Err(Skip::Time);
    }
    let start = Instant::now();
    let values = run(call, inputs, policy.result).map_err(Skip::Evaluation)?;
    let tensor = |value: &Value| Ok(value.array()?.to_tensor()?);
    let tensors = values.iter().map(tensor).collect::<Result<Vec<_>, OpError>>().map_err(Skip::Evaluation)?;
    tracing::debug!(op = call.def.name, milliseconds = start.elapsed().as_secs_f64() * 1e3, "folded");
    Ok(tensors)
}

/// An upper bound of the multiplications that a call needs, as far as sizes of inputs tell.
fn work(inputs: &[Option<Tensor>], name: &str) -> f64 {
    let sizes: Vec<f64> = inputs.iter().flatten().map(|tensor| tensor.len() as f64).collect();
    let products =
        ["MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "MatMulInteger", "ConvInteger", "DFT"];
    if products.iter().any(|product| name.contains(product)) {
        // Each element of the smaller input meets each element of the larger one at most once.
        sizes.iter().product()
    } else {
        sizes.iter().sum()
    }
}

fn run(call: Call<'_>, inputs: &[Option<Tensor>], limit: u64) -> Result<Vec<Value>, OpError> {
    let array = |tensor: &Option<Tensor>| match tensor {
        Some(tensor) => Ok(Some(Value::from(Array::from_tensor(tensor)?))),
        None => Ok(None),
    };
    let inputs = inputs.iter().map(array).collect::<Result<Vec<_>, OpError>>()?;
    let memory = Memory::new(limit);
    apply::evaluate(call, inputs, Settings { memory: &memory, scopes: &NoBodies, wide: false, seed: 0 })
}

fn accuracy(call: Call<'_>, inputs: &[Option<Tensor>]) -> Accuracy {
    let floats = inputs.iter().flatten().any(|tensor| {
        matches!(tensor.dtype().kind(), crate::ir::dtype::Kind::Float | crate::ir::dtype::Kind::Complex)
    });
    if !floats || call.def.layout_only || call.def.shape_only || BIT_EXACT.contains(&call.def.name) {
        return Accuracy::BitExact;
    }
    if VALUE_EXACT.contains(&call.def.name) {
        return Accuracy::ValueExact;
    }
    // A sum of n terms may lose n places; elementwise functions are good to a few.
    let longest =
        inputs.iter().flatten().flat_map(|tensor| tensor.shape().iter().copied()).max().unwrap_or(1);
    Accuracy::Rounding { ulps: if call.def.elementwise { 4.0 } else { longest.max(4) as f64 } }
}

fn commit(
    model: &mut Model,
    id: NodeId,
    tensors: Vec<(ValueId, Tensor)>,
    accuracy: Accuracy,
) -> Result<(), EditError> {
    let inputs: Vec<ValueId> = model.node(id).inputs().iter().flatten().copied().collect();
    let mut rewrite = Rewrite::new(NAME, NAME, accuracy, [id]);
    for (output, tensor) in tensors {
        let constant = rewrite.constant(model.value(output).name().clone(), tensor);
        rewrite.redefine(output, constant);
    }
    let only_here = |value: ValueId| {
        let value = model.value(value);
        value.constant().is_some()
            && !value.is_pinned()
            && value.uses().iter().all(|used| matches!(used, Use::Input { node, .. } if *node == id))
    };
    let mut unread: Vec<ValueId> = inputs.into_iter().filter(|&input| only_here(input)).collect();
    unread.sort_unstable();
    unread.dedup();
    unread.into_iter().for_each(|value| rewrite.drop_constant(value));
    model.commit(rewrite).map(drop)
}
