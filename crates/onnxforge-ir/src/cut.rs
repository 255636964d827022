//! Parts of a model as models of their own.

use std::collections::HashMap;

use super::build::{Builder, SourceNode};
use super::id::{NodeId, ScopeId, ValueId};
use super::model::Model;
use super::node::{Attr, AttrValue, Op};
use super::scope::ScopeKind;
use super::value::{Constant, Def};
use onnxforge_proto::schema::{GraphProto, ValueInfoProto};

/// A part of a model, and how its ends are called in the whole.
#[derive(Debug)]
pub struct Cut {
    /// The part. Names are those of the whole.
    pub model: Model,
    /// The values of the whole that it takes, in the order of its inputs.
    pub inputs: Vec<ValueId>,
    /// The values of the whole that it gives, in the order of its outputs.
    pub outputs: Vec<ValueId>,
}

impl Model {
    /// The nodes, which stand in one scope or in scopes around it, as a model of their own that gives `outputs`. What they read and do not compute
    /// becomes an input, declared as `declare` says, unless it is a constant; constants and called functions come along.
    ///
    /// Nodes of the scope count as themselves only: bodies come with the nodes that hold them.
    pub fn cut(
        &self,
        nodes: &[NodeId],
        outputs: &[ValueId],
        declare: &dyn Fn(ValueId) -> ValueInfoProto,
    ) -> Cut {
        let mut nodes = nodes.to_vec();
        nodes.sort_by_key(|&node| (self.depth(self.nodes[node].scope), self.nodes[node].order, node));
        nodes.dedup();
        let mut header = self.header.clone();
        if let Some(&first) = nodes.first() {
            header.opset_import = self.opset_imports(self.nodes[first].scope).to_vec();
        }
        // Constants that are no inputs need this version.
        header.ir_version = header.ir_version.map(|version| version.max(4));
        header.metadata_props.clear();
        header.training_info.clear();
        let graph = GraphProto { name: Some("part".into()), ..GraphProto::default() };
        let builder = Builder::new(header, graph);
        let main = builder.main();
        let mut cutter = Cutter {
            whole: self,
            builder,
            main,
            values: HashMap::new(),
            inputs: Vec::new(),
            called: Vec::new(),
            declare,
        };
        for &node in &nodes {
            cutter.node(node, main);
        }
        for &output in outputs {
            let value = cutter.read(output);
            cutter.builder.output(main, value, declare(output));
        }
        cutter.functions();
        let Cutter { builder, inputs, .. } = cutter;
        let mut model = builder.finish_sorted();
        model.source.clone_from(&self.source);
        Cut { model, inputs, outputs: outputs.to_vec() }
    }

    /// How many scopes are around a scope.
    fn depth(&self, scope: ScopeId) -> usize {
        std::iter::successors(self.scopes[scope].parent, |&scope| self.scopes[scope].parent).count()
    }

    /// The whole graph, with these values as outputs after its own; nothing else changes.
    pub fn with_outputs(&self, more: &[ValueId], declare: &dyn Fn(ValueId) -> ValueInfoProto) -> Self {
        let main = &self.scopes[self.main];
        let nodes: Vec<NodeId> = self.nodes_in(self.main).map(|(id, _)| id).collect();
        let ports = main.inputs.iter().chain(&main.outputs);
        let declared: HashMap<ValueId, &ValueInfoProto> =
            ports.map(|port| (port.value, &*port.info)).collect();
        let own = main.outputs.iter().map(|port| port.value);
        let outputs: Vec<ValueId> = own.chain(more.iter().copied()).collect();
        let declare = |value| declared.get(&value).map_or_else(|| declare(value), |&info| info.clone());
        self.cut(&nodes, &outputs, &declare).model
    }
}

struct Cutter<'m> {
    whole: &'m Model,
    builder: Builder,
    main: ScopeId,
    /// What each value of the whole is in the part.
    values: HashMap<ValueId, ValueId>,
    inputs: Vec<ValueId>,
    /// What is called, each once.
    called: Vec<Op>,
    declare: &'m dyn Fn(ValueId) -> ValueInfoProto,
}

