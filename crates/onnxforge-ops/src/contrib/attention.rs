//! Attention: what the forms of it share.

pub mod grouped;
mod mask;
pub mod multi_head;
pub mod packed;

use crate::Array;
use crate::array::Typed;
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::gemm::{Matrix, gemm};
use crate::kernel::number::Float;
use crate::kernel::strided::transpose;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::parallel::{for_each, thread_count};

/// Sizes of an attention. Several heads of queries may share one head of keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub head: usize,
    pub value_head: usize,
}

/// Which row of scores it is.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub batch: usize,
    pub head: usize,
    pub query: usize,
}

/// Each query's mean of the values, weighted by how well the keys fit. `q`, `k` and `v` are split into heads
/// (batch, head, position, feature); the result is not. `weigh` turns a row of scaled scores into weights.
pub fn attend<T: Float>(
    cx: &Eval<'_>,
    sizes: Sizes,
    [q, k, v]: [&[T]; 3],
    scale: T,
    weigh: impl Fn(Row, &mut [T]) + Sync,
) -> Result<Array, OpError> {
    let Sizes { batch, heads, kv_heads, queries, keys, head, value_head } = sizes;
    let mut out = cx.zeros::<T>(&[batch, heads, queries, value_head])?;
    cx.reserve::<T>(queries.saturating_mul(keys).saturating_mul(thread_count()))?;
    let group = heads / kv_heads.max(1);
    let one_head = |(index, out): (usize, &mut [T])| {
        let (batch, n) = (index / heads, index % heads);
        let kv = batch * kv_heads + n / group.max(1);
        let q = Matrix::new(&q[index * queries * head..], queries, head);
        let k = Matrix::transposed(&k[kv * keys * head..], head, keys);
        let v = Matrix::new(&v[kv * keys * value_head..], keys, value_head);
        let mut scores = vec![T::ZERO; queries * keys];
        gemm(&mut scores, q, k, scale, false, false);
        for (query, row) in scores.chunks_mut(keys.max(1)).enumerate() {
            weigh(Row { batch, head: n, query }, row);
        }
        gemm(out, Matrix::new(&scores, queries, keys), v, T::ONE, false, false);
    };
    if !out.is_empty() {
        for_each(out.chunks_exact_mut(queries * value_head).enumerate(), 1, one_head);
    }
    let split = Array::new([batch, heads, queries, value_head], out)?;
    transpose(&split, &[0, 2, 1, 3], cx.memory())?.reshaped([
        batch,
        queries,
        heads.saturating_mul(value_head),
    ])
}

/// What is added to scores, the same for several examples or heads where a dimension is 1.
pub struct ScoreBias<'a, T> {
    data: &'a [T],
    examples: usize,
    heads: usize,
    queries: usize,
    keys: usize,
}

impl<'a, T: Typed> ScoreBias<'a, T> {
    /// The bias in a tensor of shape (batch or 1, heads or 1, queries, keys).
    pub fn new(array: &'a Array, sizes: Sizes) -> Result<Self, OpError> {
        match *array.shape() {
            [examples, heads, queries, keys]
                if (examples == 1 || examples == sizes.batch)
                    && (heads == 1 || heads == sizes.heads)
                    && queries == sizes.queries
                    && keys == sizes.keys =>
            {
                Ok(Self { data: array.slice()?, examples, heads, queries, keys })
            }
            ref shape => invalid(format!("an attention bias of shape {shape:?}")),
        }
    }

    /// What belongs to a row of scores.
    pub fn row(&self, row: Row) -> &'a [T] {
        let example = if self.examples == 1 { 0 } else { row.batch };
        let head = if self.heads == 1 { 0 } else { row.head };
        &self.data[((example * self.heads + head) * self.queries + row.query) * self.keys..][..self.keys]
    }
}

/// Adds one row to another.
pub fn add<T: Float>(row: &mut [T], other: &[T]) {
    row.iter_mut().zip(other).for_each(|(x, &y)| *x += y);
}

/// The factor for scores: the attribute, or 1/√head where it is 0 or not given.
pub fn score_scale<T: Float>(call: &Call<'_>, head: usize) -> Result<T, OpError> {
    match call.float_or("scale", 0.0)? {
        0.0 => Ok(T::ONE / num_traits::Float::sqrt(T::from_f64(head as f64))),
        scale => Ok(T::from_f64(scale.into())),
    }
}

/// A count that an attribute must give.
pub fn count_attr(call: &Call<'_>, name: &str) -> Result<usize, OpError> {
    let count = call.int(name)?;
    match usize::try_from(count) {
        Ok(count @ 1..=0xffff) => Ok(count),
        _ => invalid(format!("the attribute {name} is {count}")),
    }
}

/// (batch, position, head · feature) as (batch, head, position, feature).
pub fn split_heads(cx: &Eval<'_>, x: &Array, heads: usize) -> Result<Array, OpError> {
    match *x.shape() {
        [batch, positions, hidden] if hidden % heads == 0 => {
            transpose(&x.reshaped([batch, positions, heads, hidden / heads])?, &[0, 2, 1, 3], cx.memory())
        }
        _ => invalid(format!("{heads} heads in a tensor of shape {:?}", x.shape())),
    }
}

/// The features with a bias of as many elements added to each position.
pub fn with_bias<T: Float>(x: Array, bias: &[T]) -> Result<Array, OpError> {
    let shape = x.shape().to_vec();
    if shape.last() != Some(&bias.len()) {
        return invalid(format!("a bias of {} elements for the shape {shape:?}", bias.len()));
    }
    let mut data = x.into_vec::<T>()?;
    data.chunks_mut(bias.len().max(1)).for_each(|row| add(row, bias));
    Array::new(shape, data)
}

/// What came before and what is new, along the positions of (batch, head, position, feature).
pub fn joined<T: Float>(cx: &Eval<'_>, past: Option<&Array>, new: Array) -> Result<Array, OpError> {
    let Some(past) = past else { return Ok(new) };
    let ([b, n, before, h], [batch, heads, positions, head]) = (past.shape(), new.shape()) else {
        return invalid(format!("a past of shape {:?}", past.shape()));
    };
    let (Some(total), true) = (before.checked_add(*positions), [b, n, h] == [batch, heads, head]) else {
        return invalid(format!("a past of shape {:?} for {:?}", past.shape(), new.shape()));
    };
    let shape = [*batch, *heads, total, *head];
    let mut out = cx.zeros::<T>(&shape)?;
    if out.is_empty() {
        return Array::new(shape, out);
    }
    let (old_size, new_size) = (before * head, positions * head);
    let (old_data, new_data) = (past.slice::<T>()?, new.slice::<T>()?);
    for (index, out) in out.chunks_exact_mut(total * head).enumerate() {
        let (first, second) = out.split_at_mut(old_size);
        first.copy_from_slice(&old_data[index * old_size..][..old_size]);
        second.copy_from_slice(&new_data[index * new_size..][..new_size]);
    }
    Array::new(shape, out)
}

/// A dimension divided by a number that it is a multiple of.
pub fn divided(cx: &mut Infer<'_>, dim: &Dim, by: i64) -> Dim {
    let quotient = dim.divide_exact(&Dim::from(by)).or_else(|| dim.floor_div(&Dim::from(by), cx.symbols));
    cx.or_fresh(quotient)
}
