//! Changes to what a model takes and gives. They are no rewrites: nothing is consumed, and the journal does not list them.

use crate::id::ValueId;
use crate::model::Model;
use crate::value::{Port, Use};
use onnxforge_proto::schema::TypeProto;

impl Model {
    /// Declares another type for input `index` of the graph.
    pub fn set_input_type(&mut self, index: usize, declared: TypeProto) {
        if let Some(port) = self.scopes[self.main].inputs.get_mut(index) {
            port.info.r#type = Some(Box::new(declared));
        }
    }

    /// Declares another type for output `index` of the graph.
    pub fn set_output_type(&mut self, index: usize, declared: TypeProto) {
        if let Some(port) = self.scopes[self.main].outputs.get_mut(index) {
            port.info.r#type = Some(Box::new(declared));
        }
    }

    /// Gives the graph other outputs, which must be values of it.
    pub fn set_outputs(&mut self, outputs: Vec<Port>) {
        for port in std::mem::take(&mut self.scopes[self.main].outputs) {
            self.remove_output_uses(port.value, self.main);
        }
        for (index, port) in outputs.iter().enumerate() {
            self.add_use(port.value, Use::Output { scope: self.main, index: index as u32 });
        }
        self.scopes[self.main].outputs = outputs;
    }

    /// Forgets what `value_info` says of a value.
    pub fn forget_declaration(&mut self, value: ValueId) {
        self.values[value].info = None;
    }
}
