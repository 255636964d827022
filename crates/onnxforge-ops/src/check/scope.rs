//! Names: what defines them, who can see them, what type they are declared with.

use std::collections::HashMap;

use super::Checker;
use super::order::Edges;
use super::problem::{Here, Place, Plain, Quoted, Rule, Step};
use super::suggest::{closest, question};
use super::types::{Declared, Kind};
use onnxforge_proto::schema::NodeProto;

/// What defines a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Def {
    Input,
    Initializer,
    /// The node at this position.
    Node(usize),
}

pub(super) struct Value<'m> {
    def: Def,
    declared: Option<Declared<'m>>,
    /// The type that follows from the node that computes it, where none is declared.
    derived: Option<Kind>,
}

impl Value<'_> {
    fn kind(&self) -> Option<Kind> {
        self.declared.as_ref().map(|declared| declared.kind).or(self.derived)
    }
}

/// A value that is read before the node that defines it.
struct Early<'m> {
    name: &'m str,
    reader: usize,
    definer: usize,
    place: Place,
}

/// The values of one graph or function.
#[derive(Default)]
pub(super) struct Scope<'m> {
    values: HashMap<&'m str, Value<'m>>,
    /// All names in the order of definition.
    names: Vec<&'m str>,
    nodes: &'m [NodeProto],
    /// The node that is looked at. What it and later nodes define cannot be seen yet.
    now: usize,
    /// From a node to a node whose output it or its bodies read.
    edges: Vec<(usize, usize)>,
    early: Vec<Early<'m>>,
}

impl<'m> Scope<'m> {
    pub(super) fn new(nodes: &'m [NodeProto]) -> Self {
        Self { nodes, ..Self::default() }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value<'m>> {
        self.values.get(name)
    }

    /// All names, in the order of definition.
    pub(super) fn names(&self) -> impl Iterator<Item = &'m str> {
        self.names.iter().copied()
    }

    fn visible(&self, name: &str) -> Option<&Value<'m>> {
        self.values.get(name).filter(|value| !matches!(value.def, Def::Node(index) if index >= self.now))
    }

    fn describe(&self, def: Def) -> String {
        match def {
            Def::Input => "an input".to_owned(),
            Def::Initializer => "an initializer".to_owned(),
            Def::Node(index) => match self.nodes.get(index) {
                Some(node) => Step::node(index, node).to_string(),
                None => format!("node {index}"),
            },
        }
    }
}

impl<'m> Checker<'m> {
    /// Goes into a graph; what is visible now stays visible there.
    pub(super) fn enter(&mut self, nodes: &'m [NodeProto]) {
        let outer = std::mem::replace(&mut self.scope, Scope::new(nodes));
        self.outer.push(outer);
    }

