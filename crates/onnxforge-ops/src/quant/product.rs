//! Products of quantized matrices: exact sums of 32 bits, then one rounding.

use super::floats;
use crate::array::{Buffer, Elem, each_float, unsupported_type};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::kernel::batched::Stacks;
use crate::kernel::gemm_int::gemm_int;
use crate::kernel::quantize::{Quantizable, Quantized, Spread};
use crate::kernel::shape::{broadcast_strides, for_each_offset};
use crate::kernel::strided::transpose;
use crate::{Array, Value};
use onnxforge_ir::DType;

pub(super) fn matmul_integer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    one(centered_product(cx, [cx.array(0)?, cx.array(1)?], [cx.opt_array(2)?, cx.opt_array(3)?])?)
}

/// The product of two stacks of matrices of bytes, from which the zero points (one, or one for each row of the first and
/// each column of the second) are subtracted.
pub fn centered_product(
    cx: &Eval<'_>,
    [a, b]: [&Array; 2],
    [a_zero, b_zero]: [Option<&Array>; 2],
) -> Result<Array, OpError> {
    cx.reserve::<i16>(a.len().saturating_add(b.len().saturating_mul(2)))?;
    product(cx, &centered(a, a_zero, Lines::Rows)?, &centered(b, b_zero, Lines::Columns)?)
}

/// The product of two stacks of matrices of 16-bit integers.
pub fn product(cx: &Eval<'_>, a: &Array, b: &Array) -> Result<Array, OpError> {
    let Stacks { shape, rows, depth, columns, pairs } = Stacks::new(a.shape(), b.shape(), cx.memory())?;
    let mut out = cx.zeros::<i32>(&shape)?;
    if pairs.is_empty() {
        return Array::new(shape, out);
    }
    let b = columns_first(cx, b)?;
    let (a, b) = (a.slice::<i16>()?, b.slice::<i16>()?);
    let matrices = out.chunks_exact_mut(rows * columns);
    for (out, [first, second]) in matrices.zip(pairs) {
        let a = &a[first * rows * depth..][..rows * depth];
        let b = &b[second * depth * columns..][..depth * columns];
        gemm_int(out, a, b, depth, columns);
    }
    Array::new(shape, out)
}

/// Whether the lines of a matrix that have a zero point each are rows or columns.
#[derive(Clone, Copy, PartialEq)]
enum Lines {
    Rows,
    Columns,
}

/// The bytes minus their zero points.
fn centered(x: &Array, zero: Option<&Array>, lines: Lines) -> Result<Array, OpError> {
    match (x.buffer(), zero) {
        (Buffer::U8(_), zero) => centered_as::<u8>(x, zero, lines),
        (Buffer::I8(_), zero) => centered_as::<i8>(x, zero, lines),
        _ => Err(unsupported_type(x)),
    }
}

fn centered_as<T: Elem + Copy + Into<i16>>(
    x: &Array,
    zero: Option<&Array>,
    lines: Lines,
) -> Result<Array, OpError> {
    let data = x.slice::<T>()?;
    let centered: Vec<i16> = match zero {
        None => data.iter().map(|&x| x.into()).collect(),
        Some(zero) if zero.len() == 1 => {
            let zero: i16 = zero.slice::<T>()?[0].into();
            data.iter().map(|&x| x.into() - zero).collect()
        }
        Some(zero) => {
            let zeros = zero.slice::<T>()?;
            let strides = broadcast_strides(&line_shape(x.shape(), zero.shape(), lines)?, x.shape());
            let mut places = Vec::with_capacity(data.len());
            for_each_offset(x.shape(), [&strides], |[at]| places.push(at));
            data.iter().zip(places).map(|(&x, at)| x.into() - zeros[at].into()).collect()
        }
    };
    Array::new(x.shape(), centered)
}

/// The shape of parameters of each line, so that they broadcast to a tensor of shape `shape`: a vector for the rows of a
/// matrix stands upright.
fn line_shape(shape: &[usize], params: &[usize], lines: Lines) -> Result<Vec<usize>, OpError> {
    let mut upright = params.to_vec();
    if let ([_], Lines::Rows) = (params, lines) {
        upright.push(1);
    }
    let missing = shape.len().checked_sub(upright.len());
    let fits = missing.is_some_and(|missing| {
        shape[missing..].iter().zip(&upright).all(|(&dim, &param)| param == dim || param == 1)
    });
    let crossing = match lines {
        Lines::Rows => upright.last(),
        Lines::Columns => upright.len().checked_sub(2).map(|axis| &upright[axis]),
    };
    if fits && crossing.is_none_or(|&dim| dim == 1) {
        return Ok(upright);
    }
    invalid(format!("quantization parameters of shape {params:?} for matrices of shape {shape:?}"))
}

