//! Identical but for metadata: both models, part by part and in order.

use super::content::{Contents, same_attr, same_form};
use onnxforge_ir::node::{Attr, AttrNotes, AttrValue, NodeNotes};
use onnxforge_ir::scope::{Listed, ScopeKind};
use onnxforge_ir::value::Port;
use onnxforge_ir::{Constant, Model, NodeId, ScopeId, Tensor, ValueId};
use onnxforge_proto::Str;
use onnxforge_proto::schema::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};
use onnxforge_proto::walk::{Visitor, walk, walk_function};
use onnxforge_proto::wire::{self, Message};

/// The first thing that keeps two models from being identical but for metadata.
pub fn first_difference(a: &Model, b: &Model, contents: &mut Contents) -> Option<String> {
    let mut exact = Exact { a, b, bodies: Vec::new(), constants: Vec::new() };
    exact.model(contents).err()
}

type Same = Result<(), String>;

/// The same, or the place that is not.
fn demand(same: bool, place: impl FnOnce() -> String) -> Same {
    if same { Ok(()) } else { Err(place()) }
}

struct Exact<'a> {
    a: &'a Model,
    b: &'a Model,
    /// Bodies that are still to be compared.
    bodies: Vec<(ScopeId, ScopeId)>,
    /// Constants whose elements are still to be compared: that takes longest, so it comes last.
    constants: Vec<((ValueId, ValueId), &'a Constant, &'a Constant)>,
}

impl<'a> Exact<'a> {
    fn model(&mut self, contents: &mut Contents) -> Same {
        demand(same_message(&header(self.a), &header(self.b)), || {
            "the head of the file: versions, operator sets, producer or training information".to_owned()
        })?;
        let (a, b) = (self.a.functions(), self.b.functions());
        demand(a.len() == b.len(), || format!("{} functions and {}", a.len(), b.len()))?;
        self.bodies.extend(a.iter().copied().zip(b.iter().copied()).rev());
        self.bodies.push((self.a.main(), self.b.main()));
        while let Some((a, b)) = self.bodies.pop() {
            self.scope(a, b)?;
        }
        self.constants.iter().try_for_each(|&(values, a, b)| {
            demand(contents.same(values, a, b), || format!("elements of {}", self.a.value(values.0).name()))
        })
    }

    fn scope(&mut self, a: ScopeId, b: ScopeId) -> Same {
        let (first, second) = (self.a.scope(a), self.b.scope(b));
        let name = || first.name().map_or_else(|| "a graph".to_owned(), |name| format!("graph {name}"));
        demand(same_rest(first.kind(), second.kind()), || {
            format!("name, annotations or attributes of {}", name())
        })?;
        self.ports("input", first.inputs(), second.inputs())?;
        self.ports("output", first.outputs(), second.outputs())?;
        self.initializers(a, b)?;
        let (mut left, mut right) = (self.a.nodes_in(a), self.b.nodes_in(b));
        loop {
            match (left.next(), right.next()) {
                (Some((a, _)), Some((b, _))) => self.node(a, b)?,
                (None, None) => break,
                _ => {
                    return Err(format!(
                        "{} nodes and {} in {}",
                        first.node_count(),
                        second.node_count(),
                        name()
                    ));
                }
            }
        }
        let (left, right) = (infos(self.a, a), infos(self.b, b));
        demand(left.len() == right.len(), || format!("{} value_info and {}", left.len(), right.len()))?;
        left.iter().zip(&right).try_for_each(|(a, b)| {
            demand(same_message(a, b), || format!("value_info of {}", a.name.as_deref().unwrap_or_default()))
        })
    }

    fn ports(&self, what: &str, a: &[Port], b: &[Port]) -> Same {
        demand(a.len() == b.len(), || format!("{} {what}s and {}", a.len(), b.len()))?;
        a.iter().zip(b).try_for_each(|(a, b)| {
            let stored = |model: &Model, port: &Port| bare(&port.info, model.value(port.value).name());
            demand(same_message(&stored(self.a, a), &stored(self.b, b)), || {
                format!("{what} {}", self.a.value(a.value).name())
            })
        })
    }

    fn initializers(&mut self, a: ScopeId, b: ScopeId) -> Same {
        // Dense and sparse ones are stored in lists of their own.
        let sorted = |model: &'a Model, scope| {
            let mut found: Vec<(ValueId, &'a Constant)> = model.initializers_in(scope).collect();
            found.sort_by_key(|(_, constant)| constant.dense().is_none());
            found
        };
        let (left, right) = (sorted(self.a, a), sorted(self.b, b));
        demand(left.len() == right.len(), || format!("{} initializers and {}", left.len(), right.len()))?;
        for ((a, x), (b, y)) in left.into_iter().zip(right) {
            let (name, other) = (self.a.value(a).name(), self.b.value(b).name());
            demand(name == other, || format!("initializer {name}, and {other} in its place"))?;
            demand(same_form(x, y) && same_notes(x, y), || format!("initializer {name}"))?;
            self.constants.push(((a, b), x, y));
        }
        Ok(())
    }

