//! Visiting every part of a message, bodies and functions included.

use super::schema::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto,
    TypeProto, ValueInfoProto,
};

/// What to do with each part. A part is visited before what is in it.
#[allow(unused_variables, missing_docs)]
pub trait Visitor {
    fn graph(&mut self, graph: &mut GraphProto) {}
    fn function(&mut self, function: &mut FunctionProto) {}
    fn node(&mut self, node: &mut NodeProto) {}
    fn attribute(&mut self, attribute: &mut AttributeProto) {}
    fn value(&mut self, info: &mut ValueInfoProto) {}
    fn tensor(&mut self, tensor: &mut TensorProto) {}
    fn r#type(&mut self, ty: &mut TypeProto) {}
}

/// A function on tensors visits tensors.
impl<F: FnMut(&mut TensorProto)> Visitor for F {
    fn tensor(&mut self, tensor: &mut TensorProto) {
        self(tensor);
    }
}

/// Visits all of `model` in file order.
pub fn walk(model: &mut ModelProto, visitor: &mut dyn Visitor) {
    if let Some(graph) = &mut model.graph {
        walk_graph(graph, visitor);
    }
    for info in &mut model.training_info {
        for graph in [&mut info.initialization, &mut info.algorithm].into_iter().flatten() {
            walk_graph(graph, visitor);
        }
    }
    model.functions.iter_mut().for_each(|function| walk_function(function, visitor));
}

/// Visits all of `function` in file order.
pub fn walk_function(function: &mut FunctionProto, visitor: &mut dyn Visitor) {
    visitor.function(function);
    function.node.iter_mut().for_each(|node| walk_node(node, visitor));
    function.attribute_proto.iter_mut().for_each(|attribute| walk_attribute(attribute, visitor));
    function.value_info.iter_mut().for_each(|info| walk_value(info, visitor));
}

/// Visits all of `graph` in file order.
pub fn walk_graph(graph: &mut GraphProto, visitor: &mut dyn Visitor) {
    visitor.graph(graph);
    graph.node.iter_mut().for_each(|node| walk_node(node, visitor));
    graph.initializer.iter_mut().for_each(|tensor| visitor.tensor(tensor));
    graph.sparse_initializer.iter_mut().for_each(|sparse| walk_sparse(sparse, visitor));
    for info in graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info) {
        walk_value(info, visitor);
    }
}

fn walk_node(node: &mut NodeProto, visitor: &mut dyn Visitor) {
    visitor.node(node);
    node.attribute.iter_mut().for_each(|attribute| walk_attribute(attribute, visitor));
}

fn walk_attribute(attribute: &mut AttributeProto, visitor: &mut dyn Visitor) {
    visitor.attribute(attribute);
    attribute.t.iter_mut().for_each(|tensor| visitor.tensor(tensor));
    attribute.tensors.iter_mut().for_each(|tensor| visitor.tensor(tensor));
    attribute.sparse_tensor.iter_mut().for_each(|sparse| walk_sparse(sparse, visitor));
    attribute.sparse_tensors.iter_mut().for_each(|sparse| walk_sparse(sparse, visitor));
    attribute.g.iter_mut().for_each(|graph| walk_graph(graph, visitor));
    attribute.graphs.iter_mut().for_each(|graph| walk_graph(graph, visitor));
    attribute.tp.iter_mut().for_each(|ty| walk_type(ty, visitor));
    attribute.type_protos.iter_mut().for_each(|ty| walk_type(ty, visitor));
}

fn walk_sparse(sparse: &mut SparseTensorProto, visitor: &mut dyn Visitor) {
    for tensor in [&mut sparse.values, &mut sparse.indices].into_iter().flatten() {
        visitor.tensor(tensor);
    }
}

fn walk_value(info: &mut ValueInfoProto, visitor: &mut dyn Visitor) {
    visitor.value(info);
    info.r#type.iter_mut().for_each(|ty| walk_type(ty, visitor));
}

fn walk_type(ty: &mut TypeProto, visitor: &mut dyn Visitor) {
    visitor.r#type(ty);
    let sequence = ty.sequence_type.as_mut().and_then(|element| element.elem_type.as_mut());
    let optional = ty.optional_type.as_mut().and_then(|element| element.elem_type.as_mut());
    let map = ty.map_type.as_mut().and_then(|map| map.value_type.as_mut());
    for inner in [sequence, optional, map].into_iter().flatten() {
        walk_type(inner, visitor);
    }
}
