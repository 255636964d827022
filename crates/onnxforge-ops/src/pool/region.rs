//! Pooling of regions of interest.

use super::lowest;
use crate::array::{Array, each_float};
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::{Float, Number};
use crate::kernel::parallel::PARALLEL;
use crate::kernel::parallel::each_piece;
use crate::value::Value;

/// Most samples that one cell of a region takes along an axis.
const MAX_SAMPLES: f64 = 1024.0;

/// The sizes that both operators share.
struct Sizes {
    batch: usize,
    channels: usize,
    image: [usize; 2],
    regions: usize,
    cells: [usize; 2],
}

impl Sizes {
    /// Regions are rows of `width` numbers.
    fn of(x: &Array, rois: &Array, width: usize, cells: [i64; 2]) -> Result<Self, OpError> {
        match (x.shape(), rois.shape(), cells.map(usize::try_from)) {
            (&[batch, channels, height, columns], &[regions, found], [Ok(rows @ 1..), Ok(across @ 1..)])
                if found == width =>
            {
                Ok(Self { batch, channels, image: [height, columns], regions, cells: [rows, across] })
            }
            _ => invalid(format!("{:?} cells of {:?} at the regions {:?}", cells, x.shape(), rois.shape())),
        }
    }

    fn output_shape(&self) -> [usize; 4] {
        [self.regions, self.channels, self.cells[0], self.cells[1]]
    }

    fn plane_len(&self) -> usize {
        self.image[0] * self.image[1]
    }

    /// The planes of an image of the batch.
    fn planes<'x, T>(&self, x: &'x [T], image: i64) -> Result<&'x [T], OpError> {
        match usize::try_from(image) {
            Ok(index) if index < self.batch => {
                Ok(&x[index * self.channels * self.plane_len()..][..self.channels * self.plane_len()])
            }
            _ => invalid(format!("a region of image {image} of {}", self.batch)),
        }
    }

    /// Runs `cell` for each cell of each channel of a region with the channel's plane.
    fn each_cell<T: Float>(
        &self,
        planes: &[T],
        out: &mut [T],
        cell: impl Fn(&[T], usize, usize) -> T + Sync,
    ) {
        let [rows, across] = self.cells;
        each_piece(out, rows * across, PARALLEL, &|channel, out| {
            let plane = &planes[channel * self.plane_len()..][..self.plane_len()];
            for (index, out) in out.iter_mut().enumerate() {
                *out = cell(plane, index / across, index % across);
            }
        });
    }
}

/// The attribute `pooled_shape`.
fn pooled_shape(call: &Call<'_>) -> Result<[i64; 2], OpError> {
    match call.ints("pooled_shape")?[..] {
        [rows, across] => Ok([rows, across]),
        ref other => invalid(format!("pooled_shape is {other:?}")),
    }
}

pub fn max_roi_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, rois) = (cx.array(0)?, cx.array(1)?);
    let sizes = Sizes::of(x, rois, 5, pooled_shape(&cx.call)?)?;
    let scale = cx.call.float("spatial_scale")?;
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(&sizes.output_shape())?;
        let region_len = out.len() / sizes.regions.max(1);
        if !out.is_empty() {
            let regions = rois.slice::<T>()?.chunks_exact(5);
            for (region, out) in regions.zip(out.chunks_exact_mut(region_len)) {
                cx.check_time()?;
                let planes = sizes.planes(x.slice::<T>()?, region[0].to_f64() as i64)?;
                max_region(&sizes, planes, region, T::from_f64(scale.into()), out);
            }
        }
        one(Array::new(sizes.output_shape(), out)?)
    })
}

