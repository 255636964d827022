//! Models to messages: the reverse of loading, node by node and in file order.

use super::tensor::{Place, attached, to_proto as tensor_to_proto};
use crate::model::Model;
use crate::node::{Attr, AttrValue, Node, SparseTensor};
use crate::scope::{Listed, ScopeKind};
use crate::tensor::{Tensor, TensorError};
use crate::value::{Constant, Def, Port};
use crate::{ScopeId, ValueId};
use onnxforge_proto::Str;
use onnxforge_proto::schema::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto,
    ValueInfoProto,
};
use onnxforge_proto::walk::{walk, walk_function};

/// Decides where the elements of each tensor go.
pub type Placement<'a> = dyn FnMut(&Tensor) -> Result<Place, TensorError> + 'a;

/// The message that stores `model`; `place` says where each tensor's elements go.
pub fn to_message(model: &Model, place: &mut Placement<'_>) -> Result<ModelProto, TensorError> {
    let mut writer = Writer { model, place };
    let mut message = model.header().clone();
    let mut failure = None;
    walk(&mut message, &mut |tensor: &mut TensorProto| writer.verbatim(tensor, &mut failure));
    message.graph = Some(Box::new(writer.graph(model.main())?));
    message.functions =
        model.functions().iter().map(|&scope| writer.function(scope)).collect::<Result<_, _>>()?;
    failure.map_or(Ok(message), Err)
}

/// The message with every tensor's elements in it.
pub fn to_inline_message(model: &Model) -> Result<ModelProto, TensorError> {
    to_message(model, &mut |_| Ok(Place::Inside))
}

struct Writer<'a, 'p> {
    model: &'a Model,
    place: &'a mut Placement<'p>,
}

impl Writer<'_, '_> {
    fn graph(&mut self, scope: ScopeId) -> Result<GraphProto, TensorError> {
        let entry = self.model.scope(scope);
        let (ScopeKind::Main(rest) | ScopeKind::Body { rest, .. }) = entry.kind() else {
            return Ok(GraphProto::default());
        };
        let mut graph = (**rest).clone();
        graph.node = self.nodes(scope)?;
        for (value, constant) in self.model.initializers_in(scope) {
            let name = Some(self.name(value));
            match constant {
                Constant::Dense(tensor) => graph.initializer.push(self.tensor(tensor, name)?),
                Constant::Sparse(sparse) => graph.sparse_initializer.push(self.sparse(sparse, name)?),
            }
        }
        graph.input = entry.inputs().iter().map(|port| self.port(port)).collect();
        graph.output = entry.outputs().iter().map(|port| self.port(port)).collect();
        graph.value_info = self.infos(scope);
        Ok(graph)
    }

    fn function(&mut self, scope: ScopeId) -> Result<FunctionProto, TensorError> {
        let entry = self.model.scope(scope);
        let ScopeKind::Function(rest) = entry.kind() else {
            return Ok(FunctionProto::default());
        };
        let mut function = (**rest).clone();
        let mut failure = None;
        walk_function(&mut function, &mut |tensor: &mut TensorProto| self.verbatim(tensor, &mut failure));
        if let Some(error) = failure {
            return Err(error);
        }
        // A function has no list of constants; nodes make them.
        for (value, constant) in self.model.initializers_in(scope) {
            function.node.push(self.constant_node(value, constant)?);
        }
        function.node.extend(self.nodes(scope)?);
        function.input = entry.inputs().iter().map(|port| self.name(port.value)).collect();
        function.output = entry.outputs().iter().map(|port| self.name(port.value)).collect();
        function.value_info = self.infos(scope);
        Ok(function)
    }

    fn constant_node(&mut self, value: ValueId, constant: &Constant) -> Result<NodeProto, TensorError> {
        let (name, payload) = match constant {
            Constant::Dense(tensor) => ("value", AttrValue::Tensor(tensor.clone())),
            Constant::Sparse(sparse) => ("sparse_value", AttrValue::Sparse(sparse.clone())),
        };
        Ok(NodeProto {
            output: vec![self.name(value)],
            op_type: Some("Constant".into()),
            attribute: vec![self.attribute(&Attr::new(name, payload))?],
            ..NodeProto::default()
        })
    }

    /// Places a tensor that is kept in its message, outside of the IR.
    fn verbatim(&mut self, proto: &mut TensorProto, failure: &mut Option<TensorError>) {
        let placed =
            attached(proto).and_then(|tensor| tensor.map(|tensor| self.tensor(&tensor, None)).transpose());
        match placed {
            Ok(Some(placed)) => *proto = placed,
            Ok(None) => {}
            Err(error) => *failure = Some(error),
        }
    }

    fn name(&self, value: ValueId) -> Str {
        self.model.value(value).name().clone()
    }

    fn port(&self, port: &Port) -> ValueInfoProto {
        let mut info = (*port.info).clone();
        info.name = Some(self.name(port.value));
        info
    }

    fn infos(&self, scope: ScopeId) -> Vec<ValueInfoProto> {
        let listed = self.model.scope(scope).listed().iter();
        listed
            .filter_map(|listed| match listed {
                Listed::Stray(info) => Some((**info).clone()),
                Listed::Value(value) => {
                    let value = self.model.value(*value);
                    let mut info = value.info().filter(|_| value.is_live())?.clone();
                    info.name = Some(value.name().clone());
                    Some(info)
                }
            })
            .collect()
    }