/// Each matrix of the stack transposed; a vector as it is.
fn columns_first(cx: &Eval<'_>, x: &Array) -> Result<Array, OpError> {
    let rank = x.rank();
    if rank < 2 {
        return Ok(x.clone());
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    transpose(x, &perm, cx.memory())
}

pub(super) fn qlinear_matmul(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (cx.array(0)?, cx.array(3)?);
    let product = centered_product(cx, [a, b], [cx.opt_array(2)?, cx.opt_array(5)?])?;
    let (a_scale, b_scale, y_scale) = (cx.array(1)?, cx.array(4)?, cx.array(6)?);
    each_float!(y_scale, T => {
        let y_scale = single_number::<T>(y_scale)?;
        if a_scale.len() == 1 && b_scale.len() == 1 {
            let factor = single_number::<T>(a_scale)? * single_number::<T>(b_scale)? / y_scale;
            return one(requantize(cx, &product, Spread::whole(), &[factor], cx.array(7)?)?);
        }
        cx.reserve::<[T; 2]>(product.len())?;
        let rows = line_scales::<T>(a_scale, &product, a.rank(), Lines::Rows)?;
        let columns = line_scales::<T>(b_scale, &product, b.rank(), Lines::Columns)?;
        let factors: Vec<T> = rows.into_iter().zip(columns).map(|(a, b)| a * b / y_scale).collect();
        one(requantize(cx, &product, Spread::each(product.len()), &factors, cx.array(7)?)?)
    })
}

/// The scale of each element of a product of stacks of matrices, for the factor that has `rank` axes.
fn line_scales<T: Quantizable>(
    scale: &Array,
    product: &Array,
    rank: usize,
    lines: Lines,
) -> Result<Vec<T>, OpError> {
    let scales = floats::<T>(scale)?;
    if let [scale] = scales[..] {
        return Ok(vec![scale; product.len()]);
    }
    if rank < 2 || product.rank() < 2 {
        return unsupported("scales for each line of a vector");
    }
    let shape = line_shape(product.shape(), scale.shape(), lines)?;
    let strides = broadcast_strides(&shape, product.shape());
    let mut each = Vec::with_capacity(product.len());
    for_each_offset(product.shape(), [&strides], |[at]| each.push(scales[at]));
    Ok(each)
}

pub(super) fn qlinear_conv(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let input = |index: usize| cx.value(index).cloned();
    // The zero points are those of the sums: x (0), w (3), zero of x (2), zero of w (5).
    let sums = cx.standard("ConvInteger", 10, vec![input(0), input(3), input(2), input(5)])?;
    let Some(Value::Tensor(sums)) = sums.into_iter().next() else { return unsupported("this convolution") };
    let sums = match cx.opt_array(8)? {
        Some(bias) => with_bias(sums, bias)?,
        None => sums,
    };
    let (x_scale, w_scale, y_scale) = (cx.array(1)?, cx.array(4)?, cx.array(6)?);
    each_float!(y_scale, T => {
        let (x_scale, y_scale) = (single_number::<T>(x_scale)?, single_number::<T>(y_scale)?);
        let factors: Vec<T> = floats::<T>(w_scale)?.into_iter().map(|w| x_scale * w / y_scale).collect();
        let spread = Spread::new(sums.shape(), w_scale.shape(), 1, 0)?;
        one(requantize(cx, &sums, spread, &factors, cx.array(7)?)?)
    })
}

/// The sums with one integer for each channel (axis 1) added.
fn with_bias(sums: Array, bias: &Array) -> Result<Array, OpError> {
    let shape = sums.shape().to_vec();
    let (bias, channels) = (bias.slice::<i32>()?, shape.get(1).copied().unwrap_or(0));
    if bias.len() != channels {
        return invalid(format!("a bias of {} elements for {channels} channels", bias.len()));
    }
    let area = shape.iter().skip(2).product::<usize>().max(1);
    let mut data = sums.into_vec::<i32>()?;
    for (plane, &bias) in data.chunks_mut(area).zip(bias.iter().cycle()) {
        plane.iter_mut().for_each(|sum| *sum = sum.wrapping_add(bias));
    }
    Array::new(shape, data)
}

/// The single number of a tensor.
pub fn single_number<T: Quantizable>(array: &Array) -> Result<T, OpError> {
    match floats::<T>(array)?[..] {
        [value] => Ok(value),
        _ => unsupported(format!("quantization parameters of shape {:?} here", array.shape())),
    }
}

/// `saturate(round(sum · factor) + zero)` of every sum, in the type of the zero point.
pub fn requantize<T: Quantizable>(
    cx: &Eval<'_>,
    sums: &Array,
    spread: Spread,
    factors: &[T],
    zero: &Array,
) -> Result<Array, OpError> {
    match zero.dtype() {
        DType::U8 => requantize_as::<T, u8>(cx, sums, spread, factors, single_number(zero)?),
        DType::I8 => requantize_as::<T, i8>(cx, sums, spread, factors, single_number(zero)?),
        _ => Err(unsupported_type(zero)),
    }
}

fn requantize_as<T: Quantizable, Q: Quantized>(
    cx: &Eval<'_>,
    sums: &Array,
    spread: Spread,
    factors: &[T],
    zero: T,
) -> Result<Array, OpError> {
    let mut out = cx.zeros::<Q>(sums.shape())?;
    spread.apply(sums.slice::<i32>()?, &mut out, factors, None, |&sum, factor, _| {
        Q::saturating((T::from_f64(sum.into()) * factor).round_even() + zero)
    });
    Array::new(sums.shape(), out)
}
