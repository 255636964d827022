//! Margins: Pad, CenterCropPad.

use half::{bf16, f16};

use super::numbered::follow;
use super::parameter::{Given, Parameter};
use crate::array::{Array, Elem, each_elem};
use crate::call::{self, Call};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::shape::strides;
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;

static PADDINGS: Parameter = Parameter { name: "paddings", input: 1, since: 11 };
static PADS: Parameter = Parameter { name: "pads", input: 1, since: 11 };
/// Never an attribute.
static AXES: Parameter = Parameter { name: "axes", input: 3, since: 18 };

/// The pads of a version: the attribute had another name at first.
fn pads_of(call: &Call<'_>) -> &'static Parameter {
    if call.since() == 1 { &PADDINGS } else { &PADS }
}

/// What a margin is filled with.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Constant,
    Reflect,
    Edge,
    Wrap,
}

impl Mode {
    fn of(call: &Call<'_>) -> Result<Self, OpError> {
        match call.text_or("mode", "constant")?.as_str() {
            "constant" => Ok(Self::Constant),
            "reflect" => Ok(Self::Reflect),
            "edge" => Ok(Self::Edge),
            "wrap" => Ok(Self::Wrap),
            other => unsupported(format!("the mode {other}")),
        }
    }

    /// The place within `len` that stands for `place`; `None` for one that is filled.
    fn source(self, place: i64, len: i64) -> Option<i64> {
        if (0..len).contains(&place) {
            return Some(place);
        }
        match self {
            Self::Constant => None,
            Self::Edge => Some(place.clamp(0, len - 1)),
            Self::Wrap => Some(place.rem_euclid(len)),
            Self::Reflect if len == 1 => Some(0),
            Self::Reflect => {
                let period = 2 * (len - 1);
                let within = place.rem_euclid(period);
                Some(within.min(period - within))
            }
        }
    }
}

/// Elements added (or, when negative, left out) before and after an axis.
type Margin = (i64, i64);

pub fn pad(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let mode = Mode::of(&cx.call)?;
    let Some(pads) = pads_of(&cx.call).evaluate(cx)? else { return invalid("the pads are missing") };
    let axes = if cx.call.since() >= AXES.since { AXES.evaluate(cx)? } else { None };
    let data = cx.array(0)?;
    let margins = margins(&pads, axes.as_deref(), data.rank(), (0, 0))?;
    let value = fill_value(cx, data.dtype())?;
    padded(cx, data, &margins, mode, value.as_ref())
}

/// The two pads of every axis; `none` where there are none.
fn margins<P: Clone>(
    pads: &[P],
    axes: Option<&[i64]>,
    rank: usize,
    none: (P, P),
) -> Result<Vec<(P, P)>, OpError> {
    let axes = axes.map_or_else(|| Ok((0..rank).collect()), |axes| call::axes(axes, rank))?;
    let (begins, ends) = pads.split_at(pads.len() / 2);
    if begins.len() != axes.len() || ends.len() != axes.len() {
        return invalid(format!("{} pads for {} axes", pads.len(), axes.len()));
    }
    let mut margins = vec![none; rank];
    for ((axis, begin), end) in axes.into_iter().zip(begins).zip(ends) {
        margins[axis] = (begin.clone(), end.clone());
    }
    Ok(margins)
}

/// The constant to pad with, when one is given: the third input, or an attribute in old versions.
fn fill_value(cx: &Eval<'_>, dtype: DType) -> Result<Option<Array>, OpError> {
    if cx.call.since() >= PADS.since {
        return match cx.opt_array(2)? {
            Some(value) if value.len() != 1 => {
                invalid(format!("one element is needed to pad with, not the shape {:?}", value.shape()))
            }
            value => Ok(value.cloned()),
        };
    }
    let value = cx.call.float("value")?;
    Ok(Some(match dtype {
        DType::F32 => Array::scalar(value),
        DType::F64 => Array::scalar(f64::from(value)),
        DType::F16 => Array::scalar(f16::from_f32(value)),
        DType::BF16 => Array::scalar(bf16::from_f32(value)),
        other => return unsupported(format!("padding {other} with a float")),
    }))
}

/// The array with `margins`. Elements that are left out at one end are never repeated at the other.
fn padded(
    cx: &Eval<'_>,
    data: &Array,
    margins: &[Margin],
    mode: Mode,
    value: Option<&Array>,
) -> Result<Vec<Value>, OpError> {
    let sizes = data.shape().iter().zip(margins).map(|(&dim, &(begin, end))| {
        let size = i128::try_from(dim).ok()? + i128::from(begin) + i128::from(end);
        usize::try_from(size).ok()
    });
    let Some(shape) = sizes.collect::<Option<Vec<usize>>>() else {
        return invalid(format!("the pads {margins:?} of the shape {:?}", data.shape()));
    };
    each_elem!(data, T => one(surrounded::<T>(cx, data, shape, margins, mode, value)?))
}

fn surrounded<T: Elem>(
    cx: &Eval<'_>,
    data: &Array,
    shape: Vec<usize>,
    margins: &[Margin],
    mode: Mode,
    value: Option<&Array>,
) -> Result<Array, OpError> {
    let count = cx.count(&shape)?;
    if count == 0 {
        return Array::with_dtype(data.dtype(), shape, Vec::<T>::new());
    }
    cx.reserve::<T>(count)?;
    cx.reserve::<Option<usize>>(shape.iter().fold(0, |sum, &dim| sum.saturating_add(dim)))?;
    let value = value.map(Array::slice::<T>).transpose()?.and_then(<[T]>::first);
    let mut out = vec![value.cloned().unwrap_or_default(); count];
    let axes = sources(data.shape(), &shape, margins, mode)?;
    if !data.is_empty() {
        fill(&mut out, data.slice::<T>()?, &axes, 0);
    }
    Array::with_dtype(data.dtype(), shape, out)
}