    fn node(&mut self, a: NodeId, b: NodeId) -> Same {
        let (first, second) = (self.a.node(a), self.b.node(b));
        let place = |what: &str| format!("{what} of node {}", self.a.node_label(a));
        demand(first.op() == second.op(), || {
            format!("node {}, and {} in its place", self.a.node_label(a), self.b.node_label(b))
        })?;
        demand(first.name() == second.name(), || place("name"))?;
        let names = |model: &'a Model, ids: &[Option<ValueId>]| -> Vec<Option<&'a Str>> {
            ids.iter().map(|id| id.map(|id| model.value(id).name())).collect()
        };
        let same = |a: &[_], b: &[_]| names(self.a, a) == names(self.b, b);
        demand(same(first.inputs(), second.inputs()), || place("inputs"))?;
        demand(same(first.outputs(), second.outputs()), || place("outputs"))?;
        let notes =
            |notes: Option<&NodeNotes>| NodeNotes { doc_string: None, ..notes.cloned().unwrap_or_default() };
        demand(notes(first.notes()) == notes(second.notes()), || place("spelling or devices"))?;
        demand(first.attrs().len() == second.attrs().len(), || place("number of attributes"))?;
        for (x, y) in first.attrs().iter().zip(second.attrs()) {
            demand(same_written(x, y), || place(&format!("attribute {}", x.name)))?;
            self.bodies.extend(x.scopes().iter().copied().zip(y.scopes().iter().copied()));
        }
        Ok(())
    }
}

fn same_written(a: &Attr, b: &Attr) -> bool {
    let notes =
        |attr: &Attr| AttrNotes { doc_string: None, ..attr.notes.as_deref().cloned().unwrap_or_default() };
    let tensors = |value: &AttrValue| -> Vec<Tensor> {
        match value {
            AttrValue::Tensor(tensor) => vec![tensor.clone()],
            AttrValue::Tensors(tensors) => tensors.clone(),
            _ => Vec::new(),
        }
    };
    a.name == b.name
        && notes(a) == notes(b)
        && same_attr(&a.value, &b.value)
        && tensors(&a.value)
            .iter()
            .zip(&tensors(&b.value))
            .all(|(a, b)| a.notes().name == b.notes().name && same_tensor_notes(a, b))
}

fn same_tensor_notes(a: &Tensor, b: &Tensor) -> bool {
    let (a, b) = (a.notes(), b.notes());
    a.segment == b.segment && a.unknown == b.unknown
}

fn same_notes(a: &Constant, b: &Constant) -> bool {
    match (a, b) {
        (Constant::Dense(a), Constant::Dense(b)) => same_tensor_notes(a, b),
        (Constant::Sparse(a), Constant::Sparse(b)) => {
            a.unknown == b.unknown
                && same_tensor_notes(&a.values, &b.values)
                && same_tensor_notes(&a.indices, &b.indices)
        }
        _ => false,
    }
}

/// Compares what would be written, so that a NaN is equal to itself and 0 is not -0.
fn same_message<M: Message>(a: &M, b: &M) -> bool {
    wire::encode(a).pieces().eq(wire::encode(b).pieces())
}

fn header(model: &Model) -> ModelProto {
    let mut header = model.header().clone();
    header.doc_string = None;
    header.metadata_props.clear();
    walk(&mut header, &mut Bare);
    header
}

fn same_rest(a: &ScopeKind, b: &ScopeKind) -> bool {
    use ScopeKind::{Body, Function, Main};
    match (a, b) {
        (Main(a) | Body { rest: a, .. }, Main(b) | Body { rest: b, .. }) => {
            let bare = |graph: &GraphProto| {
                let mut graph = graph.clone();
                Bare.graph(&mut graph);
                graph
            };
            same_message(&bare(a), &bare(b))
        }
        (Function(a), Function(b)) => {
            let bare = |function: &FunctionProto| {
                let mut function = function.clone();
                walk_function(&mut function, &mut Bare);
                function
            };
            same_message(&bare(a), &bare(b))
        }
        _ => false,
    }
}

fn bare(info: &ValueInfoProto, name: &Str) -> ValueInfoProto {
    let mut info = ValueInfoProto { name: Some(name.clone()), ..info.clone() };
    Bare.value(&mut info);
    info
}

fn infos(model: &Model, scope: ScopeId) -> Vec<ValueInfoProto> {
    let listed = model.scope(scope).listed().iter();
    listed
        .filter_map(|listed| match listed {
            Listed::Stray(info) => Some(bare(info, &info.name.clone().unwrap_or_default())),
            Listed::Value(value) => {
                let value = model.value(*value);
                Some(bare(value.info().filter(|_| value.is_live())?, value.name()))
            }
        })
        .collect()
}

/// Takes documentation and metadata out of a message.
struct Bare;

impl Visitor for Bare {
    fn graph(&mut self, graph: &mut GraphProto) {
        graph.doc_string = None;
        graph.metadata_props.clear();
    }
    fn function(&mut self, function: &mut FunctionProto) {
        function.doc_string = None;
        function.metadata_props.clear();
    }
    fn node(&mut self, node: &mut NodeProto) {
        node.doc_string = None;
        node.metadata_props.clear();
    }
    fn attribute(&mut self, attribute: &mut AttributeProto) {
        attribute.doc_string = None;
    }
    fn value(&mut self, info: &mut ValueInfoProto) {
        info.doc_string = None;
        info.metadata_props.clear();
    }
    fn tensor(&mut self, tensor: &mut TensorProto) {
        tensor.doc_string = None;
        tensor.metadata_props.clear();
        // Elements that were found count, not where.
        if tensor.raw_data.is_some() {
            tensor.external_data.clear();
            tensor.data_location = None;
        }
    }
}
