//! Files to models: decode, resolve names, and hold the result in the IR.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::external::{ExternalFiles, LinkPolicy};
use super::tensor::{StoredTensorError, from_proto as tensor_from_proto};
use crate::blob::Blob;
use crate::ir::build::{Builder, Cycle, SourceNode};
use crate::ir::model::Model;
use crate::ir::node::{Attr, AttrNotes, AttrValue, NodeNotes, Op, SparseTensor, normal_domain};
use crate::ir::scope::ScopeKind;
use crate::ir::value::Constant;
use crate::ir::{NodeId, ScopeId, ValueId};
use crate::mmap::MappedFile;
use crate::proto::Str;
use crate::proto::schema::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto,
};
use crate::proto::wire::{self, WireError};

/// How to load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// What links external data may lie behind.
    pub links: LinkPolicy,
}

/// Why a file is not a model that can be held.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{}: not an ONNX model: {why}", path.display())]
    NotAModel {
        /// The file.
        path: PathBuf,
        /// What it is instead, and what to do.
        why: String,
    },
    /// The model contradicts itself.
    #[error("{}: {source}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        source: ModelError,
    },
}

/// A contradiction in a model, with its place.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", Trail(.trail))]
pub struct ModelError {
    /// Steps from the outside in, innermost first.
    trail: Vec<String>,
    /// What is wrong there.
    pub kind: ModelErrorKind,
}

struct Trail<'a>(&'a [String]);

impl std::fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, step) in self.0.iter().rev().enumerate() {
            if i > 0 {
                f.write_str(" / ")?;
            }
            f.write_str(step)?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str(": ") }
    }
}

impl ModelError {
    fn within(mut self, step: impl FnOnce() -> String) -> Self {
        self.trail.push(step());
        self
    }

    /// The place as one line, from the outside in.
    pub fn place(&self) -> String {
        self.trail.iter().rev().map(String::as_str).collect::<Vec<_>>().join(" / ")
    }
}

impl From<ModelErrorKind> for ModelError {
    fn from(kind: ModelErrorKind) -> Self {
        Self { trail: Vec::new(), kind }
    }
}

/// The contradictions that keep a model from being held. `check` finds these and every other one.
#[derive(Debug, thiserror::Error)]
pub enum ModelErrorKind {
    /// There is no graph.
    #[error("the model has no graph")]
    NoGraph,
    /// Something that needs a name has none.
    #[error("{0} has no name")]
    Unnamed(&'static str),
    /// Two definitions of one name.
    #[error("the name {0:?} is defined twice")]
    Twice(Str),
    /// A name that nothing defines.
    #[error("{what} {name:?} is not defined by any input, constant or node that is visible here")]
    Dangling {
        /// What refers to it.
        what: &'static str,
        /// The name.
        name: Str,
    },
    /// A node that says nothing about what it calls.
    #[error("the node has no operator type")]
    NoOperator,
    /// Nodes that wait for each other.
    #[error("nodes form a cycle: {0}")]
    Cycle(String),
    /// An attribute without a clear value.
    #[error("attribute {name:?}: {why}")]
    Attribute {
        /// Its name.
        name: Str,
        /// What is wrong with it.
        why: String,
    },
    /// A stored tensor that makes no sense.
    #[error("tensor {name:?}: {source}")]
    Tensor {
        /// Its name.
        name: Str,
        /// What is wrong with it.
        source: StoredTensorError,
    },
}

type Result<T, E = ModelError> = std::result::Result<T, E>;

/// Decodes the message in a file without interpreting it. Weights stay in the file.
pub fn read_message(path: &Path) -> Result<ModelProto, LoadError> {
    let file = MappedFile::open(path).map_err(|source| LoadError::Open { path: path.to_owned(), source })?;
    let blob = Blob::mapped(Arc::new(file));
    decode_model(&blob).map_err(|why| LoadError::NotAModel { path: path.to_owned(), why })
}

/// Decodes the outermost message of `blob`; the error says what the bytes are instead, as far as that can be told.
pub fn decode_model(blob: &Blob) -> Result<ModelProto, String> {
    let decoded: std::result::Result<ModelProto, WireError> = wire::decode(blob);
    match (decoded, other_format(blob)) {
        (Ok(model), _) if model.graph.is_some() => Ok(model),
        (_, Some(other)) => Err(other.to_owned()),
        (Err(error), None) => Err(error.to_string()),
        (Ok(model), None) if !model.functions.is_empty() => Ok(model),
        (Ok(_), None) => Err("it has no graph".to_owned()),
    }
}

/// Says what a file is that is not a model.
fn other_format(bytes: &[u8]) -> Option<&'static str> {
    const KNOWN: &[(usize, &[u8], &str)] = &[
        (0, b"PK\x03\x04", "it is a zip archive (a PyTorch checkpoint?); export or unpack it first"),
        (0, b"\x1f\x8b", "it is compressed with gzip; unpack it first"),
        (0, b"\x89HDF", "it is an HDF5 file (Keras?); convert it with tf2onnx"),
        (4, b"TFL3", "it is a TensorFlow Lite model"),
        (0, b"\x80\x02", "it is a Python pickle (a PyTorch checkpoint?); export it first"),
        (0, b"GGUF", "it is a GGUF file"),
        (0, b"ORTM", "it is an ONNX Runtime (.ort) model; use the .onnx file that it was made from"),
        (4, b"ORTM", "it is an ONNX Runtime (.ort) model; use the .onnx file that it was made from"),
        (0, b"version https://git-lfs", "it is a Git LFS pointer; run `git lfs pull`"),
    ];
    if bytes.is_empty() {
        return Some("the file is empty");
    }
    if let Some((.., what)) =
        KNOWN.iter().find(|(at, magic, _)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
    {
        return Some(what);
    }
    let start = bytes.get(..512).unwrap_or(bytes);
    let is_text = start.iter().all(|&byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..));
    is_text.then_some("it is a text file; `onnxforge parse` reads models in the ONNX notation")
}

