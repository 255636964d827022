//! Products and convolutions with something fused into them, or in another layout.

use super::activations::Activation;
use super::{channels_first, channels_last, first_tensor, single};
use crate::array::each_float;
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::fact::{Fact, TensorFact};
use crate::infer_call::Infer;
use crate::kernel::map::zip;
use crate::kernel::number::Number;
use crate::kernel::product::matmul;
use crate::kernel::strided::transpose;
use crate::{Array, Value};

/// The order of the axes of a factor: with `batch` its first axis moves behind the others but the last, with `swap` the
/// last two then change places. A vector stays as it is.
fn axes(rank: usize, batch: bool, swap: bool) -> Vec<usize> {
    let mut perm: Vec<usize> = (0..rank).collect();
    if rank < 2 {
        return perm;
    }
    if batch {
        perm[..rank - 1].rotate_left(1);
    }
    if swap {
        perm.swap(rank - 2, rank - 1);
    }
    perm
}

/// Which factors are transposed, and how: for each whether its batch axes and its last two axes move.
fn orders(call: &Call<'_>) -> Result<[(bool, bool); 2], OpError> {
    Ok([(call.flag("transBatchA")?, call.flag("transA")?), (call.flag("transBatchB")?, call.flag("transB")?)])
}

pub(super) fn infer_matmul(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let orders = orders(&cx.call)?;
    let fact = |index: usize| -> Option<Fact> {
        let (shape, (batch, swap)) = (cx.shape(index)?, orders[index]);
        let shape = axes(shape.len(), batch, swap).into_iter().map(|axis| shape[axis].clone()).collect();
        Some(TensorFact { dtype: cx.dtype(index), shape: Some(shape), value: None }.into())
    };
    let (Some(a), Some(b)) = (fact(0), fact(1)) else { return Ok(()) };
    let outputs = cx.standard("MatMul", 13, &[Some(a), Some(b)])?;
    set_shape_of(cx, &outputs);
    Ok(())
}

/// Output 0 has the shape of the first of these facts, if that is known.
pub(super) fn set_shape_of(cx: &mut Infer<'_>, outputs: &[Fact]) {
    if let Some(shape) = outputs.first().and_then(Fact::tensor).and_then(|fact| fact.shape.clone()) {
        cx.set_shape(0, shape);
    }
}

pub(super) fn eval_matmul(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let orders = orders(&cx.call)?;
    let alpha = cx.call.float_or("alpha", 1.0)?;
    let moved = |index: usize| {
        let (x, (batch, swap)) = (cx.array(index)?, orders[index]);
        if batch && x.rank() < 3 {
            return invalid(format!("batch axes of a factor of shape {:?}", x.shape()));
        }
        match (batch, swap) {
            (false, false) => Ok(x.clone()),
            _ => transpose(x, &axes(x.rank(), batch, swap), cx.memory()),
        }
    };
    let (a, b) = (moved(0)?, moved(1)?);
    each_float!(&a, T => one(matmul(&a, &b, <T as Number>::from_f64(alpha.into()), cx.memory())?))
}

pub(super) fn infer_gemm(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let facts = [0, 1, 2].map(|index| cx.has(index).then(|| cx.fact(index).clone()));
    let outputs = cx.standard("Gemm", 13, &facts)?;
    set_shape_of(cx, &outputs);
    Ok(())
}

pub(super) fn eval_gemm(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let inputs = (0..3).map(|index| cx.take_value(index)).collect();
    let product = single(cx.standard("Gemm", 13, inputs)?)?;
    one(Activation::named(&cx.call)?.apply(product)?)
}

pub(super) fn infer_conv(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let facts = [0, 1].map(|index| Some(cx.fact(index).clone()));
    let outputs = cx.standard("Conv", 11, &facts)?;
    set_shape_of(cx, &outputs);
    Ok(())
}

