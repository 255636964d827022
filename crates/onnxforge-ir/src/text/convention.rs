//! Conventions: how a file stores what the notation leaves open.
//!
//! The notation does not say whether a field that is not mentioned is absent or empty, nor in which field of
//! a tensor its elements are. The standard parser has one answer, most files have another, and nearly all
//! nodes of a file agree. So the answer of the majority is written once, in the note at the start, and only
//! the exceptions carry a note.

use super::element::EXTERNAL;
use super::note::{Note, Value};
use onnxforge_proto::schema::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, SparseTensorProto,
    TensorProto,
};

/// A question that the notation leaves open. The standard answer to each is `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Convention {
    /// A node whose domain is not written has none, instead of an empty one.
    NodeDomain,
    /// A node whose overload is not written has an empty one, instead of none.
    NodeOverload,
    /// A node without documentation has an empty one, instead of none.
    NodeDoc,
    /// The standard domain, written as an empty string in a list of operator sets, is an absent field.
    OpsetDomain,
    /// A tensor in an attribute whose name is not written has none, instead of an empty one.
    TensorName,
    /// Elements are in `raw_data`, instead of the field of their type.
    TensorData,
    /// `data_location` says that the elements are here, instead of being absent.
    TensorLocation,
}

/// The conventions with the key and the value that state the other answer.
const TABLE: [(Convention, &str, &str); 7] = [
    (Convention::NodeDomain, "node.domain", "unset"),
    (Convention::NodeOverload, "node.overload", "\"\""),
    (Convention::NodeDoc, "node.doc_string", "\"\""),
    (Convention::OpsetDomain, "opset_import.domain", "unset"),
    (Convention::TensorName, "tensor.name", "unset"),
    (Convention::TensorData, "tensor.data", "raw"),
    (Convention::TensorLocation, "tensor.data_location", "0"),
];

/// An answer to each question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Conventions(u8);

impl Conventions {
    /// Whether the answer to `convention` differs from the standard one.
    pub(super) fn has(self, convention: Convention) -> bool {
        self.0 & 1 << convention as u8 != 0
    }

    /// Writes the answers that differ from the standard ones.
    pub(super) fn state(self, note: &mut Note) {
        for (convention, key, value) in TABLE {
            if self.has(convention) {
                note.entry(key, value);
            }
        }
    }

    /// Reads one entry of the note at the start; `false` when it is not about a convention.
    pub(super) fn read(&mut self, key: &str, value: &Value<'_>) -> Result<bool, String> {
        let Some((convention, _, expected)) = TABLE.into_iter().find(|entry| entry.1 == key) else {
            return Ok(false);
        };
        if !value.is(expected) {
            return Err(format!("`{key}` can only be {expected} here"));
        }
        self.0 |= 1 << convention as u8;
        Ok(true)
    }
}

/// Counts how often each question is answered in either way.
#[derive(Default)]
pub(super) struct Votes([i64; TABLE.len()]);

impl Votes {
    /// The answers of the majority.
    pub(super) fn conventions(&self) -> Conventions {
        let bit = |(i, &balance): (usize, &i64)| u8::from(balance > 0) << i;
        Conventions(self.0.iter().enumerate().map(bit).fold(0, std::ops::BitOr::bitor))
    }

    fn vote(&mut self, convention: Convention, other: bool) {
        if let Some(balance) = self.0.get_mut(convention as usize) {
            *balance += if other { 1 } else { -1 };
        }
    }

    pub(super) fn model(&mut self, model: &ModelProto) {
        self.opsets(&model.opset_import);
        model.graph.iter().for_each(|graph| self.graph(graph));
        model.functions.iter().for_each(|function| self.function(function));
    }

    fn opsets(&mut self, opsets: &[OperatorSetIdProto]) {
        for domain in opsets.iter().map(|opset| opset.domain.as_deref()) {
            if domain.is_none_or(str::is_empty) {
                self.vote(Convention::OpsetDomain, domain.is_none());
            }
        }
    }

    pub(super) fn function(&mut self, function: &FunctionProto) {
        self.opsets(&function.opset_import);
        function.attribute_proto.iter().for_each(|attribute| self.attribute(attribute));
        function.node.iter().for_each(|node| self.node(node));
    }

    pub(super) fn graph(&mut self, graph: &GraphProto) {
        graph.initializer.iter().for_each(|tensor| self.tensor(tensor));
        graph.sparse_initializer.iter().for_each(|tensor| self.sparse(tensor));
        graph.node.iter().for_each(|node| self.node(node));
    }

    pub(super) fn node(&mut self, node: &NodeProto) {
        let mut field = |convention, field: Option<&str>, other_is_none: bool| {
            if field.is_none_or(str::is_empty) {
                self.vote(convention, field.is_none() == other_is_none);
            }
        };
        field(Convention::NodeDomain, node.domain.as_deref(), true);
        field(Convention::NodeOverload, node.overload.as_deref(), false);
        field(Convention::NodeDoc, node.doc_string.as_deref(), false);
        node.attribute.iter().for_each(|attribute| self.attribute(attribute));
    }

    fn attribute(&mut self, attribute: &AttributeProto) {
        for tensor in attribute.t.iter().map(Box::as_ref).chain(&attribute.tensors) {
            self.name(tensor);
            self.tensor(tensor);
        }
        for tensor in attribute.sparse_tensor.iter().map(Box::as_ref).chain(&attribute.sparse_tensors) {
            tensor.values.iter().for_each(|values| self.name(values));
            self.sparse(tensor);
        }
        for graph in attribute.g.iter().map(Box::as_ref).chain(&attribute.graphs) {
            self.graph(graph);
        }
    }

    fn sparse(&mut self, sparse: &SparseTensorProto) {
        sparse.indices.iter().for_each(|indices| self.name(indices));
        for tensor in sparse.values.iter().chain(&sparse.indices) {
            self.tensor(tensor);
        }
    }

    fn name(&mut self, tensor: &TensorProto) {
        if tensor.name.as_deref().is_none_or(str::is_empty) {
            self.vote(Convention::TensorName, tensor.name.is_none());
        }
    }

    fn tensor(&mut self, tensor: &TensorProto) {
        if tensor.data_location != Some(EXTERNAL) {
            self.vote(Convention::TensorData, tensor.raw_data.is_some());
            self.vote(Convention::TensorLocation, tensor.data_location == Some(0));
        }
    }
}
