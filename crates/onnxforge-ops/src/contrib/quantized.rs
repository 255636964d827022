//! Quantized forms of standard operators: dequantize, compute, quantize.

use super::fused::{infer_nhwc, set_shape_of};
use super::{channels_first, channels_last, single};
use crate::array::{each_float, unsupported_type};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::fact::Fact;
use crate::infer_call::Infer;
use crate::kernel::map::{map, zip};
use crate::kernel::number::Number;
use crate::kernel::quantize::{Quantizable, Quantized};
use crate::quant::{self, Target, single_number};
use crate::{Array, Value};
use onnxforge_ir::DType;

/// The scale and the zero point of a quantized tensor.
#[derive(Clone, Copy)]
struct Grid<'a> {
    scale: &'a Array,
    zero: Option<&'a Array>,
}

impl<'a> Grid<'a> {
    /// The one in the inputs at `scale` and the next.
    fn at(cx: &'a Eval<'_>, scale: usize) -> Result<Self, OpError> {
        Ok(Self { scale: cx.array(scale)?, zero: cx.opt_array(scale + 1)? })
    }

    /// The numbers that a tensor on the grid stands for.
    fn numbers<T: Quantizable>(&self, cx: &Eval<'_>, x: &Array) -> Result<Array, OpError> {
        self.check_single()?;
        quant::dequantize::<T>(cx, x, self.scale, self.zero, 0, 0)
    }

    /// The numbers on the grid, as elements of type `dtype`.
    fn nearest(&self, cx: &Eval<'_>, x: &Array, dtype: DType) -> Result<Array, OpError> {
        self.check_single()?;
        let target = Target { dtype, axis: 0, block: 0, precision: DType::F32, saturate: true };
        if self.zero.is_some_and(|zero| zero.dtype() != dtype) {
            return invalid(format!("a zero point that is not of the type {dtype}"));
        }
        quant::quantize(cx, x, self.scale, self.zero, &target)
    }

    fn check_single(&self) -> Result<(), OpError> {
        match self.scale.len() {
            1 => Ok(()),
            count => unsupported(format!("{count} scales here")),
        }
    }

    fn values<T: Quantizable>(&self) -> Result<(T, T), OpError> {
        Ok((single_number(self.scale)?, self.zero.map_or(Ok(T::ZERO), single_number)?))
    }

    /// Whether numbers on both grids are the same elements.
    fn same(&self, other: &Grid<'_>) -> Result<bool, OpError> {
        Ok(self.values::<f64>()? == other.values::<f64>()?)
    }

    /// The tensor on this grid as one on `other`.
    fn moved(&self, cx: &Eval<'_>, x: &Array, other: &Grid<'_>) -> Result<Array, OpError> {
        if self.same(other)? {
            return Ok(x.clone());
        }
        each_float!(self.scale, T => other.nearest(cx, &self.numbers::<T>(cx, x)?, x.dtype()))
    }
}

pub(super) fn infer_binary(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    if let (Some(a), Some(b)) = (cx.shape(0), cx.shape(3)) {
        let shape = cx.broadcast(&[a, b])?;
        cx.set_shape(0, shape);
    }
    Ok(())
}

pub(super) fn eval_add(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let scale = cx.array(1)?;
    each_float!(scale, T => binary::<T>(cx, |[a, b], [p, q, r]| a * (p / r) + b * (q / r)))
}

pub(super) fn eval_mul(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let scale = cx.array(1)?;
    each_float!(scale, T => binary::<T>(cx, |[a, b], [p, q, r]| a * b * (p * q / r)))
}

/// Quantizes `f` of two tensors, broadcast together. `f` gets two whole numbers, already without their zero points, and the
/// scales of both and of the result; it answers in units of the result.
fn binary<T: Quantizable>(
    cx: &Eval<'_>,
    f: impl Fn([T; 2], [T; 3]) -> T + Sync,
) -> Result<Vec<Value>, OpError> {
    match cx.array(0)?.dtype() {
        DType::U8 => binary_as::<T, u8>(cx, f),
        DType::I8 => binary_as::<T, i8>(cx, f),
        _ => Err(unsupported_type(cx.array(0)?)),
    }
}

fn binary_as<T: Quantizable, Q: Quantized>(
    cx: &Eval<'_>,
    f: impl Fn([T; 2], [T; 3]) -> T + Sync,
) -> Result<Vec<Value>, OpError> {
    let (a_scale, a_zero) = Grid::at(cx, 1)?.values::<T>()?;
    let (b_scale, b_zero) = Grid::at(cx, 4)?.values::<T>()?;
    let (scale, zero) = Grid::at(cx, 6)?.values::<T>()?;
    let scales = [a_scale, b_scale, scale];
    one(zip(cx.array(0)?, cx.array(3)?, cx.memory(), |&a: &Q, &b: &Q| {
        let numbers = [T::from_f64(a.to_f64()) - a_zero, T::from_f64(b.to_f64()) - b_zero];
        Q::saturating(f(numbers, scales).round_even() + zero)
    })?)
}

/// Quantizes what `f` makes of the dequantized input 0; inputs 1 and 2 are its grid, 3 and 4 that of the result.
fn unary<T: Quantizable>(
    cx: &Eval<'_>,
    f: impl FnOnce(Array) -> Result<Array, OpError>,
) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let y = f(Grid::at(cx, 1)?.numbers::<T>(cx, x)?)?;
    one(Grid::at(cx, 3)?.nearest(cx, &y, x.dtype())?)
}

