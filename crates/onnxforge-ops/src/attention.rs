//! Attention: values mixed by how well keys answer queries.

mod bias;
mod flex;
mod linear;
mod rotary;
mod scaled;

use super::array::Array;
use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::Eval;
use super::kernel::convert::to_float;
use super::kernel::gemm::Matrix;
use super::kernel::number::Float;
use super::kernel::product::{Product, batched};

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("Attention", Category::NeuralLayer, scaled::infer, scaled::eval).widening(),
    OpDef::new("RotaryEmbedding", Category::NeuralLayer, rotary::infer, rotary::eval).widening(),
    OpDef::new("LinearAttention", Category::NeuralLayer, linear::infer, linear::eval),
    OpDef::new("FlexAttention", Category::NeuralLayer, flex::infer, flex::eval)
        .widening()
        .of("ai.onnx.preview"),
];

/// Queries, keys and values: `batch × heads × sequence × head size` each. Several neighbouring query heads may share a
/// head of keys and values.
struct Heads {
    q: Array,
    k: Array,
    v: Array,
    batch: usize,
    q_heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    head_size: usize,
    v_head_size: usize,
}

impl Heads {
    fn new(q: Array, k: Array, v: Array) -> Result<Self, OpError> {
        let mismatch = || {
            let shapes = [q.shape(), k.shape(), v.shape()];
            invalid(format!("queries, keys and values of the shapes {shapes:?}"))
        };
        let ([b, q_heads, queries, d], [kb, kv_heads, keys, kd], [vb, vh, vs, vd]) =
            (q.shape(), k.shape(), v.shape())
        else {
            return mismatch();
        };
        let agree = [b, kv_heads, keys, b, d] == [kb, vh, vs, vb, kd];
        let shared = q_heads.checked_rem(*kv_heads) == Some(0);
        if !agree || !shared {
            return mismatch();
        }
        let (batch, q_heads, kv_heads) = (*b, *q_heads, *kv_heads);
        let (queries, keys, head_size, v_head_size) = (*queries, *keys, *d, *vd);
        Ok(Self { q, k, v, batch, q_heads, kv_heads, queries, keys, head_size, v_head_size })
    }

    fn scores_shape(&self) -> [usize; 4] {
        [self.batch, self.q_heads, self.queries, self.keys]
    }

    /// How well each key answers each query: `scale · Q · Kᵀ`.
    fn scores<T: Float + Product>(&self, cx: &Eval<'_>, scale: T) -> Result<Vec<T>, OpError> {
        let mut scores = cx.zeros::<T>(&self.scores_shape())?;
        if scores.is_empty() || self.head_size == 0 {
            return Ok(scores);
        }
        cx.reserve::<T>(self.q.len())?;
        let scaled: Vec<T> = self.q.slice::<T>()?.iter().map(|&x| x * scale).collect();
        // The queries that share a head of keys lie one after the other.
        let rows = self.q_heads / self.kv_heads * self.queries;
        let q = Matrix::new(&scaled, rows, self.head_size);
        let k = Matrix::transposed(self.k.slice::<T>()?, self.head_size, self.keys);
        let [q_step, k_step] = [rows * self.head_size, self.keys * self.head_size];
        batched(&mut scores, q, k, T::ONE, &self.offsets(cx, q_step, k_step)?);
        Ok(scores)
    }

    /// The values of each query: `weights · V`, as `batch × heads × queries × head size`.
    fn mix<T: Float + Product>(&self, cx: &Eval<'_>, weights: &[T]) -> Result<Array, OpError> {
        let shape = [self.batch, self.q_heads, self.queries, self.v_head_size];
        let mut out = cx.zeros::<T>(&shape)?;
        if !out.is_empty() && self.keys > 0 {
            let rows = self.q_heads / self.kv_heads * self.queries;
            let weights = Matrix::new(weights, rows, self.keys);
            let values = to_float::<T>(&self.v)?;
            let v = Matrix::new(values.slice::<T>()?, self.keys, self.v_head_size);
            let [w_step, v_step] = [rows * self.keys, self.keys * self.v_head_size];
            batched(&mut out, weights, v, T::ONE, &self.offsets(cx, w_step, v_step)?);
        }
        Array::new(shape, out)
    }

    /// Where the matrices of each head of keys begin. There must be elements.
    fn offsets(&self, cx: &Eval<'_>, left: usize, right: usize) -> Result<Vec<[usize; 2]>, OpError> {
        let count = self.batch * self.kv_heads;
        cx.reserve::<[usize; 2]>(count)?;
        Ok((0..count).map(|index| [index * left, index * right]).collect())
    }
}

/// The factor of the scores: the attribute, or what keeps their variance at that of the elements.
fn scale(cx: &Eval<'_>, head_size: usize) -> Result<f64, OpError> {
    Ok(cx.call.opt_float("scale")?.map_or_else(|| 1.0 / (head_size as f64).sqrt(), f64::from))
}
