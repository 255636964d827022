//! Samples of images at the places that a grid lists.

use crate::array::{Array, Elem, each_elem, each_float};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::Float;
use crate::value::Value;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::parallel::for_each;

/// Most spatial axes; each multiplies the elements that one sample reads.
const MAX_AXES: usize = 5;

/// Channels that one task samples, so that places are worked out once for all of them.
const CHANNELS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// The sizes of a call that fit together, and its attributes.
struct Sampler {
    mode: Mode,
    padding: Padding,
    align: bool,
    batch: usize,
    channels: usize,
    /// Spatial axes of the image.
    image: Vec<usize>,
    /// Spatial axes of the grid.
    grid: Vec<usize>,
}

impl Sampler {
    fn of(cx: &Eval<'_>) -> Result<Self, OpError> {
        let (x, grid) = (cx.array(0)?.shape(), cx.array(1)?.shape());
        let ([batch, channels, image @ ..], [maps, places @ .., axes]) = (x, grid) else {
            return invalid(format!("samples of {x:?} on a grid of {grid:?}"));
        };
        if batch != maps || image.is_empty() || image.len() != places.len() || *axes != image.len() {
            return invalid(format!("samples of {x:?} on a grid of {grid:?}"));
        }
        if image.len() > MAX_AXES {
            return unsupported(format!("a grid of {} axes", image.len()));
        }
        let mode = match cx.call.text("mode")?.as_str() {
            "nearest" => Mode::Nearest,
            "linear" | "bilinear" => Mode::Linear,
            "cubic" | "bicubic" => Mode::Cubic,
            other => return invalid(format!("the mode {other:?}")),
        };
        let padding = match cx.call.text("padding_mode")?.as_str() {
            "zeros" => Padding::Zeros,
            "border" => Padding::Border,
            "reflection" => Padding::Reflection,
            other => return invalid(format!("the padding mode {other:?}")),
        };
        let align = cx.call.flag("align_corners")?;
        let (image, grid) = (image.to_vec(), places.to_vec());
        Ok(Self { mode, padding, align, batch: *batch, channels: *channels, image, grid })
    }

    fn output_shape(&self) -> Vec<usize> {
        [self.batch, self.channels].iter().chain(&self.grid).copied().collect()
    }

    /// Runs `sample` with each element of the result: the channel's plane, and the taps of the place.
    fn run<T: Elem, G: Float>(
        &self,
        x: &[T],
        grid: &[G],
        out: &mut [T],
        sample: impl Fn(&[T], &[(usize, f64)]) -> T + Sync,
    ) {
        let (plane, places) = (self.image.iter().product::<usize>(), self.grid.iter().product::<usize>());
        let axes = self.image.len();
        if out.is_empty() || plane == 0 {
            return;
        }
        let images = out.chunks_exact_mut(self.channels * places).enumerate();
        for_each(images, 1, |(image, out)| {
            let grid = &grid[image * places * axes..][..places * axes];
            for_each(out.chunks_mut(CHANNELS * places).enumerate(), 1, |(block, out)| {
                let first = (image * self.channels + block * CHANNELS) * plane;
                let mut taps = Vec::new();
                for (index, place) in grid.chunks_exact(axes).enumerate() {
                    self.taps(place, &mut taps);
                    for (channel, out) in out.chunks_exact_mut(places).enumerate() {
                        out[index] = sample(&x[first + channel * plane..][..plane], &taps);
                    }
                }
            });
        });
    }

    /// The elements that make up the sample at a place of the grid, and their weights.
    fn taps<G: Float>(&self, place: &[G], taps: &mut Vec<(usize, f64)>) {
        taps.clear();
        taps.push((0, 1.0));
        // The last axis comes first in the grid.
        for (&size, &coordinate) in self.image.iter().zip(place.iter().rev()) {
            let place = self.bounded(self.denormalise(coordinate, size), size);
            let along = self.taps_along(place, size);
            let before = std::mem::take(taps);
            for (at, weight) in before {
                let next = along.iter().flatten();
                taps.extend(next.map(|(near, share)| (at * size + near, weight * share)));
            }
        }
    }

    /// The place on an axis of `size` elements that a number of the grid means.
    fn denormalise<G: Float>(&self, coordinate: G, size: usize) -> f64 {
        let (size, two) = (G::from_f64(size as f64), G::from_f64(2.0));
        let place = if self.align {
            (coordinate + G::ONE) / two * (size - G::ONE)
        } else {
            ((coordinate + G::ONE) * size - G::ONE) / two
        };
        place.to_f64()
    }

    /// The borders of an axis.
    fn borders(&self, size: usize) -> [f64; 2] {
        if self.align { [0.0, size as f64 - 1.0] } else { [-0.5, size as f64 - 0.5] }
    }

