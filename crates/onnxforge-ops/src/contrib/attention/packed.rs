//! Attention and QAttention: queries, keys and values are projected from one input by one matrix.

use super::mask::Mask;
use super::multi_head::sizes;
use super::{ScoreBias, add, attend, count_attr, divided, joined, score_scale, split_heads, with_bias};
use crate::array::each_float;
use crate::call::Call;
use crate::contrib::products::product_to_float;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::gemm::{Matrix, gemm};
use crate::kernel::line::softmax;
use crate::kernel::number::Float;
use crate::kernel::quantize::Quantizable;
use crate::kernel::shape::strides;
use crate::kernel::strided::View;
use crate::kernel::transcendental::Transcendental;
use crate::{Array, Value};
use onnxforge_ir::dim::Dim;

/// The widths of queries, keys and values, if the attribute gives them.
fn hidden_sizes(call: &Call<'_>) -> Result<Option<[usize; 3]>, OpError> {
    let given = call.ints_or("qkv_hidden_sizes", Vec::new())?;
    if given.is_empty() {
        return Ok(None);
    }
    let widths = given.iter().map(|&width| usize::try_from(width).ok()).collect::<Option<Vec<_>>>();
    match widths.as_deref() {
        Some(&[q, k, v]) if q == k => Ok(Some([q, k, v])),
        _ => invalid(format!("qkv_hidden_sizes is {given:?}")),
    }
}

pub(in crate::contrib) fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    infer_with(cx, 0, 4)
}

pub(in crate::contrib) fn infer_quantized(cx: &mut Infer<'_>) -> Result<(), OpError> {
    infer_with(cx, 3, 8)
}

/// `typed` is an input that has the type of the result, `past` the input with what came before.
fn infer_with(cx: &mut Infer<'_>, typed: usize, past: usize) -> Result<(), OpError> {
    cx.copy_dtype(0, typed);
    cx.copy_dtype(1, typed);
    let heads = count_attr(&cx.call, "num_heads")? as i64;
    let widths = hidden_sizes(&cx.call)?;
    let (Some([batch, queries, _]), weights) = (cx.shape(0), cx.shape(1)) else { return Ok(()) };
    let width = match (widths, weights) {
        (Some([_, _, width]), _) => Some(Dim::from(width as i64)),
        (None, Some([_, all])) => Some(divided(cx, all, 3)),
        _ => None,
    };
    let width = cx.or_fresh(width);
    cx.set_shape(0, vec![batch.clone(), queries.clone(), width.clone()]);
    let before = match (cx.has(past), cx.shape(past)) {
        (false, _) => Some(Dim::ZERO),
        (true, Some([_, _, _, before, _])) => Some(before.clone()),
        _ => None,
    };
    let total = before.and_then(|before| before.add(queries));
    let total = cx.or_fresh(total);
    let head = divided(cx, &width, heads);
    cx.set_shape(1, vec![Dim::from(2), batch.clone(), Dim::from(heads), total, head]);
    Ok(())
}

pub(in crate::contrib) fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    each_float!(x, T => {
        let projected = projected::<T>(cx, x, cx.array(1)?, cx.opt_array(2)?)?;
        from_projection::<T>(cx, projected, cx.opt_array(3)?, cx.opt_array(4)?, cx.opt_array(5)?)
    })
}

/// `x · weights + bias`.
fn projected<T: Float>(
    cx: &Eval<'_>,
    x: &Array,
    weights: &Array,
    bias: Option<&Array>,
) -> Result<Array, OpError> {
    let (&[batch, positions, depth], &[rows, width]) = (x.shape(), weights.shape()) else {
        return invalid(format!("an input {:?} and weights {:?}", x.shape(), weights.shape()));
    };
    if depth != rows {
        return invalid(format!("an input {:?} and weights {:?}", x.shape(), weights.shape()));
    }
    let mut out = cx.zeros::<T>(&[batch, positions, width])?;
    let (a, b) =
        (Matrix::new(x.slice()?, batch * positions, depth), Matrix::new(weights.slice()?, depth, width));
    gemm(&mut out, a, b, T::ONE, false, true);
    let out = Array::new([batch, positions, width], out)?;
    match bias {
        Some(bias) => with_bias::<T>(out, bias.slice()?),
        None => Ok(out),
    }
}

pub(in crate::contrib) fn eval_quantized(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let scale = cx.array(3)?;
    each_float!(scale, T => eval_quantized_as::<T>(cx))
}

