//! fold_constants: a node whose inputs are all constants becomes a constant.
//!
//! **Matches** (`layout`: Reshape, Transpose and their like; `fold`: all) nodes of known, deterministic operators without bodies whose inputs are constants that no caller can override. What leaves its scope
//! becomes a Constant node, which keeps its name and is a constant to its consumers.
//! **Accuracy** `BitExact` for layout, integers and the operations that IEEE 754 defines exactly; `ValueExact` for those that
//! choose among numbers; `Rounding` for other float arithmetic, where runtimes differ in the last places among themselves.
//! **Proof** The evaluator computes what the runtime would compute at every run.
//! **Bound** Both results are within the bound E of the same operation, so that E does not grow, and they are at most 2 E apart: 4 ulps for functions of single
//! elements, whose libraries are good to 2 each; for sums of n terms, with n roundings on the longest way, n ulps, where n is at most the number
//! of elements of the largest input.
//! **Trust** Where inference does not know the shape of a result (as of NonZero), the evaluation that computed its elements found it.
//! **Never** random operators; DequantizeLinear, which keeps weights small, and QuantizeLinear right before it, where converters look for the pair; results that make the model grow by more than the budget;
//! work beyond the time budget.

use crate::passes::pass;
use crate::passes::recognize::constant_math;
use crate::{At, Budget, Change, Cx, Reason, Skip};
use onnxforge_ir::dim::{Dim, Symbols};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::scope::ScopeKind;
use onnxforge_ir::tensor::{Data, Tensor};
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, DType, NodeId, Trust, ValueId};
use onnxforge_ops::apply::{self, NoBodies};
use onnxforge_ops::call::Call;
use onnxforge_ops::error::OpError;
use onnxforge_ops::{Array, Fact, TensorFact};
use onnxforge_proto::clock::Instant;

pass!(fold_constants { stage: Canonicalize, trusts: [Evaluated], rules: [LAYOUT, FOLD] });

static LAYOUT: At = At {
    name: "layout",
    accuracy: Accuracy::BitExact,
    ops: &["Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"],
    apply: fold,
};

static FOLD: At =
    At { name: "fold", accuracy: Accuracy::Rounding { ulps: f64::INFINITY }, ops: &[], apply: fold };

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
/// Operators that hand out stored elements.
const MOVES: [&str; 5] = ["Constant", "ConstantOfShape", "Where", "GatherND", "OneHot"];
/// Operators whose work grows with the product of the sizes of their inputs.
const PRODUCTS: [&str; 5] = ["MatMul", "Gemm", "Einsum", "Conv", "DFT"];
/// Integers up to here are exact as 32-bit floats.
const EXACT_IN_FLOATS: f64 = (1u64 << 24) as f64;
/// Operators that only give the elements another shape.
const RESHAPERS: [&str; 5] = ["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"];
/// Multiplications per second that the time budget counts on.
const SPEED: f64 = 1e9;
/// Constants from this size on are transposed only when they are written.
const LAZY: u64 = 1 << 20;

/// Folds one node whose inputs are all constants.
fn fold(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (node, call) = (cx.node(id), cx.call(id)?);
    let constant = |input: &Option<ValueId>| match *input {
        None => Some(None),
        Some(input) => cx.model.constant(input).cloned().or_else(|| exposed_constant(cx, input)).map(Some),
    };
    let inputs: Vec<Option<Tensor>> =
        node.inputs().iter().map(constant).collect::<Option<_>>().ok_or(Skip::NOT_HERE)?;
    if node.bodies().next().is_some() || call.def.eval.is_err() || is_stored_as_node(cx, id) {
        return Err(Skip::NOT_HERE);
    }
    if call.def.random || call.signature.is_some_and(|signature| !signature.deterministic) {
        return Err(Reason::Random.into());
    }
    if DEQUANTIZERS.contains(&call.def.name) {
        return Err(Reason::Dequantizes.into());
    }
    if call.def.name == "QuantizeLinear" && is_dequantized(cx, id) {
        return Err(Skip::because("converters look for it before a DequantizeLinear"));
    }
    // What results are made of can only make it worse.
    cx.budget.allows(accuracy(call, &inputs, &[]))?;
    let results = match lazily(call, &inputs) {
        Some(tensor) => vec![tensor],
        None => evaluate(call, &inputs, cx.budget)?,
    };
    let mut change = cx.change(&[id]);
    change.promise(accuracy(call, &inputs, &results));
    change.trust(Trust::Evaluated);
    for (index, output) in node.outputs().iter().enumerate() {
        let Some(output) = *output else { continue };
        let missing = || OpError::Unsupported(format!("output {index} of {}", node.op()));
        let tensor = results.get(index).cloned().ok_or_else(missing)?;
        change.replace_by_constant(cx, output, tensor);
    }
    Ok(change)
}