/// The greatest element in each cell of a region; cells without elements are zero.
fn max_region<T: Float>(sizes: &Sizes, planes: &[T], region: &[T], scale: T, out: &mut [T]) {
    // Corners of the region, rounded to elements: along rows, then along columns.
    let corner = |index: usize| num_traits::Float::round(region[index] * scale).to_f64();
    let spans = [[corner(2), corner(4)], [corner(1), corner(3)]];
    let range = |axis: usize, cell: usize| {
        let [first, last] = spans[axis];
        let extent = (last - first + 1.0).max(1.0);
        let each = T::from_f64(extent) / T::from_f64(sizes.cells[axis] as f64);
        let start = num_traits::Float::floor(T::from_f64(cell as f64) * each).to_f64();
        let end = num_traits::Float::ceil(T::from_f64((cell + 1) as f64) * each).to_f64();
        let limit = sizes.image[axis] as f64;
        (start + first).clamp(0.0, limit) as usize..(end + first).clamp(0.0, limit) as usize
    };
    sizes.each_cell(planes, out, |plane, row, across| {
        let (rows, columns) = (range(0, row), range(1, across));
        if rows.is_empty() || columns.is_empty() {
            return T::ZERO;
        }
        let row_of = |y: usize| &plane[y * sizes.image[1]..][columns.clone()];
        rows.flat_map(row_of).fold(lowest::<T>(), |best, &value| if value > best { value } else { best })
    });
}

pub fn roi_align(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, rois, images) = (cx.array(0)?, cx.array(1)?, cx.array(2)?.to_i64s()?);
    let cells = [cx.call.int("output_height")?, cx.call.int("output_width")?];
    let sizes = Sizes::of(x, rois, 4, cells)?;
    if images.len() != sizes.regions {
        return invalid(format!("{} batch indices for {} regions", images.len(), sizes.regions));
    }
    let mode = match cx.call.text("mode")?.as_str() {
        "avg" => Mode::Average,
        "max" => Mode::Greatest,
        other => return invalid(format!("the mode {other:?}")),
    };
    let half_pixel = match cx.call.text_or("coordinate_transformation_mode", "output_half_pixel")?.as_str() {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => return invalid(format!("the coordinate transformation mode {other:?}")),
    };
    let scale = cx.call.float("spatial_scale")?;
    let samples = cx.call.int("sampling_ratio")?;
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(&sizes.output_shape())?;
        let region_len = out.len() / sizes.regions.max(1);
        if !out.is_empty() && !x.is_empty() {
            let regions = rois.slice::<T>()?.chunks_exact(4).zip(images);
            for ((region, image), out) in regions.zip(out.chunks_exact_mut(region_len)) {
                cx.check_time()?;
                let planes = sizes.planes(x.slice::<T>()?, image)?;
                let span = |axis: usize| [region[1 - axis], region[3 - axis]];
                let axis = |axis: usize| {
                    let cells = Cells { count: sizes.cells[axis], samples, half_pixel, scale: T::from_f64(scale.into()) };
                    cells.taps(cx, span(axis), sizes.image[axis])
                };
                let taps = [axis(0)?, axis(1)?];
                sizes.each_cell(planes, out, |plane, row, across| {
                    mode.pool(plane, sizes.image[1], &taps[0][row], &taps[1][across])
                });
            }
        }
        one(Array::new(sizes.output_shape(), out)?)
    })
}

/// How a region is divided along one axis.
struct Cells<T> {
    count: usize,
    /// Samples per cell; as many as the cell has elements if it is 0.
    samples: i64,
    half_pixel: bool,
    scale: T,
}

/// Two neighbouring elements and their weights; weightless for samples outside of the image.
#[derive(Clone, Copy)]
struct Tap<T> {
    at: [usize; 2],
    weights: [T; 2],
    outside: bool,
}

