//! What the attributes of convolutions and pooling say about the window.

use super::{Axis, Geometry};
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::infer_call::Infer;
use onnxforge_ir::dim::{Dim, Requirement, Symbols};

/// Most spatial axes.
const MAX_AXES: usize = 32;

/// Largest stride, dilation, padding, image and kernel extent, so that positions never overflow: 2⁴⁰, and 2²⁸ where addresses have 32 bits.
pub(super) const MAX_EXTENT: usize = 1 << (usize::BITS * 3 / 8 + 16);

/// How an image is padded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Padding {
    /// This much before and after each axis.
    Explicit(Vec<[usize; 2]>),
    /// As much as makes `ceil(image / stride)` windows; an odd element goes to the end.
    SameUpper,
    /// As much as makes `ceil(image / stride)` windows; an odd element goes to the beginning.
    SameLower,
}

/// How a window slides: steps and padding, one entry per spatial axis.
#[derive(Clone, Debug)]
pub struct Sliding {
    /// Distance of neighbouring windows.
    pub strides: Vec<usize>,
    /// Distance of neighbouring kernel elements.
    pub dilations: Vec<usize>,
    /// What surrounds the image.
    pub padding: Padding,
    /// A last window that reaches past the padded image counts, if it begins inside the image or the padding before it.
    pub ceil: bool,
}

impl Sliding {
    /// What `strides`, `dilations`, `pads`, `auto_pad` and `ceil_mode` say for `rank` spatial axes.
    pub fn of(call: &Call<'_>, rank: usize) -> Result<Self, OpError> {
        if rank > MAX_AXES {
            return unsupported(format!("a window of {rank} axes"));
        }
        let padding = match call.text_or("auto_pad", "NOTSET")?.as_str() {
            "NOTSET" | "" => Padding::Explicit(explicit_pads(call, rank)?),
            "VALID" => Padding::Explicit(vec![[0; 2]; rank]),
            "SAME_UPPER" => Padding::SameUpper,
            "SAME_LOWER" => Padding::SameLower,
            other => return invalid(format!("auto_pad is {other:?}")),
        };
        Ok(Self {
            strides: steps(call, "strides", rank)?,
            dilations: steps(call, "dilations", rank)?,
            padding,
            ceil: call.flag("ceil_mode")?,
        })
    }

    /// The number of window positions along each axis, for sizes that need not be numbers.
    pub fn output_dims(
        &self,
        cx: &mut Infer<'_>,
        input: &[Dim],
        kernel: &[Dim],
    ) -> Result<Vec<Dim>, OpError> {
        let mut output = Vec::with_capacity(input.len());
        for (index, (input, kernel)) in input.iter().zip(kernel).enumerate() {
            output.push(match (as_size(input), as_size(kernel)) {
                (Some(input), Some(kernel)) => Dim::from(self.output_size(index, input, kernel)? as i64),
                _ => {
                    let dim = self.output_dim(index, input, kernel, cx.symbols);
                    if let Some(dim) = &dim {
                        cx.symbols.require(Requirement::Positive(dim.clone()));
                    }
                    cx.or_fresh(dim)
                }
            });
        }
        Ok(output)
    }

    pub(super) fn output_dim(
        &self,
        index: usize,
        input: &Dim,
        kernel: &Dim,
        symbols: &Symbols,
    ) -> Option<Dim> {
        let stride = Dim::from(self.strides[index] as i64);
        let Padding::Explicit(pads) = &self.padding else { return input.ceil_div(&stride, symbols) };
        let [before, after] = pads[index].map(|pad| pad as i64);
        let dilation = Dim::from(self.dilations[index] as i64);
        let extent = kernel.sub(&Dim::ONE)?.mul(&dilation)?.add(&Dim::ONE)?;
        if self.ceil {
            let spare = (after + self.strides[index] as i64 - extent.as_const()?).min(0);
            input.add(&Dim::from(before + spare))?.ceil_div(&stride, symbols)
        } else {
            let room = input.add(&Dim::from(before + after))?.sub(&extent)?;
            room.floor_div(&stride, symbols)?.add(&Dim::ONE)
        }
    }

