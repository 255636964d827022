//! Convolutions with weights of a known shape.

use crate::scene::Scene;
use onnxforge_ir::NodeId;

/// A convolution.
pub(super) struct Convolution {
    pub node: NodeId,
    pub kernel: Vec<i64>,
    /// Channels that it takes and gives.
    pub channels: [i64; 2],
    /// It steps as far as it sees: nothing is seen twice.
    pub cuts_patches: bool,
}

impl Convolution {
    pub fn sees_more(&self) -> bool {
        self.kernel.iter().any(|&size| size > 1)
    }
}

/// The convolution that a node is, if it has weights of a known shape.
pub(super) fn convolution(scene: &Scene<'_>, id: NodeId) -> Option<Convolution> {
    let node = scene.model().node(id);
    let weights = match &*node.op().name {
        "Conv" | "FusedConv" | "NhwcConv" | "NhwcFusedConv" | "ConvInteger" | "ConvTranspose"
        | "DeformConv" => 1,
        "QLinearConv" => 3,
        _ => return None,
    };
    let shape = scene.facts().shape(node.input(weights)?)?;
    let sizes: Vec<i64> = shape.iter().map(|dim| dim.as_const().unwrap_or(0)).collect();
    let (&[first, second], kernel) = (sizes.get(..2)?, sizes.get(2..)?) else { return None };
    let group = node.attr_int("group").unwrap_or(1);
    let channels = match &*node.op().name {
        "ConvTranspose" => [first, second.saturating_mul(group)],
        _ => [second.saturating_mul(group), first],
    };
    let strides = node.attr_ints("strides").unwrap_or_default();
    let cuts_patches = kernel.iter().any(|&size| size > 1) && strides == kernel && channels[0] <= 4;
    Some(Convolution { node: id, kernel: kernel.to_vec(), channels, cuts_patches })
}
