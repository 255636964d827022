//! RotaryEmbedding: pairs of elements turned by angles that depend on the place in the sequence.

use crate::array::{Array, each_float};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::{Infer, same_as_input};
use crate::kernel::number::Float;
use crate::kernel::parallel::each_piece;
use crate::value::Value;

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    match cx.rank(0) {
        None | Some(3 | 4) => same_as_input(cx),
        Some(rank) => invalid(format!("embeddings with {rank} axes")),
    }
}

/// The sizes of the input, whose rows are either `batch, head, sequence` or `batch, sequence, head`.
struct Layout {
    batch: usize,
    sequence: usize,
    heads: usize,
    head_size: usize,
    heads_first: bool,
}

impl Layout {
    fn of(cx: &Eval<'_>, x: &Array) -> Result<Self, OpError> {
        match *x.shape() {
            [batch, heads, sequence, head_size] => {
                Ok(Self { batch, sequence, heads, head_size, heads_first: true })
            }
            [batch, sequence, hidden] => {
                let heads = cx.call.int("num_heads")?;
                match usize::try_from(heads) {
                    Ok(heads) if heads > 0 && hidden % heads == 0 => {
                        Ok(Self { batch, sequence, heads, head_size: hidden / heads, heads_first: false })
                    }
                    _ => invalid(format!("{heads} heads in the shape {:?}", x.shape())),
                }
            }
            _ => invalid(format!("embeddings of shape {:?}", x.shape())),
        }
    }

    /// The place of a row as `batch · sequence + position`.
    fn place(&self, row: usize) -> usize {
        if self.heads_first {
            row / (self.heads * self.sequence) * self.sequence + row % self.sequence
        } else {
            row / self.heads
        }
    }
}

pub fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    let layout = Layout::of(cx, &x)?;
    let turned = match cx.call.int("rotary_embedding_dim")? {
        0 => layout.head_size,
        turned => usize::try_from(turned).unwrap_or(usize::MAX),
    };
    if turned > layout.head_size || turned % 2 != 0 {
        return invalid(format!("{turned} elements turned in pairs, of {}", layout.head_size));
    }
    if x.is_empty() || turned == 0 {
        return one(x);
    }
    let (cos, sin) = (cx.array(1)?, cx.array(2)?);
    let angles = angle_rows(cx, &layout, cos, turned / 2)?;
    if sin.shape() != cos.shape() {
        return invalid(format!("cosines of shape {:?} and sines of {:?}", cos.shape(), sin.shape()));
    }
    let interleaved = cx.call.flag("interleaved")?;
    let shape = x.shape().to_vec();
    each_float!(&x, T => {
        let (cos, sin) = (cos.slice::<T>()?, sin.slice::<T>()?);
        cx.reserve::<T>(x.len())?;
        let mut data = x.into_vec::<T>()?;
        each_piece(&mut data, layout.head_size, layout.head_size, &|row, data| {
            let at = angles[layout.place(row)] * (turned / 2);
            turn(&mut data[..turned], &cos[at..], &sin[at..], interleaved);
        });
        one(Array::new(shape, data)?)
    })
}

/// For each place in each batch, the row of the cache that has its angles.
fn angle_rows(cx: &Eval<'_>, layout: &Layout, cache: &Array, half: usize) -> Result<Vec<usize>, OpError> {
    let places = layout.batch * layout.sequence;
    cx.reserve::<usize>(places)?;
    match (cache.shape(), cx.opt_array(3)?) {
        ([rows, width], Some(positions)) if *width == half => {
            if positions.shape() != [layout.batch, layout.sequence] {
                return invalid(format!("positions of shape {:?}", positions.shape()));
            }
            let row = |position: i64| {
                let from_end = if position < 0 { position.checked_add(*rows as i64) } else { Some(position) };
                match from_end.and_then(|row| usize::try_from(row).ok()).filter(|row| row < rows) {
                    Some(row) => Ok(row),
                    None => invalid(format!("the position {position} of {rows}")),
                }
            };
            positions.to_i64s()?.into_iter().map(row).collect()
        }
        ([batch, sequence, width], None) if *width == half && *sequence == layout.sequence => match *batch {
            1 => Ok((0..places).map(|place| place % layout.sequence).collect()),
            batch if batch == layout.batch => Ok((0..places).collect()),
            _ => invalid(format!("angles for {batch} batches of {}", layout.batch)),
        },
        (shape, _) => invalid(format!("cosines of shape {shape:?} for {half} pairs")),
    }
}

/// Turns each pair of elements: halves apart, or neighbours when `interleaved`.
fn turn<T: Float>(data: &mut [T], cos: &[T], sin: &[T], interleaved: bool) {
    let half = data.len() / 2;
    for (pair, (&cos, &sin)) in cos.iter().zip(sin).take(half).enumerate() {
        let (i, j) = if interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
        let (x, y) = (data[i], data[j]);
        data[i] = cos * x - sin * y;
        data[j] = sin * x + cos * y;
    }
}
