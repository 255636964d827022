//! GroupQueryAttention: several heads of queries share keys and values, and a cache grows with each step.

use super::multi_head::sizes;
use super::{Row, ScoreBias, add, attend, count_attr, divided, score_scale, split_heads};
use crate::array::each_float;
use crate::contrib::rotary::{Caches, rotate};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::line::softmax_with_sink;
use crate::kernel::number::Float;
use crate::kernel::shape::strides;
use crate::kernel::strided::View;
use crate::kernel::transcendental::Transcendental;
use crate::{Array, Value};
use onnxforge_ir::dim::Dim;

pub(in crate::contrib) fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    (0..cx.call.output_count()).for_each(|output| cx.copy_dtype(output, 0));
    if cx.has(3) {
        cx.copy_dtype(1, 3);
        cx.copy_dtype(2, 3);
    }
    let heads = count_attr(&cx.call, "num_heads")? as i64;
    let kv_heads = count_attr(&cx.call, "kv_num_heads")? as i64;
    let Some([batch, queries, width]) = cx.shape(0) else { return Ok(()) };
    let head = if cx.has(1) { divided(cx, width, heads) } else { divided(cx, width, heads + 2 * kv_heads) };
    let hidden = if cx.has(1) { Some(width.clone()) } else { head.mul(&Dim::from(heads)) };
    let hidden = cx.or_fresh(hidden);
    cx.set_shape(0, vec![batch.clone(), queries.clone(), hidden]);
    let total = cx.dims(6).and_then(|total| total.first().cloned());
    let past = match (cx.has(3), cx.shape(3)) {
        (false, _) => Some(Dim::ZERO),
        (true, Some([_, _, past, _])) => Some(past.clone()),
        _ => None,
    };
    let present = match (&total, past) {
        (Some(total), Some(past)) if !cx.call.flag("sliding_window_cache")? => {
            total.maximum(&past, cx.symbols)
        }
        _ => None,
    };
    // A cache of packed numbers has other widths.
    let plain = cx.call.int_or("kv_cache_bit_width", 0)? == 0;
    for output in 1..3 {
        let present = cx.or_fresh(present.clone());
        let head = if plain { head.clone() } else { cx.fresh() };
        cx.set_shape(output, vec![batch.clone(), Dim::from(kv_heads), present, head]);
    }
    for cache in [3, 4] {
        if let Some([of, groups, _, width]) = cx.shape(cache) {
            cx.unify(batch, of)?;
            cx.unify(&Dim::from(kv_heads), groups)?;
            if plain {
                cx.unify(&head, width)?;
            }
        }
    }
    let total = cx.or_fresh(total);
    cx.set_shape(3, vec![batch.clone(), Dim::from(heads), queries.clone(), total]);
    Ok(())
}

pub(in crate::contrib) fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let exotic = cx.call.flag("sliding_window_cache")?
        || cx.call.int_or("kv_cache_bit_width", 0)? != 0
        || cx.call.int_or("qk_output", 0)? != 0
        || cx.call.wants(3)
        || (12..=15).any(|input| cx.has(input));
    if exotic {
        return unsupported("grouped attention with a quantized or sliding cache, normalization or scores");
    }
    let query = cx.array(0)?;
    each_float!(query, T => compute::<T>(cx))
}

