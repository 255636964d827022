//! MultiHeadAttention: queries, keys and values are given, each on its own.

use super::mask::Mask;
use super::{
    ScoreBias, Sizes, add, attend, count_attr, divided, joined, score_scale, split_heads, with_bias,
};
use crate::array::each_float;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::line::softmax;
use crate::kernel::transcendental::Transcendental;
use crate::{Array, Value};
use onnxforge_ir::dim::Dim;

pub(in crate::contrib) fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    (0..cx.call.output_count()).for_each(|output| cx.copy_dtype(output, 0));
    let heads = count_attr(&cx.call, "num_heads")? as i64;
    let Some([batch, queries, hidden]) = cx.shape(0) else { return Ok(()) };
    let (batch, queries, hidden) = (batch.clone(), queries.clone(), hidden.clone());
    let head = divided(cx, &hidden, heads);
    // Keys, their number, and the width of all values.
    let (keys, values) = match (cx.shape(1), cx.shape(2)) {
        (Some([_, keys, _]), Some([_, _, values])) => (Some(keys.clone()), Some(values.clone())),
        (Some([_, _, keys, _]), _) => (Some(keys.clone()), Some(hidden.clone())),
        (Some([_, keys, _, _, _]), None) if !cx.has(2) => (Some(keys.clone()), Some(hidden.clone())),
        _ => (None, None),
    };
    let values = cx.or_fresh(values);
    let value_head = divided(cx, &values, heads);
    cx.set_shape(0, vec![batch.clone(), queries.clone(), values]);
    let past = match (cx.has(6), cx.shape(6)) {
        (false, _) => Some(Dim::ZERO),
        (true, Some([_, _, past, _])) if !cx.has(8) => Some(past.clone()),
        _ => None,
    };
    let total = past.zip(keys).and_then(|(past, keys)| past.add(&keys));
    let total = cx.or_fresh(total);
    let heads = Dim::from(heads);
    cx.set_shape(1, vec![batch.clone(), heads.clone(), total.clone(), head]);
    cx.set_shape(2, vec![batch.clone(), heads.clone(), total.clone(), value_head]);
    cx.set_shape(3, vec![batch, heads, queries, total]);
    Ok(())
}

pub(in crate::contrib) fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.has(8) || cx.has(9) || cx.call.wants(3) {
        return unsupported("attention with a shared cache, or that also gives its scores");
    }
    let query = cx.array(0)?;
    if query.rank() != 3 || !cx.has(1) || !cx.has(2) {
        return unsupported("attention with packed queries, keys or values");
    }
    each_float!(query, T => compute::<T>(cx))
}

fn compute<T: Transcendental>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let heads = count_attr(&cx.call, "num_heads")?;
    let (query, key, value) = (cx.array(0)?, cx.array(1)?, cx.array(2)?);
    let bias = cx.opt_array(3)?.map(Array::slice::<T>).transpose()?;
    let hidden = query.shape()[2];
    let part = |from: usize, to: Option<usize>| match bias {
        Some(bias) => bias
            .get(from..to.unwrap_or(bias.len()))
            .map_or_else(|| invalid(format!("a bias of {} elements", bias.len())), |part| Ok(Some(part))),
        None => Ok(None),
    };
    let split = |x: &Array, bias: Option<&[T]>| match bias {
        Some(bias) => split_heads(cx, &with_bias::<T>(x.clone(), bias)?, heads),
        None => split_heads(cx, x, heads),
    };
    let q = split(query, part(0, Some(hidden))?)?;
    // Keys and values of an encoder come split, and without the bias.
    let (k, v) = match (key.rank(), value.rank()) {
        (4, 4) => (key.clone(), value.clone()),
        _ => (split(key, part(hidden, Some(2 * hidden))?)?, split(value, part(2 * hidden, None)?)?),
    };
    let (past_key, past_value) = (cx.opt_array(6)?, cx.opt_array(7)?);
    let past = past_key.and_then(|past| past.shape().get(2).copied()).unwrap_or(0);
    let (k, v) = (joined::<T>(cx, past_key, k)?, joined::<T>(cx, past_value, v)?);
    let sizes = sizes(&q, &k, &v)?;
    let causal = cx.call.flag("unidirectional")?;
    if causal && sizes.queries > 1 && sizes.queries + past != sizes.keys {
        return unsupported("causal attention to another sequence");
    }
    let filter = cx.call.float_or("mask_filter_value", -10000.0)?;
    let mask = Mask::<T>::new(cx.opt_array(4)?, causal.then_some(past), filter, sizes)?;
    let score_bias = cx.opt_array(5)?.map(|bias| ScoreBias::<T>::new(bias, sizes)).transpose()?;
    let scale = score_scale::<T>(&cx.call, sizes.head)?;
    let adjust = |row, scores: &mut [T]| {
        if let Some(bias) = &score_bias {
            add(scores, bias.row(row));
        }
        mask.apply(row, scores);
    };
    let parts = [q.slice::<T>()?, k.slice::<T>()?, v.slice::<T>()?];
    let output = attend(cx, sizes, parts, scale, |row, scores| {
        adjust(row, scores);
        softmax(scores);
    })?;
    Ok(vec![output.into(), k.into(), v.into()])
}

/// The sizes of queries, keys and values that are split into heads.
pub(super) fn sizes(q: &Array, k: &Array, v: &Array) -> Result<Sizes, OpError> {
    match (q.shape(), k.shape(), v.shape()) {
        (&[batch, heads, queries, head], &[b, kv_heads, keys, h], &[c, kv, values, value_head])
            if batch == b && batch == c && head == h && kv_heads == kv && keys == values && kv_heads > 0 =>
        {
            if heads % kv_heads != 0 {
                return invalid(format!("{heads} heads of queries for {kv_heads} of keys"));
            }
            Ok(Sizes { batch, heads, kv_heads, queries, keys, head, value_head })
        }
        _ => invalid(format!("queries {:?}, keys {:?}, values {:?}", q.shape(), k.shape(), v.shape())),
    }
}
