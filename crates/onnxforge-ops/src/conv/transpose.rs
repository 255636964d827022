//! Transposed convolutions: each element of the image spreads a kernel over the result.

use super::col2im::fold;
use super::direct::fill_bias;
use super::im2col::MAX_TILE_BYTES;
use super::{Sizes, group};
use crate::array::{Array, each_float};
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::gemm::{Matrix, gemm};
use crate::kernel::number::Float;
use crate::kernel::parallel::PARALLEL;
use crate::kernel::window::{Axis, Geometry, Padding, Sliding, kernel_shape};
use crate::value::Value;
use onnxforge_ir::dim::{Dim, Symbols};
use onnxforge_proto::parallel::{for_each, thread_count};

/// Largest extent of a result along an axis, padding included.
const MAX_EXTENT: i64 = 1 << 50;

/// What the attributes of a transposed convolution say.
struct Spread {
    sliding: Sliding,
    /// Elements added to the end of each axis.
    output_padding: Vec<i64>,
    /// The size of the result, where it is given.
    output: Option<Vec<i64>>,
}

impl Spread {
    fn of(call: &Call<'_>, rank: usize) -> Result<Self, OpError> {
        let list = |name: &str| {
            let given = call.opt_ints(name)?.filter(|given| !given.is_empty());
            match given {
                Some(given)
                    if given.len() != rank || given.iter().any(|size| !(0..MAX_EXTENT).contains(size)) =>
                {
                    invalid(format!("the attribute {name} is {given:?} for {rank} spatial axes"))
                }
                given => Ok(given),
            }
        };
        Ok(Self {
            sliding: Sliding::of(call, rank)?,
            output_padding: list("output_padding")?.unwrap_or_else(|| vec![0; rank]),
            output: list("output_shape")?,
        })
    }

    /// The size of the result along an axis, before padding is cut off.
    fn full(&self, index: usize, image: &Dim, kernel: &Dim) -> Option<Dim> {
        let last = image.sub(&Dim::ONE)?.mul(&Dim::from(self.sliding.strides[index] as i64))?;
        let span = kernel.sub(&Dim::ONE)?.mul(&Dim::from(self.sliding.dilations[index] as i64))?;
        last.add(&span)?.add(&Dim::from(self.output_padding[index] + 1))
    }

    /// The size of the result along an axis.
    fn output_dim(&self, index: usize, image: &Dim, kernel: &Dim, symbols: &Symbols) -> Option<Dim> {
        if let Some(output) = &self.output {
            return Some(Dim::from(output[index]));
        }
        let full = self.full(index, image, kernel)?;
        match &self.sliding.padding {
            Padding::Explicit(pads) => full.sub(&Dim::from((pads[index][0] + pads[index][1]) as i64)),
            _ => {
                let wanted = image.mul(&Dim::from(self.sliding.strides[index] as i64))?;
                full.minimum(&wanted, symbols)
            }
        }
    }

    /// The window that slides over the result while the image's elements are its positions.
    fn fit(&self, image: &[usize], kernel: &[usize]) -> Result<Geometry, OpError> {
        let axis = |index: usize| {
            let (size, taps) = (Dim::from(image[index] as i64), Dim::from(kernel[index] as i64));
            let constant = |dim: Option<Dim>| dim.and_then(|dim| dim.as_const());
            let full = constant(self.full(index, &size, &taps)).filter(|full| *full < MAX_EXTENT);
            let output = constant(self.output_dim(index, &size, &taps, &Symbols::default()));
            let (Some(full), Some(output)) = (full, output) else {
                return unsupported("a transposed convolution of this extent");
            };
            let (stride, dilation) = (self.sliding.strides[index], self.sliding.dilations[index]);
            if image[index] == 0 || kernel[index] == 0 || output < 1 || output - full >= stride as i64 {
                return invalid(format!(
                    "a transposed convolution with {output} of {full} elements along an axis"
                ));
            }
            let cut = usize::try_from(full - output).unwrap_or(0);
            let pad = match &self.sliding.padding {
                Padding::Explicit(pads) if self.output.is_none() => pads[index][0],
                Padding::SameUpper => cut / 2,
                _ => cut - cut / 2,
            };
            let (input, output) = (output as usize, image[index]);
            let pad_end = cut.saturating_sub(pad);
            Ok(Axis { input, output, kernel: kernel[index], stride, dilation, pad, pad_end })
        };
        Geometry::new((0..image.len()).map(axis).collect::<Result<_, OpError>>()?)
    }
}