    /// Goes back to where [`Checker::enter`] was called, and hands over the graph's names.
    pub(super) fn leave(&mut self) -> Scope<'m> {
        std::mem::replace(&mut self.scope, self.outer.pop().unwrap_or_default())
    }

    /// Everything in this scope can be seen: its nodes are all done.
    pub(super) fn all_done(&mut self) {
        self.scope.now = usize::MAX;
    }

    /// The value of this name that can be seen outside the current graph, and what defines it there.
    pub(super) fn visible_outside(&self, name: &str) -> Option<String> {
        let mut around = self.outer.iter().rev();
        around.find_map(|scope| scope.visible(name).map(|value| scope.describe(value.def)))
    }

    /// Adds a definition. A second one is a problem; the first one stays.
    pub(super) fn define(&mut self, name: &'m str, def: Def, here: &Here<'_>) {
        if let Some(value) = self.scope.values.get(name) {
            // An initializer may be the default of an input.
            if (value.def, def) != (Def::Input, Def::Initializer) {
                let first = self.scope.describe(value.def);
                let what = match def {
                    Def::Node(_) => "the output",
                    Def::Input => "the input",
                    Def::Initializer => "the initializer",
                };
                let message =
                    format!("{what} {} is already defined by {first}; rename one of them", Quoted(name));
                self.error(Rule::Ssa, here, message);
            }
            return;
        }
        self.scope.values.insert(name, Value { def, declared: None, derived: None });
        self.scope.names.push(name);
    }

    /// Adds the outputs of all nodes of the current scope, before any of them is looked at.
    pub(super) fn define_outputs(&mut self, here: &Here<'_>) {
        for (index, node) in self.scope.nodes.iter().enumerate() {
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                if let Some(outer) = self.visible_outside(name) {
                    let message = format!(
                        "the output {} has the name of a value outside, defined by {outer}; rename it",
                        Quoted(name)
                    );
                    self.error(Rule::Shadowing, &here.at(Step::node(index, node)), message);
                }
                self.define(name, Def::Node(index), &here.at(Step::node(index, node)));
            }
        }
    }

    /// Looks at every node of the current scope, in order, then at what was read too early.
    pub(super) fn walk(&mut self, here: &Here<'_>) {
        let mut names = HashMap::new();
        for (index, node) in self.scope.nodes.iter().enumerate() {
            self.scope.now = index;
            let at = here.at(Step::node(index, node));
            // Runtimes do not keep constants as nodes, and refuse other nodes that share a name.
            let is_kept = node.op_type.as_deref() != Some("Constant");
            if let Some(name) = node.name.as_deref().filter(|name| is_kept && !name.is_empty())
                && let Some(first) = names.insert(name, index)
            {
                names.insert(name, first);
                let message = format!("node {first} has the name {} too; rename one of them", Quoted(name));
                self.error(Rule::DuplicateNodeName, &at, message);
            }
            self.node(node, &at);
        }
        self.all_done();
        self.order(here);
    }

    /// Resolves the name that is read as this input here. Gives its type, declared or derived; `None` when neither is known,
    /// or when nothing has that name.
    pub(super) fn read(&mut self, name: &'m str, input: usize, here: &Here<'_>) -> Option<Kind> {
        let mut early = None;
        let scopes = self.outer.iter_mut().chain([&mut self.scope]);
        for scope in scopes.rev() {
            let Some(value) = scope.values.get(name) else {
                continue;
            };
            match value.def {
                Def::Node(definer) if definer >= scope.now => {
                    early.get_or_insert((scope, definer));
                    continue;
                }
                Def::Node(definer) if scope.now < usize::MAX => {
                    scope.edges.push((scope.now, definer));
                }
                _ => {}
            }
            return value.kind();
        }
        match early {
            Some((scope, definer)) => {
                scope.edges.push((scope.now, definer));
                scope.early.push(Early { name, reader: scope.now, definer, place: here.place() });
                scope.get(name).and_then(Value::kind)
            }
            None => {
                self.dangling(Rule::DanglingName, name, &format!("input {input}"), here);
                None
            }
        }
    }

    /// Reports a name that nothing defines.
    pub(super) fn dangling(&mut self, rule: Rule, name: &str, what: &str, here: &Here<'_>) {
        let in_main =
            rule == Rule::DanglingName && self.main.as_ref().is_some_and(|main| main.get(name).is_some());
        let hint = if in_main && self.context.function.is_some() {
            "; the main graph has it, but a function sees only its own inputs: pass it as one".to_owned()
        } else {
            let names = self.scope.names().chain(self.outer.iter().rev().flat_map(Scope::names));
            question(closest(&mut self.budget, name, names))
        };
        self.error(rule, here, format!("{what} is {}, which nothing defines{hint}", Quoted(name)));
    }

    /// Whether this name is defined in the current scope, or visible around it.
    pub(super) fn exists(&self, name: &str) -> bool {
        self.scope.get(name).is_some() || self.outer.iter().any(|scope| scope.get(name).is_some())
    }

    /// The declared type of a value of the current scope.
    pub(super) fn declared_kind(&self, name: &str) -> Option<Kind> {
        self.scope.get(name)?.declared.as_ref().map(|declared| declared.kind)
    }

    /// Notes the type of a value of the current scope that follows from the node that computes it.
    pub(super) fn derive(&mut self, name: &str, kind: Kind) {
        if let Some(value) = self.scope.values.get_mut(name) {
            value.derived = Some(kind);
        }
    }

    /// Whether this scope itself defines the name.
    pub(super) fn defined_here(&self, name: &str) -> bool {
        self.scope.get(name).is_some()
    }

    /// Notes a declaration of a value of the current scope; it must agree with earlier ones.
    pub(super) fn declare(&mut self, name: &str, declared: Declared<'m>, here: &Here<'_>) {
        let Some(value) = self.scope.values.get_mut(name) else {
            return;
        };
        let Some(first) = &value.declared else {
            value.declared = Some(declared);
            return;
        };
        if first.kind != declared.kind {
            let message = format!(
                "{} is {} here and {} as {}",
                Quoted(name),
                declared.kind,
                first.kind,
                first.source.article()
            );
            self.error(Rule::TypeConflict, here, message);
        } else if let Some(why) = first.shape.conflict(&declared.shape) {
            let message = format!(
                "{} has another shape as {}: {why}; correct one of them",
                Quoted(name),
                first.source.article()
            );
            // A constant contradicts the input that it is the default of; between other notes only one is stale.
            if first.source.is_interface() && declared.source.is_constant() {
                self.error(Rule::TypeConflict, here, message);
            } else {
                self.warning(Rule::TypeConflict, here, message);
            }
        }
    }

    /// Values that were read before their definition: nodes in the wrong order, or a cycle that no order can mend.
    fn order(&mut self, here: &Here<'_>) {
        let early = std::mem::take(&mut self.scope.early);
        let pairs = std::mem::take(&mut self.scope.edges);
        if early.is_empty() {
            return;
        }
        let nodes = self.scope.nodes;
        let edges = Edges::new(nodes.len(), &pairs);
        let component = edges.components();
        for read in early {
            if component.get(read.reader) == component.get(read.definer) {
                continue;
            }
            let definer = self.scope.describe(Def::Node(read.definer));
            let message = format!(
                "{} is read before {definer} defines it; move that node before node {}",
                Quoted(read.name),
                read.reader
            );
            self.error_at(Rule::TopologicalOrder, read.place, message);
        }
        for cycle in edges.cycles(&component) {
            let Some((&start, node)) = cycle.first().and_then(|start| Some((start, nodes.get(*start)?)))
            else {
                continue;
            };
            let at = here.at(Step::node(start, node));
            if cycle.len() == 1 {
                self.error(Rule::Cycle, &at, "the node reads its own output");
                continue;
            }
            let shown = cycle.iter().take(8).map(|&index| self.scope.describe(Def::Node(index)));
            let mut path: Vec<String> = shown.collect();
            if cycle.len() > path.len() {
                path.push(format!("{} more", cycle.len() - path.len()));
            }
            let message = format!(
                "{} nodes wait for each other; each reads an output of the next: {}, and the first again",
                cycle.len(),
                path.join(", ")
            );
            self.error(Rule::Cycle, &at, message);
        }
    }
}

/// The name of an operator as messages show it.
pub(super) fn op_name(domain: &str, name: &str) -> String {
    if domain.is_empty() { Plain(name).to_string() } else { format!("{}.{}", Plain(domain), Plain(name)) }
}
