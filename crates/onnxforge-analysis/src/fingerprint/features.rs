//! What is counted.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::convolution::{Convolution, convolution};
use super::inputs::{self, Input};
use super::masks;
use crate::audit::gates;
use crate::scene::attention::{Block, blocks};
use crate::scene::{Left, Scene};
use onnxforge_ir::{Model, Node, NodeId, ValueId};
use onnxforge_rewrite::passes::{Pass, fuse, target};

/// Rules of a pass that recognise what is decomposed: all where none are named.
type Rules = (&'static Pass, &'static [&'static str]);

const LAYER_NORMS: Rules = (&fuse::fuse_layer_norm::PASS, &["core"]);
const RMS_NORMS: Rules = (&fuse::fuse_rms_norm::PASS, &["core"]);
const GELUS: Rules = (&fuse::fuse_gelu::PASS, &[]);
const SILUS: Rules = (&target::ort_quick_gelu::PASS, &[]);
const ROTATIONS: Rules = (&fuse::fuse_rotary_embedding::PASS, &["turned", "joined"]);

/// What a model is made of, as far as its class shows in it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Features {
    /// Nodes of the file.
    pub nodes: usize,
    /// How often the file calls each operator.
    pub operators: BTreeMap<String, usize>,
    /// Products with a matrix of weights.
    pub matmuls: usize,
    /// Convolutions along one, two and three axes.
    pub convs: [usize; 3],
    /// Convolutions along two or more axes that see more than one place, other than a first one that cuts an image into patches.
    pub spatial_convs: usize,
    /// Products with weights for each convolution; none where there is no convolution.
    pub matmuls_per_conv: Option<f64>,
    /// The share of the file's nodes that reshape: Reshape, Flatten, Squeeze, Unsqueeze.
    pub reshapes: f64,
    /// The share of the file's nodes that are Transposes.
    pub transposes: f64,
    /// Softmaxes.
    pub softmaxes: usize,
    /// Attention by a Softmax of a product, decomposed or as an operator.
    pub attention: usize,
    /// Attention with fewer heads for keys and values than for queries.
    pub grouped_attention: usize,
    /// Whether later keys are hidden from earlier queries.
    pub is_causal: bool,
    /// Attention whose keys come from elsewhere: the same for several layers.
    pub cross_attention: usize,
    /// Inputs to which keys and values are appended.
    pub caches: usize,
    /// LayerNormalization, decomposed or as an operator.
    pub layer_norms: usize,
    /// RMSNormalization, decomposed or as an operator.
    pub rms_norms: usize,
    /// BatchNormalization; those that were folded into weights beforehand do not show.
    pub batch_norms: usize,
    /// GELU, decomposed or as an operator.
    pub gelus: usize,
    /// SiLU, decomposed or as an operator.
    pub silus: usize,
    /// SwiGLU.
    pub gates: usize,
    /// Rotations by position.
    pub rotations: usize,
    /// Recurrent layers.
    pub recurrent: usize,
    /// Trees, support vectors and other estimators that are no networks.
    pub estimators: usize,
    /// What the model takes.
    pub inputs: Vec<Input>,
    /// Whether an output scores each entry of the vocabulary that token ids are looked up in.
    pub scores_vocabulary: bool,
    /// Whether an output has an axis that a token input has, too.
    pub has_output_per_token: bool,
    /// Whether an output is a wave: one channel from a convolution along one axis.
    pub gives_wave: bool,
}

impl Features {
    /// What is seen of `file` in the scene that was made of it.
    pub(super) fn of(file: &Model, scene: &Scene<'_>) -> Self {
        let model = scene.model();
        let operators = file.operator_counts();
        let nodes = file.node_count();
        let share = |names: &[&str]| {
            let count: usize = names.iter().filter_map(|&name| operators.get(name)).sum();
            if nodes == 0 { 0.0 } else { count as f64 / nodes as f64 }
        };
        let blocks = blocks(scene);
        let inputs = inputs::kinds(scene);
        let rows = |input: &Input| match *input {
            Input::Tokens { vocabulary, .. } => Some(vocabulary),
            _ => None,
        };
        let vocabulary = inputs.iter().filter_map(rows).max();
        let named = |names: &[&str]| count(model, |node| names.contains(&&*node.op().name));
        let spelled = |(pass, rules): Rules| scene.places(pass, rules, Left::Counts).len();
        let convs = convolutions(scene);
        let along = |axes: usize| convs.iter().filter(|conv| conv.kernel.len() == axes).count();
        let matmuls = products_with_weights(scene);
        let is_wide = |conv: &&Convolution| conv.kernel.len() >= 2 && !conv.cuts_patches && conv.sees_more();
        Self {
            nodes,
            matmuls,
            convs: [along(1), along(2), along(3)],
            spatial_convs: convs.iter().filter(is_wide).count(),
            matmuls_per_conv: (!convs.is_empty()).then(|| matmuls as f64 / convs.len() as f64),
            reshapes: share(&["Reshape", "Flatten", "Squeeze", "Unsqueeze"]),
            transposes: share(&["Transpose"]),
            softmaxes: named(&["Softmax"]),
            attention: blocks.len(),
            grouped_attention: blocks
                .iter()
                .filter(|block| block.is_grouped || !block.groups.is_empty())
                .count(),
            is_causal: masks::is_causal(scene, &blocks),
            cross_attention: cross(scene, &blocks),
            caches: inputs.iter().filter(|input| matches!(input, Input::Cache)).count(),
            layer_norms: named(&["LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization"])
                + spelled(LAYER_NORMS),
            rms_norms: named(&[
                "RMSNormalization",
                "SimplifiedLayerNormalization",
                "SkipSimplifiedLayerNormalization",
            ]) + spelled(RMS_NORMS),
            batch_norms: named(&["BatchNormalization"]),
            gelus: named(&["Gelu", "FastGelu", "BiasGelu"]) + spelled(GELUS),
            silus: named(&["Swish", "QuickGelu", "Silu"]) + spelled(SILUS),
            gates: gates(scene).len(),
            rotations: named(&["RotaryEmbedding"]) + spelled(ROTATIONS),
            recurrent: named(&["LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"]),
            estimators: count(model, |node| node.op().domain.starts_with("ai.onnx.ml")),
            scores_vocabulary: vocabulary.is_some_and(|rows| scores(scene, rows)),
            has_output_per_token: has_output_per_token(scene),
            gives_wave: gives_wave(scene, &convs),
            inputs,
            operators,
        }
    }

    /// Convolutions along any number of axes.
    pub fn all_convs(&self) -> usize {
        self.convs.iter().sum()
    }
}

fn count(model: &Model, is: impl Fn(&Node) -> bool) -> usize {
    model.nodes().filter(|(_, node)| is(node)).count()
}

fn convolutions(scene: &Scene<'_>) -> Vec<Convolution> {
    scene.model().nodes().filter_map(|(id, _)| convolution(scene, id)).collect()
}

fn products_with_weights(scene: &Scene<'_>) -> usize {
    let is_product = |node: &Node| match &*node.op().name {
        "MatMul"
        | "Gemm"
        | "FusedMatMul"
        | "FusedGemm"
        | "MatMulInteger"
        | "DynamicQuantizeMatMul"
        | "MatMulIntegerToFloat" => {
            node.inputs().iter().take(2).flatten().any(|&input| scene.is_weight(input))
        }
        "MatMulNBits" | "QLinearMatMul" | "QGemm" => true,
        _ => false,
    };
    count(scene.model(), is_product)
}

/// Attention whose keys are of something that several layers with other queries read: what an encoder gives to the layers of a decoder.
fn cross(scene: &Scene<'_>, blocks: &[Block]) -> usize {
    let mut layers: HashMap<ValueId, HashSet<ValueId>> = HashMap::new();
    for block in blocks {
        let (Some(&q), Some(&k)) = (block.operands.first(), block.operands.get(1)) else { continue };
        if let (Some(queries), Some(keys)) = (projected(scene, q), projected(scene, k))
            && queries != keys
        {
            layers.entry(keys).or_default().insert(queries);
        }
    }
    layers.values().map(HashSet::len).filter(|&count| count > 1).sum()
}

/// What a value is a projection of: the other operand of the nearest product with weights before it.
fn projected(scene: &Scene<'_>, value: ValueId) -> Option<ValueId> {
    let model = scene.model();
    let mut open = std::collections::VecDeque::from([value]);
    let mut seen = HashSet::new();
    while let Some(value) = open.pop_front() {
        if seen.len() > 64 || !seen.insert(value) {
            continue;
        }
        let Some(node) = model.value(value).node().map(|id| model.node(id)) else { continue };
        let inputs: Vec<ValueId> = node.inputs().iter().flatten().copied().collect();
        let others = inputs.iter().filter(|&&input| !scene.is_weight(input)).copied();
        if matches!(&*node.op().name, "MatMul" | "Gemm" | "FusedMatMul" | "MatMulNBits") {
            let mut others = others.clone();
            if let (Some(other), None) = (others.next(), others.next()) {
                return Some(other);
            }
        }
        open.extend(others);
    }
    None
}

/// Whether an output has so many scores for each place.
fn scores(scene: &Scene<'_>, vocabulary: i64) -> bool {
    let main = scene.model().scope(scene.model().main());
    main.outputs().iter().any(|port| {
        let shape = scene.facts().shape(port.value);
        shape.and_then(|shape| shape.last()).is_some_and(|dim| dim.as_const() == Some(vocabulary))
    })
}

/// Whether an output has a row for each token: its second axis is that of an integer input.
fn has_output_per_token(scene: &Scene<'_>) -> bool {
    let main = scene.model().scope(scene.model().main());
    let second = |value: ValueId| scene.facts().shape(value).and_then(|shape| shape.get(1));
    let integer = |value: ValueId| {
        let dtype = scene.facts().tensor(value).and_then(|fact| fact.dtype);
        matches!(dtype, Some(onnxforge_ir::DType::I64 | onnxforge_ir::DType::I32))
    };
    let inputs = main.inputs().iter().map(|port| port.value).filter(|&value| integer(value));
    let lengths: Vec<_> = inputs.filter_map(second).collect();
    let long = |port: &onnxforge_ir::value::Port| {
        let rank = scene.facts().shape(port.value).map_or(0, <[_]>::len);
        rank == 3 && second(port.value).is_some_and(|dim| lengths.contains(&dim))
    };
    main.outputs().iter().any(long)
}

/// Whether an output is one channel from a convolution along one axis.
fn gives_wave(scene: &Scene<'_>, convs: &[Convolution]) -> bool {
    let model = scene.model();
    let last: HashSet<NodeId> = convs
        .iter()
        .filter(|conv| conv.kernel.len() == 1 && conv.sees_more() && conv.channels[1] == 1)
        .map(|conv| conv.node)
        .collect();
    if last.is_empty() {
        return false;
    }
    model.scope(model.main()).outputs().iter().any(|port| {
        let mut value = port.value;
        for _ in 0..16 {
            let Some(id) = model.value(value).node() else { return false };
            if last.contains(&id) {
                return true;
            }
            match model.node(id).input(0).filter(|_| scene.keeps_elements(model.node(id))) {
                Some(source) => value = source,
                None => return false,
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::unknown_rules;

    #[test]
    fn named_rules_exist() {
        for (pass, rules) in [LAYER_NORMS, RMS_NORMS, GELUS, SILUS, ROTATIONS] {
            assert_eq!(unknown_rules(pass, rules), [""; 0], "{pass:?}");
        }
    }
}
