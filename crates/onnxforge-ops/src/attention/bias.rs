//! Which keys a query may see, and what is added to their scores.

use std::ops::Range;

use super::Heads;
use crate::array::{Array, Buffer};
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::kernel::number::Float;
use crate::kernel::shape::{broadcast, broadcast_strides};

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

    /// The batch, the head and the query of a row of scores.
    fn place(&self, row: usize) -> [usize; 3] {
        let (head, query) = (row / self.queries, row % self.queries);
        [head / self.heads, head % self.heads, query]
    }

    /// Adds the bias to a row of scores.
    pub fn add(&self, row: usize, scores: &mut [T]) {
        let place = self.place(row);
        let visible = self.visible(place[0], place[2]);
        let hide = |scores: &mut [T]| scores.iter_mut().for_each(|x| *x += T::neg_infinity());
        hide(&mut scores[..visible.start]);
        hide(&mut scores[visible.end..]);
        if let Some(mask) = &self.mask {
            let mask = mask.row(place);
            for (key, score) in visible.clone().zip(&mut scores[visible]) {
                *score += mask.at(key);
            }
        }
    }

    /// Whether no key takes part in a row of scores.
    pub fn hides_all(&self, row: usize) -> bool {
        let place = self.place(row);
        let mut visible = self.visible(place[0], place[2]);
        match &self.mask {
            None => visible.is_empty(),
            Some(mask) => {
                let mask = mask.row(place);
                visible.all(|key| mask.at(key) == T::neg_infinity())
            }
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

    fn row(&self, place: [usize; 3]) -> MaskRow<'_, T> {
        let start: usize = place.iter().zip(self.strides).map(|(index, stride)| index * stride).sum();
        MaskRow { data: &self.data[start..][..self.len], repeats: self.repeats }
    }
}

/// What a mask adds to one row of scores.
struct MaskRow<'a, T> {
    data: &'a [T],
    repeats: bool,
}

impl<T: Float> MaskRow<'_, T> {
    fn at(&self, key: usize) -> T {
        let key = if self.repeats { 0 } else { key };
        self.data.get(key).copied().unwrap_or(T::neg_infinity())
    }
}
