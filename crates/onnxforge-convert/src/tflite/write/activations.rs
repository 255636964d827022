//! Activations that operators of the format apply to their results themselves.

use onnxforge_ir::value::Use;
use onnxforge_ir::{DType, NodeId, ValueId};
use onnxforge_ops::Array;

use super::Writer;
use crate::tflite::graph::Setting;
use crate::tflite::schema::{self, Builtin};

/// Operators that apply one.
const LAYERS: [&str; 9] = [
    "onnxforge.tflite.Conv2D",
    "onnxforge.tflite.DepthwiseConv2D",
    "onnxforge.tflite.FullyConnected",
    "onnxforge.tflite.MaxPool2D",
    "onnxforge.tflite.AveragePool2D",
    "Add",
    "Sub",
    "Mul",
    "Div",
];

/// Whether an operator on two tensors applies one.
pub fn applies(builtin: Builtin) -> bool {
    [schema::ADD, schema::SUB, schema::MUL, schema::DIV].contains(&builtin)
}

impl Writer<'_> {
    /// Finds activations of what nothing else reads.
    pub(super) fn find_activations(&mut self) {
        for (id, node) in self.model.nodes_in(self.model.main()) {
            let (Some(x), Some(y), Some(number)) = (node.input(0), node.output(0), self.number_of(id)) else {
                continue;
            };
            // A Transpose between is the same before and after.
            let mut from = x;
            let layer = loop {
                let [Use::Input { index: 0, .. }] = self.model.value(from).uses() else { break None };
                let Some(layer) = self.model.value(from).node() else { break None };
                match self.node(layer).input(0).filter(|_| self.node(layer).op().is("Transpose")) {
                    Some(before) => from = before,
                    None => break Some(layer),
                }
            };
            let Some(layer) = layer.filter(|layer| LAYERS.contains(&&*self.node(*layer).op().to_string()))
            else {
                continue;
            };
            // What an activation is applied to already has another one.
            let is_inside = self.model.scope_of(from) == self.model.scope_of(y);
            if is_inside && self.is_float(x) && !self.activations.contains_key(&layer) {
                self.becomes.insert(x, y);
                self.activations.insert(layer, number);
                self.saved.insert(id);
            }
        }
    }

    fn is_float(&self, value: ValueId) -> bool {
        self.dtype(value) == Ok(DType::F32)
    }

    /// The number that the format gives to an activation.
    fn number_of(&self, id: NodeId) -> Option<u8> {
        let node = self.node(id);
        let number = |index| {
            let constant = self.model.constant(node.input(index)?)?;
            Array::from_tensor(constant).ok()?.to_f64().ok()
        };
        match &*node.op().to_string() {
            "Relu" => Some(1),
            "Clip" => match (number(1)?, number(2)?) {
                (-1.0, 1.0) => Some(2),
                (0.0, 6.0) => Some(3),
                _ => None,
            },
            _ => None,
        }
    }

    /// The activation that a node applies.
    pub(super) fn activation(&self, id: NodeId) -> Setting {
        Setting::Byte(self.activations.get(&id).copied().unwrap_or(0))
    }
}
