//! What a model takes: which layer an input reaches first tells what its numbers are.

use std::collections::{HashSet, VecDeque};

use serde::Serialize;

use super::convolution::convolution;
use crate::scene::Scene;
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::value::Use;
use onnxforge_ir::{DType, Def, NodeId, ValueId};

/// How many nodes are looked at to find the first layer.
const REACH: usize = 512;

/// What an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Input {
    /// Integers that rows of a table of weights are chosen by.
    Tokens {
        /// Rows of the table.
        vocabulary: i64,
        /// Numbers in a row.
        width: i64,
    },
    /// Pixels: convolved along two or more axes, or three channels of two axes each.
    Image {
        /// Channels.
        channels: i64,
    },
    /// A wave of one channel, convolved along one axis or transformed into frequencies.
    Wave,
    /// Many channels that are convolved along time, or one plane without channels that is convolved along both axes.
    Spectrogram {
        /// Channels, or 1 for a plane.
        bins: i64,
    },
    /// A sequence of vectors that a matrix of weights is multiplied with.
    Vectors,
    /// One vector, for a matrix of weights or an estimator.
    Features,
    /// Keys or values of earlier tokens, which others are appended to.
    Cache,
    /// Something else: a mask, a position, a size.
    Other,
}

/// What each input of the graph is.
pub(super) fn kinds(scene: &Scene<'_>) -> Vec<Input> {
    let main = scene.model().scope(scene.model().main());
    let given = main.inputs().iter().map(|port| port.value);
    let given =
        given.filter(|&value| matches!(scene.model().value(value).def(), Def::Input { default: None, .. }));
    given.map(|value| kind(scene, value)).collect()
}

fn kind(scene: &Scene<'_>, value: ValueId) -> Input {
    let Some(fact) = scene.facts().tensor(value) else { return Input::Other };
    match fact.dtype.map(DType::kind) {
        Some(Kind::Signed | Kind::Unsigned) if fact.dtype != Some(DType::U8) => {
            tokens(scene, value).unwrap_or(Input::Other)
        }
        Some(Kind::Float | Kind::Unsigned) => numbers(scene, value),
        _ => Input::Other,
    }
}

/// The largest table whose rows the integers choose, a table of few rows (kinds of segments) not counted.
fn tokens(scene: &Scene<'_>, value: ValueId) -> Option<Input> {
    let model = scene.model();
    let size = |value: Option<ValueId>, axis: usize| scene.facts().shape(value?)?.get(axis)?.as_const();
    let mut best: Option<(i64, i64)> = None;
    walk(scene, value, &mut |id, index| {
        let node = model.node(id);
        let table = match (&*node.op().name, index) {
            ("Gather", 1) => node.input(0),
            ("EmbedLayerNormalization", 0) => node.input(2),
            ("GatherBlockQuantized", 1) => node.input(0),
            (
                "Cast" | "Reshape" | "Unsqueeze" | "Squeeze" | "Flatten" | "Slice" | "Transpose" | "Identity",
                0,
            ) => {
                return Next::On;
            }
            ("Concat" | "Where" | "Clip" | "Expand" | "Gather" | "Max" | "Min", _) => return Next::On,
            _ => return Next::Off,
        };
        let is_table = table.is_some_and(|table| scene.is_weight(table))
            && table.and_then(|table| scene.facts().shape(table)).is_some_and(|shape| shape.len() == 2);
        if let (true, Some(rows), Some(width)) = (is_table, size(table, 0), size(table, 1))
            && rows > 4
            && best.is_none_or(|(most, _)| rows > most)
        {
            best = Some((rows, width));
        }
        Next::Off
    });
    best.map(|(vocabulary, width)| Input::Tokens { vocabulary, width })
}