/// Whether nothing but DequantizeLinear reads what a node quantizes.
fn is_dequantized(cx: &Cx<'_>, id: NodeId) -> bool {
    let dequantizes = |used: &Use| match *used {
        Use::Input { node, .. } => cx.node(node).op().is("DequantizeLinear"),
        Use::Output { .. } => false,
    };
    cx.output(id).is_ok_and(|quantized| {
        let uses = cx.model.value(quantized).uses();
        !uses.is_empty() && uses.iter().all(dequantizes)
    })
}

/// What a Constant node stores whose result leaves its scope.
fn exposed_constant(cx: &Cx<'_>, value: ValueId) -> Option<Tensor> {
    let node = cx.model.value(value).node().filter(|_| cx.model.value(value).is_exposed())?;
    if !cx.node(node).op().is("Constant") {
        return None;
    }
    cx.call(node).ok()?.opt_tensor("value").ok()?
}

/// What leaves its scope is computed by a node, which may be a Constant. A function has no list of constants at all: there, a Constant node is
/// how a constant is stored.
fn is_stored_as_node(cx: &Cx<'_>, id: NodeId) -> bool {
    let is_exposed = |output: &ValueId| cx.model.value(*output).is_exposed();
    if cx.node(id).op().is("Constant") && cx.node(id).outputs().iter().flatten().any(is_exposed) {
        return true;
    }
    let mut scope = cx.model.scope(cx.scope(id));
    while let Some(parent) = scope.parent() {
        scope = cx.model.scope(parent);
    }
    cx.node(id).op().is("Constant") && matches!(scope.kind(), ScopeKind::Function(_))
}

/// A large ConstantOfShape: one element that stands for all of them, so that its size costs nothing before it is judged.
fn filled(call: Call<'_>, shape: &Tensor) -> Option<Tensor> {
    let sizes = Array::from_tensor(shape).ok()?.to_i64s().ok()?;
    let shape: Vec<usize> =
        sizes.into_iter().map(|size| usize::try_from(size).ok()).collect::<Option<_>>()?;
    let (dtype, element) = match call.opt_tensor("value").ok()? {
        Some(value)
            if value.len() == 1 && value.dtype() != DType::String && value.dtype().bits() % 8 == 0 =>
        {
            let mut element = Vec::new();
            value.payload().ok()?.write_to(&mut element).ok()?;
            (value.dtype(), element)
        }
        Some(_) => return None,
        None => (DType::F32, vec![0; 4]),
    };
    let tensor = Tensor::new(dtype, shape, Data::Splat(element.into())).ok()?;
    Some(tensor).filter(|tensor| tensor.byte_len() >= LAZY)
}

