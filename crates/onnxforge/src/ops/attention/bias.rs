//! Which keys a query may see, and what is added to their scores.

use std::ops::Range;

use rayon::prelude::*;

use super::Heads;
use crate::ops::array::{Array, Buffer};
use crate::ops::error::{OpError, invalid};
use crate::ops::eval::Eval;
use crate::ops::kernel::map::PARALLEL;
use crate::ops::kernel::number::Float;
use crate::ops::kernel::shape::{broadcast, broadcast_strides};

/// What is added to the scores: a mask, and minus infinity for keys that are out of sight.
pub struct Bias<T> {
    mask: Option<Mask<T>>,
    causal: bool,
    /// How far a query sees to either side of its own place.
    left: Option<i64>,
    right: Option<i64>,
    place: Place,
    heads: usize,
    queries: usize,
    keys: usize,
}

/// Where the first query stands among the keys.
enum Place {
    /// After this many.
    After(i64),
    /// At the end of the keys that are valid, of which each batch has its own number.
    End(Vec<i64>),
}

impl<T: Float> Bias<T> {
    /// As inputs and attributes of an Attention say; `past` keys were there before.
    pub fn of(cx: &Eval<'_>, heads: &Heads, past: usize) -> Result<Self, OpError> {
        let window = |name: &str| match cx.call.int_or(name, -1)? {
            -1 => Ok(None),
            size if size >= 0 => Ok(Some(size)),
            size => invalid(format!("{name} = {size}")),
        };
        let valid = cx.ints(6)?;
        if valid.as_ref().is_some_and(|valid| past > 0 || valid.len() != heads.batch) {
            return invalid("lengths without padding that do not fit the keys");
        }
        Ok(Self {
            mask: cx.opt_array(3)?.map(|mask| Mask::of(cx, mask, heads)).transpose()?,
            causal: cx.call.flag("is_causal")?,
            left: window("left_window_size")?,
            right: window("right_window_size")?,
            place: valid.map_or(Place::After(past as i64), Place::End),
            heads: heads.q_heads,
            queries: heads.queries,
            keys: heads.keys,
        })
    }

    /// The keys that a query sees.
    fn visible(&self, batch: usize, query: usize) -> Range<usize> {
        let keys = self.keys as i64;
        let (before, valid) = match &self.place {
            Place::After(past) => (*past, keys),
            Place::End(valid) => (valid[batch].saturating_sub(self.queries as i64), valid[batch].min(keys)),
        };
        let place = before.saturating_add(query as i64);
        let reach = |size: i64| place.saturating_add(size).saturating_add(1);
        let ends = self.causal.then(|| reach(0)).into_iter().chain(self.right.map(reach));
        let end = ends.fold(valid, i64::min);
        let start = self.left.map_or(0, |size| place.saturating_sub(size)).clamp(0, keys);
        start as usize..end.max(start) as usize
    }

    /// Adds the bias to the scores; answers which rows see no key at all.
    pub fn add(&self, scores: &mut [T]) -> Vec<bool> {
        if scores.is_empty() {
            return Vec::new();
        }
        let row = |(index, scores): (usize, &mut [T])| {
            let (head, query) = (index / self.queries, index % self.queries);
            let (batch, head) = (head / self.heads, head % self.heads);
            let visible = self.visible(batch, query);
            let hidden = |scores: &mut [T]| scores.iter_mut().for_each(|x| *x = *x + T::neg_infinity());
            hidden(&mut scores[..visible.start]);
            hidden(&mut scores[visible.end..]);
            let seen = &mut scores[visible.clone()];
            match &self.mask {
                None => seen.is_empty(),
                Some(mask) => mask.add(seen, [batch, head, query], visible.start),
            }
        };
        if scores.len() >= PARALLEL {
            let least = (PARALLEL / self.keys).max(1);
            scores.par_chunks_mut(self.keys).enumerate().with_min_len(least).map(row).collect()
        } else {
            scores.chunks_mut(self.keys).enumerate().map(row).collect()
        }
    }
}

/// A mask as numbers to add.
struct Mask<T> {
    data: Vec<T>,
    /// Steps along batches, heads and queries.
    strides: [usize; 3],
    /// How many keys a row tells about; those after it are hidden.
    len: usize,
    /// Each row is one number for every key.
    repeats: bool,
}

impl<T: Float> Mask<T> {
    fn of(cx: &Eval<'_>, mask: &Array, heads: &Heads) -> Result<Self, OpError> {
        let mismatch = || {
            let scores = heads.scores_shape();
            invalid(format!("a mask of shape {:?} for scores of shape {scores:?}", mask.shape()))
        };
        let [rest @ .., len] = mask.shape() else { return mismatch() };
        // Since opset 24 a row may be shorter than the keys; one element is then one key.
        let repeats = *len == 1 && heads.keys != 1 && cx.call.since() < 24;
        let rows = [heads.batch, heads.q_heads, heads.queries];
        if (*len > heads.keys && !repeats) || rest.len() > 3 || broadcast(&[rest, &rows])? != rows {
            return mismatch();
        }
        cx.reserve::<T>(mask.len())?;
        let data = match mask.buffer() {
            Buffer::Bool(data) => {
                data.iter().map(|&seen| if seen { T::ZERO } else { T::neg_infinity() }).collect()
            }
            _ => mask.to_f64s()?.into_iter().map(T::from_f64).collect(),
        };
        let steps = if mask.is_empty() { vec![0; 3] } else { broadcast_strides(rest, &rows) };
        let strides = [steps[0] * len, steps[1] * len, steps[2] * len];
        Ok(Self { data, strides, len: *len, repeats })
    }

    /// Adds to the scores of a row from key `first` on; answers whether all of them are hidden.
    fn add(&self, scores: &mut [T], at: [usize; 3], first: usize) -> bool {
        let start: usize = at.iter().zip(self.strides).map(|(index, stride)| index * stride).sum();
        let mut all_hidden = true;
        for (key, score) in scores.iter_mut().enumerate() {
            let at = if self.repeats { 0 } else { first + key };
            let bias = if at < self.len { self.data[start + at] } else { T::neg_infinity() };
            all_hidden &= bias == T::neg_infinity();
            *score = *score + bias;
        }
        all_hidden
    }
}
