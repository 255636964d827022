//! Convolutions: plain, of integers, transposed, deformable and causal, and the way back from columns to images.

mod causal;
mod col2im;
mod deform;
mod direct;
mod im2col;
pub(super) mod integer;
mod transpose;

use super::array::{Array, each_float};
use super::call::Call;
use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::{Eval, one};
use super::infer_call::Infer;
use super::kernel::number::Float;
use super::kernel::window::{Geometry, Sliding, kernel_shape};
use super::value::Value;
use onnxforge_ir::dim::Dim;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("Conv", Category::NeuralLayer, infer_conv, conv).widening(),
    OpDef::new("ConvInteger", Category::NeuralLayer, infer_conv, integer::conv_integer),
    OpDef::new("ConvTranspose", Category::NeuralLayer, transpose::infer, transpose::conv_transpose)
        .widening(),
    OpDef::new("DeformConv", Category::NeuralLayer, infer_conv, deform::deform_conv).widening(),
    OpDef::new("CausalConvWithState", Category::NeuralLayer, causal::infer, causal::causal_conv).widening(),
    OpDef::new("Col2Im", Category::Manipulation, col2im::infer, col2im::col2im).widening(),
];

fn conv(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, w, bias) = (cx.array(0)?, cx.array(1)?, cx.opt_array(2)?);
    each_float!(x, T => one(convolve::<T>(cx, x, w, bias)?))
}

/// The convolution of `x` (images, channels, axes …) with the weights `w` (maps, channels per group, axes …), and `bias`
/// added to each map. The attributes of the call (`group`, `strides`, `dilations`, `pads`, `auto_pad`, `kernel_shape`) say
/// how; they mean what they mean for `Conv`. All arrays must hold `T`.
pub(super) fn convolve<T: Float>(
    cx: &Eval<'_>,
    x: &Array,
    w: &Array,
    bias: Option<&Array>,
) -> Result<Array, OpError> {
    let layer = Layer::of(&cx.call, x.shape(), w.shape())?;
    let bias = layer.bias::<T>(bias)?;
    let mut out = cx.zeros::<T>(&layer.output_shape())?;
    layer.convolve(cx, x.slice()?, w.slice()?, bias, &mut out)?;
    Array::new(layer.output_shape(), out)
}

/// The sizes of a convolution that fit together.
struct Layer {
    batch: usize,
    groups: usize,
    /// Channels of the image per group.
    channels: usize,
    /// Maps of the result per group.
    maps: usize,
    geometry: Geometry,
}

impl Layer {
    /// The convolution of tensors of these shapes by the attributes of the call.
    fn of(call: &Call<'_>, x: &[usize], w: &[usize]) -> Result<Self, OpError> {
        let ([batch, channels, image @ ..], [maps, depth, kernel @ ..]) = (x, w) else {
            return invalid(format!("a convolution of {x:?} with {w:?}"));
        };
        let groups = group(call)?;
        if image.is_empty() || image.len() != kernel.len() {
            return invalid(format!("a convolution of {x:?} with {w:?}"));
        }
        if depth.checked_mul(groups) != Some(*channels) || maps % groups != 0 {
            return invalid(format!("{groups} groups for a convolution of {x:?} with {w:?}"));
        }
        if kernel_shape(call)?.is_some_and(|given| given != kernel) {
            return invalid(format!("kernel_shape differs from that of the weights {w:?}"));
        }
        let geometry = Sliding::of(call, image.len())?.fit(image, kernel)?;
        Ok(Self { batch: *batch, groups, channels: *depth, maps: maps / groups, geometry })
    }

    fn output_shape(&self) -> Vec<usize> {
        [self.batch, self.groups * self.maps].into_iter().chain(self.geometry.output_shape()).collect()
    }

    /// Multiplications that go into one map of one group.
    fn depth(&self) -> usize {
        self.channels * self.geometry.kernel_len()
    }

    /// The elements of the bias, one per map.
    fn bias<'b, T: Float>(&self, bias: Option<&'b Array>) -> Result<Option<&'b [T]>, OpError> {
        match bias {
            Some(bias) if bias.shape() != [self.groups * self.maps] => {
                invalid(format!("a bias of {:?} for {} maps", bias.shape(), self.groups * self.maps))
            }
            bias => bias.map(Array::slice).transpose(),
        }
    }

    /// Convolves into `out`, which is of the output's shape and zero.
    fn convolve<T: Float>(
        &self,
        cx: &Eval<'_>,
        x: &[T],
        w: &[T],
        bias: Option<&[T]>,
        out: &mut [T],
    ) -> Result<(), OpError> {
        if out.is_empty() || x.is_empty() {
            direct::fill_bias(out, bias, self.geometry.output_len());
            return Ok(());
        }
        if self.channels == 1 && self.maps <= direct::MAX_MAPS {
            direct::depthwise(self, x, w, bias, out);
            Ok(())
        } else {
            im2col::multiply(self, cx, x, w, bias, out)
        }
    }
}

/// The attribute `group`.
fn group(call: &Call<'_>) -> Result<usize, OpError> {
    match usize::try_from(call.int("group")?) {
        Ok(groups @ 1..) => Ok(groups),
        _ => invalid("the attribute group is less than 1"),
    }
}

/// What is known of a convolution: images times maps times window positions.
fn infer_conv(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(sizes) = Sizes::of(cx)? else { return Ok(()) };
    let groups = Dim::from(group(&cx.call)? as i64);
    if let Some(channels) = sizes.w_dims[1].mul(&groups) {
        cx.unify(&sizes.x_dims[1], &channels)?;
    }
    let sliding = Sliding::of(&cx.call, sizes.kernel.len())?;
    let positions = sliding.output_dims(cx, &sizes.x_dims[2..], &sizes.kernel)?;
    let [batch, maps] = [sizes.x_dims[0].clone(), sizes.w_dims[0].clone()];
    cx.set_shape(0, [batch, maps].into_iter().chain(positions).collect());
    Ok(())
}

/// The dimensions of images and weights, with new symbols where they are unknown.
struct Sizes {
    x_dims: Vec<Dim>,
    w_dims: Vec<Dim>,
    /// The spatial axes of the weights.
    kernel: Vec<Dim>,
}

impl Sizes {
    /// The dimensions of inputs 0 and 1; nothing when not even the number of axes is known.
    fn of(cx: &mut Infer<'_>) -> Result<Option<Self>, OpError> {
        let given = kernel_shape(&cx.call)?;
        let ranks = [cx.rank(0), cx.rank(1), given.as_ref().map(|kernel| kernel.len() + 2)];
        let mut known = ranks.into_iter().flatten();
        let Some(rank) = known.next() else { return Ok(None) };
        if rank < 3 || known.any(|other| other != rank) {
            return invalid(format!(
                "images {:?} and weights {:?} with kernel_shape {given:?}",
                cx.rank(0),
                cx.rank(1)
            ));
        }
        let x_dims = cx.shape(0).map_or_else(|| cx.fresh_shape(rank), <[Dim]>::to_vec);
        let w_dims = cx.shape(1).map_or_else(|| cx.fresh_shape(rank), <[Dim]>::to_vec);
        let mut kernel = w_dims[2..].to_vec();
        for (dim, given) in kernel.iter_mut().zip(given.into_iter().flatten()) {
            *dim = cx.unify(dim, &Dim::from(given as i64))?;
        }
        Ok(Some(Self { x_dims, w_dims, kernel }))
    }
}
