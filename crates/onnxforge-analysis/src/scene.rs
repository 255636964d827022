//! A model as analyses look at it: what is known of its values, where rules of passes see something, and what a pass does with it.
//!
//! What analyses recognise, the rules of passes recognise for them. So an analysis sees what a pass sees, and can tell what the pass makes of it.

pub mod attention;

use std::collections::HashSet;

use onnxforge_ir::journal::Entry;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, Model, Node, NodeId, ValueId};
use onnxforge_ops::infer::Inference;
use onnxforge_rewrite::passes::pipeline::{self, Options, PassOutcome};
use onnxforge_rewrite::passes::simplify::inline_functions;
use onnxforge_rewrite::passes::{Pass, Stage, Work, of_stage};
use onnxforge_rewrite::{Author, Budget, Cx, Workbench};

/// A model, and what is known of it.
pub struct Scene<'m> {
    bench: Workbench<'m>,
}

/// Somewhere in a model that something was recognised.
#[derive(Clone, Debug)]
pub struct Place {
    /// The node that stands for it: the last one, where what was recognised is a subgraph.
    pub root: Option<NodeId>,
    /// All nodes that belong to it, the root included.
    pub nodes: Vec<NodeId>,
    /// Constants that it is about, where it is about constants.
    pub constants: Vec<ValueId>,
}

impl Place {
    /// A place with these nodes, of which `root` is one.
    pub fn at(root: NodeId, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut seen = HashSet::from([root]);
        let others = nodes.into_iter().filter(|&node| seen.insert(node));
        Self { root: Some(root), nodes: std::iter::once(root).chain(others).collect(), constants: Vec::new() }
    }

    /// A place that is a constant.
    pub fn constant(value: ValueId) -> Self {
        Self { root: None, nodes: Vec::new(), constants: vec![value] }
    }
}

/// Whether what a rule recognises and leaves alone is something, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It is: the rule has recognised what it is about, and says why it stays.
    Counts,
    /// It is not: the rule gives a reason before it knows.
    IsNothing,
}

/// What a pass does with a model, alone.
pub struct Trial {
    /// The model afterwards. It has all ids of the one before.
    pub model: Model,
    /// How often it fired, and why it left other places alone.
    pub outcome: PassOutcome,
    first: usize,
}

impl Trial {
    /// The edits.
    pub fn edits(&self) -> &[Entry] {
        self.model.journal().get(self.first..).unwrap_or_default()
    }
}

impl<'m> Scene<'m> {
    /// The model as it is.
    pub fn of(model: &'m mut Model) -> Self {
        let facts = Inference::of(model);
        Self { bench: Workbench::new(model, facts, Budget::default()) }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.bench.model
    }

    /// What is known of its values.
    pub fn facts(&self) -> &Inference {
        &self.bench.facts
    }