    pub(super) fn output_size(&self, index: usize, input: usize, kernel: usize) -> Result<usize, OpError> {
        let (stride, extent) = (self.strides[index], self.extent(index, kernel)?);
        if input > MAX_EXTENT {
            return unsupported(format!("an image of {input} elements along an axis"));
        }
        let Padding::Explicit(pads) = &self.padding else { return Ok(input.div_ceil(stride)) };
        let [before, after] = pads[index];
        let windows = if self.ceil {
            // Windows that begin in front of the padded image's end; those in the padding after it do not count.
            let last = (input + before + (after + stride).min(extent)).checked_sub(extent);
            last.map(|last| last.div_ceil(stride))
        } else {
            (input + before + after).checked_sub(extent).map(|room| room / stride + 1)
        };
        match windows {
            Some(windows @ 1..) => Ok(windows),
            _ => invalid(format!(
                "a window that spans {extent} elements on an image of {input} padded by {before} and {after}"
            )),
        }
    }

    /// How many elements the kernel spans.
    fn extent(&self, index: usize, kernel: usize) -> Result<usize, OpError> {
        let Some(gaps) = kernel.checked_sub(1) else { return invalid("a kernel without elements") };
        match gaps.checked_mul(self.dilations[index]) {
            Some(span) if span < MAX_EXTENT => Ok(span + 1),
            _ => unsupported(format!("a kernel of {kernel} elements {} apart", self.dilations[index])),
        }
    }

    /// The window of size `kernel` on an image of size `input`; both have as many axes as the attributes were read for.
    pub fn fit(&self, input: &[usize], kernel: &[usize]) -> Result<Geometry, OpError> {
        let axis = |(index, (&input, &kernel)): (usize, (&usize, &usize))| {
            let output = self.output_size(index, input, kernel)?;
            let (stride, dilation) = (self.strides[index], self.dilations[index]);
            let span = output.saturating_sub(1) * stride + self.extent(index, kernel)?;
            let missing = span.saturating_sub(input);
            let [pad, pad_end] = match &self.padding {
                Padding::Explicit(pads) => pads[index],
                Padding::SameUpper => [missing / 2, missing - missing / 2],
                Padding::SameLower => [missing - missing / 2, missing / 2],
            };
            Ok(Axis { input, output, kernel, stride, dilation, pad, pad_end })
        };
        Geometry::new(input.iter().zip(kernel).enumerate().map(axis).collect::<Result<_, OpError>>()?)
    }
}

/// Values that are used as sizes; a negative number is an error.
pub fn as_sizes(values: Vec<Dim>) -> Result<Vec<Dim>, OpError> {
    match values.iter().find(|value| value.as_const().is_some_and(|value| value < 0)) {
        Some(value) => invalid(format!("the size {}", value.as_const().unwrap_or(-1))),
        None => Ok(values),
    }
}

fn as_size(dim: &Dim) -> Option<usize> {
    dim.as_const().and_then(|size| usize::try_from(size).ok())
}

/// A list of `count` sizes from `least` on, where the attribute is given and not empty.
fn sizes(call: &Call<'_>, name: &str, count: usize, least: usize) -> Result<Option<Vec<usize>>, OpError> {
    let Some(given) = call.opt_ints(name)?.filter(|given| !given.is_empty()) else { return Ok(None) };
    let size = |&value: &i64| match usize::try_from(value) {
        Ok(value) if value >= least && value <= MAX_EXTENT => Ok(value),
        _ => invalid(format!("the attribute {name} is {given:?}")),
    };
    if given.len() != count {
        return invalid(format!("the attribute {name} has {} elements, not {count}", given.len()));
    }
    given.iter().map(size).collect::<Result<_, _>>().map(Some)
}

fn steps(call: &Call<'_>, name: &str, rank: usize) -> Result<Vec<usize>, OpError> {
    Ok(sizes(call, name, rank, 1)?.unwrap_or_else(|| vec![1; rank]))
}

fn explicit_pads(call: &Call<'_>, rank: usize) -> Result<Vec<[usize; 2]>, OpError> {
    let pads = sizes(call, "pads", 2 * rank, 0)?.unwrap_or_else(|| vec![0; 2 * rank]);
    let (before, after) = pads.split_at(rank);
    Ok(before.iter().zip(after).map(|(&before, &after)| [before, after]).collect())
}

/// The attribute `kernel_shape`, where it is given.
pub fn kernel_shape(call: &Call<'_>) -> Result<Option<Vec<usize>>, OpError> {
    let rank = call.opt_ints("kernel_shape")?.map_or(0, |given| given.len());
    sizes(call, "kernel_shape", rank, 1)
}
