//! Counts of n-grams, with gaps between their items.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::{Array, Value};
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::blob::Blob;

pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let width = Dim::from(width(&cx.call.ints("ngram_indexes")?)? as i64);
    match cx.shape(0) {
        Some([rows, _]) => cx.set_shape(0, vec![rows.clone(), width]),
        Some([] | [_]) => cx.set_shape(0, vec![width]),
        Some(shape) => return invalid(format!("items with {} axes", shape.len())),
        None => {}
    }
    Ok(())
}

/// Columns of the result.
fn width(indexes: &[i64]) -> Result<usize, OpError> {
    let last = indexes.iter().max().copied().unwrap_or(-1);
    match usize::try_from(last) {
        Ok(last) if last < i64::MAX as usize && indexes.iter().all(|&index| index >= 0) => Ok(last + 1),
        _ => invalid("ngram_indexes is empty or has a negative element"),
    }
}

pub(super) fn vectorizer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    if x.dtype() == DType::String {
        let pool = cx.call.byte_strings_or("pool_strings", Vec::new())?;
        let pool: Vec<&[u8]> = pool.iter().map(|item| &item[..]).collect();
        let items: Vec<&[u8]> = x.slice::<Blob>()?.iter().map(|item| &item[..]).collect();
        count_all(cx, x, &items, &pool)
    } else {
        let pool = cx.call.ints_or("pool_int64s", Vec::new())?;
        count_all(cx, x, &x.to_i64s()?, &pool)
    }
}

fn count_all<K: Hash + Eq + Copy>(
    cx: &Eval<'_>,
    x: &Array,
    items: &[K],
    pool: &[K],
) -> Result<Vec<Value>, OpError> {
    let limits = Limits::new(&cx.call)?;
    let pool = Pool::new(&cx.call, pool, &limits)?;
    let scale = Scale::new(&cx.call)?;
    let width = width(&scale.indexes)?;
    if pool.count > scale.indexes.len() {
        return invalid(format!("{} n-grams with {} indexes", pool.count, scale.indexes.len()));
    }
    let (rows, length, shape) = match *x.shape() {
        [] => (1, 1, vec![width]),
        [length] => (1, length, vec![width]),
        [rows, length] if rows > 0 => (rows, length, vec![rows, width]),
        _ => return invalid(format!("items of shape {:?}", x.shape())),
    };
    let mut out = cx.zeros::<f32>(&shape)?;
    let mut counts = cx.zeros::<u32>(&[pool.count])?;
    for row in 0..rows {
        counts.fill(0);
        count(cx, &items[row * length..][..length], &pool, &limits, &mut counts)?;
        scale.write(&counts, &mut out[row * width..][..width]);
    }
    one(Array::new(shape, out)?)
}

/// Which n-grams are counted.
struct Limits {
    shortest: usize,
    longest: usize,
    /// Largest distance of neighbours.
    distance: usize,
}

impl Limits {
    fn new(call: &Call<'_>) -> Result<Self, OpError> {
        let read = |name: &str| {
            let value = call.int(name)?;
            usize::try_from(value).or_else(|_| invalid(format!("the attribute {name} is {value}")))
        };
        let limits = Self {
            shortest: read("min_gram_length")?,
            longest: read("max_gram_length")?,
            distance: read("max_skip_count")?.saturating_add(1),
        };
        if limits.shortest == 0 || limits.longest < limits.shortest {
            return invalid(format!("n-grams of {} to {} items", limits.shortest, limits.longest));
        }
        Ok(limits)
    }
}

/// The known n-grams as a tree: each item leads from one node to the next.
struct Pool<K> {
    steps: HashMap<(usize, K), usize>,
    /// The number of the n-gram that ends at a node.
    ends: Vec<Option<usize>>,
    /// How many n-grams the pool holds, counted ones or not.
    count: usize,
}