    /// What a rule would see.
    pub fn cx(&self) -> Cx<'_> {
        self.bench.cx(Author::new("look"), "look", Accuracy::BitExact)
    }

    /// The places that rules of a pass recognise; all its rules, where none are named.
    pub fn places(&self, pass: &'static Pass, rules: &[&str], left: Left) -> Vec<Place> {
        let Work::Rules(all) = pass.work else { return Vec::new() };
        debug_assert_eq!(unknown_rules(pass, rules), [""; 0], "{pass:?} does not have them");
        let mut places = Vec::new();
        for (id, _) in self.model().nodes() {
            onnxforge_proto::cancel::checkpoint();
            for rule in all.iter().filter(|rule| rules.is_empty() || rules.contains(&rule.name())) {
                match self.bench.look(pass.author(), *rule, id) {
                    Ok(change) => places.push(Place::at(id, change.nodes())),
                    Err(skip) if skip.reason.is_some() && left == Left::Counts => {
                        places.push(Place::at(id, []));
                    }
                    Err(_) => continue,
                }
                // Several rules of a pass may see the same thing.
                break;
            }
        }
        places
    }

    /// One place for each of `members`, in their order, whose result something else reads. To it belong the members that it is computed from,
    /// each to the first place that needs it.
    pub fn results(&self, members: &[NodeId]) -> Vec<Place> {
        let model = self.model();
        let inside: HashSet<NodeId> = members.iter().copied().collect();
        let mut listed: HashSet<NodeId> = HashSet::new();
        let mut places = Vec::new();
        for &id in members {
            let leaves = |&output: &ValueId| {
                model.value(output).is_exposed()
                    || self.readers(output).iter().any(|reader| !inside.contains(reader))
            };
            if !model.node(id).outputs().iter().flatten().any(leaves) {
                continue;
            }
            let mut open = vec![id];
            let mut nodes = Vec::new();
            while let Some(node) = open.pop() {
                if inside.contains(&node) && listed.insert(node) {
                    nodes.push(node);
                    let inputs = model.node(node).inputs().iter().flatten();
                    open.extend(inputs.filter_map(|&input| model.value(input).node()));
                }
            }
            places.push(Place::at(id, nodes));
        }
        places
    }

    /// What a pass does with the model, alone.
    pub fn trial(&self, pass: &'static Pass) -> Trial {
        let mut model = self.model().clone();
        let first = model.journal().len();
        let outcome = pipeline::alone(&mut model, self.facts().clone(), pass);
        Trial { model, outcome, first }
    }

    /// Whether a value is a constant, or one that was only moved or stored in fewer bits.
    pub fn is_weight(&self, mut value: ValueId) -> bool {
        for _ in 0..8 {
            if self.model().constant(value).is_some() {
                return true;
            }
            let Some(node) = self.model().value(value).node().map(|id| self.model().node(id)) else {
                return false;
            };
            let moved = self.moves(node) || matches!(&*node.op().name, "Cast" | "DequantizeLinear");
            match node.input(0).filter(|_| moved) {
                Some(source) => value = source,
                None => return false,
            }
        }
        false
    }

    /// Whether a node only moves elements of its first input.
    pub fn moves(&self, node: &Node) -> bool {
        let op = node.op();
        onnxforge_ops::find(&op.domain, &op.name).is_some_and(|def| def.layout_only)
            || op.is("Identity")
            || op.is("Dropout")
    }

    /// Whether a node does the same to each element, or only moves them.
    pub fn keeps_elements(&self, node: &Node) -> bool {
        let op = node.op();
        self.moves(node) || onnxforge_ops::find(&op.domain, &op.name).is_some_and(|def| def.elementwise)
    }

    /// The nodes that read a value, each once.
    pub fn readers(&self, value: ValueId) -> Vec<NodeId> {
        let mut seen = HashSet::new();
        let uses = self.model().value(value).uses().iter();
        let nodes = uses.filter_map(|used| match *used {
            Use::Input { node, .. } => Some(node),
            Use::Output { .. } => None,
        });
        nodes.filter(|node| seen.insert(*node)).collect()
    }
}

/// Those of the names that no rule of the pass has.
pub(crate) fn unknown_rules<'n>(pass: &Pass, names: &[&'n str]) -> Vec<&'n str> {
    let all = match pass.work {
        Work::Rules(all) => all,
        Work::Model { .. } => &[],
    };
    names.iter().copied().filter(|name| all.iter().all(|rule| rule.name() != *name)).collect()
}

/// The model without detours, so that the same thing always looks the same: what passes find that run before fusions.
pub fn tidied(model: &Model, inlined: bool) -> Model {
    let mut model = model.clone();
    let mut chosen: Vec<&'static Pass> = of_stage(Stage::Canonicalize).collect();
    if inlined {
        chosen.push(&inline_functions::PASS);
    }
    pipeline::optimize(&mut model, &Options { passes: chosen, ..Options::default() });
    model
}