pub(super) fn eval_conv(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let residual = cx.opt_array(3)?.cloned();
    let inputs = (0..3).map(|index| cx.take_value(index)).collect();
    let y = single(cx.standard("Conv", 11, inputs)?)?;
    one(finished(cx, y, residual.as_ref())?)
}

/// The residual added and the activation applied.
fn finished(cx: &Eval<'_>, y: Array, residual: Option<&Array>) -> Result<Array, OpError> {
    let y = match residual {
        Some(residual) if residual.shape() == y.shape() => {
            each_float!(&y, T => zip(&y, residual, cx.memory(), |&y: &T, &r: &T| y + r))?
        }
        Some(residual) => {
            return invalid(format!("a residual {:?} for {:?}", residual.shape(), y.shape()));
        }
        None => y,
    };
    Activation::listed(&cx.call)?.apply(y)
}

/// Facts about a standard operator on input 0 with its channels moved to where the standard has them, and moved back;
/// those of the `others` are moved too if they are `all` channels last.
pub(super) fn infer_nhwc(
    cx: &mut Infer<'_>,
    name: &str,
    opset: i64,
    others: &[usize],
    all: bool,
) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let moved = |index: usize| {
        let shape = match cx.shape(index) {
            Some([batch, spatial @ .., channels]) => {
                Some([batch, channels].into_iter().chain(spatial).cloned().collect())
            }
            Some(_) => return None,
            None => None,
        };
        Some(Fact::from(TensorFact { dtype: cx.dtype(index), shape, value: None }))
    };
    let Some(x) = moved(0).filter(|_| cx.shape(0).is_some()) else { return Ok(()) };
    let mut facts = vec![Some(x)];
    for &index in others {
        let fact = if all { moved(index) } else { Some(cx.fact(index).clone()) };
        facts.push(fact.filter(|_| cx.has(index)));
    }
    let outputs = cx.standard(name, opset, &facts)?;
    if let Some([batch, channels, spatial @ ..]) =
        first_tensor(&outputs).and_then(|fact| fact.shape.as_deref())
    {
        let shape = std::iter::once(batch).chain(spatial).chain([channels]).cloned().collect();
        cx.set_shape(0, shape);
    }
    Ok(())
}

/// Channels last everywhere, the weights included: they are (M, kernel…, C/group).
pub(super) fn infer_nhwc_conv(cx: &mut Infer<'_>) -> Result<(), OpError> {
    infer_nhwc(cx, "Conv", 11, &[1], true)
}

pub(super) fn eval_nhwc_conv(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = channels_first(cx, cx.array(0)?)?;
    let w = channels_first(cx, cx.array(1)?)?;
    let inputs = vec![Some(x.into()), Some(w.into()), cx.value(2).cloned()];
    one(channels_last(cx, &single(cx.standard("Conv", 11, inputs)?)?)?)
}

/// Channels last in images alone: the weights are (M, C/group, kernel…).
pub(super) fn infer_nhwc_fused_conv(cx: &mut Infer<'_>) -> Result<(), OpError> {
    infer_nhwc(cx, "Conv", 11, &[1], false)
}

pub(super) fn eval_nhwc_fused_conv(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = channels_first(cx, cx.array(0)?)?;
    let inputs = vec![Some(x.into()), cx.value(1).cloned(), cx.value(2).cloned()];
    let y = channels_last(cx, &single(cx.standard("Conv", 11, inputs)?)?)?;
    one(finished(cx, y, cx.opt_array(3)?)?)
}

pub(super) fn infer_nhwc_max_pool(cx: &mut Infer<'_>) -> Result<(), OpError> {
    infer_nhwc(cx, "MaxPool", 12, &[], false)
}

pub(super) fn eval_nhwc_max_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = channels_first(cx, cx.array(0)?)?;
    let y = single(cx.standard("MaxPool", 12, vec![Some(x.into())])?)?;
    one(channels_last(cx, &y)?)
}