impl<K: Hash + Eq + Copy> Pool<K> {
    fn new(call: &Call<'_>, items: &[K], limits: &Limits) -> Result<Self, OpError> {
        let mut pool = Self { steps: HashMap::new(), ends: vec![None], count: 0 };
        let starts = call.ints("ngram_counts")?;
        let starts = starts.iter().map(|&start| usize::try_from(start)).collect::<Result<Vec<_>, _>>();
        let Ok(starts) = starts else { return invalid("ngram_counts has a negative element") };
        for (index, &start) in starts.iter().enumerate() {
            let (length, end) = (index + 1, starts.get(index + 1).copied().unwrap_or(items.len()));
            let Some(part) = items.get(start..end).filter(|part| part.len() % length == 0) else {
                return invalid(format!("items {start} to {end} of {} as {length}-grams", items.len()));
            };
            for ngram in part.chunks_exact(length) {
                if (limits.shortest..=limits.longest).contains(&length) {
                    pool.add(ngram)?;
                }
                pool.count += 1;
            }
        }
        Ok(pool)
    }

    fn add(&mut self, ngram: &[K]) -> Result<(), OpError> {
        let mut node = 0;
        for &item in ngram {
            let next = self.ends.len();
            node = *self.steps.entry((node, item)).or_insert(next);
            if node == next {
                self.ends.push(None);
            }
        }
        match self.ends[node].replace(self.count) {
            None => Ok(()),
            Some(_) => invalid("an n-gram that is twice in the pool"),
        }
    }
}

fn count<K: Hash + Eq + Copy>(
    cx: &Eval<'_>,
    row: &[K],
    pool: &Pool<K>,
    limits: &Limits,
    counts: &mut [u32],
) -> Result<(), OpError> {
    for distance in 1..=limits.distance.min(row.len()) {
        cx.check_time()?;
        // Single items have no distance and are counted once.
        let shortest = if distance == 1 { limits.shortest } else { limits.shortest.max(2) };
        for start in 0..row.len() {
            let mut node = 0;
            for (index, &item) in row[start..].iter().step_by(distance).take(limits.longest).enumerate() {
                let Some(&next) = pool.steps.get(&(node, item)) else { break };
                node = next;
                if let Some(ngram) = pool.ends[node].filter(|_| index + 1 >= shortest) {
                    counts[ngram] = counts[ngram].saturating_add(1);
                }
            }
        }
    }
    Ok(())
}

/// How counts become numbers of the result.
struct Scale {
    /// The column of each n-gram.
    indexes: Vec<i64>,
    /// The weight of each n-gram; all are 1 where there is none.
    weights: Vec<f32>,
    /// Only whether an n-gram appears counts, not how often.
    once: bool,
}

impl Scale {
    fn new(call: &Call<'_>) -> Result<Self, OpError> {
        let (mode, indexes) = (call.text("mode")?, call.ints("ngram_indexes")?);
        let weights = if mode == "TF" { Vec::new() } else { call.floats_or("weights", Vec::new())? };
        if !matches!(mode.as_str(), "TF" | "IDF" | "TFIDF") {
            return invalid(format!("the mode {mode}"));
        }
        if !weights.is_empty() && weights.len() != indexes.len() {
            return invalid(format!("{} weights for {} n-grams", weights.len(), indexes.len()));
        }
        let once = mode == "IDF";
        if once && indexes.iter().collect::<BTreeSet<_>>().len() < indexes.len() {
            return unsupported("IDF with several n-grams in one column");
        }
        Ok(Self { indexes, weights, once })
    }

    fn write(&self, counts: &[u32], row: &mut [f32]) {
        for (ngram, (&count, &column)) in counts.iter().zip(&self.indexes).enumerate() {
            let count = if self.once { count.min(1) } else { count };
            let weight = self.weights.get(ngram).copied().unwrap_or(1.0);
            row[column as usize] += count as f32 * weight;
        }
    }
}
