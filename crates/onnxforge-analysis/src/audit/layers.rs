//! Layers: products, convolutions, normalizations and activations.

use super::{Find, Found, Kind, On};
use crate::scene::{Left, Place, Scene};
use onnxforge_ir::NodeId;
use onnxforge_rewrite::passes::{fuse, target};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        id: "matmul_3d",
        text: "MatMul of three or more axes with a matrix of weights",
        on: On::File,
        passes: &[&fuse::fuse_matmul_add_3d::PASS],
        otherwise: "no Add and Reshape follow it that would take its detour",
        find: Find::Walk(|scene| {
            products(scene).into_iter().map(|(product, _)| Place::at(product, [])).collect::<Vec<_>>().into()
        }),
    },
    Kind {
        id: "matmul_add_3d",
        text: "MatMul of three or more axes with a matrix of weights, and Add of a bias",
        on: On::File,
        passes: &[&fuse::fuse_matmul_add_3d::PASS],
        otherwise: "no Reshape follows it, so that a Gemm would take two more",
        find: Find::Walk(|scene| {
            let sums =
                products(scene).into_iter().filter_map(|(product, sum)| Some(Place::at(product, [sum?])));
            sums.collect::<Vec<_>>().into()
        }),
    },
    Kind {
        id: "matmul_add_2d",
        text: "MatMul of two matrices, and Add",
        on: On::Tidied,
        passes: &[&fuse::fuse_matmul_add::PASS],
        otherwise: "the pass fused another one with it",
        find: Find::Rules(&fuse::fuse_matmul_add::PASS, &[], Left::Counts),
    },
    Kind {
        id: "conv_batchnorm",
        text: "BatchNormalization right after a Conv, ConvTranspose or Gemm",
        on: On::Tidied,
        passes: &[&fuse::fuse_conv_batchnorm::PASS],
        otherwise: "the pass fused another one with it",
        find: Find::Rules(&fuse::fuse_conv_batchnorm::PASS, &[], Left::Counts),
    },
    Kind {
        id: "conv_activation",
        text: "Activation right after a Conv",
        on: On::Tidied,
        passes: &[&target::ort_conv_activation::PASS],
        otherwise: "the pass fused another one with it",
        find: Find::Rules(&target::ort_conv_activation::PASS, &[], Left::Counts),
    },
    Kind {
        id: "layer_norm_operators",
        text: "LayerNormalization as the operator",
        on: On::File,
        passes: &[],
        otherwise: "it is the operator already",
        find: Find::Walk(|scene| operators(scene, &["LayerNormalization", "SkipLayerNormalization"])),
    },
    Kind {
        id: "layer_norm_subgraphs",
        text: "Decomposed LayerNormalization",
        on: On::Tidied,
        passes: &[&fuse::fuse_layer_norm::PASS],
        otherwise: "the pass made something else of it",
        find: Find::Rules(&fuse::fuse_layer_norm::PASS, &["core", "affine"], Left::Counts),
    },
    Kind {
        id: "rms_norm_operators",
        text: "RMSNormalization as the operator",
        on: On::File,
        passes: &[],
        otherwise: "it is the operator already",
        find: Find::Walk(|scene| {
            let names =
                ["RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"];
            operators(scene, &names)
        }),
    },
    Kind {
        id: "rms_norm_subgraphs",
        text: "Decomposed RMSNormalization",
        on: On::Tidied,
        passes: &[&fuse::fuse_rms_norm::PASS],
        otherwise: "the pass made something else of it",
        find: Find::Rules(&fuse::fuse_rms_norm::PASS, &["core"], Left::Counts),
    },
    Kind {
        id: "gelu_subgraphs",
        text: "Decomposed GELU",
        on: On::Tidied,
        passes: &[&fuse::fuse_gelu::PASS],
        otherwise: "the pass made something else of it",
        find: Find::Rules(&fuse::fuse_gelu::PASS, &[], Left::Counts),
    },
    Kind {
        id: "silu_subgraphs",
        text: "Decomposed SiLU (x · sigmoid(x)), also with a factor",
        on: On::Tidied,
        passes: &[&target::ort_quick_gelu::PASS],
        otherwise: "the pass made something else of it",
        find: Find::Rules(&target::ort_quick_gelu::PASS, &[], Left::Counts),
    },
];

/// Calls of these operators, of any domain.
fn operators(scene: &Scene<'_>, names: &[&str]) -> Found {
    let calls = scene.model().nodes().filter(|(_, node)| names.contains(&&*node.op().name));
    calls.map(|(id, _)| Place::at(id, [])).collect::<Vec<_>>().into()
}

/// Products of three or more axes with a matrix of weights, and the sum with a vector that alone reads them.
fn products(scene: &Scene<'_>) -> Vec<(NodeId, Option<NodeId>)> {
    let (model, cx) = (scene.model(), scene.cx());
    let mut found = Vec::new();
    for (id, node) in model.nodes().filter(|(_, node)| node.op().is("MatMul")) {
        let (Some(x), Some(weights), Some(y)) = (node.input(0), node.input(1), node.output(0)) else {
            continue;
        };
        let fits = cx.rank(x).is_ok_and(|rank| rank >= 3) && cx.rank(weights).is_ok_and(|rank| rank == 2);
        if !fits || !scene.is_weight(weights) {
            continue;
        }
        let sum = cx.only_reader(y).filter(|&reader| {
            let others = model.node(reader).inputs().iter().flatten().filter(|&&other| other != y);
            model.node(reader).op().is("Add")
                && others.clone().all(|&other| cx.rank(other).is_ok_and(|rank| rank == 1))
        });
        found.push((id, sum));
    }
    found
}
