//! Axes in another order: Transpose, DepthToSpace, SpaceToDepth.

use super::numbered::follow;
use crate::array::Array;
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::strided;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn transpose(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    one(strided::transpose(data, &permutation(&cx.call, data.rank())?, cx.memory())?)
}

pub fn infer_transpose(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else {
        if let Some(perm) = cx.call.opt_ints("perm")? {
            let shape = cx.fresh_shape(perm.len());
            cx.set_shape(0, shape);
        }
        return Ok(());
    };
    let perm = permutation(&cx.call, shape.len())?;
    if !follow(cx, &[0]) {
        cx.set_shape(0, perm.iter().map(|&axis| shape[axis].clone()).collect());
    }
    Ok(())
}

/// The axes of the input in the order of the output.
fn permutation(call: &Call<'_>, rank: usize) -> Result<Vec<usize>, OpError> {
    let Some(perm) = call.opt_ints("perm")? else { return Ok((0..rank).rev().collect()) };
    if perm.len() != rank {
        return invalid(format!("the permutation {perm:?} for {rank} axes"));
    }
    crate::call::axes(&perm, rank)
}

/// How a square of `block` × `block` pixels is laid out as channels.
struct Blocks {
    block: usize,
    /// The place in the square is the slower part of a channel's number.
    depth_last: bool,
}

impl Blocks {
    fn of(call: &Call<'_>) -> Result<Self, OpError> {
        let block = call.int("blocksize")?;
        let Some(block) = usize::try_from(block).ok().filter(|block| *block > 0) else {
            return invalid(format!("the block size {block}"));
        };
        match call.text_or("mode", "DCR")?.as_str() {
            "DCR" => Ok(Self { block, depth_last: true }),
            "CRD" => Ok(Self { block, depth_last: false }),
            other => unsupported(format!("the mode {other}")),
        }
    }

    /// The number of pixels in a block.
    fn area(&self) -> Result<usize, OpError> {
        match self.block.checked_mul(self.block) {
            Some(area) => Ok(area),
            None => invalid(format!("the block size {}", self.block)),
        }
    }

    /// `block²` as a dimension and `block` as a dimension.
    fn dims(&self) -> Result<(Dim, Dim), OpError> {
        Ok((Dim::from(self.area()? as i64), Dim::from(self.block as i64)))
    }
}

/// The four dimensions of an image.
fn image<D: Clone + std::fmt::Debug>(shape: &[D]) -> Result<[D; 4], OpError> {
    match shape.to_vec().try_into() {
        Ok(dims) => Ok(dims),
        Err(shape) => invalid(format!("four axes are needed, not the shape {shape:?}")),
    }
}

/// The array seen with the shape `through`, transposed, and seen with the shape `to`.
fn rearrange(
    cx: &Eval<'_>,
    data: &Array,
    through: [usize; 6],
    perm: [usize; 6],
    to: [usize; 4],
) -> Result<Vec<Value>, OpError> {
    one(strided::transpose(&data.reshaped(through)?, &perm, cx.memory())?.reshaped(to)?)
}

pub fn depth_to_space(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    let blocks = Blocks::of(&cx.call)?;
    let ([n, c, h, w], b) = (image(data.shape())?, blocks.block);
    let depth = c / blocks.area()?;
    let to = [n, depth, h.saturating_mul(b), w.saturating_mul(b)];
    if blocks.depth_last {
        rearrange(cx, data, [n, b, b, depth, h, w], [0, 3, 4, 1, 5, 2], to)
    } else {
        rearrange(cx, data, [n, depth, b, b, h, w], [0, 1, 4, 2, 5, 3], to)
    }
}

pub fn infer_depth_to_space(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (area, block) = Blocks::of(&cx.call)?.dims()?;
    let shape = match cx.shape(0) {
        None => cx.fresh_shape(4),
        Some(shape) => {
            let [n, c, h, w] = image(shape)?;
            let depth = c.floor_div(&area, cx.symbols);
            vec![n, cx.or_fresh(depth), cx.or_fresh(h.mul(&block)), cx.or_fresh(w.mul(&block))]
        }
    };
    cx.set_shape(0, shape);
    Ok(())
}

pub fn space_to_depth(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    let blocks = Blocks::of(&cx.call)?;
    let ([n, c, h, w], b) = (image(data.shape())?, blocks.block);
    let through = [n, c, h / b, b, w / b, b];
    let to = [n, c.saturating_mul(blocks.area()?), h / b, w / b];
    if blocks.depth_last {
        rearrange(cx, data, through, [0, 3, 5, 1, 2, 4], to)
    } else {
        rearrange(cx, data, through, [0, 1, 3, 5, 2, 4], to)
    }
}

pub fn infer_space_to_depth(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (area, block) = Blocks::of(&cx.call)?.dims()?;
    let shape = match cx.shape(0) {
        None => cx.fresh_shape(4),
        Some(shape) => {
            let [n, c, h, w] = image(shape)?;
            let (h, w) = (h.floor_div(&block, cx.symbols), w.floor_div(&block, cx.symbols));
            vec![n, cx.or_fresh(c.mul(&area)), cx.or_fresh(h), cx.or_fresh(w)]
        }
    };
    cx.set_shape(0, shape);
    Ok(())
}