impl Cutter<'_> {
    /// What a value that is read is in the part.
    fn read(&mut self, value: ValueId) -> ValueId {
        if let Some(&known) = self.values.get(&value) {
            return known;
        }
        let entry = &self.whole.values[value];
        let name = entry.name.clone();
        let constant = match &entry.def {
            Def::Constant { constant, .. } => Some(constant.clone()),
            _ => self.whole.constant(value).cloned().map(Constant::Dense),
        };
        let new = match constant {
            Some(constant) => self.builder.constant(self.main, name, constant),
            None => {
                self.inputs.push(value);
                let new = self.builder.input(self.main, name, (self.declare)(value));
                if let Def::Input { default: Some(default), .. } = &entry.def {
                    self.builder.default(self.main, new, default.clone());
                }
                new
            }
        };
        self.values.insert(value, new);
        new
    }

    fn node(&mut self, id: NodeId, scope: ScopeId) {
        let node = &self.whole.nodes[id];
        let inputs = node.inputs.iter().map(|input| input.map(|input| self.read(input))).collect();
        let outputs = node.outputs.iter().map(|output| {
            output.map(|output| {
                let new = self.builder.pending(self.whole.values[output].name.clone());
                self.values.insert(output, new);
                new
            })
        });
        let outputs = outputs.collect();
        let source = SourceNode {
            op: node.op.clone(),
            name: node.name.clone(),
            inputs,
            outputs,
            metadata: node.metadata.clone(),
            notes: node.notes().cloned().unwrap_or_default(),
        };
        let new = self.builder.node(scope, source);
        if !self.called.contains(&node.op) {
            self.called.push(node.op.clone());
        }
        for attr in &node.attrs {
            let value = match &attr.value {
                AttrValue::Graph(body) => AttrValue::Graph(self.body(*body, new, scope)),
                AttrValue::Graphs(bodies) => {
                    AttrValue::Graphs(bodies.iter().map(|&body| self.body(body, new, scope)).collect())
                }
                other => other.clone(),
            };
            self.builder.attr(new, Attr { value, ..attr.clone() });
        }
    }

    fn body(&mut self, body: ScopeId, holder: NodeId, parent: ScopeId) -> ScopeId {
        let rest = match &self.whole.scopes[body].kind {
            ScopeKind::Body { rest, .. } => rest.clone(),
            _ => Box::default(),
        };
        let new = self.builder.scope(ScopeKind::Body { node: holder, rest }, Some(parent));
        self.fill(body, new);
        new
    }

    /// The functions that are called, and those that they call.
    fn functions(&mut self) {
        let mut next = 0;
        while let Some(op) = self.called.get(next).cloned() {
            next += 1;
            let function =
                self.whole.functions.iter().find(|&&scope| self.whole.called_as(scope).as_ref() == Some(&op));
            if let Some(&function) = function
                && let ScopeKind::Function(rest) = &self.whole.scopes[function].kind
            {
                let new = self.builder.scope(ScopeKind::Function(rest.clone()), None);
                self.fill(function, new);
            }
        }
    }

    /// Copies everything that is in a scope.
    fn fill(&mut self, from: ScopeId, to: ScopeId) {
        let whole = self.whole;
        for port in &whole.scopes[from].inputs {
            let name = whole.values[port.value].name.clone();
            let new = self.builder.input(to, name, (*port.info).clone());
            self.values.insert(port.value, new);
        }
        for (value, constant) in whole.constants_in(from) {
            let new = self.builder.constant(to, whole.values[value].name.clone(), constant.clone());
            self.values.insert(value, new);
        }
        for (id, _) in whole.nodes_in(from) {
            self.node(id, to);
        }
        for port in &whole.scopes[from].outputs {
            let value = self.read(port.value);
            self.builder.output(to, value, (*port.info).clone());
        }
    }
}