/// What an input of numbers is, by the first layer that it reaches.
fn numbers(scene: &Scene<'_>, value: ValueId) -> Input {
    let model = scene.model();
    let rank = scene.facts().shape(value).map_or(0, <[_]>::len);
    if rank >= 4 && is_appended_to(scene, value) {
        return Input::Cache;
    }
    let mut found = None;
    walk(scene, value, &mut |id, index| {
        let node = model.node(id);
        if let Some(conv) = convolution(scene, id).filter(|_| index == 0) {
            // A convolution that sees one place is a product with weights.
            let kind = match (conv.kernel.len(), conv.channels[0]) {
                (1, _) if !conv.sees_more() => Input::Vectors,
                (1, 1) => Input::Wave,
                (1, bins) => Input::Spectrogram { bins },
                (_, 1) if rank == 2 => Input::Wave,
                (_, 1) if rank == 3 => Input::Spectrogram { bins: 1 },
                (_, channels) => Input::Image { channels },
            };
            found = Some(kind);
            return Next::Stop;
        }
        match &*node.op().name {
            "STFT" | "DFT" => found = Some(Input::Wave),
            "MatMul" | "Gemm" | "FusedMatMul" | "MatMulNBits" | "MatMulInteger" | "LSTM" | "GRU" | "RNN" => {
                found = Some(channels(scene, value).unwrap_or(if rank >= 3 {
                    Input::Vectors
                } else {
                    Input::Features
                }));
            }
            _ if node.op().domain.starts_with("ai.onnx.ml") => found = Some(Input::Features),
            "Pad"
            | "Resize"
            | "Upsample"
            | "Concat"
            | "QuantizeLinear"
            | "DequantizeLinear"
            | "BatchNormalization"
            | "InstanceNormalization"
            | "LayerNormalization"
            | "DynamicQuantizeLinear"
            | "MaxPool"
            | "AveragePool"
            | "SpaceToDepth"
            | "Split"
            | "Slice"
            | "Gather"
            | "If" => return Next::On,
            _ if scene.keeps_elements(node) => return Next::On,
            _ => return Next::Off,
        }
        Next::Stop
    });
    found.or_else(|| channels(scene, value)).unwrap_or(Input::Other)
}

/// An image by its shape alone: four axes, of which the second or the last has three elements.
fn channels(scene: &Scene<'_>, value: ValueId) -> Option<Input> {
    let &[_, first, _, last] = &scene.facts().shape(value)? else { return None };
    let three = [first, last].into_iter().any(|dim| dim.as_const() == Some(3));
    three.then_some(Input::Image { channels: 3 })
}

/// Whether a Concat appends something to the input: a cache.
fn is_appended_to(scene: &Scene<'_>, value: ValueId) -> bool {
    let model = scene.model();
    let first_of_two = |used: &Use| match *used {
        Use::Input { node, index: 0 } => {
            model.node(node).op().is("Concat") && model.node(node).inputs().len() == 2
        }
        Use::Input { node, .. } => model.node(node).op().name.ends_with("Attention"),
        Use::Output { .. } => false,
    };
    model.value(value).uses().iter().any(first_of_two)
}

/// Where to go from a node.
enum Next {
    /// To those that read its results.
    On,
    /// Nowhere.
    Off,
    /// Everything is known.
    Stop,
}

/// Looks at the nodes that a value reaches, the nearest first; `look` gets the node and which of its inputs is reached.
fn walk(scene: &Scene<'_>, value: ValueId, look: &mut dyn FnMut(NodeId, u32) -> Next) {
    let model = scene.model();
    let mut open = VecDeque::from([value]);
    let mut seen: HashSet<(NodeId, u32)> = HashSet::new();
    while let Some(value) = open.pop_front() {
        for used in model.value(value).uses() {
            let Use::Input { node, index } = *used else { continue };
            if seen.len() >= REACH || !seen.insert((node, index)) {
                continue;
            }
            match look(node, index) {
                Next::On => open.extend(model.node(node).outputs().iter().flatten()),
                Next::Off => {}
                Next::Stop => return,
            }
        }
    }
}