fn compute<T: Transcendental>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (q, k, v) = parts(cx)?;
    let new = sizes(&q, &k, &v)?;
    let step = Step::new(cx, new.batch, new.queries)?;
    if new.keys != new.queries {
        return unsupported("grouped attention to another sequence");
    }
    if new.value_head != new.head {
        return invalid(format!("keys of {} features and values of {}", new.head, new.value_head));
    }
    let (q, k) = match cx.call.flag("do_rotary")? {
        true => {
            let caches = Caches::<T>::new(cx.array(7)?, cx.array(8)?)?;
            let interleaved = cx.call.flag("rotary_interleaved")?;
            let position = |batch: usize, place: usize| step.position(batch, place);
            (rotate(q, &caches, interleaved, position)?, rotate(k, &caches, interleaved, position)?)
        }
        false => (q, k),
    };
    let (past_key, past_value) = (cx.opt_array(3)?, cx.opt_array(4)?);
    let k = step.grown::<T>(cx, past_key, &k)?;
    let v = step.grown::<T>(cx, past_value, &v)?;
    let sizes = sizes(&q, &k, &v)?;
    let weigher = Weigher::<T>::new(cx, &step, super::Sizes { keys: step.total, ..sizes })?;
    let all = [q.slice::<T>()?, k.slice::<T>()?, v.slice::<T>()?];
    let scale = score_scale::<T>(&cx.call, sizes.head)?;
    let output = attend(cx, sizes, all, scale, |row, scores| weigher.weigh(row, scores))?;
    Ok(vec![output.into(), k.into(), v.into()])
}

/// Queries, keys and values, split into heads.
fn parts(cx: &Eval<'_>) -> Result<(Array, Array, Array), OpError> {
    let (heads, kv_heads) = (count_attr(&cx.call, "num_heads")?, count_attr(&cx.call, "kv_num_heads")?);
    let query = cx.array(0)?;
    match (cx.opt_array(1)?, cx.opt_array(2)?) {
        (Some(key), Some(value)) => {
            let split = |x: &Array, heads| split_heads(cx, x, heads);
            return Ok((split(query, heads)?, split(key, kv_heads)?, split(value, kv_heads)?));
        }
        (None, None) => {}
        _ => return invalid("keys or values alone"),
    }
    let all = split_heads(cx, query, heads + 2 * kv_heads)?;
    let &[batch, _, positions, head] = all.shape() else { return invalid("queries without three axes") };
    let own = strides(all.shape());
    let part = |first: usize, count: usize| {
        let view = View {
            shape: vec![batch, count, positions, head],
            strides: own.iter().map(|&stride| stride as isize).collect(),
            offset: own[1].saturating_mul(first),
        };
        view.copy(&all, cx.memory())
    };
    Ok((part(0, heads)?, part(heads, kv_heads)?, part(heads + kv_heads, kv_heads)?))
}

/// Where in the sequence this step is.
struct Step {
    /// For each example how many positions there are with this step's.
    lengths: Vec<usize>,
    /// The most that any example has.
    total: usize,
    queries: usize,
    /// Nothing came before.
    first: bool,
    positions: Option<Vec<i64>>,
}

impl Step {
    fn new(cx: &Eval<'_>, batch: usize, queries: usize) -> Result<Self, OpError> {
        let total = cx.array(6)?.to_i64()?;
        let Ok(total) = usize::try_from(total) else { return invalid(format!("{total} positions")) };
        let first = total == queries;
        if !first && queries != 1 && batch != 1 {
            return invalid("several positions of several examples after a past");
        }
        let has_past = cx.has(3) && !first;
        let length = |last: i64| match usize::try_from(last).ok().and_then(|last| last.checked_add(1)) {
            Some(length) if length <= total && (!has_past || length >= queries) => Ok(length),
            _ => invalid(format!("seqlens_k of {last}, where there are {total} positions")),
        };
        let lengths = cx.array(5)?.to_i64s()?.into_iter().map(length).collect::<Result<Vec<_>, _>>()?;
        let positions = cx.opt_array(9)?.map(Array::to_i64s).transpose()?;
        let needed = if first { 1 } else { batch.saturating_mul(queries) };
        let enough = positions.as_ref().is_none_or(|positions| positions.len() >= needed);
        if lengths.len() != batch || !enough {
            return invalid(format!("{} lengths for {batch} examples", lengths.len()));
        }
        Ok(Self { lengths, total, queries, first, positions })
    }

    /// How many positions came before this step's.
    fn before(&self, batch: usize) -> usize {
        if self.first { 0 } else { self.lengths[batch].saturating_sub(self.queries) }
    }

    /// The position by which a query or key is rotated.
    fn position(&self, batch: usize, place: usize) -> i64 {
        match (&self.positions, self.first) {
            // At the first step only the first position counts.
            (Some(positions), true) => positions[0].saturating_add(place as i64),
            (Some(positions), false) => positions[batch * self.queries + place],
            (None, _) => (self.before(batch) + place) as i64,
        }
    }

