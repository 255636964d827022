//! Pooling: what windows, whole planes or regions of interest have in common, and the way back.

mod global;
mod region;
mod unpool;

use super::array::{Array, each_float, each_number};
use super::call::Call;
use super::def::{Category, OpDef};
use super::error::{OpError, invalid, unsupported};
use super::eval_call::{Eval, one};
use super::infer_call::Infer;
use super::kernel::number::{Float, Number};
use super::kernel::parallel::each_piece;
use super::kernel::window::{Axis, Geometry, Padding, Sliding, combine, kernel_shape};
use super::value::Value;
use onnxforge_ir::dim::Dim;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("MaxPool", Category::NeuralLayer, infer_pool, max_pool).widening(),
    OpDef::new("AveragePool", Category::NeuralLayer, infer_pool, average_pool).widening(),
    OpDef::new("LpPool", Category::NeuralLayer, infer_pool, lp_pool).widening(),
    OpDef::new("GlobalMaxPool", Category::NeuralLayer, global::infer, global::max_pool).widening(),
    OpDef::new("GlobalAveragePool", Category::NeuralLayer, global::infer, global::average_pool).widening(),
    OpDef::new("GlobalLpPool", Category::NeuralLayer, global::infer, global::lp_pool).widening(),
    OpDef::new("MaxUnpool", Category::NeuralLayer, unpool::infer, unpool::max_unpool).widening(),
    OpDef::new("MaxRoiPool", Category::NeuralLayer, region::infer_max, region::max_roi_pool).widening(),
    OpDef::new("RoiAlign", Category::NeuralLayer, region::infer_align, region::roi_align).widening(),
];

/// The window over planes of the shape `x` that the attributes describe, and the shape of the result.
fn fit(call: &Call<'_>, x: &[usize]) -> Result<(Geometry, Vec<usize>), OpError> {
    let kernel = kernel_shape(call)?.unwrap_or_default();
    let [batch, channels, image @ ..] = x else { return invalid(format!("pooling of a tensor of {x:?}")) };
    if image.is_empty() || kernel.len() != image.len() {
        return invalid(format!("a kernel of {kernel:?} for a tensor of {x:?}"));
    }
    let sliding = Sliding::of(call, image.len())?;
    let geometry = sliding.fit(image, &kernel)?;
    let passes_over = |axis: &Axis| {
        axis.output.saturating_sub(1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1 < axis.input
    };
    if !matches!(sliding.padding, Padding::Explicit(_)) && geometry.axes().iter().any(passes_over) {
        return unsupported("pooling with auto_pad that would make the image smaller");
    }
    let shape = [*batch, *channels].into_iter().chain(geometry.output_shape()).collect();
    Ok((geometry, shape))
}

/// Runs `pool` on each plane of `x` with its place in `out`; the first argument counts planes.
fn each_plane<T: Sync, U: Send>(
    geometry: &Geometry,
    x: &[T],
    out: &mut [U],
    pool: impl Fn(usize, &[T], &mut [U]) + Sync,
) {
    let (input, output) = (geometry.input_len(), geometry.output_len());
    if out.is_empty() {
        return;
    }
    each_piece(out, output, input.max(output), &|index, out| pool(index, &x[index * input..][..input], out));
}

fn max_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let (geometry, shape) = fit(&cx.call, x.shape())?;
    each_number!(x, T => {
        if cx.call.wants(1) {
            return max_with_indices::<T>(cx, x, &geometry, shape);
        }
        let mut out = cx.zeros::<T>(&shape)?;
        each_plane(&geometry, x.slice()?, &mut out, |_, plane: &[T], out| {
            out.fill(lowest());
            geometry.for_each_run(0..out.len(), &mut |run| {
                combine(&mut out[run.positions], &plane[run.input..], run.step, |best, value: T| {
                    if value > *best || value.is_nan() {
                        *best = value;
                    }
                });
            });
        });
        one(Array::new(shape, out)?)
    })
}

/// The least number of a type.
fn lowest<T: Number>() -> T {
    T::from_f64(f64::NEG_INFINITY)
}

/// The greatest elements, and where in the tensor each was found first.
fn max_with_indices<T: Number>(
    cx: &Eval<'_>,
    x: &Array,
    geometry: &Geometry,
    shape: Vec<usize>,
) -> Result<Vec<Value>, OpError> {
    let column_major = cx.call.flag("storage_order")?;
    cx.reserve::<(T, i64)>(cx.count(&shape)?.saturating_mul(2))?;
    let mut found = vec![(lowest::<T>(), -1i64); cx.count(&shape)?];
    each_plane(geometry, x.slice()?, &mut found, |index, plane: &[T], found| {
        geometry.for_each_run(0..found.len(), &mut |run| {
            let mut at = run.input as i64;
            combine(&mut found[run.positions], &plane[run.input..], run.step, |best, value: T| {
                if best.1 < 0 || value > best.0 || (value.is_nan() && !best.0.is_nan()) {
                    *best = (value, at);
                }
                at += run.step as i64;
            });
        });
        let first = (index * geometry.input_len()) as i64;
        for (_, at) in found.iter_mut().filter(|(_, at)| *at >= 0) {
            *at = first + if column_major { transposed_index(geometry, *at) } else { *at };
        }
    });
    if found.iter().any(|(_, at)| *at < 0) {
        return invalid("a window that lies outside of the image has no greatest element");
    }
    let (values, indices): (Vec<T>, Vec<i64>) = found.into_iter().unzip();
    Ok(vec![Array::new(shape.clone(), values)?.into(), Array::new(shape, indices)?.into()])
}

