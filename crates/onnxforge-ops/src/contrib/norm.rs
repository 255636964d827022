//! Normalization of features, with what is added before it.

use super::activations::sigmoid;
use crate::array::each_float;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::{Float, Number};
use crate::kernel::parallel::PARALLEL;
use crate::kernel::shape::around;
use crate::{Array, Value};
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::parallel::for_each;

/// How rows are normalized.
struct Rule<'a, T> {
    /// The mean is subtracted first.
    centered: bool,
    epsilon: T,
    scale: &'a [T],
    shift: Option<&'a [T]>,
}

impl<T: Float> Rule<'_, T> {
    /// Normalizes a row in place.
    fn apply(&self, row: &mut [T]) {
        let count = T::from_f64(row.len() as f64);
        if self.centered {
            let mean = row.iter().fold(T::ZERO, |sum, &x| sum + x) / count;
            row.iter_mut().for_each(|x| *x -= mean);
        }
        let variance = row.iter().fold(T::ZERO, |sum, &x| sum + x * x) / count;
        let inverse = T::ONE / num_traits::Float::sqrt(variance + self.epsilon);
        row.iter_mut().zip(self.scale).for_each(|(x, &scale)| *x = *x * inverse * scale);
        if let Some(shift) = self.shift {
            row.iter_mut().zip(shift).for_each(|(x, &shift)| *x += shift);
        }
    }

    fn apply_all(&self, data: &mut [T], width: usize) {
        let least = (PARALLEL / width.max(1)).max(1);
        for_each(data.chunks_mut(width.max(1)), least, |row| self.apply(row));
    }
}

/// One number for each of `width` features.
fn features<T: Float>(array: &Array, width: usize) -> Result<&[T], OpError> {
    match array.slice::<T>() {
        Ok(values) if values.len() == width => Ok(values),
        _ => invalid(format!("{array:?} for {width} features")),
    }
}

pub(super) fn infer_simplified(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 1);
    let stash = cx.call.int_or("stash_type", 1)?;
    if let Some(dtype) = i32::try_from(stash).ok().and_then(DType::from_code) {
        cx.set_dtype(1, dtype);
    }
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let axis = crate::call::axis(cx.call.int_or("axis", -1)?, shape.len())?;
    cx.set_shape(0, shape.to_vec());
    let mut reduced = shape.to_vec();
    reduced[axis..].fill(Dim::ONE);
    cx.set_shape(1, reduced);
    Ok(())
}

pub(super) fn eval_simplified(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.call.wants(1) {
        return unsupported("the statistics that training needs");
    }
    let (axis, epsilon) = (cx.call.int_or("axis", -1)?, cx.call.float_or("epsilon", 1e-5)?);
    let x = cx.take(0)?;
    let scale = cx.array(1)?;
    let axis = crate::call::axis(axis, x.rank())?;
    let (_, dim, inner) = around(x.shape(), axis);
    let (shape, width) = (x.shape().to_vec(), dim.saturating_mul(inner));
    each_float!(&x, T => {
        let rule = Rule::<T> {
            centered: false,
            epsilon: T::from_f64(epsilon.into()),
            scale: features(scale, width)?,
            shift: None,
        };
        let mut data = x.into_vec::<T>()?;
        rule.apply_all(&mut data, width);
        one(Array::new(shape, data)?)
    })
}

pub(super) fn infer_skip(cx: &mut Infer<'_>) -> Result<(), OpError> {
    for output in [0, 3] {
        cx.copy_dtype(output, 0);
        if let Some(shape) = cx.shape(0) {
            cx.set_shape(output, shape.to_vec());
        }
    }
    cx.set_dtype(1, DType::F32);
    cx.set_dtype(2, DType::F32);
    Ok(())
}

pub(super) fn eval_skip(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    each_float!(x, T => skip::<T>(cx, true, cx.opt_array(3)?, cx.opt_array(4)?))
}

pub(super) fn eval_skip_simplified(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    each_float!(x, T => skip::<T>(cx, false, None, cx.opt_array(3)?))
}

