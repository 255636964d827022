//! Deformable convolutions: each kernel element reads the image at a place of its own.

use std::ops::Range;

use super::Layer;
use super::direct::fill_bias;
use super::im2col::MAX_TILE_BYTES;
use crate::array::{Array, each_float};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::kernel::gemm::{Matrix, gemm};
use crate::kernel::number::Float;
use crate::kernel::window::Axis;
use crate::value::Value;
use onnxforge_proto::parallel::for_each;

/// Most spatial axes; each doubles the elements that one sample reads.
const MAX_AXES: usize = 8;

pub fn deform_conv(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, w, offset) = (cx.array(0)?, cx.array(1)?, cx.array(2)?);
    let (bias, mask) = (cx.opt_array(3)?, cx.opt_array(4)?);
    let layer = Layer::of(&cx.call, x.shape(), w.shape())?;
    let axes = layer.geometry.axes().len();
    if axes > MAX_AXES {
        return unsupported(format!("a deformable convolution of {axes} axes"));
    }
    let channels = layer.groups * layer.channels;
    let offset_groups = match usize::try_from(cx.call.int("offset_group")?) {
        Ok(groups @ 1..) if channels % groups == 0 => groups,
        _ => return invalid(format!("offset_group does not divide the {channels} channels")),
    };
    let samples = offset_groups.checked_mul(layer.geometry.kernel_len());
    let expected = |per_sample: usize| {
        let rows = samples.and_then(|samples| samples.checked_mul(per_sample));
        let positions = layer.geometry.output_shape();
        [layer.batch, rows.unwrap_or(usize::MAX)].into_iter().chain(positions).collect::<Vec<_>>()
    };
    if offset.shape() != expected(axes) || mask.is_some_and(|mask| mask.shape() != expected(1)) {
        return invalid(format!("offsets of {:?} for {offset_groups} groups of offsets", offset.shape()));
    }
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(&layer.output_shape())?;
        fill_bias(&mut out, layer.bias::<T>(bias)?, layer.geometry.output_len());
        if !out.is_empty() && !x.is_empty() {
            let deformed = Deformed {
                layer: &layer,
                offset_groups,
                x: x.slice::<T>()?,
                offset: offset.slice()?,
                mask: mask.map(Array::slice).transpose()?,
            };
            deformed.multiply(cx, w.slice()?, &mut out)?;
        }
        one(Array::new(layer.output_shape(), out)?)
    })
}

/// A deformable convolution under way.
struct Deformed<'a, T> {
    layer: &'a Layer,
    offset_groups: usize,
    x: &'a [T],
    offset: &'a [T],
    mask: Option<&'a [T]>,
}

impl<T: Float> Deformed<'_, T> {
    /// Adds the products to `out`, one product per image, tile of positions and group.
    fn multiply(&self, cx: &Eval<'_>, w: &[T], out: &mut [T]) -> Result<(), OpError> {
        let layer = self.layer;
        let (positions, depth) = (layer.geometry.output_len(), layer.depth());
        let column = (layer.groups * depth).saturating_mul(size_of::<T>()).max(1);
        let tile = (MAX_TILE_BYTES / column).clamp(1, positions);
        cx.reserve::<T>((layer.groups * depth + layer.maps).saturating_mul(tile))?;
        for (image, out) in out.chunks_exact_mut(layer.groups * layer.maps * positions).enumerate() {
            for start in (0..positions).step_by(tile) {
                cx.check_time()?;
                let range = start..positions.min(start + tile);
                let width = range.len();
                let columns = self.columns(image, range.clone());
                for (group, out) in out.chunks_exact_mut(layer.maps * positions).enumerate() {
                    let weights = Matrix::new(&w[group * layer.maps * depth..], layer.maps, depth);
                    let columns = Matrix::new(&columns[group * depth * width..], depth, width);
                    let mut product = vec![T::ZERO; layer.maps * width];
                    gemm(&mut product, weights, columns, T::ONE, false, true);
                    for (map, sums) in out.chunks_exact_mut(positions).zip(product.chunks_exact(width)) {
                        map[range.clone()].iter_mut().zip(sums).for_each(|(out, &sum)| *out += sum);
                    }
                }
            }
        }
        Ok(())
    }

    /// The samples of one image at the positions `range`: a row per channel and kernel element.
    fn columns(&self, image: usize, range: Range<usize>) -> Vec<T> {
        let geometry = &self.layer.geometry;
        let (kernel, width) = (geometry.kernel_len(), range.len());
        let channels = self.layer.groups * self.layer.channels;
        let per_group = channels / self.offset_groups;
        let mut columns = vec![T::ZERO; channels * kernel * width];
        for_each(columns.chunks_exact_mut(kernel * width).enumerate(), 1, |(channel, rows)| {
            let plane =
                &self.x[(image * channels + channel) * geometry.input_len()..][..geometry.input_len()];
            let group = image * self.offset_groups + channel / per_group;
            for (k, row) in rows.chunks_exact_mut(width).enumerate() {
                for (sample, position) in row.iter_mut().zip(range.clone()) {
                    *sample = self.sample(plane, group * kernel + k, k, position);
                }
            }
        });
        columns
    }

    /// What kernel element `k` sees at `position`; `row` counts kernel elements of all images and groups of offsets.
    fn sample(&self, plane: &[T], row: usize, k: usize, position: usize) -> T {
        let geometry = &self.layer.geometry;
        let (axes, positions) = (geometry.axes().len(), geometry.output_len());
        let mut place = [0f64; MAX_AXES];
        let (mut k, mut rest) = (k, position);
        for (index, axis) in geometry.axes().iter().enumerate().rev() {
            let (tap, at) = (k % axis.kernel, rest % axis.output);
            (k, rest) = (k / axis.kernel, rest / axis.output);
            let regular = (at * axis.stride + tap * axis.dilation) as f64 - axis.pad as f64;
            place[index] = regular + self.offset[(row * axes + index) * positions + position].to_f64();
        }
        let value = interpolate(geometry.axes(), &place, plane);
        self.mask.map_or(value, |mask| value * mask[row * positions + position])
    }
}

/// The image at a place between its elements, linear along each axis; zero outside.
fn interpolate<T: Float>(axes: &[Axis], place: &[f64; MAX_AXES], plane: &[T]) -> T {
    let mut sum = T::ZERO;
    'corners: for corner in 0..1usize << axes.len() {
        let (mut weight, mut at) = (1f64, 0usize);
        for (index, axis) in axes.iter().enumerate() {
            let low = place[index].floor();
            let share = place[index] - low;
            let (near, part) = if corner >> index & 1 == 0 { (low, 1.0 - share) } else { (low + 1.0, share) };
            if !(near >= 0.0 && near < axis.input as f64) {
                continue 'corners;
            }
            weight *= part;
            at = at * axis.input + near as usize;
        }
        sum += T::from_f64(weight) * plane[at];
    }
    sum
}