    /// The cache with this step's keys or values behind what came before, and zeros behind them.
    fn grown<T: Float>(&self, cx: &Eval<'_>, past: Option<&Array>, new: &Array) -> Result<Array, OpError> {
        let &[batch, heads, positions, head] = new.shape() else {
            return invalid("a cache without four axes");
        };
        let (old, old_length): (&[T], usize) = match past {
            Some(past) => match *past.shape() {
                [b, n, length, h] if [b, n, h] == [batch, heads, head] => (past.slice()?, length),
                _ => return invalid(format!("a past of shape {:?} for {:?}", past.shape(), new.shape())),
            },
            None => (&[], 0),
        };
        let length = self.total.max(old_length);
        let mut out = cx.zeros::<T>(&[batch, heads, length, head])?;
        if out.is_empty() {
            return Array::new([batch, heads, length, head], out);
        }
        let new = new.slice::<T>()?;
        for (index, out) in out.chunks_exact_mut(length * head).enumerate() {
            let before = if past.is_some() { self.before(index / heads) } else { 0 };
            if before > old_length || before + positions > length {
                return invalid(format!("{before} positions of a past of {old_length}"));
            }
            let (past, rest) = out.split_at_mut(before * head);
            past.copy_from_slice(&old[index * old_length * head..][..before * head]);
            rest[..positions * head].copy_from_slice(&new[index * positions * head..][..positions * head]);
        }
        Array::new([batch, heads, length, head], out)
    }
}

/// How scores become weights.
struct Weigher<'a, T> {
    step: &'a Step,
    has_past: bool,
    causal: bool,
    window: Option<usize>,
    softcap: T,
    bias: Option<ScoreBias<'a, T>>,
    /// For each head what goes to nothing.
    sinks: Option<Vec<T>>,
}

impl<'a, T: Transcendental> Weigher<'a, T> {
    fn new(cx: &'a Eval<'_>, step: &'a Step, sizes: super::Sizes) -> Result<Self, OpError> {
        let sinks = match cx.opt_array(11)? {
            Some(sinks) if sinks.len() == sizes.heads => Some(sinks.slice::<T>()?.to_vec()),
            Some(sinks) => return invalid(format!("{} sinks for {} heads", sinks.len(), sizes.heads)),
            None => cx.call.flag("smooth_softmax")?.then(|| vec![T::ZERO; sizes.heads]),
        };
        Ok(Self {
            step,
            has_past: cx.has(3),
            causal: cx.call.int_or("causal", 1)? != 0,
            window: usize::try_from(cx.call.int_or("local_window_size", -1)?).ok(),
            softcap: T::from_f64(cx.call.float_or("softcap", 0.0)?.into()),
            bias: cx.opt_array(10)?.map(|bias| ScoreBias::new(bias, sizes)).transpose()?,
            sinks,
        })
    }

    /// Weights for the keys that the query sees, 0 for the others.
    fn weigh(&self, row: Row, scores: &mut [T]) {
        let length = self.step.lengths[row.batch];
        let before = if self.has_past { self.step.before(row.batch) } else { 0 };
        let end = if self.causal { (before + row.query + 1).min(length) } else { length };
        let start = self.window.map_or(0, |window| end.saturating_sub(window));
        let (head, rest) = scores.split_at_mut(start.min(scores.len()));
        let (seen, tail) = rest.split_at_mut((end - start).min(rest.len()));
        head.fill(T::ZERO);
        tail.fill(T::ZERO);
        if self.softcap > T::ZERO {
            let cap = |x: T| self.softcap * num_traits::Float::tanh(x / self.softcap);
            seen.iter_mut().for_each(|score| *score = cap(*score));
        }
        if let Some(bias) = &self.bias {
            add(seen, &bias.row(row)[start..]);
        }
        softmax_with_sink(seen, self.sinks.as_ref().map(|sinks| sinks[row.head]));
    }
}