fn skip<T: Float>(
    cx: &Eval<'_>,
    centered: bool,
    shift: Option<&Array>,
    bias: Option<&Array>,
) -> Result<Vec<Value>, OpError> {
    if cx.call.wants(1) || cx.call.wants(2) {
        return unsupported("the statistics that training needs");
    }
    let (x, skip, scale) = (cx.array(0)?, cx.array(1)?, cx.array(2)?);
    let Some(&width) = x.shape().last().filter(|_| matches!(x.rank(), 2 | 3)) else {
        return invalid(format!("features of shape {:?}", x.shape()));
    };
    // What is added may be the same for every example.
    let shapes = (x.shape(), skip.shape());
    let fits = shapes.0 == shapes.1 || matches!(shapes, ([_, a, b], [1, c, d] | [c, d]) if (a, b) == (c, d));
    if !fits || skip.is_empty() != x.is_empty() {
        return invalid(format!("{:?} added to {:?}", skip.shape(), x.shape()));
    }
    let rule = Rule::<T> {
        centered,
        epsilon: T::from_f64(cx.call.float_or("epsilon", 1e-12)?.into()),
        scale: features(scale, width)?,
        shift: shift.map(|shift| features(shift, width)).transpose()?,
    };
    let bias = bias.map(|bias| features::<T>(bias, width)).transpose()?;
    let mut sum = cx.zeros::<T>(x.shape())?;
    let pairs = x.slice::<T>()?.iter().zip(skip.slice::<T>()?.iter().cycle());
    sum.iter_mut().zip(pairs).for_each(|(sum, (&x, &skip))| *sum = x + skip);
    if let Some(bias) = bias {
        sum.iter_mut().zip(bias.iter().cycle()).for_each(|(sum, &bias)| *sum += bias);
    }
    let sum = Array::new(x.shape(), sum)?;
    let mut data = sum.clone().into_vec::<T>()?;
    rule.apply_all(&mut data, width);
    let mut outputs = vec![Array::new(x.shape(), data)?.into()];
    if cx.call.wants(3) {
        let nothing = Value::from(Array::vector(Vec::<f32>::new()));
        outputs.extend([nothing.clone(), nothing, sum.into()]);
    }
    Ok(outputs)
}

pub(super) fn infer_embed(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 2);
    cx.copy_dtype(2, 2);
    cx.set_dtype(1, DType::I32);
    let Some([batch, positions]) = cx.shape(0) else { return Ok(()) };
    let width = match cx.shape(2) {
        Some([_, width]) => Some(width.clone()),
        _ => None,
    };
    let width = cx.or_fresh(width);
    cx.set_shape(0, vec![batch.clone(), positions.clone(), width.clone()]);
    cx.set_shape(1, vec![batch.clone()]);
    cx.set_shape(2, vec![batch.clone(), positions.clone(), width]);
    Ok(())
}

pub(super) fn eval_embed(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let words = cx.array(2)?;
    each_float!(words, T => embed::<T>(cx))
}

/// A table of vectors.
struct Table<'a, T> {
    data: &'a [T],
    rows: usize,
    width: usize,
}

impl<'a, T: Float> Table<'a, T> {
    fn new(array: &'a Array) -> Result<Self, OpError> {
        match *array.shape() {
            [rows, width] => Ok(Self { data: array.slice()?, rows, width }),
            _ => invalid(format!("embeddings of shape {:?}", array.shape())),
        }
    }

    fn row(&self, id: i64) -> Result<&'a [T], OpError> {
        match usize::try_from(id) {
            Ok(id) if id < self.rows => Ok(&self.data[id * self.width..][..self.width]),
            _ => invalid(format!("the embedding {id} of {}", self.rows)),
        }
    }
}

