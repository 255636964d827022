//! Convolutions of single channels, without a matrix product.

use rayon::prelude::*;

use super::Layer;
use crate::ops::kernel::map::PARALLEL;
use crate::ops::kernel::number::Float;
use crate::ops::kernel::window::{Geometry, combine};

/// Most maps per channel for which the direct loop beats a matrix product.
pub const MAX_MAPS: usize = 4;

/// Every map as its bias, or zero; `map_len` elements each.
pub fn fill_bias<T: Float>(out: &mut [T], bias: Option<&[T]>, map_len: usize) {
    if let (Some(bias), 1..) = (bias, map_len) {
        out.chunks_exact_mut(map_len).zip(bias.iter().cycle()).for_each(|(map, &bias)| map.fill(bias));
    }
}

/// A convolution in which each map sees one channel.
pub fn depthwise<T: Float>(layer: &Layer, x: &[T], w: &[T], bias: Option<&[T]>, out: &mut [T]) {
    let geometry = &layer.geometry;
    let (kernel, total) = (geometry.kernel_len(), layer.groups * layer.maps);
    let convolve = |(index, map): (usize, &mut [T])| {
        let (image, place) = (index / total, index % total);
        let channel = image * layer.groups + place / layer.maps;
        let plane = &x[channel * geometry.input_len()..][..geometry.input_len()];
        let start = bias.map_or(T::ZERO, |bias| bias[place]);
        slide(geometry, plane, &w[place * kernel..][..kernel], start, map);
    };
    let work = out.len().saturating_mul(kernel);
    let maps_per_task = (PARALLEL / (geometry.output_len() * kernel).max(1)).max(1);
    if work >= PARALLEL {
        out.par_chunks_exact_mut(geometry.output_len())
            .enumerate()
            .with_min_len(maps_per_task)
            .for_each(convolve);
    } else {
        out.chunks_exact_mut(geometry.output_len()).enumerate().for_each(convolve);
    }
}

/// `start` and the products of one channel with one kernel, at every position.
fn slide<T: Float>(geometry: &Geometry, plane: &[T], kernel: &[T], start: T, map: &mut [T]) {
    map.fill(start);
    geometry.for_each_run(0..map.len(), &mut |run| {
        let weight = kernel[run.kernel];
        combine(&mut map[run.positions], &plane[run.input..], run.step, |sum, value| {
            *sum = *sum + weight * value;
        });
    });
}