/// For every place along every axis of the result, how far into the input it leads.
fn sources(
    from: &[usize],
    to: &[usize],
    margins: &[Margin],
    mode: Mode,
) -> Result<Vec<Vec<Option<usize>>>, OpError> {
    let axis = |(((&from, &to), &(begin, end)), stride): (((&usize, &usize), &Margin), usize)| {
        // What is left of the axis when negative pads have taken their part.
        let (first, last) = (begin.min(0).saturating_neg(), (from as i64).saturating_add(end.min(0)));
        let len = last.saturating_sub(first);
        if len <= 0 && mode != Mode::Constant {
            return invalid(format!("pads of an axis of {from} elements of which none is left"));
        }
        let source = |place: usize| {
            let inside = mode.source(place as i64 - begin.max(0), len)?;
            usize::try_from(first.checked_add(inside)?).ok()?.checked_mul(stride)
        };
        Ok((0..to).map(source).collect())
    };
    from.iter().zip(to).zip(margins).zip(strides(from)).map(axis).collect()
}

/// Copies to `out` what has a source; the rest stays as it is.
fn fill<T: Elem>(out: &mut [T], from: &[T], axes: &[Vec<Option<usize>>], at: usize) {
    let Some((sources, inner)) = axes.split_first() else {
        return out[0].clone_from(&from[at]);
    };
    if inner.is_empty() {
        for (slot, source) in out.iter_mut().zip(sources) {
            if let Some(source) = source {
                slot.clone_from(&from[at + source]);
            }
        }
        return;
    }
    for (part, source) in out.chunks_exact_mut(out.len() / sources.len()).zip(sources) {
        if let Some(source) = source {
            fill(part, from, inner, at + source);
        }
    }
}

pub fn infer_pad(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let constant = Mode::of(&cx.call)? == Mode::Constant;
    let carriers: &[usize] = if constant { &[0, 2] } else { &[0] };
    // An attribute to pad with is a float: no integer can be padded.
    if cx.call.since() >= PADS.since && follow(cx, carriers) {
        return Ok(());
    }
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let axes = if cx.call.since() >= AXES.since { AXES.ints(cx)? } else { Given::Absent };
    let axes = match axes {
        Given::Absent => Some(None),
        Given::Known(axes) => Some(Some(axes)),
        Given::Unknown => None,
    };
    let (Some(axes), Given::Known(pads)) = (axes, pads_of(&cx.call).dims(cx)?) else {
        let shape = cx.fresh_shape(shape.len());
        cx.set_shape(0, shape);
        return Ok(());
    };
    let margins = margins(&pads, axes.as_deref(), shape.len(), (Dim::ZERO, Dim::ZERO))?;
    let dim = |(dim, (begin, end)): (&Dim, &(Dim, Dim))| cx.or_fresh(Dim::sum([dim, begin, end]));
    let shape: Vec<Dim> = shape.iter().zip(&margins).map(dim).collect();
    if let Some(dim) = shape.iter().find(|dim| dim.provably_negative(cx.symbols)) {
        return invalid(format!("the pads leave a dimension of {}", dim.display(cx.symbols)));
    }
    cx.set_shape(0, shape);
    Ok(())
}

/// The axes that are cut or padded.
fn center_axes(call: &Call<'_>, rank: usize) -> Result<Vec<usize>, OpError> {
    call.opt_ints("axes")?.map_or_else(|| Ok((0..rank).collect()), |axes| call::axes(&axes, rank))
}

pub fn center_crop_pad(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (data, sizes) = (cx.array(0)?, cx.array(1)?.to_i64s()?);
    let axes = center_axes(&cx.call, data.rank())?;
    if axes.len() != sizes.len() {
        return invalid(format!("{} sizes for {} axes", sizes.len(), axes.len()));
    }
    let mut margins = vec![(0, 0); data.rank()];
    for (axis, &size) in axes.into_iter().zip(&sizes) {
        if size < 0 {
            return invalid(format!("the size {size}"));
        }
        // Halves are rounded toward 0: what is left over is cut from the end, or added to it.
        let missing = size - data.shape()[axis] as i64;
        margins[axis] = (missing / 2, missing - missing / 2);
    }
    padded(cx, data, &margins, Mode::Constant, None)
}

pub fn infer_center_crop_pad(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let axes = center_axes(&cx.call, shape.len())?;
    if follow(cx, &[0]) {
        return Ok(());
    }
    let sizes = cx.dims(1).unwrap_or_else(|| cx.fresh_shape(axes.len()));
    if axes.len() != sizes.len() {
        return invalid(format!("{} sizes for {} axes", sizes.len(), axes.len()));
    }
    let mut shape = shape.to_vec();
    for (axis, size) in axes.into_iter().zip(sizes) {
        shape[axis] = size;
    }
    cx.set_shape(0, shape);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_by_mode() {
        let all = |mode: Mode, len| (-4..len + 4).map(|place| mode.source(place, len)).collect::<Vec<_>>();
        let some = |places: &[i64]| places.iter().map(|&place| Some(place)).collect::<Vec<_>>();
        assert_eq!(all(Mode::Reflect, 3), some(&[0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2]));
        assert_eq!(all(Mode::Reflect, 1), some(&[0; 9]));
        assert_eq!(all(Mode::Wrap, 3), some(&[2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]));
        assert_eq!(all(Mode::Edge, 2), some(&[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]));
        assert_eq!(Mode::Constant.source(-1, 2), None);
    }
}
