//! What transformers are made of: attention, its scales, its heads, rotated positions, gates.

use std::collections::HashSet;

use super::{Find, Found, Kind, On};
use crate::scene::attention::{Block, blocks};
use crate::scene::{Left, Place, Scene};
use onnxforge_ir::{NodeId, ValueId};
use onnxforge_rewrite::passes::{fuse, target};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        id: "attention_blocks",
        text: "Decomposed attention: queries · keys, Softmax, · values",
        on: On::Tidied,
        passes: &[&fuse::fuse_attention::PASS],
        otherwise: "the pass knows it with four axes, [batch, head, sequence, size], keys transposed, and nothing in between but scales and one mask",
        find: Find::Walk(attention),
    },
    Kind {
        id: "attention_operators",
        text: "Attention as an operator",
        on: On::File,
        passes: &[],
        otherwise: "it is the operator already",
        find: Find::Walk(|scene| {
            let operators = blocks(scene).into_iter().filter(|block| !block.is_spelled_out);
            operators.map(|block| Place::at(block.root, [])).collect::<Vec<_>>().into()
        }),
    },
    Kind {
        id: "qkv_products",
        text: "Three products of one value with weights, of which heads are made, that could be one",
        on: On::Tidied,
        passes: &[&fuse::fuse_attention_qkv::PASS],
        otherwise: "something else was made of one of the products",
        find: Find::Rules(&fuse::fuse_attention_qkv::PASS, &[], Left::Counts),
    },
    Kind {
        id: "attention_scales",
        text: "Factors of scores: queries, keys or their product, times or divided by one number",
        on: On::Tidied,
        passes: &[&fuse::fuse_attention::PASS, &fuse::fuse_scale_into_weights::PASS],
        otherwise: "there is no product with weights before it that nothing else reads",
        find: Find::Walk(scales),
    },
    Kind {
        id: "grouped_queries",
        text: "Keys or values that are repeated for groups of heads",
        on: On::Tidied,
        passes: &[&fuse::fuse_attention::PASS],
        otherwise: "the attention that reads them stays decomposed",
        find: Find::Walk(groups),
    },
    Kind {
        id: "rotary_embeddings",
        text: "Decomposed rotations of queries or keys by their position",
        on: On::Tidied,
        passes: &[&fuse::fuse_rotary_embedding::PASS],
        otherwise: "the pass made something else of it",
        find: Find::Rules(&fuse::fuse_rotary_embedding::PASS, &["turned", "joined"], Left::Counts),
    },
    Kind {
        id: "swiglu",
        text: "SwiGLU: SiLU of one product gates another",
        on: On::Tidied,
        passes: &[],
        otherwise: "no operator has the gate; ort_quick_gelu takes the SiLU in it",
        find: Find::Walk(|scene| gates(scene).into()),
    },
];

fn spelled_out(scene: &Scene<'_>) -> Vec<Block> {
    blocks(scene).into_iter().filter(|block| block.is_spelled_out).collect()
}

/// Attention, and how many nodes around each only move elements.
fn attention(scene: &Scene<'_>) -> Found {
    let blocks = spelled_out(scene);
    let moved = |op: &[&str]| {
        let layout = blocks.iter().flat_map(|block| &block.layout);
        // What was put together for the look counts as what it was.
        let sources =
            layout.flat_map(|&node| scene.model().origins().sources(scene.model().node(node).origin()));
        let sources: HashSet<NodeId> = sources.collect();
        sources.iter().filter(|&&node| op.contains(&&*scene.model().node(node).op().name)).count() as f64
    };
    let (reshapes, transposes) =
        (moved(&["Reshape", "Flatten", "Squeeze", "Unsqueeze"]), moved(&["Transpose"]));
    let place = |block: &Block| Place::at(block.root, block.core.iter().chain(&block.layout).copied());
    let mut found = Found::from(blocks.iter().map(place).collect::<Vec<_>>());
    if !blocks.is_empty() {
        found.details.insert("reshapes_per_block", reshapes / blocks.len() as f64);
        found.details.insert("transposes_per_block", transposes / blocks.len() as f64);
        let masked = blocks.iter().filter(|block| !block.masks.is_empty()).count();
        found.details.insert("masked", masked as f64);
    }
    found
}

fn scales(scene: &Scene<'_>) -> Found {
    let mut seen = HashSet::new();
    let nodes = spelled_out(scene).into_iter().flat_map(|block| block.scales);
    nodes.filter(|&node| seen.insert(node)).map(|node| Place::at(node, [])).collect::<Vec<_>>().into()
}

fn groups(scene: &Scene<'_>) -> Found {
    let blocks = spelled_out(scene);
    let grouped = blocks.iter().flat_map(|block| block.groups.chunks(3));
    let mut seen = HashSet::new();
    let places = grouped.filter_map(|nodes| Some(Place::at(*nodes.first()?, nodes.iter().copied())));
    places.filter(|place| seen.insert(place.root)).collect::<Vec<_>>().into()
}

/// Products of a SiLU, of which one operand is a product with weights, with another such product.
pub fn gates(scene: &Scene<'_>) -> Vec<Place> {
    let model = scene.model();
    let spelled = scene.places(&target::ort_quick_gelu::PASS, &[], Left::Counts);
    let mut silus: Vec<(NodeId, Vec<NodeId>)> =
        spelled.into_iter().filter_map(|place| Some((place.root?, place.nodes))).collect();
    let operators =
        model.nodes().filter(|(_, node)| matches!(&*node.op().name, "Swish" | "QuickGelu" | "Silu"));
    silus.extend(operators.map(|(id, _)| (id, vec![id])));
    let mut found = Vec::new();
    for (silu, nodes) in silus {
        let (Some(y), Some(x)) = (model.node(silu).output(0), model.node(silu).input(0)) else { continue };
        let [gate] = scene.readers(y)[..] else { continue };
        let others = model.node(gate).inputs().iter().flatten().filter(|&&other| other != y);
        let is_gate = model.node(gate).op().is("Mul") && others.clone().count() == 1;
        if is_gate
            && comes_from_product(scene, x)
            && others.clone().all(|&other| comes_from_product(scene, other))
        {
            found.push(Place::at(gate, nodes));
        }
    }
    found
}

/// Whether a value is a product with weights, with or without a bias, or a part of one.
fn comes_from_product(scene: &Scene<'_>, mut value: ValueId) -> bool {
    let model = scene.model();
    for _ in 0..6 {
        let Some(node) = model.value(value).node().map(|id| model.node(id)) else { return false };
        let weighed = node.inputs().iter().skip(1).flatten().any(|&input| scene.is_weight(input));
        match &*node.op().name {
            "MatMul" | "Gemm" | "FusedMatMul" | "MatMulNBits" | "MatMulIntegerToFloat" | "Conv" => {
                return weighed;
            }
            "Add" | "Split" | "Slice" | "Reshape" | "Sigmoid" | "Cast" | "Mul" => {}
            _ => return false,
        }
        let Some(next) = node.inputs().iter().flatten().find(|&&input| !scene.is_weight(input)) else {
            return false;
        };
        value = *next;
    }
    false
}
