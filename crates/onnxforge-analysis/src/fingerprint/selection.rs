//! Which passes matter for what was seen.

use std::collections::HashSet;

use serde::Serialize;

use super::Class;
use super::features::Features;
use onnxforge_ir::Model;
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::types::Type;
use onnxforge_ir::value::Port;
use onnxforge_rewrite::passes::{PASSES, Pass, eliminate, fuse, layout, simplify, target, targets};

/// A pass that matters for a model.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The pass.
    pub pass: &'static str,
    /// Why.
    pub why: String,
    /// Whether it runs unless others are asked for.
    pub by_default: bool,
    /// Whether it runs on request only, and for this kind of network without one: measurements show that it pays there.
    pub chosen: bool,
}

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
        if pass.needs.is_empty() || pass.needs.iter().any(|op| present.contains(op)) {
            fit.push(pass);
        } else {
            unfit.push(Unfit { pass, why: format!("there is no {}", pass.needs.join(", ")) });
        }
    }
    (fit, unfit)
}

/// The passes that have something to do with what the model is made of, in the order in which they run. Those that tidy up any model are not listed.
pub(super) fn select(class: Class, features: &Features) -> Vec<Fit> {
    let f = features;
    let chosen = chosen(class, f);
    let count = |op: &str| f.operators.get(op).copied().unwrap_or(0);
    let (reshapes, transposes) = (f.reshapes, f.transposes);
    let shapes = count("Shape");
    let quantized = count("QuantizeLinear") + count("DequantizeLinear");
    let two_axes = f.convs[1] + f.convs[2];
    let wanted: [(&'static Pass, usize, String); 21] = [
        (&simplify::simplify_shape_chains::PASS, shapes, format!("{shapes} shapes are read at run time")),
        (
            &simplify::merge_reshapes::PASS,
            usize::from(reshapes > 0.05),
            format!("{:.0} % of all nodes reshape", reshapes * 100.0),
        ),
        (&simplify::cleanup_attention::PASS, f.attention, format!("{} attention blocks", f.attention)),
        (&simplify::replace_einsum::PASS, count("Einsum"), format!("{} Einsum", count("Einsum"))),
        (&simplify::cleanup_qdq::PASS, quantized, format!("{quantized} quantizations")),
        (
            &eliminate::eliminate_zero_rnn_state::PASS,
            f.recurrent,
            format!("{} recurrent layers", f.recurrent),
        ),
        (&simplify::unroll_loops::PASS, count("Loop"), format!("{} loops", count("Loop"))),
        (
            &fuse::fuse_conv_batchnorm::PASS,
            f.batch_norms.min(f.all_convs()),
            format!("{} normalizations by batch, {} convolutions", f.batch_norms, f.all_convs()),
        ),
        (&fuse::fuse_conv_bias::PASS, f.all_convs(), format!("{} convolutions", f.all_convs())),
        (&fuse::fuse_layer_norm::PASS, f.layer_norms, format!("{} × LayerNorm", f.layer_norms)),
        (&fuse::fuse_rms_norm::PASS, f.rms_norms, format!("{} × RMSNorm", f.rms_norms)),
        (&fuse::fuse_gelu::PASS, f.gelus, format!("{} × GELU", f.gelus)),
        (&fuse::fuse_rotary_embedding::PASS, f.rotations, format!("{} rotations by position", f.rotations)),
        (&fuse::fuse_attention::PASS, f.attention, format!("{} attention blocks", f.attention)),
        (
            &layout::cancel_transposes::PASS,
            usize::from(transposes > 0.01),
            format!("{:.0} % of all nodes are Transposes", transposes * 100.0),
        ),
        (
            &fuse::fuse_scale_into_weights::PASS,
            f.attention,
            "queries are scaled after their matmul with weights".to_owned(),
        ),
        (
            &fuse::fuse_matmul_add_3d::PASS,
            f.matmuls.min(f.attention),
            format!("{} matmuls with weights, heads split off after them", f.matmuls),
        ),
        (&fuse::fuse_gemm::PASS, f.matmuls, format!("{} matmuls with weights", f.matmuls)),
        (&fuse::fuse_conv_relu::PASS, two_axes, format!("{two_axes} convolutions")),
        (&target::ort_quick_gelu::PASS, f.silus, format!("{} × SiLU, for the target ort", f.silus)),
        (
            &target::ort_conv_activation::PASS,
            two_axes,
            format!("{two_axes} convolutions, for the target ort"),
        ),
    ];
    let fits = wanted.into_iter().filter(|(_, places, _)| *places > 0);
    let mut fits: Vec<(&'static Pass, String)> = fits.map(|(pass, _, why)| (pass, why)).collect();
    fits.extend(chosen.iter().map(|(pass, why)| (*pass, (*why).to_owned())));
    fits.sort_by_key(|(pass, _)| PASSES.iter().position(|listed| listed == pass));
    let fit = |(pass, why): (&'static Pass, String)| Fit {
        pass: pass.name,
        why,
        by_default: pass.runs_for(&targets::PORTABLE),
        chosen: chosen.iter().any(|(other, _)| *other == pass),
    };
    fits.into_iter().map(fit).collect()
}

/// Passes on request that pay for a kind of network, with the reason.
fn chosen(class: Class, features: &Features) -> Vec<(&'static Pass, &'static str)> {
    let writes_token_by_token = class == Class::Llm && features.caches > 0 && features.attention > 0;
    let mut chosen: Vec<(&'static Pass, &'static str)> = Vec::new();
    if writes_token_by_token {
        chosen.push((
            &fuse::fuse_attention_qkv::PASS,
            "with a cache, most runs are for one token, for which one matmul is faster than three",
        ));
    }
    chosen
}

/// Whether a model may be of a kind for which passes are chosen: cheap, from its inputs alone.
pub fn may_choose(model: &Model) -> bool {
    let main = model.scope(model.main());
    let may_be_cache = |port: &&Port| match port.declared() {
        Type::Tensor(dtype, shape) => {
            dtype.is_none_or(|dtype| dtype.kind() == Kind::Float)
                && shape.is_none_or(|shape| shape.len() >= 4)
        }
        _ => false,
    };
    // Keys and values of one layer at least.
    main.inputs().iter().filter(may_be_cache).count() >= 2
}
