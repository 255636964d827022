//! Inputs and outputs whose channels are last.

use onnxforge_ir::value::Use;
use onnxforge_ir::{NodeId, ValueId};

use super::Writer;
use crate::artifact::ChannelsLast;

const LAST: &[i64] = &[0, 2, 3, 1];
const FIRST: &[i64] = &[0, 3, 1, 2];

impl Writer<'_> {
    /// Lets inputs that only go into the layout with channels last have it, and outputs that only come from there; Transposes between are saved.
    pub(super) fn turn_ports(&mut self) -> ChannelsLast {
        let mut turned = ChannelsLast::default();
        let main = self.model.scope(self.model.main());
        for port in main.inputs() {
            let images: Option<Vec<(NodeId, ValueId)>> =
                self.model.value(port.value).uses().iter().map(|used| self.turned(used, LAST)).collect();
            let Some(images) = images.filter(|images| !images.is_empty()) else { continue };
            // All of them are the same image.
            let (_, first) = images[0];
            self.becomes.insert(port.value, first);
            for &(node, image) in &images {
                self.saved.insert(node);
                if image != first {
                    self.becomes.insert(image, first);
                }
            }
            turned.inputs.push(self.model.value(port.value).name().to_string());
        }
        for port in main.outputs() {
            let value = self.model.value(port.value);
            let [Use::Output { .. }] = value.uses() else { continue };
            let Some(mut node) = value.node() else { continue };
            // An activation that is applied before the Transpose.
            if self.saved.contains(&node) {
                let before =
                    self.node(node).input(0).filter(|before| self.becomes.get(before) == Some(&port.value));
                let Some(turn) = before.and_then(|before| self.model.value(before).node()) else { continue };
                node = turn;
            }
            let is_turn = !self.saved.contains(&node) && self.perm(node).as_deref() == Some(FIRST);
            let from = self.node(node).input(0).filter(|_| is_turn);
            // A constant or an input under two names would be one tensor twice.
            if let Some(from) = from.filter(|&from| self.model.value(from).node().is_some()) {
                self.becomes.insert(port.value, from);
                self.saved.insert(node);
                turned.outputs.push(value.name().to_string());
            }
        }
        turned
    }

    /// What a use turns an image into, if it does nothing else.
    fn turned(&self, used: &Use, order: &[i64]) -> Option<(NodeId, ValueId)> {
        let Use::Input { node, index: 0 } = *used else { return None };
        let image = self.node(node).output(0)?;
        let is_inside = !self.model.value(image).is_exposed();
        (self.perm(node).as_deref() == Some(order) && is_inside).then_some((node, image))
    }

    /// The order of axes that a Transpose gives.
    fn perm(&self, id: NodeId) -> Option<Vec<i64>> {
        if !self.node(id).op().is("Transpose") {
            return None;
        }
        self.call(id).ok()?.opt_ints("perm").ok()?
    }
}
