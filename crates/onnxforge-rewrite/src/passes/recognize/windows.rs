//! How a window slides over an image of two axes, as formats say it that know no numbers of padding.

use crate::{Cx, Reason, Skip};
use onnxforge_ir::NodeId;
use onnxforge_ir::dim::Dim;

/// Where a window goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Steps along height and width.
    pub strides: [i64; 2],
    /// Distances between the places that it looks at.
    pub dilations: [i64; 2],
    /// Padding that has to be there before it slides: top, left, bottom, right.
    pub pads: [i64; 4],
    /// Whether the image is padded on the way so that every step finds a place; half of it in front, and of an odd one less.
    pub same: bool,
}

impl Window {
    /// The window of a node over an image of two axes, its first input being (N, C, height, width).
    pub fn of(cx: &Cx<'_>, id: NodeId, kernel: [i64; 2]) -> Result<Self, Skip> {
        let call = cx.call(id)?;
        let image = cx.shape(cx.input(id, 0)?)?;
        let [_, _, height, width] = image else { return Err(Skip::NOT_HERE) };
        let pair = |name: &str| -> Result<[i64; 2], Skip> {
            let given = call.opt_ints(name)?.unwrap_or_default();
            Ok([given.first().copied().unwrap_or(1), given.get(1).copied().unwrap_or(1)])
        };
        let (strides, dilations) = (pair("strides")?, pair("dilations")?);
        let extent = [0, 1].map(|axis| (kernel[axis] - 1).saturating_mul(dilations[axis]).saturating_add(1));
        let needed = |axis: usize, size: &Dim| needed(size, extent[axis], strides[axis]);
        let needed = [needed(0, height), needed(1, width)];
        let given = match &*call.text_or("auto_pad", "NOTSET")? {
            "NOTSET" => {
                let pads = call.opt_ints("pads")?.unwrap_or_else(|| vec![0; 4]);
                pads.try_into().map_err(|_| Skip::NOT_HERE)?
            }
            "VALID" => [0; 4],
            "SAME_UPPER" => return Ok(Self { strides, dilations, pads: [0; 4], same: true }),
            _ => return Err(Reason::Attribute("auto_pad").into()),
        };
        let is_same = |axis: usize| {
            needed[axis].is_some_and(|all| given[axis] == all / 2 && given[axis + 2] == all - all / 2)
        };
        let same = given != [0; 4] && is_same(0) && is_same(1);
        Ok(Self { strides, dilations, pads: if same { [0; 4] } else { given }, same })
    }

    /// The same as `auto_pad` says it.
    pub fn auto_pad(&self) -> &'static str {
        if self.same { "SAME_UPPER" } else { "VALID" }
    }
}

/// All padding of an axis that every step needs to find a place.
fn needed(size: &Dim, extent: i64, stride: i64) -> Option<i64> {
    match (stride, size.as_const()) {
        (1, _) => Some(extent - 1),
        (2.., Some(size)) => {
            let steps = size.checked_add(stride - 1)? / stride;
            Some((steps - 1).checked_mul(stride)?.checked_add(extent)?.checked_sub(size)?.max(0))
        }
        _ => None,
    }
}
