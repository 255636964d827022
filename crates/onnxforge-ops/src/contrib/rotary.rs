//! Rotary position embeddings.

use super::attention::split_heads;
use crate::array::each_float;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::kernel::number::Float;
use crate::kernel::strided::transpose;
use crate::{Array, Value};

/// Cosines and sines, one row for each position.
pub struct Caches<'a, T> {
    cos: &'a [T],
    sin: &'a [T],
    positions: usize,
    half: usize,
}

impl<'a, T: Float> Caches<'a, T> {
    /// The caches in two matrices of one shape.
    pub fn new(cos: &'a Array, sin: &'a Array) -> Result<Self, OpError> {
        match *cos.shape() {
            [positions, half] if cos.shape() == sin.shape() => {
                Ok(Self { cos: cos.slice()?, sin: sin.slice()?, positions, half })
            }
            _ => invalid(format!("cosines {:?} and sines {:?}", cos.shape(), sin.shape())),
        }
    }
}

/// Each vector of (batch, head, position, feature) rotated by its position. Features are rotated in pairs: neighbours when
/// `interleaved`, else one of the first and one of the second half. Features past twice the caches' width stay.
pub fn rotate<T: Float>(
    x: Array,
    caches: &Caches<'_, T>,
    interleaved: bool,
    position: impl Fn(usize, usize) -> i64,
) -> Result<Array, OpError> {
    let shape = x.shape().to_vec();
    let &[_, heads, places, head] = &shape[..] else { return invalid(format!("vectors of shape {shape:?}")) };
    let half = caches.half;
    if half > head / 2 {
        return invalid(format!("{half} rotations for {head} features"));
    }
    let mut data = x.into_vec::<T>()?;
    for (index, vector) in data.chunks_mut(head.max(1)).enumerate() {
        let (batch, place) = (index / (heads * places), index % places);
        let position = position(batch, place);
        let Some(row) = usize::try_from(position).ok().filter(|&row| row < caches.positions) else {
            return invalid(format!("the position {position} of {}", caches.positions));
        };
        let (cos, sin) = (&caches.cos[row * half..][..half], &caches.sin[row * half..][..half]);
        for (i, (&cos, &sin)) in cos.iter().zip(sin).enumerate() {
            let (a, b) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
            let (x, y) = (vector[a], vector[b]);
            vector[a] = x * cos - y * sin;
            vector[b] = y * cos + x * sin;
        }
    }
    Array::new(shape, data)
}

pub(super) fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.call.flag("is_packed_batching")? || cx.call.float_or("scale", 1.0)? != 1.0 {
        return unsupported("rotation of packed batches or with a scale");
    }
    let x = cx.array(0)?;
    each_float!(x, T => rotated::<T>(cx, x))
}

fn rotated<T: Float>(cx: &Eval<'_>, x: &Array) -> Result<Vec<Value>, OpError> {
    let caches = Caches::<T>::new(cx.array(2)?, cx.array(3)?)?;
    let given = cx.call.int_or("num_heads", 0)?;
    let heads = match (x.shape(), usize::try_from(given)) {
        (&[_, heads, _, _], _) => heads,
        (_, Ok(heads @ 1..)) => heads,
        // Without the attribute the caches are as wide as half a head.
        (&[_, _, hidden], _) if caches.half > 0 => hidden / caches.half.saturating_mul(2),
        _ => return invalid(format!("vectors of shape {:?}", x.shape())),
    };
    if heads == 0 {
        return invalid("rotation of no heads");
    }
    let split = if x.rank() == 4 { x.clone() } else { split_heads(cx, x, heads)? };
    let &[batch, _, places, head] = split.shape() else { return invalid("vectors without four axes") };
    let width = cx.call.int_or("rotary_embedding_dim", 0)?;
    let width = if width == 0 { head } else { usize::try_from(width).unwrap_or(usize::MAX) };
    if width != caches.half.saturating_mul(2) {
        return invalid(format!("{} rotations for {width} features", caches.half));
    }
    let ids = cx.array(1)?;
    let positions = ids.to_i64s()?;
    let position = |batch: usize, place: usize| match positions[..] {
        [first] => first.saturating_add(place as i64),
        _ => positions[batch * places + place],
    };
    if positions.len() != 1 && ids.shape() != [batch, places] {
        return invalid(format!("positions of shape {:?}", ids.shape()));
    }
    let out = rotate(split, &caches, cx.call.flag("interleaved")?, position)?;
    match x.rank() {
        4 => one(out),
        _ => one(transpose(&out, &[0, 2, 1, 3], cx.memory())?.reshaped(x.shape())?),
    }
}