    /// The place where padding finds one that lies outside; rounded for the nearest element.
    fn bounded(&self, place: f64, size: usize) -> f64 {
        let place = if self.mode == Mode::Nearest { place.round_ties_even() } else { place };
        let [low, high] = self.borders(size);
        match self.padding {
            _ if place >= low && place <= high => place,
            Padding::Zeros => place,
            // The weights of a cubic are those of the place itself; its elements are found at the border.
            Padding::Border if self.mode == Mode::Cubic => place,
            Padding::Border => place.clamp(0.0, size as f64 - 1.0),
            Padding::Reflection => reflect(place, low, high),
        }
    }

    /// The taps along one axis; none for elements outside of the image that count as zero.
    fn taps_along(&self, place: f64, size: usize) -> [Option<(usize, f64)>; 4] {
        let low = place.floor();
        let t = place - low;
        let element = |near: f64| {
            let last = size as f64 - 1.0;
            match self.padding {
                Padding::Zeros => (near >= 0.0 && near <= last).then_some(near as usize),
                Padding::Border => Some(near.clamp(0.0, last) as usize),
                Padding::Reflection => {
                    let [low, high] = self.borders(size);
                    Some(reflect(near, low, high).clamp(0.0, last) as usize)
                }
            }
        };
        let tap = |near: f64, weight: f64| element(near).map(|near| (near, weight));
        match self.mode {
            Mode::Nearest => [tap(place, 1.0), None, None, None],
            Mode::Linear => [tap(low, 1.0 - t), tap(low + 1.0, t), None, None],
            Mode::Cubic => {
                let near = |shift: f64| tap(low + shift, cubic(t - shift));
                [near(-1.0), near(0.0), near(1.0), near(2.0)]
            }
        }
    }
}

/// The place mirrored at the borders until it lies between them.
fn reflect(place: f64, low: f64, high: f64) -> f64 {
    let range = high - low;
    if range <= 0.0 {
        return low;
    }
    let (near, far, beyond) = if place < low {
        (low, high, low - place)
    } else if place > high {
        (high, low, place - high)
    } else {
        return place;
    };
    let turns = (beyond / range).trunc();
    let rest = (beyond - turns * range).clamp(0.0, range);
    let toward = (far - near).signum();
    if turns % 2.0 == 0.0 { near + toward * rest } else { far - toward * rest }
}

/// The weight of an element at this distance, of the cubic convolution with -0.75.
fn cubic(distance: f64) -> f64 {
    const A: f64 = -0.75;
    let x = distance.abs();
    if x <= 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else {
        ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
    }
}

pub fn grid_sample(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let sampler = Sampler::of(cx)?;
    let (x, grid) = (cx.array(0)?, cx.array(1)?);
    each_float!(grid, G => {
        let grid = grid.slice::<G>()?;
        if sampler.mode == Mode::Nearest {
            return each_elem!(x, T => one(pick::<T, G>(cx, &sampler, x, grid)?));
        }
        each_float!(x, T => one(interpolate::<T, G>(cx, &sampler, x, grid)?))
    })
}

fn pick<T: Elem, G: Float>(
    cx: &Eval<'_>,
    sampler: &Sampler,
    x: &Array,
    grid: &[G],
) -> Result<Array, OpError> {
    let shape = sampler.output_shape();
    let mut out = cx.zeros::<T>(&shape)?;
    sampler.run(x.slice()?, grid, &mut out, |plane: &[T], taps| {
        taps.first().map_or_else(T::default, |(at, _)| plane[*at].clone())
    });
    Array::with_dtype(x.dtype(), shape, out)
}

fn interpolate<T: Float, G: Float>(
    cx: &Eval<'_>,
    sampler: &Sampler,
    x: &Array,
    grid: &[G],
) -> Result<Array, OpError> {
    let shape = sampler.output_shape();
    let mut out = cx.zeros::<T>(&shape)?;
    sampler.run(x.slice()?, grid, &mut out, |plane: &[T], taps| {
        taps.iter().fold(T::ZERO, |sum, &(at, weight)| sum + T::from_f64(weight) * plane[at])
    });
    Array::new(shape, out)
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(rank) = cx.rank(0).or(cx.rank(1)) else { return Ok(()) };
    let same = [cx.rank(0), cx.rank(1)].into_iter().flatten().all(|other| other == rank);
    if rank < 3 || !same {
        return invalid(format!("samples of {:?} axes on a grid of {:?} axes", cx.rank(0), cx.rank(1)));
    }
    let x = cx.shape(0).map_or_else(|| cx.fresh_shape(rank), <[Dim]>::to_vec);
    let grid = cx.shape(1).map_or_else(|| cx.fresh_shape(rank), <[Dim]>::to_vec);
    let batch = cx.unify(&x[0], &grid[0])?;
    let places = grid[1..rank - 1].iter().cloned();
    cx.set_shape(0, [batch, x[1].clone()].into_iter().chain(places).collect());
    Ok(())
}