fn embed<T: Float>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let ids = cx.array(0)?;
    let &[batch, positions] = ids.shape() else { return invalid(format!("ids of shape {:?}", ids.shape())) };
    cx.reserve::<[i64; 4]>(positions.max(batch).max(ids.len()))?;
    let (words, places) = (Table::<T>::new(cx.array(2)?)?, Table::<T>::new(cx.array(3)?)?);
    let segments = cx.opt_array(4)?.map(Table::<T>::new).transpose()?;
    let segment_ids = cx.ints(1)?.unwrap_or_else(|| vec![0; ids.len()]);
    let place_ids = match cx.ints(8)? {
        Some(given) => given,
        None => (0..positions as i64).collect(),
    };
    let width = words.width;
    let widths = [Some(places.width), segments.as_ref().map(|table| table.width)];
    if widths.into_iter().flatten().any(|other| other != width)
        || segment_ids.len() != ids.len()
        || (place_ids.len() != positions && place_ids.len() != ids.len())
    {
        return invalid("embeddings and ids that do not fit together");
    }
    let rule = Rule::<T> {
        centered: true,
        epsilon: T::from_f64(cx.call.float_or("epsilon", 1e-12)?.into()),
        scale: features(cx.array(5)?, width)?,
        shift: Some(features(cx.array(6)?, width)?),
    };
    let shape = [batch, positions, width];
    let mut sum = cx.zeros::<T>(&shape)?;
    let all = ids.to_i64s()?.into_iter().zip(segment_ids).zip(place_ids.iter().cycle());
    for (row, ((word, segment), &place)) in sum.chunks_mut(width.max(1)).zip(all) {
        let extra = segments.as_ref().map(|table| table.row(segment)).transpose()?;
        for (i, (&word, &place)) in words.row(word)?.iter().zip(places.row(place)?).enumerate() {
            row[i] = word + place + extra.map_or(T::ZERO, |extra| extra[i]);
        }
    }
    let sum = Array::new(shape, sum)?;
    let mut data = sum.clone().into_vec::<T>()?;
    rule.apply_all(&mut data, width);
    let lengths = mask_lengths(cx, batch, positions)?;
    Ok(vec![Array::new(shape, data)?.into(), Array::vector(lengths).into(), sum.into()])
}

/// How many positions of each example the mask keeps; 0 where there is no mask.
fn mask_lengths(cx: &Eval<'_>, batch: usize, positions: usize) -> Result<Vec<i32>, OpError> {
    let Some(mask) = cx.opt_array(7)? else { return Ok(vec![0; batch]) };
    if mask.shape() != [batch, positions] {
        return invalid(format!("a mask of shape {:?}", mask.shape()));
    }
    let flags = mask.to_i64s()?;
    let kept = |row: usize| flags[row * positions..][..positions].iter().filter(|&&flag| flag == 1).count();
    Ok((0..batch).map(|row| kept(row) as i32).collect())
}

/// Normalization over groups of channels; the activation is none (0) or SiLU (1).
pub(super) fn eval_group(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let last = cx.call.int_or("channels_last", 1)? != 0;
    let x = if last { super::channels_first(cx, x)? } else { x.clone() };
    let y = each_float!(&x, T => grouped::<T>(cx, x))?;
    one(if last { super::channels_last(cx, &y)? } else { y })
}

fn grouped<T: Float>(cx: &Eval<'_>, x: Array) -> Result<Array, OpError> {
    let shape = x.shape().to_vec();
    let channels = match shape[..] {
        [_, channels, ..] => channels,
        _ => return invalid(format!("an image of shape {shape:?}")),
    };
    let given = cx.call.int("groups")?;
    let Some(groups) = usize::try_from(given).ok().filter(|&groups| groups > 0 && channels % groups == 0)
    else {
        return invalid(format!("{given} groups of {channels} channels"));
    };
    let silu = match cx.call.int("activation")? {
        0 => false,
        1 => true,
        other => return invalid(format!("the activation {other}")),
    };
    if x.is_empty() {
        return Ok(x);
    }
    let area: usize = shape[2..].iter().product();
    let epsilon = T::from_f64(cx.call.float_or("epsilon", 1e-5)?.into());
    let (scale, shift) = (features::<T>(cx.array(1)?, channels)?, features::<T>(cx.array(2)?, channels)?);
    let mut data = x.into_vec::<T>()?;
    let per_group = channels / groups;
    let ones = vec![T::ONE; per_group * area];
    let rule = Rule { centered: true, epsilon, scale: &ones, shift: None };
    rule.apply_all(&mut data, per_group * area);
    for (index, plane) in data.chunks_mut(area.max(1)).enumerate() {
        let (scale, shift) = (scale[index % channels], shift[index % channels]);
        plane.iter_mut().for_each(|x| *x = *x * scale + shift);
        if silu {
            plane.iter_mut().for_each(|x| *x *= sigmoid(*x));
        }
    }
    Array::new(shape, data)
}
