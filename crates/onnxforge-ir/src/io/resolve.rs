//! Messages to models: names become ids, lists become scopes, and every contradiction is told with its place.

mod attribute;

use std::collections::HashMap;
use std::sync::Arc;

use super::external::ExternalFiles;
use super::model_error::{ModelError, ModelErrorKind};
use super::tensor::{attach, from_proto as tensor_from_proto};
use crate::build::{Builder, Cycle, SourceNode};
use crate::model::Model;
use crate::node::{NodeNotes, Op, SparseTensor, normal_domain};
use crate::scope::ScopeKind;
use crate::value::Constant;
use crate::{NodeId, ScopeId, ValueId};
pub use attribute::{filled_kinds, plain_attribute};
use onnxforge_proto::Str;
use onnxforge_proto::schema::{
    FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto,
};
use onnxforge_proto::walk::{walk, walk_function};

type Result<T, E = ModelError> = std::result::Result<T, E>;

/// Builds the IR from a decoded message.
pub fn from_message(mut message: ModelProto, files: &mut ExternalFiles) -> Result<Model> {
    let mut graph = *message.graph.take().ok_or(ModelErrorKind::NoGraph)?;
    let functions = std::mem::take(&mut message.functions);
    let training = training_names(&message);
    walk(&mut message, &mut |tensor: &mut TensorProto| attach(tensor, files));
    let parts = GraphParts::take(&mut graph);
    let name = graph.name.clone().unwrap_or_default();
    let mut loader =
        Loader { builder: Builder::new(message, graph), files, names: Vec::new(), texts: HashMap::new() };
    let main = loader.builder.main();
    loader.graph(main, parts, &training).map_err(|e| e.within(|| format!("graph {name:?}")))?;
    for mut function in functions {
        let name = function.name.clone().unwrap_or_default();
        loader.function(&mut function).map_err(|e| e.within(|| format!("function {name:?}")))?;
    }
    let finished = loader.builder.finish();
    finished.map_err(|Cycle { nodes }| {
        let shown = nodes.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(" → ");
        let rest = nodes.len().saturating_sub(8);
        let more = if rest > 0 { format!(" → … ({rest} more)") } else { String::new() };
        ModelErrorKind::Cycle(shown + &more).into()
    })
}

/// Names that training information refers to.
fn training_names(message: &ModelProto) -> Vec<Str> {
    let mut names = Vec::new();
    for info in &message.training_info {
        for graph in [&info.initialization, &info.algorithm].into_iter().flatten() {
            names.extend(graph.node.iter().flat_map(|node| node.input.iter().cloned()));
            names.extend(graph.output.iter().filter_map(|output| output.name.clone()));
        }
        for entry in info.initialization_binding.iter().chain(&info.update_binding) {
            names.extend([&entry.key, &entry.value].into_iter().flatten().cloned());
        }
    }
    names
}

/// The lists of a graph that the IR models.
struct GraphParts {
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
    sparse_initializers: Vec<SparseTensorProto>,
    inputs: Vec<ValueInfoProto>,
    outputs: Vec<ValueInfoProto>,
    infos: Vec<ValueInfoProto>,
    pinned: Vec<Str>,
}

impl GraphParts {
    fn take(graph: &mut GraphProto) -> Self {
        let pinned = graph
            .quantization_annotation
            .iter()
            .flat_map(|annotation| {
                let parameters =
                    annotation.quant_parameter_tensor_names.iter().filter_map(|entry| entry.value.clone());
                annotation.tensor_name.clone().into_iter().chain(parameters)
            })
            .collect();
        Self {
            nodes: std::mem::take(&mut graph.node),
            initializers: std::mem::take(&mut graph.initializer),
            sparse_initializers: std::mem::take(&mut graph.sparse_initializer),
            inputs: std::mem::take(&mut graph.input),
            outputs: std::mem::take(&mut graph.output),
            infos: std::mem::take(&mut graph.value_info),
            pinned,
        }
    }
}

struct Loader<'f> {
    builder: Builder,
    files: &'f mut ExternalFiles,
    /// What names mean, by scope from the outside in.
    names: Vec<HashMap<Str, ValueId>>,
    /// Texts that occur again and again: operators, domains, metadata keys.
    texts: HashMap<Str, Str>,
}

