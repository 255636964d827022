//! What a call of `Resize` or `Upsample` asks for, in any version.

use crate::array::Array;
use crate::call::{Call, axes};
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;

/// Largest factor of a scale that is taken as a fraction; products with it stay exact.
const MAX_NUMERATOR: f32 = (1 << 20) as f32;

/// Where scales or sizes come from.
pub enum Source {
    /// The scales are attributes.
    Attribute(Vec<f32>),
    /// The scales are an input, or the sizes are one.
    Inputs { scales: usize, sizes: Option<usize> },
}

impl Source {
    pub fn of(call: &Call<'_>) -> Result<Self, OpError> {
        Ok(match (call.def.name, call.since()) {
            ("Upsample", 1) => {
                Self::Attribute(vec![1.0, 1.0, call.float("height_scale")?, call.float("width_scale")?])
            }
            ("Upsample", 7) => Self::Attribute(call.floats("scales")?),
            ("Upsample", _) | (_, 10) => Self::Inputs { scales: 1, sizes: None },
            _ => Self::Inputs { scales: 2, sizes: Some(3) },
        })
    }
}

/// How the new sizes are given.
enum Target {
    Scales(Vec<f32>),
    Sizes(Vec<i64>),
}

/// How sizes keep the aspect ratio.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Stretch,
    NotLarger,
    NotSmaller,
}

impl Policy {
    pub fn of(call: &Call<'_>) -> Result<Self, OpError> {
        match call.text_or("keep_aspect_ratio_policy", "stretch")?.as_str() {
            "stretch" => Ok(Self::Stretch),
            "not_larger" => Ok(Self::NotLarger),
            "not_smaller" => Ok(Self::NotSmaller),
            other => invalid(format!("the policy {other:?}")),
        }
    }
}

/// How places of the result become places of the tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfHalfPixelForNn,
    TfCropAndResize,
}

/// How a place between elements becomes one of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Nearest {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
    /// Down when the axis grows, up when it shrinks, as it was before there was a choice.
    Simple,
}

/// How elements are combined.
#[derive(Clone, Copy, PartialEq)]
pub enum Filter {
    Nearest(Nearest),
    Linear,
    /// With this coefficient.
    Cubic(f64),
}

/// What happens along one axis.
#[derive(Clone, Copy, Debug)]
pub struct AxisRequest {
    /// Elements of the tensor.
    pub input: usize,
    /// Elements of the result.
    pub output: usize,
    /// How many elements of the result go on one of the tensor.
    pub scale: f64,
    /// The part of the axis that is read, for `tf_crop_and_resize`.
    pub roi: [f64; 2],
}

/// A call of `Resize` or `Upsample`.
pub struct Request {
    pub filter: Filter,
    pub transform: Transform,
    pub antialias: bool,
    pub exclude_outside: bool,
    pub extrapolation_value: f64,
    /// One entry for each axis of the tensor.
    pub axes: Vec<AxisRequest>,
}

impl AxisRequest {
    /// Whether nothing happens along the axis.
    pub fn is_unchanged(&self, transform: Transform) -> bool {
        let whole = transform != Transform::TfCropAndResize || self.roi == [0.0, 1.0];
        self.input == self.output && self.scale == 1.0 && whole
    }
}

impl Request {
    pub fn of(cx: &Eval<'_>) -> Result<Self, OpError> {
        let call = &cx.call;
        let versions_before_choice = call.def.name == "Upsample" || call.since() < 11;
        let transform = if versions_before_choice { Transform::Asymmetric } else { transform(call)? };
        let filter = match call.text("mode")?.as_str() {
            "nearest" if versions_before_choice => Filter::Nearest(Nearest::Simple),
            "nearest" => Filter::Nearest(nearest(call)?),
            "linear" | "bilinear" => Filter::Linear,
            "cubic" => Filter::Cubic(call.float("cubic_coeff_a")?.into()),
            other => return invalid(format!("the mode {other:?}")),
        };
        Ok(Self {
            filter,
            transform,
            antialias: call.flag("antialias")?,
            exclude_outside: call.flag("exclude_outside")?,
            extrapolation_value: call.float_or("extrapolation_value", 0.0)?.into(),
            axes: axis_requests(cx, transform)?,
        })
    }

    pub fn is_nearest(&self) -> bool {
        matches!(self.filter, Filter::Nearest(_))
    }
}

fn transform(call: &Call<'_>) -> Result<Transform, OpError> {
    Ok(match call.text("coordinate_transformation_mode")?.as_str() {
        "half_pixel" => Transform::HalfPixel,
        "half_pixel_symmetric" => Transform::HalfPixelSymmetric,
        "pytorch_half_pixel" => Transform::PytorchHalfPixel,
        "align_corners" => Transform::AlignCorners,
        "asymmetric" => Transform::Asymmetric,
        "tf_half_pixel_for_nn" => Transform::TfHalfPixelForNn,
        "tf_crop_and_resize" => Transform::TfCropAndResize,
        other => return invalid(format!("the coordinate transformation mode {other:?}")),
    })
}

fn nearest(call: &Call<'_>) -> Result<Nearest, OpError> {
    Ok(match call.text("nearest_mode")?.as_str() {
        "round_prefer_floor" => Nearest::RoundPreferFloor,
        "round_prefer_ceil" => Nearest::RoundPreferCeil,
        "floor" => Nearest::Floor,
        "ceil" => Nearest::Ceil,
        other => return invalid(format!("the nearest mode {other:?}")),
    })
}