pub(super) fn eval_leaky_relu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (scale, alpha) = (cx.array(1)?, cx.call.float_or("alpha", 0.01)?);
    each_float!(scale, T => unary::<T>(cx, |x| {
        map::<T>(x, |x| if x >= 0.0 { x } else { T::from_f64(alpha.into()) * x })
    }))
}

pub(super) fn eval_sigmoid(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let scale = cx.array(1)?;
    each_float!(scale, T => unary::<T>(cx, |x| map::<T>(x, super::activations::sigmoid)))
}

pub(super) fn eval_softmax(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (scale, opset) = (cx.array(1)?, cx.call.int("opset")?);
    // The operator follows the version of Softmax that it stands for.
    let version = if opset < 13 { 11 } else { 13 };
    each_float!(scale, T => unary::<T>(cx, |x| single(cx.standard("Softmax", version, vec![Some(x.into())])?)))
}

pub(super) fn infer_average_pool(cx: &mut Infer<'_>) -> Result<(), OpError> {
    infer_pool(cx, "AveragePool", 11)
}

pub(super) fn infer_global_average_pool(cx: &mut Infer<'_>) -> Result<(), OpError> {
    infer_pool(cx, "GlobalAveragePool", 1)
}

fn infer_pool(cx: &mut Infer<'_>, name: &str, opset: i64) -> Result<(), OpError> {
    if cx.call.flag("channels_last")? {
        return infer_nhwc(cx, name, opset, &[], false);
    }
    infer_unary(cx, name, opset)
}

/// Output 0 has the type of input 0 and the shape that the standard operator gives to it.
fn infer_unary(cx: &mut Infer<'_>, name: &str, opset: i64) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let outputs = cx.standard(name, opset, &[Some(cx.fact(0).clone())])?;
    set_shape_of(cx, &outputs);
    Ok(())
}

pub(super) fn eval_average_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    pool(cx, "AveragePool", 11)
}

pub(super) fn eval_global_average_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    pool(cx, "GlobalAveragePool", 1)
}

fn pool(cx: &Eval<'_>, name: &str, opset: i64) -> Result<Vec<Value>, OpError> {
    let (scale, last) = (cx.array(1)?, cx.call.flag("channels_last")?);
    let run = |x: Array| single(cx.standard(name, opset, vec![Some(x.into())])?);
    each_float!(scale, T => unary::<T>(cx, |x| match last {
        true => channels_last(cx, &run(channels_first(cx, &x)?)?),
        false => run(x),
    }))
}

pub(super) fn infer_reduce_mean(cx: &mut Infer<'_>) -> Result<(), OpError> {
    infer_unary(cx, "ReduceMean", 13)
}

pub(super) fn eval_reduce_mean(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let scale = cx.array(1)?;
    each_float!(scale, T => {
        unary::<T>(cx, |x| single(cx.standard("ReduceMean", 13, vec![Some(x.into())])?))
    })
}

pub(super) fn infer_concat(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 1);
    let facts: Vec<Option<Fact>> =
        (2..cx.input_count()).step_by(3).map(|index| Some(cx.fact(index).clone())).collect();
    let outputs = cx.standard("Concat", 13, &facts)?;
    set_shape_of(cx, &outputs);
    Ok(())
}

pub(super) fn eval_concat(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let result = Grid::at(cx, 0)?;
    let part = |index: usize| Ok(Some(Grid::at(cx, index + 1)?.moved(cx, cx.array(index)?, &result)?.into()));
    let parts = (2..cx.input_count()).step_by(3).map(part).collect::<Result<Vec<_>, OpError>>()?;
    cx.standard("Concat", 13, parts)
}

pub(super) fn infer_where(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 1);
    if let (Some(condition), Some(x), Some(y)) = (cx.shape(0), cx.shape(1), cx.shape(4)) {
        let shape = cx.broadcast(&[condition, x, y])?;
        cx.set_shape(0, shape);
    }
    Ok(())
}

pub(super) fn eval_where(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let result = Grid::at(cx, 7)?;
    let x = Grid::at(cx, 2)?.moved(cx, cx.array(1)?, &result)?;
    let y = Grid::at(cx, 5)?.moved(cx, cx.array(4)?, &result)?;
    cx.standard("Where", 9, vec![cx.value(0).cloned(), Some(x.into()), Some(y.into())])
}

pub(super) fn infer_quantize(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.set_dtype(0, DType::U8);
    if cx.has(2) {
        cx.set(0, Fact::Unknown);
        cx.copy_dtype(0, 2);
    }
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
    Ok(())
}

pub(super) fn eval_quantize(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let zero = cx.opt_array(2)?;
    let target = Target {
        dtype: zero.map_or(DType::U8, Array::dtype),
        axis: cx.call.int_or("axis", 1)?,
        block: 0,
        precision: DType::F32,
        saturate: true,
    };
    one(quant::quantize(cx, cx.array(0)?, cx.array(1)?, zero, &target)?)
}

pub(super) fn infer_dequantize(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 1);
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
    Ok(())
}

pub(super) fn eval_dequantize(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (scale, axis) = (cx.array(1)?, cx.call.int_or("axis", 1)?);
    each_float!(scale, T => one(quant::dequantize::<T>(cx, cx.array(0)?, scale, cx.opt_array(2)?, axis, 0)?))
}
