//! Attention as ONNX has it since opset 23.

use super::bias::Bias;
use super::{Heads, scale};
use crate::array::{Array, each_elem, each_float};
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::line::softmax;
use crate::kernel::parallel::each_piece;
use crate::kernel::product::Product;
use crate::kernel::strided::transpose;
use crate::kernel::transcendental::Transcendental;
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;

/// The numbers of heads of queries and of keys, where the inputs have no axis for them.
fn head_counts(call: &Call<'_>) -> Result<[i64; 2], OpError> {
    let counts = [call.int("q_num_heads")?, call.int("kv_num_heads")?];
    if counts.iter().all(|&count| count > 0) { Ok(counts) } else { invalid(format!("{counts:?} heads")) }
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let by_rank = (0..3).find_map(|input| cx.rank(input));
    let Some(rank) = by_rank else { return Ok(()) };
    let heads = if rank == 3 { Some(head_counts(&cx.call)?) } else { None };
    let [q, k, v] = [0, 1, 2].map(|input| split_heads(cx, input, heads));
    let ([b, q_heads, queries, _], [_, kv_heads, keys, head_size], [.., v_head_size]) = (q?, k?, v?);
    let past = if cx.has(4) { cx.shape(4).and_then(|shape| shape.get(2)).cloned() } else { Some(Dim::ZERO) };
    let total = cx.or_fresh(past.and_then(|past| past.add(&keys)));
    if rank == 3 {
        let hidden = cx.or_fresh(q_heads.mul(&v_head_size));
        cx.set_shape(0, vec![b.clone(), queries.clone(), hidden]);
    } else {
        cx.set_shape(0, vec![b.clone(), q_heads.clone(), queries.clone(), v_head_size.clone()]);
    }
    let outputs = [
        [b.clone(), kv_heads.clone(), total.clone(), head_size],
        [b.clone(), kv_heads, total.clone(), v_head_size],
        [b, q_heads, queries, total],
    ];
    let listed = cx.call.output_count();
    for (index, shape) in outputs.into_iter().enumerate().filter(|(index, _)| index + 1 < listed) {
        cx.set_shape(index + 1, shape.to_vec());
    }
    Ok(())
}

/// `batch × heads × sequence × head size` of an input.
fn split_heads(cx: &mut Infer<'_>, input: usize, heads: Option<[i64; 2]>) -> Result<[Dim; 4], OpError> {
    let count = heads.map(|[q, kv]| Dim::from(if input == 0 { q } else { kv }));
    match (cx.shape(input), count) {
        (Some([b, s, hidden]), Some(count)) => {
            let size = hidden.floor_div(&count, cx.symbols);
            Ok([b.clone(), count, s.clone(), cx.or_fresh(size)])
        }
        (Some([b, h, s, d]), None) => Ok([b, h, s, d].map(Dim::clone)),
        (Some(shape), _) => invalid(format!("queries, keys or values with {} axes", shape.len())),
        (None, count) => {
            let [b, h, s, d] = [(); 4].map(|()| cx.fresh());
            Ok([b, count.unwrap_or(h), s, d])
        }
    }
}

pub fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if let Some(other) = cx.call.dtype("softmax_precision")?
        && !matches!(other, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    {
        return invalid(format!("a softmax in the type {other}"));
    }
    let packed = cx.array(0)?.rank() == 3;
    let counts = if packed { Some(head_counts(&cx.call)?) } else { None };
    let by_head = |input: usize| match counts {
        None => Ok(cx.array(input)?.clone()),
        Some([q, kv]) => unpacked(cx, cx.array(input)?, if input == 0 { q } else { kv }),
    };
    let (q, new_k, new_v) = (by_head(0)?, by_head(1)?, by_head(2)?);
    if cx.has(4) != cx.has(5) {
        return invalid("past keys without past values, or the other way round");
    }
    let past = cx.opt_array(4)?.and_then(|past| past.shape().get(2).copied()).unwrap_or(0);
    let (k, v) = (appended(cx, 4, new_k)?, appended(cx, 5, new_v)?);
    let heads = Heads::new(q, k, v)?;
    let (y, scores) = each_float!(&heads.q, T => attend::<T>(cx, &heads, past))?;
    let y = if packed {
        let packed = [heads.batch, heads.queries, heads.q_heads * heads.v_head_size];
        transpose(&y, &[0, 2, 1, 3], cx.memory())?.reshaped(packed)?
    } else {
        y
    };
    Ok([y, heads.k, heads.v].into_iter().chain(scores).map(Value::from).collect())
}

