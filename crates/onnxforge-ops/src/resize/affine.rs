//! Grids of places that affine maps make of regular grids.

use crate::array::{Array, each_float};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::Float;
use crate::kernel::parallel::each_piece;
use crate::kernel::window::as_sizes;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn affine_grid(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let theta = cx.array(0)?;
    let size = cx.array(1)?.to_i64s()?;
    let size = size.iter().map(|&size| usize::try_from(size)).collect::<Result<Vec<_>, _>>();
    let (&[maps, rows, columns], Ok([batch, _, image @ ..])) = (theta.shape(), size.as_deref()) else {
        return invalid(format!("maps of {:?} for the size {size:?}", theta.shape()));
    };
    if maps != *batch || !matches!(image.len(), 2 | 3) || rows != image.len() || columns != rows + 1 {
        return invalid(format!("maps of {:?} for the size {size:?}", theta.shape()));
    }
    let align = cx.call.flag("align_corners")?;
    if align && image.contains(&1) {
        return unsupported("an affine grid of one element with align_corners");
    }
    let shape: Vec<usize> = [maps].iter().chain(image).copied().chain([rows]).collect();
    each_float!(theta, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        let places: usize = image.iter().product();
        if !out.is_empty() {
            let theta = theta.slice::<T>()?;
            each_piece(&mut out, rows, 8, &|index, point| {
                let map = &theta[index / places * rows * columns..][..rows * columns];
                transform(map, image, align, index % places, point);
            });
        }
        one(Array::new(shape, out)?)
    })
}

/// Where the affine map takes one place of the regular grid, which is given by its row-major number.
fn transform<T: Float>(map: &[T], image: &[usize], align: bool, place: usize, point: &mut [T]) {
    // The last axis comes first in points and maps.
    let mut rest = place;
    let mut regular = [T::ONE; 4];
    for (coordinate, &size) in regular.iter_mut().zip(image.iter().rev()) {
        let (at, count) = ((rest % size) as f64, size as f64);
        rest /= size;
        *coordinate =
            T::from_f64(if align { 2.0 * at / (count - 1.0) } else { (2.0 * at + 1.0) / count } - 1.0);
    }
    regular[image.len()] = T::ONE;
    for (out, row) in point.iter_mut().zip(map.chunks_exact(image.len() + 1)) {
        *out = row.iter().zip(regular).fold(T::ZERO, |sum, (&factor, coordinate)| sum + factor * coordinate);
    }
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let theta = cx.shape(0).map(<[Dim]>::to_vec);
    let size = cx.dims(1).map(as_sizes).transpose()?;
    let axes = match (&theta, &size, cx.shape(1)) {
        (_, Some(size), _) => Some(size.len() as i64 - 2),
        (_, None, Some([count])) if count.is_const() => count.as_const().map(|count| count - 2),
        (Some(theta), ..) if theta.len() == 3 => theta[1].as_const(),
        _ => None,
    };
    let Some(axes) = axes else { return Ok(()) };
    if !matches!(axes, 2 | 3) {
        return invalid(format!("an affine grid of {axes} axes"));
    }
    let batch = theta.and_then(|theta| theta.first().cloned());
    let mut shape = match size {
        Some(size) => {
            size.into_iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, dim)| dim).collect()
        }
        None => cx.fresh_shape(axes as usize + 1),
    };
    if let Some(batch) = batch {
        shape[0] = cx.unify(&shape[0], &batch)?;
    }
    shape.push(axes.into());
    cx.set_shape(0, shape);
    Ok(())
}