/// Loads the model in `path`.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Model, LoadError> {
    let message = read_message(path)?;
    let folder = folder_of(path);
    from_message(message, &mut ExternalFiles::new(Some(folder), options.links))
        .map_err(|source| LoadError::Model { path: path.to_owned(), source })
}

/// Loads a model from its bytes; external data is looked up in `folder`.
pub fn load_bytes(bytes: Vec<u8>, folder: Option<&Path>, options: &LoadOptions) -> Result<Model, LoadError> {
    let path = || folder.map_or_else(|| PathBuf::from("<bytes>"), Path::to_owned);
    let message = decode_model(&bytes.into()).map_err(|why| LoadError::NotAModel { path: path(), why })?;
    from_message(message, &mut ExternalFiles::new(folder.map(Path::to_owned), options.links))
        .map_err(|source| LoadError::Model { path: path(), source })
}

/// The folder that a file lies in.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Builds the IR from a decoded message.
pub fn from_message(mut message: ModelProto, files: &mut ExternalFiles) -> Result<Model> {
    let mut graph = *message.graph.take().ok_or(ModelErrorKind::NoGraph)?;
    let functions = std::mem::take(&mut message.functions);
    let training = training_names(&message);
    let parts = GraphParts::take(&mut graph);
    let name = graph.name.clone().unwrap_or_default();
    let mut loader = Loader { builder: Builder::new(message, graph), files, names: Vec::new(), texts: HashMap::new() };
    let main = loader.builder.main();
    loader.graph(main, parts, &training).map_err(|e| e.within(|| format!("graph {name:?}")))?;
    for mut function in functions {
        let name = function.name.clone().unwrap_or_default();
        loader.function(&mut function).map_err(|e| e.within(|| format!("function {name:?}")))?;
    }
    let finished = loader.builder.finish();
    finished.map_err(|Cycle { nodes }| ModelErrorKind::Cycle(nodes.join(" → ")).into())
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
                let parameters = annotation.quant_parameter_tensor_names.iter().filter_map(|entry| entry.value.clone());
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
        let op = Op { domain: self.shared(domain.into()), name: self.shared(op_type) };
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
            overload: node.overload.take(),
            domain_spelling: spelled.filter(|_| !usual),
            devices,
            unknown: std::mem::take(&mut node.unknown),
        };
        let source = SourceNode { op, name: node.name.clone(), inputs, outputs, metadata, notes };
        Ok(self.builder.node(scope, source))
    }

    fn attribute(&mut self, scope: ScopeId, node: NodeId, proto: AttributeProto) -> Result<()> {
        let name = named(&proto.name, "an attribute")?;
        let name = self.shared(name);
        let attr = self.attribute_value(scope, node, name.clone(), proto)
            .map_err(|e| e.within(|| format!("attribute {name:?}")))?;
        self.builder.attr(node, attr);
        Ok(())
    }

    fn attribute_value(&mut self, scope: ScopeId, node: NodeId, name: Str, mut proto: AttributeProto) -> Result<Attr> {
        let wrong = |why: String| ModelError::from(ModelErrorKind::Attribute { name: name.clone(), why });
        let filled = filled_kinds(&proto);
        if let [first, second, ..] = filled[..] {
            return Err(wrong(format!("it has two values, of kinds {} and {}", kind_name(first), kind_name(second))));
        }
        let declared = proto.r#type.filter(|&kind| kind != 0);
        if let (Some(declared), Some(&found)) = (declared, filled.first())
            && declared != found
        {
            return Err(wrong(format!("it is declared as {} but holds {}", kind_name(declared), kind_name(found))));
        }
        let mut notes = AttrNotes {
            doc_string: proto.doc_string.take(),
            untyped: declared.is_none(),
            implicit: false,
            unknown: std::mem::take(&mut proto.unknown),
        };
        if let Some(reference) = proto.ref_attr_name.take().filter(|reference| !reference.is_empty()) {
            let value = AttrValue::Reference { name: reference, kind: proto.r#type.unwrap_or(0) };
            notes.untyped = proto.r#type.is_none();
            return Ok(attr(name, value, notes));
        }
        let kind = declared.or(filled.first().copied()).ok_or_else(|| wrong("it has neither type nor value".into()))?;
        notes.implicit = filled.is_empty() && matches!(kind, 1..=3);
        let missing = || wrong(format!("it is declared as {} but holds nothing", kind_name(kind)));
        let value = match kind {
            1 => AttrValue::Float(proto.f.unwrap_or(0.0)),
            2 => AttrValue::Int(proto.i.unwrap_or(0)),
            3 => AttrValue::String(proto.s.unwrap_or_default()),
            4 => AttrValue::Tensor(self.tensor(*proto.t.ok_or_else(missing)?)?),
            5 => AttrValue::Graph(self.body(scope, node, *proto.g.ok_or_else(missing)?)?),
            6 => AttrValue::Floats(proto.floats),
            7 => AttrValue::Ints(proto.ints),
            8 => AttrValue::Strings(proto.strings),
            9 => AttrValue::Tensors(proto.tensors.into_iter().map(|t| self.tensor(t)).collect::<Result<_>>()?),
            10 => {
                AttrValue::Graphs(proto.graphs.into_iter().map(|g| self.body(scope, node, g)).collect::<Result<_>>()?)
            }
            11 => AttrValue::Sparse(Arc::new(self.sparse(*proto.sparse_tensor.ok_or_else(missing)?)?)),
            12 => AttrValue::Sparses(
                proto.sparse_tensors.into_iter().map(|t| self.sparse(t)).collect::<Result<_>>()?,
            ),
            13 => AttrValue::Type(Arc::new(*proto.tp.ok_or_else(missing)?)),
            14 => AttrValue::Types(proto.type_protos),
            other => return Err(wrong(format!("its type {other} does not exist"))),
        };
        Ok(attr(name, value, notes))
    }

    fn body(&mut self, scope: ScopeId, node: NodeId, mut graph: GraphProto) -> Result<ScopeId> {
        let parts = GraphParts::take(&mut graph);
        let name = graph.name.clone().unwrap_or_default();
        let body = self.builder.scope(ScopeKind::Body { node, rest: Box::new(graph) }, Some(scope));
        self.graph(body, parts, &[]).map_err(|e| e.within(|| format!("graph {name:?}")))?;
        Ok(body)
    }

    fn tensor(&mut self, proto: TensorProto) -> Result<crate::ir::Tensor> {
        let name = proto.name.clone().unwrap_or_default();
        tensor_from_proto(proto, self.files).map_err(|source| ModelErrorKind::Tensor { name, source }.into())
    }

    fn sparse(&mut self, proto: SparseTensorProto) -> Result<SparseTensor> {
        let values = *proto.values.ok_or(ModelErrorKind::Unnamed("the list of values of a sparse tensor"))?;
        let indices = *proto.indices.ok_or(ModelErrorKind::Unnamed("the list of indices of a sparse tensor"))?;
        Ok(SparseTensor {
            values: self.tensor(values)?,
            indices: self.tensor(indices)?,
            dims: proto.dims,
            unknown: proto.unknown,
        })
    }
}