/// `batch × sequence × hidden` as `batch × heads × sequence × head size`.
fn unpacked(cx: &Eval<'_>, array: &Array, heads: i64) -> Result<Array, OpError> {
    match (array.shape(), usize::try_from(heads)) {
        ([b, s, hidden], Ok(heads)) if heads > 0 && hidden % heads == 0 => {
            transpose(&array.reshaped([*b, *s, heads, hidden / heads])?, &[0, 2, 1, 3], cx.memory())
        }
        (shape, _) => invalid(format!("{heads} heads in the shape {shape:?}")),
    }
}

/// The past at input `index`, if it is given, followed by what is new along the sequence.
fn appended(cx: &Eval<'_>, index: usize, new: Array) -> Result<Array, OpError> {
    let Some(past) = cx.opt_array(index)? else { return Ok(new) };
    let ([b, h, before, d], [nb, nh, added, nd]) = (past.shape(), new.shape()) else {
        return invalid(format!("a past of shape {:?}", past.shape()));
    };
    if [b, h, d] != [nb, nh, nd] || past.dtype() != new.dtype() {
        return invalid(format!("a past of shape {:?} before {:?}", past.shape(), new.shape()));
    }
    let Some(total) = before.checked_add(*added) else {
        return Err(OpError::TooLarge { needed: u64::MAX, left: 0 });
    };
    let shape = [*b, *h, total, *d];
    let count = cx.count(&shape)?;
    each_elem!(&new, T => {
        cx.reserve::<T>(count)?;
        let mut joined = Vec::with_capacity(count);
        if count > 0 {
            let (past, new) = (past.slice::<T>()?, new.slice::<T>()?);
            for head in 0..b * h {
                joined.extend_from_slice(&past[head * before * d..][..before * d]);
                joined.extend_from_slice(&new[head * added * d..][..added * d]);
            }
        }
        Array::with_dtype(new.dtype(), shape, joined)
    })
}

/// The result and, if somebody wants them, the scores at the stage that the mode names.
fn attend<T: Transcendental + Product>(
    cx: &Eval<'_>,
    heads: &Heads,
    past: usize,
) -> Result<(Array, Option<Array>), OpError> {
    let mode = if cx.call.wants(3) { Some(cx.call.int("qk_matmul_output_mode")?) } else { None };
    let mut kept = None;
    let mut keep = |stage: i64, scores: &[T]| {
        if mode == Some(stage) {
            cx.reserve::<T>(scores.len())?;
            kept = Some(Array::new(heads.scores_shape(), scores.to_vec())?);
        }
        Ok::<(), OpError>(())
    };
    let mut scores = heads.scores(cx, T::from_f64(scale(cx, heads.head_size)?))?;
    keep(0, &scores)?;
    let cap = T::from_f64(cx.call.float("softcap")?.into());
    if cap != T::ZERO {
        each_piece(&mut scores, heads.keys, heads.keys, &|_, scores| {
            scores.iter_mut().for_each(|x| *x = num_traits::Float::tanh(*x / cap) * cap);
        });
    }
    keep(1, &scores)?;
    let bias = Bias::of(cx, heads, past)?;
    each_piece(&mut scores, heads.keys, heads.keys, &|row, scores| bias.add(row, scores));
    keep(2, &scores)?;
    each_piece(&mut scores, heads.keys, heads.keys, &|row, scores| {
        if bias.hides_all(row) { scores.fill(T::ZERO) } else { softmax(scores) }
    });
    keep(3, &scores)?;
    if mode.is_some() && kept.is_none() {
        return invalid(format!("qk_matmul_output_mode = {}", mode.unwrap_or_default()));
    }
    Ok((heads.mix(cx, &scores)?, kept))
}