/// The column-major index of the element of a plane that has this row-major index.
fn transposed_index(geometry: &Geometry, index: i64) -> i64 {
    let mut rest = index;
    geometry.axes().iter().rev().fold(0, |column_major, axis| {
        let size = axis.input as i64;
        let at = rest % size;
        rest /= size;
        column_major * size + at
    })
}

fn average_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let (geometry, shape) = fit(&cx.call, x.shape())?;
    let include_pad = cx.call.flag("count_include_pad")?;
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        let counts = if out.is_empty() { Vec::new() } else { window_counts(&geometry, include_pad) };
        each_plane(&geometry, x.slice()?, &mut out, |_, plane: &[T], out| {
            sum_windows(&geometry, plane, out, |value| value);
            divide_by_counts(&counts, out);
        });
        one(Array::new(shape, out)?)
    })
}

/// The number of elements that count in a window, by axis and position; a window's count is the product.
fn window_counts(geometry: &Geometry, include_pad: bool) -> Vec<Vec<usize>> {
    let axis = |axis: &Axis| {
        let count = |position: usize| match include_pad {
            true => axis.kernel_inside_padded(position),
            false => axis.kernel_inside(position).len(),
        };
        (0..axis.output).map(count).collect()
    };
    geometry.axes().iter().map(axis).collect()
}

fn divide_by_counts<T: Float>(counts: &[Vec<usize>], out: &mut [T]) {
    let Some((last, outer)) = counts.split_last() else { return };
    for (index, row) in out.chunks_exact_mut(last.len()).enumerate() {
        let mut rest = index;
        let shared: usize = outer
            .iter()
            .rev()
            .map(|counts| {
                let count = counts[rest % counts.len()];
                rest /= counts.len();
                count
            })
            .product();
        for (sum, &count) in row.iter_mut().zip(last) {
            *sum /= T::from_f64((shared * count) as f64);
        }
    }
}

/// The sum of `f` over the elements of each window that lie inside the image; `out` is zero.
fn sum_windows<T: Float>(geometry: &Geometry, plane: &[T], out: &mut [T], f: impl Fn(T) -> T) {
    geometry.for_each_run(0..out.len(), &mut |run| {
        combine(&mut out[run.positions], &plane[run.input..], run.step, |sum, value| *sum += f(value));
    });
}

fn lp_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let (geometry, shape) = fit(&cx.call, x.shape())?;
    let p = norm_order(&cx.call)?;
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        each_plane(&geometry, x.slice()?, &mut out, |_, plane: &[T], out| {
            sum_windows(&geometry, plane, out, |value| power(value, p));
            out.iter_mut().for_each(|sum| *sum = root(*sum, p));
        });
        one(Array::new(shape, out)?)
    })
}

/// The attribute `p`, which was a float in the first version.
fn norm_order(call: &Call<'_>) -> Result<f64, OpError> {
    Ok(if call.since() == 1 { call.float("p")?.into() } else { call.int("p")? as f64 })
}

fn power<T: Float>(value: T, p: f64) -> T {
    let value = Number::abs(value);
    if p == 1.0 {
        value
    } else if p == 2.0 {
        value * value
    } else {
        num_traits::Float::powf(value, T::from_f64(p))
    }
}

fn root<T: Float>(sum: T, p: f64) -> T {
    if p == 1.0 {
        sum
    } else if p == 2.0 {
        num_traits::Float::sqrt(sum)
    } else {
        num_traits::Float::powf(sum, T::from_f64(1.0 / p))
    }
}

/// Images times channels times window positions, for every output.
fn infer_pool(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(kernel) = kernel_shape(&cx.call)? else {
        return invalid("the attribute kernel_shape is missing");
    };
    let shape = cx.shape(0).map_or_else(|| cx.fresh_shape(kernel.len() + 2), <[Dim]>::to_vec);
    let [batch, channels, image @ ..] = &shape[..] else {
        return invalid(format!("pooling of a tensor with {} axes", shape.len()));
    };
    if kernel.len() != image.len() {
        return invalid(format!("a kernel of {kernel:?} for a tensor with {} axes", shape.len()));
    }
    let kernel: Vec<Dim> = kernel.into_iter().map(|size| Dim::from(size as i64)).collect();
    let positions = Sliding::of(&cx.call, image.len())?.output_dims(cx, image, &kernel)?;
    let shape: Vec<Dim> = [batch.clone(), channels.clone()].into_iter().chain(positions).collect();
    for index in 0..cx.call.output_count() {
        cx.set_shape(index, shape.clone());
    }
    Ok(())
}