fn attr(name: Str, value: AttrValue, notes: AttrNotes) -> Attr {
    Attr { name, value, notes: (notes != AttrNotes::default()).then(|| Box::new(notes)) }
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

/// The kinds of values that an attribute holds, by `AttributeType`.
pub fn filled_kinds(proto: &AttributeProto) -> Vec<i32> {
    [
        (1, proto.f.is_some()),
        (2, proto.i.is_some()),
        (3, proto.s.is_some()),
        (4, proto.t.is_some()),
        (5, proto.g.is_some()),
        (6, !proto.floats.is_empty()),
        (7, !proto.ints.is_empty()),
        (8, !proto.strings.is_empty()),
        (9, !proto.tensors.is_empty()),
        (10, !proto.graphs.is_empty()),
        (11, proto.sparse_tensor.is_some()),
        (12, !proto.sparse_tensors.is_empty()),
        (13, proto.tp.is_some()),
        (14, !proto.type_protos.is_empty()),
    ]
    .into_iter()
    .filter_map(|(kind, filled)| filled.then_some(kind))
    .collect()
}

/// What ONNX calls an `AttributeType`.
pub fn kind_name(kind: i32) -> &'static str {
    const NAMES: [&str; 15] = [
        "undefined", "float", "int", "string", "tensor", "graph", "floats", "ints", "strings", "tensors", "graphs",
        "sparse_tensor", "sparse_tensors", "type_proto", "type_protos",
    ];
    usize::try_from(kind).ok().and_then(|kind| NAMES.get(kind)).copied().unwrap_or("an unknown type")
}