impl Loader<'_> {
    fn shared(&mut self, text: Str) -> Str {
        self.texts.entry(text.clone()).or_insert(text).clone()
    }

    fn define(&mut self, name: Str, value: ValueId) -> Result<()> {
        match self.names.last_mut().and_then(|names| names.insert(name.clone(), value)) {
            Some(_) => Err(ModelErrorKind::Twice(name).into()),
            None => Ok(()),
        }
    }

    fn local(&self, name: &str) -> Option<ValueId> {
        self.names.last().and_then(|names| names.get(name)).copied()
    }

    fn resolve(&self, what: &'static str, name: &Str) -> Result<ValueId> {
        self.names
            .iter()
            .rev()
            .find_map(|names| names.get(name).copied())
            .ok_or_else(|| ModelErrorKind::Dangling { what, name: name.clone() }.into())
    }

    fn graph(&mut self, scope: ScopeId, parts: GraphParts, also_pinned: &[Str]) -> Result<()> {
        self.names.push(HashMap::new());
        for info in parts.inputs {
            let name = named(&info.name, "an input of the graph")?;
            let value = self.builder.input(scope, name.clone(), info);
            self.define(name, value)?;
        }
        for tensor in parts.initializers {
            let name = named(&tensor.name, "an initializer")?;
            let tensor = self.tensor(tensor)?;
            self.initializer(scope, name, Constant::Dense(tensor))?;
        }
        for sparse in parts.sparse_initializers {
            let name = named(&sparse.values.as_ref().and_then(|v| v.name.clone()), "a sparse initializer")?;
            let sparse = self.sparse(sparse)?;
            self.initializer(scope, name, Constant::Sparse(Arc::new(sparse)))?;
        }
        self.nodes(scope, parts.nodes)?;
        for info in parts.outputs {
            let name = named(&info.name, "an output of the graph")?;
            let value = self.resolve("output", &name)?;
            self.builder.output(scope, value, info);
        }
        self.infos(scope, parts.infos);
        for name in parts.pinned.iter().chain(also_pinned) {
            if let Some(value) = self.local(name) {
                self.builder.pin(value);
            }
        }
        self.names.pop();
        Ok(())
    }

    fn function(&mut self, function: &mut FunctionProto) -> Result<()> {
        // Nothing outside is visible in a function.
        let outer = std::mem::take(&mut self.names);
        let inputs = std::mem::take(&mut function.input);
        let outputs = std::mem::take(&mut function.output);
        let nodes = std::mem::take(&mut function.node);
        let infos = std::mem::take(&mut function.value_info);
        walk_function(function, &mut |tensor: &mut TensorProto| attach(tensor, self.files));
        let scope = self.builder.scope(ScopeKind::Function(Box::new(std::mem::take(function))), None);
        self.names.push(HashMap::new());
        let bare = |name: &Str| ValueInfoProto { name: Some(name.clone()), ..ValueInfoProto::default() };
        for name in inputs {
            let value = self.builder.input(scope, name.clone(), bare(&name));
            self.define(name, value)?;
        }
        self.nodes(scope, nodes)?;
        for name in outputs {
            let value = self.resolve("output", &name)?;
            self.builder.output(scope, value, bare(&name));
        }
        self.infos(scope, infos);
        self.names = outer;
        Ok(())
    }

    fn infos(&mut self, scope: ScopeId, infos: Vec<ValueInfoProto>) {
        for info in infos {
            let value = info.name.as_ref().and_then(|name| self.local(name));
            self.builder.info(scope, value, info);
        }
    }

    fn initializer(&mut self, scope: ScopeId, name: Str, constant: Constant) -> Result<()> {
        match self.local(&name) {
            Some(input) if self.builder.default(scope, input, constant.clone()) => Ok(()),
            Some(_) => Err(ModelErrorKind::Twice(name).into()),
            None => {
                let value = self.builder.constant(scope, name.clone(), constant);
                self.define(name, value)
            }
        }
    }

    fn nodes(&mut self, scope: ScopeId, nodes: Vec<NodeProto>) -> Result<()> {
        // Names first: a file may list nodes in any order.
        for (index, node) in nodes.iter().enumerate() {
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                let value = self.builder.pending(name.clone());
                self.define(name.clone(), value).map_err(|e| e.within(|| label(index, node)))?;
            }
        }
        for (index, mut node) in nodes.into_iter().enumerate() {
            let attributes = std::mem::take(&mut node.attribute);
            let result = self.node(scope, &mut node).and_then(|id| {
                attributes.into_iter().try_for_each(|attribute| self.attribute(scope, id, attribute))
            });
            result.map_err(|e| e.within(|| label(index, &node)))?;
        }
        Ok(())
    }

    fn node(&mut self, scope: ScopeId, node: &mut NodeProto) -> Result<NodeId> {
        let op_type = node.op_type.clone().filter(|op| !op.is_empty()).ok_or(ModelErrorKind::NoOperator)?;
        let spelled = node.domain.clone();
        let domain = normal_domain(spelled.as_deref().unwrap_or_default());
        let usual = if domain.is_empty() { spelled.is_none() } else { true };
        let overload = node.overload.take();
        let empty_overload = overload.as_deref() == Some("");
        let op = Op {
            domain: self.shared(domain.into()),
            name: self.shared(op_type),
            overload: self.shared(overload.unwrap_or_default()),
        };
        let inputs = node
            .input
            .iter()
            .map(|name| if name.is_empty() { Ok(None) } else { self.resolve("input", name).map(Some) })
            .collect::<Result<_>>()?;
        let outputs = node
            .output
            .iter()
            .map(|name| if name.is_empty() { Ok(None) } else { self.resolve("output", name).map(Some) })
            .collect::<Result<_>>()?;
        let mut metadata = std::mem::take(&mut node.metadata_props);
        for entry in &mut metadata {
            entry.key = entry.key.take().map(|key| self.shared(key));
        }
        let devices = std::mem::take(&mut node.device_configurations);
        for name in devices.iter().flat_map(|d| &d.sharding_spec).filter_map(|s| s.tensor_name.as_ref()) {
            if let Ok(value) = self.resolve("sharding", name) {
                self.builder.pin(value);
            }
        }
        let notes = NodeNotes {
            doc_string: node.doc_string.take(),
            empty_overload,
            domain_spelling: spelled.filter(|_| !usual),
            devices,
            unknown: std::mem::take(&mut node.unknown),
        };
        let source = SourceNode { op, name: node.name.clone(), inputs, outputs, metadata, notes };
        Ok(self.builder.node(scope, source))
    }

    fn body(&mut self, scope: ScopeId, node: NodeId, mut graph: GraphProto) -> Result<ScopeId> {
        let parts = GraphParts::take(&mut graph);
        let name = graph.name.clone().unwrap_or_default();
        let body = self.builder.scope(ScopeKind::Body { node, rest: Box::new(graph) }, Some(scope));
        self.graph(body, parts, &[]).map_err(|e| e.within(|| format!("graph {name:?}")))?;
        Ok(body)
    }

    fn tensor(&mut self, proto: TensorProto) -> Result<crate::Tensor> {
        let name = proto.name.clone().unwrap_or_default();
        tensor_from_proto(proto, self.files).map_err(|source| ModelErrorKind::Tensor { name, source }.into())
    }

    fn sparse(&mut self, proto: SparseTensorProto) -> Result<SparseTensor> {
        let values = *proto.values.ok_or(ModelErrorKind::Unnamed("the list of values of a sparse tensor"))?;
        let indices =
            *proto.indices.ok_or(ModelErrorKind::Unnamed("the list of indices of a sparse tensor"))?;
        Ok(SparseTensor {
            values: self.tensor(values)?,
            indices: self.tensor(indices)?,
            dims: proto.dims,
            unknown: proto.unknown,
        })
    }
}

fn named(name: &Option<Str>, what: &'static str) -> Result<Str> {
    name.clone().filter(|name| !name.is_empty()).ok_or_else(|| ModelErrorKind::Unnamed(what).into())
}

/// `node 12 "Conv_3" (Conv)`.
fn label(index: usize, node: &NodeProto) -> String {
    let op = node.op_type.as_deref().unwrap_or("?");
    match &node.name {
        Some(name) if !name.is_empty() => format!("node {index} {name:?} ({op})"),
        _ => format!("node {index} ({op})"),
    }
}