fn eval_quantized_as<T: Quantizable + Transcendental>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let factors = [cx.array(0)?, cx.array(1)?];
    let scales = [cx.array(3)?, cx.array(4)?];
    let zeros = [cx.opt_array(6)?, cx.opt_array(7)?];
    let product = product_to_float::<T>(cx, factors, scales, zeros, cx.opt_array(2)?)?;
    from_projection::<T>(cx, product, cx.opt_array(5)?, cx.opt_array(8)?, None)
}

/// Attention by queries, keys and values that lie next to each other in the last axis.
fn from_projection<T: Transcendental>(
    cx: &Eval<'_>,
    projected: Array,
    mask: Option<&Array>,
    past: Option<&Array>,
    score_bias: Option<&Array>,
) -> Result<Vec<Value>, OpError> {
    if cx.call.flag("do_rotary")? || cx.call.flag("past_present_share_buffer")? {
        return unsupported("attention with rotation or a shared cache");
    }
    let heads = count_attr(&cx.call, "num_heads")?;
    let width = projected.shape().last().copied().unwrap_or(0);
    let [a, b, c] = hidden_sizes(&cx.call)?.unwrap_or([width / 3; 3]);
    if a.checked_add(b).and_then(|sum| sum.checked_add(c)) != Some(width) {
        return invalid(format!("{width} projected features"));
    }
    let q = split_heads(cx, &columns(cx, &projected, 0, a)?, heads)?;
    let k = split_heads(cx, &columns(cx, &projected, a, b)?, heads)?;
    let v = split_heads(cx, &columns(cx, &projected, a + b, c)?, heads)?;
    let halves = past.map(|past| halves(cx, past)).transpose()?;
    let before = halves.as_ref().map_or(0, |[keys, _]| keys.shape()[2]);
    let (past_key, past_value) = halves.as_ref().map_or((None, None), |[k, v]| (Some(k), Some(v)));
    let (k, v) = (joined::<T>(cx, past_key, k)?, joined::<T>(cx, past_value, v)?);
    let sizes = sizes(&q, &k, &v)?;
    let causal = cx.call.flag("unidirectional")?.then_some(before);
    let mask = Mask::<T>::new(mask, causal, cx.call.float_or("mask_filter_value", -10000.0)?, sizes)?;
    let score_bias = score_bias.map(|bias| ScoreBias::<T>::new(bias, sizes)).transpose()?;
    let parts = [q.slice::<T>()?, k.slice::<T>()?, v.slice::<T>()?];
    let output = attend(cx, sizes, parts, score_scale(&cx.call, sizes.head)?, |row, scores| {
        if let Some(bias) = &score_bias {
            add(scores, bias.row(row));
        }
        mask.apply(row, scores);
        softmax(scores);
    })?;
    let mut outputs = vec![output.into()];
    if cx.call.wants(1) {
        outputs.push(stacked::<T>(cx, &k, &v)?.into());
    }
    Ok(outputs)
}

/// `count` columns from `first` on.
fn columns(cx: &Eval<'_>, x: &Array, first: usize, count: usize) -> Result<Array, OpError> {
    let &[batch, positions, _] = x.shape() else { return invalid("a projection without three axes") };
    let strides = strides(x.shape()).into_iter().map(|stride| stride as isize).collect();
    View { shape: vec![batch, positions, count], strides, offset: first }.copy(x, cx.memory())
}

/// The past keys and the past values.
fn halves(cx: &Eval<'_>, past: &Array) -> Result<[Array; 2], OpError> {
    let &[2, batch, heads, positions, head] = past.shape() else {
        return invalid(format!("a past of shape {:?}", past.shape()));
    };
    let strides: Vec<isize> =
        strides(past.shape()).into_iter().skip(1).map(|stride| stride as isize).collect();
    let half = |offset: usize| {
        View { shape: vec![batch, heads, positions, head], strides: strides.clone(), offset }
            .copy(past, cx.memory())
    };
    Ok([half(0)?, half(past.len() / 2)?])
}

/// Keys and values as one tensor.
fn stacked<T: Float>(cx: &Eval<'_>, k: &Array, v: &Array) -> Result<Array, OpError> {
    let mut shape = vec![2];
    shape.extend(k.shape());
    if k.shape() != v.shape() {
        return invalid("keys and values of different sizes as one tensor");
    }
    cx.reserve::<T>(cx.count(&shape)?)?;
    Array::new(shape, [k.slice::<T>()?, v.slice::<T>()?].concat())
}
