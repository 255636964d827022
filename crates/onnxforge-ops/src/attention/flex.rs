//! FlexAttention: attention whose scores and weights go through bodies of the node.

use super::{Heads, scale};
use crate::array::{Array, each_float};
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::fact::TensorFact;
use crate::infer_call::Infer;
use crate::kernel::convert::to_float;
use crate::kernel::line::{each_line, softmax};
use crate::kernel::number::Float;
use crate::kernel::product::Product;
use crate::kernel::transcendental::Transcendental;
use crate::kernel::widen::{narrow, widen};
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;

const BODIES: [&str; 2] = ["score_mod", "prob_mod"];

/// The type of the scores, for inputs of type `input`.
fn score_type(call: &Call<'_>, input: DType) -> Result<DType, OpError> {
    match call.dtype("softmax_precision")? {
        Some(dtype @ (DType::F16 | DType::BF16 | DType::F32 | DType::F64)) => Ok(dtype),
        Some(dtype) => invalid(format!("a softmax in the type {dtype}")),
        None if input == DType::F64 => Ok(DType::F64),
        None => Ok(DType::F32),
    }
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let mut axes = |input: usize| match cx.shape(input) {
        Some([b, h, s, d]) => Ok([b, h, s, d].map(Dim::clone)),
        Some(shape) => invalid(format!("queries, keys or values with {} axes", shape.len())),
        None => Ok([(); 4].map(|()| cx.fresh())),
    };
    let ([b, heads, queries, _], [_, _, keys, _], [.., size]) = (axes(0)?, axes(1)?, axes(2)?);
    cx.set_shape(0, vec![b.clone(), heads.clone(), queries.clone(), size]);
    let dtype = match cx.dtype(0) {
        Some(dtype) => Some(score_type(&cx.call, dtype)?),
        None => None,
    };
    let scores = TensorFact { dtype, shape: Some(vec![b, heads, queries, keys]), value: None };
    for name in BODIES {
        if let Some(body) = cx.call.opt_graph(name)? {
            cx.body(body, vec![scores.clone().into()])?;
        }
    }
    Ok(())
}

pub fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let input = |index: usize| cx.array(index).cloned();
    let heads = Heads::new(input(0)?, input(1)?, input(2)?)?;
    each_float!(&heads.q, T => one(attend::<T>(cx, &heads)?))
}

fn attend<T: Transcendental + Product>(cx: &Eval<'_>, heads: &Heads) -> Result<Array, OpError> {
    let dtype = cx.computed(score_type(&cx.call, T::DTYPE)?);
    let scores = heads.scores(cx, T::from_f64(scale(cx, heads.head_size)?))?;
    let scores = Array::new(heads.scores_shape(), scores)?;
    // The weights are at least as precise as the inputs.
    if dtype == DType::F64 {
        weigh::<f64>(cx, heads, scores, dtype)
    } else {
        weigh::<T>(cx, heads, scores, dtype)
    }
    .and_then(|y| to_float::<T>(&y))
}

/// The values mixed by the softmax of the scores, which have the type `dtype` where bodies see them.
fn weigh<C: Transcendental + Product>(
    cx: &Eval<'_>,
    heads: &Heads,
    scores: Array,
    dtype: DType,
) -> Result<Array, OpError> {
    let scores = modified::<C>(cx, BODIES[0], to_float::<C>(&scores)?, dtype)?;
    let rows = scores.len().checked_div(heads.keys).unwrap_or(0);
    let weights = each_line(scores, [rows, heads.keys, 1], cx.memory(), softmax::<C>)?;
    let weights = modified::<C>(cx, BODIES[1], weights, dtype)?;
    heads.mix(cx, weights.slice::<C>()?)
}

/// What a body makes of the scores or weights; they themselves where there is no body.
fn modified<C: Float>(cx: &Eval<'_>, name: &str, array: Array, dtype: DType) -> Result<Array, OpError> {
    let Some(body) = cx.call.opt_graph(name)? else { return Ok(array) };
    let given = match dtype {
        DType::F16 | DType::BF16 => narrow(&to_float::<f32>(&array)?, dtype)?,
        DType::F32 => to_float::<f32>(&array)?,
        _ => to_float::<f64>(&array)?,
    };
    let mut results = cx.body(body, vec![given.into()])?.into_iter();
    match (results.next(), results.next()) {
        (Some(Value::Tensor(result)), None) if result.shape() == array.shape() => {
            to_float::<C>(&widen(&result)?)
        }
        _ => invalid(format!("{name} does not give one tensor of the shape that it is given")),
    }
}
