//! Resampling: resized tensors, samples on a grid, and the grids themselves.

mod affine;
mod grid;
mod infer;
mod request;
mod taps;

use super::array::{Array, Buffer, Elem, each_elem, each_number};
use super::def::{Category, OpDef};
use super::error::OpError;
use super::eval_call::{Eval, one};
use super::kernel::number::{Float, Number};
use super::kernel::parallel::each_piece;
use super::kernel::shape::around;
use super::value::Value;
use request::{AxisRequest, Request};
use taps::Taps;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("Resize", Category::Manipulation, infer::infer, resize).widening(),
    OpDef::new("Upsample", Category::Manipulation, infer::infer, resize).widening(),
    OpDef::new("GridSample", Category::Manipulation, grid::infer, grid::grid_sample).widening(),
    OpDef::new("AffineGrid", Category::Manipulation, affine::infer, affine::affine_grid).widening(),
];

fn resize(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let request = Request::of(cx)?;
    let x = cx.take(0)?;
    let shape: Vec<usize> = request.axes.iter().map(|axis| axis.output).collect();
    if shape.contains(&0) {
        return each_elem!(x, T => one(Array::with_dtype(x.dtype(), shape, Vec::<T>::new())?));
    }
    // The last axis first: those before it then move whole rows.
    let mut steps = Vec::new();
    let changed = |(_, axis): &(usize, &AxisRequest)| !axis.is_unchanged(request.transform);
    for (index, axis) in request.axes.iter().enumerate().filter(changed).rev() {
        let taps = Taps::of(cx, &request, axis)?;
        steps.push(Step { index, output: axis.output, taps });
    }
    if request.is_nearest() {
        return one(extrapolate(&request, pick(cx, x, &steps)?, &steps)?);
    }
    let resampled = match x.buffer() {
        Buffer::F32(_) => resample::<f32>(cx, x, &steps)?,
        Buffer::F64(_) => resample::<f64>(cx, x, &steps)?,
        _ => each_number!(&x, T => {
            cx.reserve::<f64>(x.len())?;
            let wide = Array::new(x.shape(), x.to_f64s()?)?;
            let wide = resample::<f64>(cx, wide, &steps)?;
            cx.reserve::<T>(wide.len())?;
            Array::new(wide.shape(), wide.slice::<f64>()?.iter().map(|&value| T::from_f64(value)).collect::<Vec<T>>())
        })?,
    };
    one(extrapolate(&request, resampled, &steps)?)
}

/// The resampling of one axis.
struct Step {
    index: usize,
    output: usize,
    taps: Taps,
}

impl Step {
    /// The shape after this step.
    fn shape(&self, before: &[usize]) -> Vec<usize> {
        let mut shape = before.to_vec();
        shape[self.index] = self.output;
        shape
    }
}

/// Each element of the result is one of the tensor's.
fn pick(cx: &Eval<'_>, x: Array, steps: &[Step]) -> Result<Array, OpError> {
    each_elem!(&x, T => {
        let mut x = x;
        for step in steps {
            let shape = step.shape(x.shape());
            let mut out = cx.zeros::<T>(&shape)?;
            pick_axis(x.slice::<T>()?, around(x.shape(), step.index), &step.taps, &mut out);
            x = Array::with_dtype(x.dtype(), shape, out)?;
        }
        Ok(x)
    })
}

fn pick_axis<T: Elem>(x: &[T], (_, input, inner): (usize, usize, usize), taps: &Taps, out: &mut [T]) {
    let output = taps.len();
    each_piece(out, output * inner, output * inner, &|row, out| {
        let x = &x[row * input * inner..][..input * inner];
        if inner == 1 {
            out.iter_mut().zip(taps.firsts()).for_each(|(out, at)| out.clone_from(&x[at]));
        } else {
            for (out, at) in out.chunks_exact_mut(inner).zip(taps.firsts()) {
                out.clone_from_slice(&x[at * inner..][..inner]);
            }
        }
    });
}

/// Each element of the result is a weighted sum along each axis.
fn resample<T: Float>(cx: &Eval<'_>, mut x: Array, steps: &[Step]) -> Result<Array, OpError> {
    for step in steps {
        let shape = step.shape(x.shape());
        let mut out = cx.zeros::<T>(&shape)?;
        let (_, input, inner) = around(x.shape(), step.index);
        let data = x.slice::<T>()?;
        if inner == 1 {
            blend_rows(data, input, &step.taps, &mut out);
        } else {
            blend_blocks(data, input, inner, &step.taps, &mut out);
        }
        x = Array::new(shape, out)?;
    }
    Ok(x)
}

/// The weighted sums along the last axis.
fn blend_rows<T: Float>(x: &[T], input: usize, taps: &Taps, out: &mut [T]) {
    let output = taps.len();
    each_piece(out, output, output, &|index, out| {
        let row = &x[index * input..][..input];
        for (out, weighted) in out.iter_mut().zip(taps.iter()) {
            *out = weighted.fold(T::ZERO, |sum, (at, weight)| sum + T::from_f64(weight) * row[at]);
        }
    });
}

/// The weighted sums along an axis whose elements are blocks of `inner`.
fn blend_blocks<T: Float>(x: &[T], input: usize, inner: usize, taps: &Taps, out: &mut [T]) {
    let output = taps.len();
    each_piece(out, inner, inner, &|index, out| {
        let first = index / output * input;
        for (at, weight) in taps.at(index % output) {
            let weight = T::from_f64(weight);
            let block = &x[(first + at) * inner..][..inner];
            out.iter_mut().zip(block).for_each(|(out, &value)| *out += weight * value);
        }
    });
}

/// The extrapolation value wherever an axis was asked for a place outside of the tensor.
fn extrapolate(request: &Request, x: Array, steps: &[Step]) -> Result<Array, OpError> {
    if !steps.iter().any(|step| step.taps.leaves_tensor()) {
        return Ok(x);
    }
    let shape = x.shape().to_vec();
    each_number!(&x, T => {
        let mut data = x.into_vec::<T>()?;
        for step in steps.iter().filter(|step| step.taps.leaves_tensor()) {
            let (_, size, inner) = around(&shape, step.index);
            for (index, block) in data.chunks_exact_mut(inner).enumerate() {
                if step.taps.is_outside(index % size) {
                    block.fill(T::from_f64(request.extrapolation_value));
                }
            }
        }
        Array::new(shape, data)
    })
}
