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
    /// The window of a node over an image, (N, C, height, width), or a sequence, (N, C, width), which is an image of height 1.
    pub fn of(cx: &Cx<'_>, id: NodeId, kernel: [i64; 2]) -> Result<Self, Skip> {
        let call = cx.call(id)?;
        let [height, width] = match cx.shape(cx.input(id, 0)?)? {
            [_, _, height, width] => [height, width],
            [_, _, width] => [&Dim::ONE, width],
            _ => return Err(Skip::NOT_HERE),
        };
        let pair = |name: &str| -> Result<[i64; 2], Skip> {
            Ok(flattened(&call.opt_ints(name)?.unwrap_or_default()).unwrap_or([1, 1]))
        };
        let (strides, dilations) = (pair("strides")?, pair("dilations")?);
        let extent = [0, 1].map(|axis| (kernel[axis] - 1).saturating_mul(dilations[axis]).saturating_add(1));
        let needed = |axis: usize, size: &Dim| needed(size, extent[axis], strides[axis]);
        let needed = [needed(0, height), needed(1, width)];
        let given = match &*call.text_or("auto_pad", "NOTSET")? {
            "NOTSET" => match call.opt_ints("pads")?.as_deref() {
                None => [0; 4],
                Some(&[left, right]) => [0, left, 0, right],
                Some(&[top, left, bottom, right]) => [top, left, bottom, right],
                Some(_) => return Err(Skip::NOT_HERE),
            },
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

/// Sizes along height and width; those of a sequence have no height.
pub fn flattened(sizes: &[i64]) -> Option<[i64; 2]> {
    match *sizes {
        [height, width] => Some([height, width]),
        [width] => Some([1, width]),
        _ => None,
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