/// The result of a pure change of layout, without touching the elements.
fn lazily(call: Call<'_>, inputs: &[Option<Tensor>]) -> Option<Tensor> {
    if call.def.name == "Constant" {
        return call.opt_tensor("value").ok()?;
    }
    if call.def.name == "ConstantOfShape" {
        return filled(call, inputs.first()?.as_ref()?);
    }
    let data = inputs.first()?.as_ref()?;
    if call.def.name == "Transpose" && data.byte_len() >= LAZY {
        let rank = data.shape().len();
        let perm = match call.opt_ints("perm").ok()? {
            Some(perm) => onnxforge_ops::call::axes(&perm, rank).ok().filter(|perm| perm.len() == rank)?,
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

fn evaluate(call: Call<'_>, inputs: &[Option<Tensor>], budget: &Budget) -> Result<Vec<Tensor>, Skip> {
    if work(call, inputs) > budget.time.as_secs_f64() * SPEED {
        return Err(Reason::Time.into());
    }
    let start = Instant::now();
    let tensors = constant_math::evaluate(call, inputs, budget)?;
    if is_disputed(call, inputs, &tensors) {
        return Err(Skip::because("runtimes differ about the result"));
    }
    tracing::debug!(op = call.def.name, milliseconds = start.elapsed().as_secs_f64() * 1e3, "folded");
    Ok(tensors)
}

/// An upper bound of the multiplications that a call needs, as far as sizes of inputs and windows tell.
fn work(call: Call<'_>, inputs: &[Option<Tensor>]) -> f64 {
    let sizes: Vec<f64> = inputs.iter().flatten().map(|tensor| tensor.len() as f64).collect();
    let sum: f64 = sizes.iter().sum();
    if PRODUCTS.iter().any(|product| call.def.name.contains(product)) {
        // Each element of the smaller input meets each element of the larger one at most once.
        return sizes.iter().product();
    }
    if call.def.name == "NonMaxSuppression" {
        return sum * sum;
    }
    let window = call.opt_ints("kernel_shape").ok().flatten().unwrap_or_default();
    window.iter().fold(sum, |work, &size| work * size as f64)
}

/// Where runtimes give different answers, the model's own answer at run time stays.
fn is_disputed(call: Call<'_>, inputs: &[Option<Tensor>], results: &[Tensor]) -> bool {
    let (Some(Some(input)), Some(result)) = (inputs.first(), results.first()) else { return false };
    let numbers =
        |tensor: &Tensor| Array::from_tensor(tensor).and_then(|array| array.to_f64s()).unwrap_or_default();
    match call.def.name {
        "Cast" | "CastLike" if is_float(input.dtype()) => match result.dtype().kind() {
            // What is no number, or beyond the type's range.
            Kind::Signed | Kind::Unsigned => numbers(input)
                .iter()
                .zip(numbers(result))
                .any(|(from, to)| (from.trunc() - to).abs() > 0.0 || from.is_nan()),
            _ => result.dtype() == DType::String,
        },
        // Some compute integers as floats, others let them wrap.
        "Pow" | "ReduceProd" | "ReduceL1" | "ReduceL2" | "ReduceSumSquare" | "ReduceLogSum" => {
            !is_float(input.dtype()) && numbers(result).iter().any(|number| number.abs() >= EXACT_IN_FLOATS)
        }
        // The standard's own evaluator and ONNX Runtime disagree about sizes that are no whole multiple.
        "Resize" => {
            call.text_or("coordinate_transformation_mode", "").is_ok_and(|mode| mode == "align_corners")
        }
        _ => false,
    }
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype.kind(), Kind::Float | Kind::Complex)
}

fn accuracy(call: Call<'_>, inputs: &[Option<Tensor>], results: &[Tensor]) -> Accuracy {
    let floats = inputs.iter().flatten().chain(results).any(|tensor| is_float(tensor.dtype()));
    let moves = call.def.layout_only || call.def.shape_only || MOVES.contains(&call.def.name);
    if !floats || moves || BIT_EXACT.contains(&call.def.name) {
        return Accuracy::BitExact;
    }
    if VALUE_EXACT.contains(&call.def.name) {
        return Accuracy::ValueExact;
    }
    // Two sums of n terms may be n places apart; elementwise functions are good to a few.
    let terms = inputs.iter().flatten().map(Tensor::len).max().unwrap_or(1);
    Accuracy::Rounding { ulps: if call.def.elementwise { 4.0 } else { terms.max(4) as f64 } }
}
