//! Which keys a query may see.

use super::{Row, Sizes};
use crate::Array;
use crate::error::{OpError, invalid, unsupported};
use crate::kernel::number::Float;

/// Which keys count.
enum Padding {
    All,
    /// For each example the keys from the first up to the second number.
    Ranges(Vec<(usize, usize)>),
    /// For each example and key.
    Keys(Vec<bool>),
    /// For each example, query and key.
    Pairs(Vec<bool>),
}

/// Which keys a query may see, and what is added to the scores of those that it may not.
pub struct Mask<T> {
    padding: Padding,
    /// A query sees no key that comes after it; positions of queries start at this number.
    causal: Option<usize>,
    filter: T,
    sizes: Sizes,
}

impl<T: Float> Mask<T> {
    /// The mask that a tensor of integers describes, if there is one: lengths, ends and starts, or 0 and 1 for each key
    /// or each pair of query and key.
    pub fn new(
        index: Option<&Array>,
        causal: Option<usize>,
        filter: f32,
        sizes: Sizes,
    ) -> Result<Self, OpError> {
        let padding = match index {
            Some(index) => padding(index, sizes)?,
            None => Padding::All,
        };
        // A single query comes after all keys.
        let causal = causal.filter(|_| sizes.queries > 1);
        Ok(Self { padding, causal, filter: T::from_f64(filter.into()), sizes })
    }

    /// Adds the mask to a row of scores.
    pub fn apply(&self, row: Row, scores: &mut [T]) {
        let Sizes { queries, keys, .. } = self.sizes;
        let kept: &dyn Fn(usize) -> bool = match &self.padding {
            Padding::All => &|_| true,
            Padding::Ranges(ranges) => {
                let (start, end) = ranges[row.batch];
                &move |key| (start..end).contains(&key)
            }
            Padding::Keys(keep) => &|key| keep[row.batch * keys + key],
            Padding::Pairs(keep) => &|key| keep[(row.batch * queries + row.query) * keys + key],
        };
        // The last query sees everything, as it does in every runtime.
        let last =
            self.causal.filter(|_| row.query + 1 < queries).map_or(keys, |first| first + row.query + 1);
        for (key, score) in scores.iter_mut().enumerate() {
            if key >= last {
                *score += T::min_value();
            } else if !kept(key) {
                *score += self.filter;
            }
        }
    }
}

fn padding(index: &Array, Sizes { batch, queries, keys, .. }: Sizes) -> Result<Padding, OpError> {
    let values = index.to_i64s()?;
    let flags = || values.iter().map(|&value| value > 0).collect();
    let position = |value: i64| usize::try_from(value.max(0)).unwrap_or(0).min(keys);
    match *index.shape() {
        [count] if count == batch || count == batch.saturating_mul(3).saturating_add(2) => {
            Ok(Padding::Ranges(values.iter().take(batch).map(|&end| (0, position(end))).collect()))
        }
        [count] if count == batch.saturating_mul(2) => {
            let (ends, starts) = values.split_at(batch);
            let range = |(&end, &start)| (position(start), position(end));
            Ok(Padding::Ranges(ends.iter().zip(starts).map(range).collect()))
        }
        [examples, count] if examples == batch && count == keys => Ok(Padding::Keys(flags())),
        // A stand-in that old converters write where there is no mask.
        [examples, 1] if examples == batch || examples == 1 => Ok(Padding::All),
        [examples, rows, columns] if [examples, rows, columns] == [batch, queries, keys] => {
            Ok(Padding::Pairs(flags()))
        }
        [_, _, _, _] => unsupported("an attention mask with four axes"),
        _ => invalid(format!("an attention mask of shape {:?}", index.shape())),
    }
}
