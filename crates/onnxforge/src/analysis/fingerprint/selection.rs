//! Which passes matter for what was seen.

use std::collections::HashSet;

use serde::Serialize;

use super::features::Features;
use crate::ir::Model;
use crate::passes::{self, Pass};

/// A pass that matters for a model.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The pass.
    pub pass: &'static str,
    /// Why.
    pub why: String,
    /// Whether it runs unless others are asked for.
    pub by_default: bool,
}

/// Passes that are about operators which no pass makes: without one of these in the model there is nothing for them to do.
const NEEDED: [(&str, &[&str]); 14] = [
    ("unroll_loops", &["Loop"]),
    ("inline_constant_if", &["If"]),
    ("eliminate_sequences", &["SequenceAt", "SequenceLength", "ConcatFromSequence"]),
    ("eliminate_optionals", &["OptionalGetElement", "OptionalHasElement"]),
    ("eliminate_scatter_overwrite", &["ScatterND", "ScatterElements", "Scatter"]),
    ("replace_einsum", &["Einsum"]),
    ("clean_up_qdq", &["QuantizeLinear", "DequantizeLinear"]),
    ("eliminate_zero_rnn_state", &["LSTM", "GRU", "RNN"]),
    ("fuse_conv_batchnorm", &["BatchNormalization"]),
    ("fuse_conv_relu", &["Conv", "ConvTranspose"]),
    ("fuse_pad", &["Pad"]),
    ("fuse_gelu", &["Erf", "Tanh"]),
    ("fuse_attention", &["Softmax", "Attention"]),
    ("ort_conv_activation", &["Conv"]),
];

/// A pass that has nothing to do in a model.
#[derive(Clone, Debug)]
pub struct Unfit {
    /// The pass.
    pub pass: &'static Pass,
    /// Why.
    pub why: String,
}

/// Divides passes into those that may find something in a model, in their order, and those that cannot. The result of the first is that of all.
pub fn fitting(model: &Model, passes: &[&'static Pass]) -> (Vec<&'static Pass>, Vec<Unfit>) {
    let present: HashSet<&str> = model.nodes().map(|(_, node)| &*node.op().name).collect();
    let (mut fit, mut unfit) = (Vec::new(), Vec::new());
    for &pass in passes {
        match NEEDED.iter().find(|(name, _)| *name == pass.name) {
            Some((_, operators)) if !operators.iter().any(|op| present.contains(op)) => {
                unfit.push(Unfit { pass, why: format!("there is no {}", operators.join(", ")) });
            }
            _ => fit.push(pass),
        }
    }
    (fit, unfit)
}

/// The passes that have something to do with what the model is made of, in the order in which they run. Those that tidy up any model are not listed.
pub(super) fn select(features: &Features) -> Vec<Fit> {
    let f = features;
    let count = |op: &str| f.operators.get(op).copied().unwrap_or(0);
    let (reshapes, transposes) = (f.reshapes, f.transposes);
    let shapes = count("Shape");
    let quantized = count("QuantizeLinear") + count("DequantizeLinear");
    let two_axes = f.convs[1] + f.convs[2];
    let wanted: [(&str, usize, String); 21] = [
        ("simplify_shape_chains", shapes, format!("{shapes} shapes are read at run time")),
        (
            "merge_reshapes",
            usize::from(reshapes > 0.05),
            format!("{:.0} % of all nodes reshape", reshapes * 100.0),
        ),
        ("cleanup_attention", f.attention, format!("{} blocks of attention", f.attention)),
        ("replace_einsum", count("Einsum"), format!("{} products as Einsum", count("Einsum"))),
        ("clean_up_qdq", quantized, format!("{quantized} quantizations")),
        ("eliminate_zero_rnn_state", f.recurrent, format!("{} recurrent layers", f.recurrent)),
        ("unroll_loops", count("Loop"), format!("{} loops", count("Loop"))),
        (
            "fuse_conv_batchnorm",
            f.batch_norms.min(f.all_convs()),
            format!("{} normalizations by batch, {} convolutions", f.batch_norms, f.all_convs()),
        ),
        ("fuse_conv_bias", f.all_convs(), format!("{} convolutions", f.all_convs())),
        ("fuse_layer_norm", f.layer_norms, format!("{} × LayerNorm", f.layer_norms)),
        ("fuse_rms_norm", f.rms_norms, format!("{} × RMSNorm", f.rms_norms)),
        ("fuse_gelu", f.gelus, format!("{} × GELU", f.gelus)),
        ("fuse_rotary_embedding", f.rotations, format!("{} rotations by position", f.rotations)),
        ("fuse_attention", f.attention, format!("{} blocks of attention", f.attention)),
        (
            "cancel_transposes",
            usize::from(transposes > 0.01),
            format!("{:.0} % of all nodes are Transposes", transposes * 100.0),
        ),
        (
            "fuse_scale_into_weights",
            f.attention,
            "queries are scaled behind their product with weights".to_owned(),
        ),
        (
            "fuse_matmul_add_3d",
            f.matmuls.min(f.attention),
            format!("{} products with weights, heads split off behind them", f.matmuls),
        ),
        ("fuse_gemm", f.matmuls, format!("{} products with weights", f.matmuls)),
        ("fuse_conv_relu", two_axes, format!("{two_axes} convolutions")),
        ("ort_quick_gelu", f.silus, format!("{} × SiLU, for the target ort", f.silus)),
        ("ort_conv_activation", two_axes, format!("{two_axes} convolutions, for the target ort")),
    ];
    let fits = wanted.into_iter().filter(|(_, places, _)| *places > 0);
    let by_default = |name: &str| passes::defaults().any(|pass| pass.name == name);
    let mut fits: Vec<Fit> =
        fits.map(|(pass, _, why)| Fit { pass, why, by_default: by_default(pass) }).collect();
    let place = |name: &str| passes::all().position(|pass| pass.name == name);
    fits.sort_by_key(|fit| place(fit.pass));
    fits
}