    fn nodes(&mut self, scope: ScopeId) -> Result<Vec<NodeProto>, TensorError> {
        let model = self.model;
        model.nodes_in(scope).map(|(_, node)| self.node(node)).collect()
    }

    fn node(&mut self, node: &Node) -> Result<NodeProto, TensorError> {
        let name = |value: &Option<ValueId>| value.map_or_else(Str::default, |value| self.name(value));
        let notes = node.notes().cloned().unwrap_or_default();
        let domain = &node.op().domain;
        Ok(NodeProto {
            input: node.inputs().iter().map(name).collect(),
            output: node.outputs().iter().map(name).collect(),
            name: node.name().cloned(),
            op_type: Some(node.op().name.clone()),
            domain: notes.domain_spelling.or_else(|| (!domain.is_empty()).then(|| domain.clone())),
            overload: (notes.empty_overload || !node.op().overload.is_empty())
                .then(|| node.op().overload.clone()),
            attribute: node.attrs().iter().map(|attr| self.attribute(attr)).collect::<Result<_, _>>()?,
            doc_string: notes.doc_string,
            metadata_props: node.metadata().to_vec(),
            device_configurations: notes.devices,
            unknown: notes.unknown,
        })
    }

    fn attribute(&mut self, attr: &Attr) -> Result<AttributeProto, TensorError> {
        let notes = attr.notes.as_deref().cloned().unwrap_or_default();
        let mut proto = AttributeProto {
            name: Some(attr.name.clone()),
            doc_string: notes.doc_string,
            unknown: notes.unknown,
            ..AttributeProto::default()
        };
        let kind = match &attr.value {
            AttrValue::Float(value) => {
                proto.f = (!notes.implicit).then_some(*value);
                1
            }
            AttrValue::Int(value) => {
                proto.i = (!notes.implicit).then_some(*value);
                2
            }
            AttrValue::String(value) => {
                proto.s = (!notes.implicit).then(|| value.clone());
                3
            }
            AttrValue::Tensor(tensor) => {
                proto.t = Some(Box::new(self.tensor(tensor, None)?));
                4
            }
            AttrValue::Graph(scope) => {
                proto.g = Some(Box::new(self.graph(*scope)?));
                5
            }
            AttrValue::Floats(values) => {
                proto.floats = values.clone();
                6
            }
            AttrValue::Ints(values) => {
                proto.ints = values.clone();
                7
            }
            AttrValue::Strings(values) => {
                proto.strings = values.clone();
                8
            }
            AttrValue::Tensors(tensors) => {
                proto.tensors = tensors.iter().map(|t| self.tensor(t, None)).collect::<Result<_, _>>()?;
                9
            }
            AttrValue::Graphs(scopes) => {
                proto.graphs = scopes.iter().map(|&scope| self.graph(scope)).collect::<Result<_, _>>()?;
                10
            }
            AttrValue::Sparse(sparse) => {
                proto.sparse_tensor = Some(Box::new(self.sparse(sparse, None)?));
                11
            }
            AttrValue::Sparses(sparses) => {
                proto.sparse_tensors =
                    sparses.iter().map(|s| self.sparse(s, None)).collect::<Result<_, _>>()?;
                12
            }
            AttrValue::Type(ty) => {
                proto.tp = Some(Box::new((**ty).clone()));
                13
            }
            AttrValue::Types(types) => {
                proto.type_protos = types.clone();
                14
            }
            AttrValue::Reference { name, kind } => {
                proto.ref_attr_name = Some(name.clone());
                *kind
            }
        };
        proto.r#type = notes.written_kind.unwrap_or(Some(kind));
        Ok(proto)
    }

    fn tensor(&mut self, tensor: &Tensor, name: Option<Str>) -> Result<TensorProto, TensorError> {
        let called = name.clone().or_else(|| tensor.notes().name.clone()).unwrap_or_default();
        let place = (self.place)(tensor).map_err(|error| match error {
            TensorError::Unavailable(why) => {
                TensorError::Unavailable(format!("tensor {called:?}: {why}").into())
            }
            other => other,
        })?;
        tensor_to_proto(tensor, name, place)
    }

    fn sparse(&mut self, sparse: &SparseTensor, name: Option<Str>) -> Result<SparseTensorProto, TensorError> {
        Ok(SparseTensorProto {
            values: Some(Box::new(self.tensor(&sparse.values, name)?)),
            indices: Some(Box::new(self.tensor(&sparse.indices, None)?)),
            dims: sparse.dims.clone(),
            unknown: sparse.unknown.clone(),
        })
    }
}

/// Every dense tensor that is stored with `model`: initializers, parts of sparse ones, and attributes of nodes.
pub fn tensors(model: &Model) -> impl Iterator<Item = &Tensor> {
    let initializers = model.values().flat_map(|(_, value)| match value.def() {
        Def::Constant { constant, .. } | Def::Input { default: Some(constant), .. } => match constant {
            Constant::Dense(tensor) => vec![tensor],
            Constant::Sparse(sparse) => vec![&sparse.values, &sparse.indices],
        },
        _ => Vec::new(),
    });
    let attributes = model.nodes().flat_map(|(_, node)| node.attrs()).flat_map(|attr| match &attr.value {
        AttrValue::Tensor(tensor) => std::slice::from_ref(tensor),
        AttrValue::Tensors(tensors) => tensors.as_slice(),
        _ => &[],
    });
    initializers.chain(attributes)
}