impl<T: Float> Cells<T> {
    /// The samples of each cell of a region that spans `region` on an axis of `size` elements.
    fn taps(&self, cx: &Eval<'_>, region: [T; 2], size: usize) -> Result<Vec<Vec<Tap<T>>>, OpError> {
        let half = T::from_f64(0.5);
        let shift = if self.half_pixel { half } else { T::ZERO };
        let [start, end] = region.map(|corner| corner * self.scale - shift);
        let extent = end - start;
        let extent = if !self.half_pixel && extent < T::ONE { T::ONE } else { extent };
        let cell = extent / T::from_f64(self.count as f64);
        let samples = if self.samples > 0 { self.samples as f64 } else { cell.to_f64().ceil() };
        if samples > MAX_SAMPLES {
            return unsupported(format!("a region with {samples} samples per cell"));
        }
        let samples = samples.max(0.0) as usize;
        cx.reserve::<Tap<T>>(self.count.saturating_mul(samples))?;
        let tap = |index: usize, sample: usize| {
            let place = T::from_f64(sample as f64) + half;
            let at = start + T::from_f64(index as f64) * cell + place * cell / T::from_f64(samples as f64);
            Tap::at(at, size)
        };
        Ok((0..self.count).map(|index| (0..samples).map(|sample| tap(index, sample)).collect()).collect())
    }
}

impl<T: Float> Tap<T> {
    fn at(place: T, size: usize) -> Self {
        let limit = T::from_f64(size as f64);
        if !(place >= -T::ONE && place <= limit) {
            return Self { at: [0; 2], weights: [T::ZERO; 2], outside: true };
        }
        let place = if place < T::ZERO { T::ZERO } else { place };
        let low = place.to_f64() as usize;
        if low + 1 >= size {
            return Self { at: [size - 1; 2], weights: [T::ONE, T::ZERO], outside: false };
        }
        let share = place - T::from_f64(low as f64);
        Self { at: [low, low + 1], weights: [T::ONE - share, share], outside: false }
    }
}

/// What becomes of the samples of a cell.
enum Mode {
    Average,
    /// The greatest of the weighted elements, which is what the standard's reference computes.
    Greatest,
}

impl Mode {
    fn pool<T: Float>(&self, plane: &[T], width: usize, rows: &[Tap<T>], columns: &[Tap<T>]) -> T {
        let mut result = None;
        let count = (rows.len() * columns.len()).max(1);
        for (y, x) in rows.iter().flat_map(|y| columns.iter().map(move |x| (y, x))) {
            let part = |i: usize, j: usize| {
                if y.outside || x.outside {
                    T::ZERO
                } else {
                    y.weights[i] * x.weights[j] * plane[y.at[i] * width + x.at[j]]
                }
            };
            let parts = [part(0, 0), part(0, 1), part(1, 0), part(1, 1)];
            result = Some(match (self, result) {
                (Self::Average, sum) => {
                    parts.into_iter().fold(sum.unwrap_or(T::ZERO), |sum, part| sum + part)
                }
                (Self::Greatest, best) => {
                    let greater = |best: T, part: T| if part > best { part } else { best };
                    parts.into_iter().fold(best.unwrap_or(parts[0]), greater)
                }
            });
        }
        let result = result.unwrap_or(T::ZERO);
        match self {
            Self::Average => result / T::from_f64(count as f64),
            Self::Greatest => result,
        }
    }
}

pub fn infer_max(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let cells = pooled_shape(&cx.call)?;
    infer(cx, &[1], cells)
}

pub fn infer_align(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let cells = [cx.call.int("output_height")?, cx.call.int("output_width")?];
    infer(cx, &[1, 2], cells)
}

/// Regions, whose number the first axis of one of the inputs `counted` tells, times channels times cells.
fn infer(cx: &mut Infer<'_>, counted: &[usize], cells: [i64; 2]) -> Result<(), OpError> {
    if cx.rank(0).is_some_and(|rank| rank != 4) || cells.iter().any(|&size| size < 1) {
        return invalid(format!("{cells:?} cells of a tensor with {:?} axes", cx.rank(0)));
    }
    let channels = cx.shape(0).map(|shape| shape[1].clone());
    let regions = counted.iter().find_map(|&index| cx.shape(index)?.first().cloned());
    let shape = vec![cx.or_fresh(regions), cx.or_fresh(channels), cells[0].into(), cells[1].into()];
    cx.set_shape(0, shape);
    Ok(())
}