fn target(cx: &Eval<'_>) -> Result<Target, OpError> {
    let (scales, sizes) = match Source::of(&cx.call)? {
        Source::Attribute(scales) => return Ok(Target::Scales(scales)),
        Source::Inputs { scales, sizes } => (scales, sizes),
    };
    let given = |index: usize| Ok(cx.opt_array(index)?.filter(|array| !array.is_empty()));
    let sizes: Option<&Array> = sizes.map_or(Ok::<_, OpError>(None), given)?;
    match (given(scales)?, sizes) {
        (Some(scales), None) => {
            Ok(Target::Scales(scales.to_f64s()?.into_iter().map(|scale| scale as f32).collect()))
        }
        (None, Some(sizes)) => Ok(Target::Sizes(sizes.to_i64s()?)),
        (None, None) => invalid("neither scales nor sizes are given"),
        (Some(_), Some(_)) => invalid("both scales and sizes are given"),
    }
}

/// The axes that scales, sizes and regions speak of.
pub fn resized_axes(call: &Call<'_>, rank: usize) -> Result<Vec<usize>, OpError> {
    match call.opt_ints("axes")? {
        Some(given) => axes(&given, rank),
        None => Ok((0..rank).collect()),
    }
}

fn axis_requests(cx: &Eval<'_>, transform: Transform) -> Result<Vec<AxisRequest>, OpError> {
    let shape = cx.array(0)?.shape();
    let resized = resized_axes(&cx.call, shape.len())?;
    let keep = |&size: &usize| AxisRequest { input: size, output: size, scale: 1.0, roi: [0.0, 1.0] };
    let mut requests: Vec<AxisRequest> = shape.iter().map(keep).collect();
    let target = target(cx)?;
    let count = match &target {
        Target::Scales(scales) => scales.len(),
        Target::Sizes(sizes) => sizes.len(),
    };
    if count != resized.len() {
        return invalid(format!("{count} scales or sizes for {} axes", resized.len()));
    }
    match target {
        Target::Scales(scales) => {
            check_scales(&cx.call, &scales)?;
            for (&axis, scale) in resized.iter().zip(scales) {
                requests[axis].output = scaled_size(shape[axis], scale);
                requests[axis].scale = scale.into();
            }
        }
        Target::Sizes(sizes) => fit_sizes(Policy::of(&cx.call)?, &resized, &sizes, &mut requests)?,
    }
    if transform == Transform::TfCropAndResize {
        read_regions(cx, &resized, &mut requests)?;
    }
    match requests.iter().find(|request| request.input == 0 && request.output > 0) {
        Some(request) => invalid(format!("{} elements out of none", request.output)),
        None => Ok(requests),
    }
}

pub fn check_scales(call: &Call<'_>, scales: &[f32]) -> Result<(), OpError> {
    let least = if call.def.name == "Upsample" { 1.0 } else { f32::MIN_POSITIVE };
    match scales.iter().find(|scale| !(**scale >= least && scale.is_finite())) {
        Some(scale) => invalid(format!("the scale {scale}")),
        None => Ok(()),
    }
}

/// The regions of interest, which `tf_crop_and_resize` needs.
fn read_regions(cx: &Eval<'_>, resized: &[usize], requests: &mut [AxisRequest]) -> Result<(), OpError> {
    let regions = cx.array(1)?.to_f64s()?;
    if regions.len() != 2 * resized.len() {
        return invalid(format!("regions of {} numbers for {} axes", regions.len(), resized.len()));
    }
    let (starts, ends) = regions.split_at(resized.len());
    for ((&axis, &start), &end) in resized.iter().zip(starts).zip(ends) {
        requests[axis].roi = [start, end];
    }
    Ok(())
}

pub fn fit_sizes(
    policy: Policy,
    resized: &[usize],
    sizes: &[i64],
    requests: &mut [AxisRequest],
) -> Result<(), OpError> {
    for (&axis, &size) in resized.iter().zip(sizes) {
        let Ok(output) = usize::try_from(size) else { return invalid(format!("the size {size}")) };
        requests[axis].output = output;
        requests[axis].scale = output as f64 / requests[axis].input as f64;
    }
    let scales = resized.iter().map(|&axis| requests[axis].scale);
    let common = match policy {
        Policy::Stretch => return Ok(()),
        Policy::NotLarger => scales.reduce(f64::min),
        Policy::NotSmaller => scales.reduce(f64::max),
    };
    for &axis in resized {
        let request = &mut requests[axis];
        request.scale = common.unwrap_or(1.0);
        request.output = (request.scale * request.input as f64 + 0.5).floor() as usize;
    }
    Ok(())
}

/// The scale as a fraction whose denominator is a power of two, if it is one with small terms.
pub fn fraction(scale: f32) -> Option<(i64, i64)> {
    let denominator = (0..=10).map(|bits| 1i64 << bits).find(|&bits| (scale * bits as f32).fract() == 0.0)?;
    let numerator = scale * denominator as f32;
    (numerator < MAX_NUMERATOR).then_some((numerator as i64, denominator))
}

/// `floor(size * scale)`: exact for fractions, in 32 bits otherwise, as runtimes compute it.
pub fn scaled_size(size: usize, scale: f32) -> usize {
    match fraction(scale) {
        Some((numerator, denominator)) => {
            let scaled = size as u128 * numerator as u128 / denominator as u128;
            usize::try_from(scaled).unwrap_or(usize::MAX)
        }
        None => (size as f32 * scale).floor() as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_scales() {
        assert_eq!(fraction(2.0), Some((2, 1)));
        assert_eq!(fraction(0.375), Some((3, 8)));
        assert_eq!(fraction(0.7), None);
        assert_eq!(fraction(f32::MAX), None);
        assert_eq!(scaled_size(10, 0.7), 7);
        assert_eq!(scaled_size(5, 1.5), 7);
        assert_eq!(scaled_size(usize::MAX, 2.0), usize::MAX);
    }
}