pub fn conv_transpose(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, w, bias) = (cx.array(0)?, cx.array(1)?, cx.opt_array(2)?);
    let ([batch, channels, image @ ..], [rows, maps, kernel @ ..]) = (x.shape(), w.shape()) else {
        return invalid(format!("a transposed convolution of {:?} with {:?}", x.shape(), w.shape()));
    };
    let groups = group(&cx.call)?;
    let fits = !image.is_empty() && image.len() == kernel.len() && channels == rows && channels % groups == 0;
    if !fits || kernel_shape(&cx.call)?.is_some_and(|given| given != kernel) {
        return invalid(format!("a transposed convolution of {:?} with {:?}", x.shape(), w.shape()));
    }
    let geometry = Spread::of(&cx.call, image.len())?.fit(image, kernel)?;
    let Some(total) = maps.checked_mul(groups) else {
        return invalid(format!("{groups} groups of {maps} maps"));
    };
    if bias.is_some_and(|bias| bias.shape() != [total]) {
        return invalid(format!("a bias for {total} maps"));
    }
    let sizes = geometry.axes().iter().map(|axis| axis.input);
    let shape: Vec<usize> = [*batch, total].into_iter().chain(sizes).collect();
    let layer = Layer { groups, channels: channels / groups, maps: *maps, geometry };
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        fill_bias(&mut out, bias.map(Array::slice).transpose()?, layer.geometry.input_len());
        if !out.is_empty() && !x.is_empty() {
            layer.spread::<T>(cx, x.slice()?, w.slice()?, &mut out)?;
        }
        one(Array::new(shape, out)?)
    })
}

/// The sizes of a transposed convolution, channels and maps per group.
struct Layer {
    groups: usize,
    channels: usize,
    maps: usize,
    geometry: Geometry,
}

impl Layer {
    /// Adds the products of `x` and `w` to `out`.
    fn spread<T: Float>(&self, cx: &Eval<'_>, x: &[T], w: &[T], out: &mut [T]) -> Result<(), OpError> {
        let geometry = &self.geometry;
        let (positions, plane) = (geometry.output_len(), geometry.input_len());
        let rows = self.maps * geometry.kernel_len();
        let column = rows.saturating_mul(size_of::<T>()).max(1);
        let tile = (MAX_TILE_BYTES / column).clamp(1, positions);
        let side_by_side = out.len() > self.maps * plane;
        let buffers = if side_by_side { thread_count() } else { 1 };
        cx.reserve::<T>((rows + self.channels).saturating_mul(tile).saturating_mul(buffers))?;
        let product = |(index, out): (usize, &mut [T])| {
            let image = &x[index * self.channels * positions..][..self.channels * positions];
            let weights = &w[index % self.groups * self.channels * rows..][..self.channels * rows];
            let weights = Matrix::transposed(weights, rows, self.channels);
            for start in (0..positions).step_by(tile) {
                let range = start..positions.min(start + tile);
                let width = range.len();
                // The positions of the tile, channel after channel.
                let part: Vec<T> = image
                    .chunks_exact(positions)
                    .flat_map(|channel| &channel[range.clone()])
                    .copied()
                    .collect();
                let mut columns = vec![T::ZERO; rows * width];
                let part = Matrix::new(&part, self.channels, width);
                gemm(&mut columns, weights, part, T::ONE, false, !side_by_side);
                let block = geometry.kernel_len() * width;
                let planes = out.chunks_exact_mut(plane).zip(columns.chunks_exact(block));
                for_each(planes, PARALLEL / block, |(plane, columns)| {
                    fold(geometry, columns, range.clone(), plane);
                });
            }
        };
        if side_by_side {
            for_each(out.chunks_exact_mut(self.maps * plane).enumerate(), 1, product);
        } else {
            product((0, out));
        }
        Ok(())
    }
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(sizes) = Sizes::of(cx)? else { return Ok(()) };
    let groups = Dim::from(group(&cx.call)? as i64);
    cx.unify(&sizes.x_dims[1], &sizes.w_dims[0])?;
    let maps = sizes.w_dims[1].mul(&groups);
    let mut shape = vec![sizes.x_dims[0].clone(), cx.or_fresh(maps)];
    let spread = Spread::of(&cx.call, sizes.kernel.len())?;
    for (index, (image, kernel)) in sizes.x_dims[2..].iter().zip(&sizes.kernel).enumerate() {
        let dim = spread.output_dim(index, image, kernel, cx.symbols);
        if let Some(size @ ..1) = dim.as_ref().and_then(Dim::as_const) {
            return invalid(format!("a transposed convolution with {size} elements along an axis"));
        }
        shape.push(cx.or_fresh(dim));
    }
    cx.set_shape(0, shape);
    Ok(())
}
