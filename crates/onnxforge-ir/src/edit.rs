//! The one door for changes: a [`Rewrite`] says which nodes it consumes, what takes their place, and which values get
//! another definition. [`Model::commit`] checks all of it before it touches anything.

mod annotate;
mod apply;
mod interface;
mod plan;
mod splice;
mod staged;
mod version;

use std::collections::HashSet;

use self::plan::{Plan, Source};
use self::splice::Splice;
use self::staged::{Staged, StagedConstant};

use super::id::{NodeId, ScopeId, ValueId};
use super::journal::{Accuracy, Entry, Trust};
use super::model::Model;
use super::node::{Attr, Node, Op};
use super::origin::Origin;
use super::scope::Listed;
use super::tensor::Tensor;
use super::value::{Constant, Def, Value};
use onnxforge_proto::Str;
use onnxforge_proto::schema::ValueInfoProto;

/// Distance between the order numbers of neighbours when a scope is numbered.
pub(super) const ORDER_STEP: u64 = 1 << 20;

/// Debug builds check all invariants after each edit of models with no more nodes than this.
const DEBUG_VALIDATE: usize = 200;

/// Why a rewrite cannot be committed. The model is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// A node or value that an earlier edit removed.
    #[error("{0} is no longer part of the model")]
    Gone(String),
    /// The consumed nodes do not stand in one scope.
    #[error("the consumed nodes stand in different scopes")]
    Scopes,
    /// New nodes were made without consuming any.
    #[error("new nodes must say which nodes they consume")]
    FromNothing,
    /// A value loses its definition but is still read.
    #[error("value {0:?} would lose its definition, but is still read")]
    StillRead(Str),
    /// A value that is neither a result of a consumed node nor a constant.
    #[error("value {0:?} is neither a result of the consumed nodes nor a constant")]
    NotRedefinable(Str),
    /// A value would be read before it is computed, or where it cannot be seen.
    #[error("value {0:?} would not be available where it is read")]
    Order(Str),
    /// An output of a scope cannot become another name for an input or another output.
    #[error("value {0:?} is an output and cannot become another name for {1:?}")]
    Exposed(Str, Str),
    /// A value gets two definitions, or a definition and its removal.
    #[error("value {0:?} gets more than one definition")]
    Twice(Str),
    /// A name that means another value in an inner scope.
    #[error("value {0:?} cannot be read from another scope: several values have that name")]
    Hidden(Str),
    /// A body of a node that stays, or one that moves twice.
    #[error("only bodies of consumed nodes can move, each to one new node")]
    Body,
    /// A function that a node still calls.
    #[error("function {0:?} is still called")]
    Called(Str),
    /// An operand refers to something that is not in the rewrite, or comes later in it.
    #[error("an operand refers to a node or constant that the rewrite does not have, or has later")]
    Operand,
}

/// A node that a rewrite will make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NewNode(usize);

impl NewNode {
    /// Its output `index`.
    pub fn output(self, index: usize) -> Operand {
        Operand::Output(self, index)
    }

    /// Its place among the new nodes of the rewrite.
    pub fn index(self) -> usize {
        self.0
    }
}

/// What a new node reads, or what a value becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A value of the model.
    Value(ValueId),
    /// An output of a new node.
    Output(NewNode, usize),
    /// A new constant.
    Constant(usize),
    /// An optional input that is left out.
    Absent,
}

impl From<ValueId> for Operand {
    fn from(value: ValueId) -> Self {
        Self::Value(value)
    }
}

impl From<Option<ValueId>> for Operand {
    fn from(value: Option<ValueId>) -> Self {
        value.map_or(Self::Absent, Self::Value)
    }
}

/// A change that is prepared and not yet made.
#[derive(Clone, Debug)]
pub struct Rewrite {
    pass: Str,
    rule: Str,
    accuracy: Accuracy,
    trusted: Option<Trust>,
    consumed: Vec<NodeId>,
    nodes: Vec<Staged>,
    constants: Vec<StagedConstant>,
    splices: Vec<Splice>,
    redefined: Vec<(ValueId, Operand)>,
    dropped: Vec<ValueId>,
    functions: Vec<ScopeId>,
    imports: Vec<(Str, i64)>,
    /// Nodes that stay and compute from now on what consumed ones computed.
    substitutes: Vec<(NodeId, NodeId)>,
    /// Consumed nodes that nothing new comes from.
    traceless: HashSet<NodeId>,
}

impl Rewrite {
    /// A rewrite that removes `consumed` (and all that is in their bodies) by the given rule.
    pub fn new(
        pass: impl Into<Str>,
        rule: impl Into<Str>,
        accuracy: Accuracy,
        consumed: impl Into<Vec<NodeId>>,
    ) -> Self {
        Self {
            pass: pass.into(),
            rule: rule.into(),
            accuracy,
            trusted: None,
            consumed: consumed.into(),
            nodes: Vec::new(),
            constants: Vec::new(),
            splices: Vec::new(),
            redefined: Vec::new(),
            dropped: Vec::new(),
            functions: Vec::new(),
            imports: Vec::new(),
            substitutes: Vec::new(),
            traceless: HashSet::new(),
        }
    }

    /// New nodes call operators of this domain, in this version unless the model imports one already.
    pub fn import(&mut self, domain: impl Into<Str>, version: i64) {
        self.imports.push((domain.into(), version));
    }

    /// The version of a domain that the rewrite imports.
    pub fn imported(&self, domain: &str) -> Option<i64> {
        self.imports.iter().find(|(imported, _)| &**imported == domain).map(|&(_, version)| version)
    }

    /// Adds a node with `outputs` outputs. Bodies in `attrs` must be those of consumed nodes; they move.
    pub fn node(
        &mut self,
        op: Op,
        inputs: impl IntoIterator<Item = Operand>,
        outputs: usize,
        attrs: Vec<Attr>,
    ) -> NewNode {
        let inputs = inputs.into_iter().collect();
        self.nodes.push(Staged {
            op,
            inputs,
            outputs: vec![true; outputs],
            attrs,
            copied: None,
            like: None,
            serves: None,
        });
        NewNode(self.nodes.len() - 1)
    }

    /// Says that a new node is another version of a consumed one, whose name, metadata and names of results it inherits.
    pub fn inherit(&mut self, node: NewNode, from: NodeId) {
        if let Some(staged) = self.nodes.get_mut(node.0) {
            staged.like = Some(from);
        }
    }

    /// Says that a new node only prepares what a consumed one, or its new version, reads or gives: it comes from there alone.
    pub fn serve(&mut self, node: NewNode, whom: NodeId) {
        if let Some(staged) = self.nodes.get_mut(node.0) {
            staged.serves = Some(whom);
        }
    }

    /// Says that `stays`, which is not consumed, computes what the consumed node `gone` computed: it comes from both.
    pub fn substitute(&mut self, stays: NodeId, gone: NodeId) {
        self.substitutes.push((stays, gone));
    }

    /// Says that nothing new comes from a consumed node: others no longer need it.
    pub fn leave_no_trace(&mut self, node: NodeId) {
        self.traceless.insert(node);
    }

    /// Leaves an optional output of a new node out.
    pub fn leave_out(&mut self, node: NewNode, output: usize) {
        if let Some(there) = self.nodes.get_mut(node.0).and_then(|staged| staged.outputs.get_mut(output)) {
            *there = false;
        }
    }

    /// Adds a constant; its name starts with `hint`.
    pub fn constant(&mut self, hint: impl Into<Str>, tensor: Tensor) -> Operand {
        self.constants.push(StagedConstant { hint: hint.into(), tensor, copied: None });
        Operand::Constant(self.constants.len() - 1)
    }

    /// Gives `value` another definition: its readers read that from now on. It keeps its id and its name, unless it
    /// becomes another name for a value that there is already; then its readers read that one.
    pub fn redefine(&mut self, value: ValueId, by: impl Into<Operand>) {
        self.redefined.push((value, by.into()));
    }

    /// What `value` was to become stays a value of its own, and an Identity makes `value` of it.
    pub fn copy(&mut self, value: ValueId) {
        let Some(index) = self.redefined.iter().position(|&(redefined, _)| redefined == value) else {
            return;
        };
        let copy = self.node(Op::standard("Identity"), [self.redefined[index].1], 1, Vec::new());
        self.redefined[index].1 = copy.output(0);
    }

    /// How many nodes it makes.
    pub fn made_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Removes a constant that nothing reads.
    pub fn drop_constant(&mut self, value: ValueId) {
        self.dropped.push(value);
    }

    /// Removes a local function that nothing calls any more, with everything in it.
    pub fn drop_function(&mut self, function: ScopeId) {
        self.functions.push(function);
    }

    /// The pass and the rule that make it.
    pub fn by(&self) -> (&Str, &Str) {
        (&self.pass, &self.rule)
    }

    /// What it promises.
    pub fn accuracy(&self) -> Accuracy {
        self.accuracy
    }

    /// Another accuracy than the one it was made with.
    pub fn promise(&mut self, accuracy: Accuracy) {
        self.accuracy = accuracy;
    }

    /// Types and shapes stay for this reason, which the journal names; nothing proved it.
    pub fn trust(&mut self, trust: Trust) {
        self.trusted = Some(trust);
    }

    /// One more node that goes away.
    pub fn consume(&mut self, node: NodeId) {
        self.consumed.push(node);
    }

    /// The nodes that go away, those in bodies of others not listed.
    pub fn consumed(&self) -> &[NodeId] {
        &self.consumed
    }

    /// Nodes that stay and compute from then on what consumed ones computed.
    pub fn substituting(&self) -> impl Iterator<Item = NodeId> {
        self.substitutes.iter().map(|&(stays, _)| stays)
    }

    /// The new constants.
    pub fn constants(&self) -> impl Iterator<Item = &Tensor> {
        self.constants.iter().map(|constant| &constant.tensor)
    }

    /// The values that get another definition, with what they become.
    pub fn redefinitions(&self) -> impl Iterator<Item = (ValueId, Operand)> {
        self.redefined.iter().copied()
    }

    /// The bodies of consumed nodes that move to new ones.
    pub fn moved_bodies(&self) -> Vec<ScopeId> {
        self.nodes.iter().flat_map(|staged| &staged.attrs).flat_map(Attr::scopes).copied().collect()
    }

    /// Whether a new node or another value will read `value`.
    pub fn reads(&self, value: ValueId) -> bool {
        let wanted = Operand::Value(value);
        self.nodes.iter().any(|staged| staged.reads().any(|operand| operand == wanted))
            || self.redefined.iter().any(|&(_, by)| by == wanted)
    }

    /// The new nodes as they will stand in `scope`, each with its operands. They have no values yet.
    pub fn previews(&self, scope: ScopeId) -> Vec<(Node, &[Operand])> {
        let preview =
            |staged: &'_ Staged| Node::detached(staged.op.clone(), scope, &staged.outputs, &staged.attrs);
        self.nodes.iter().map(|staged| (preview(staged), &*staged.inputs)).collect()
    }
}

impl Model {
    /// Whether an output of a scope can become another name for `target`, whose definition it takes over.
    pub fn can_take_over(&self, output: ValueId, target: ValueId) -> bool {
        let to = &self.values[target];
        !matches!(to.def, Def::Input { .. })
            && !to.is_exposed()
            && self.scope_of(output) == self.scope_of(target)
    }

    /// Makes the change, or says why it cannot be made and leaves the model as it is.
    /// The number returned is the edit's position in the journal.
    pub fn commit(&mut self, rewrite: Rewrite) -> Result<usize, EditError> {
        let plan = self.plan(&rewrite)?;
        let bytes_before = self.constant_bytes(&rewrite, &plan);
        let nodes_before = plan.consumed.len() as i64;
        let parents: Vec<_> = ordered(plan.consumed.iter().map(|&node| self.nodes[node].origin));
        let folded = ordered(parents.iter().copied().chain(plan.consumed.iter().flat_map(|&node| {
            self.nodes[node].inputs.iter().flatten().filter_map(|&value| match self.values[value].def {
                Def::Constant { origin, .. } => origin,
                _ => None,
            })
        })));

        for &(stays, gone) in &rewrite.substitutes {
            let parents = ordered([self.nodes[stays].origin, self.nodes[gone].origin].into_iter());
            let origin = Origin::Derived { rule: rewrite.rule.clone(), parents: parents.into() };
            self.nodes[stays].origin = self.origins.intern(origin);
        }
        let mut free = self.freed_names(&rewrite, &plan);
        let made = rewrite.made_constants();
        let constants: Vec<Option<ValueId>> = rewrite
            .constants
            .iter()
            .enumerate()
            .map(|(index, StagedConstant { hint, tensor, copied })| {
                if !made.contains(&index) {
                    return None;
                }
                let made = || Origin::Derived { rule: rewrite.rule.clone(), parents: folded.clone().into() };
                let origin = match copied.map(|copied| &self.values[copied].def) {
                    Some(Def::Constant { origin, .. }) => *origin,
                    _ => (!folded.is_empty()).then(|| self.origins.intern(made())),
                };
                let name = if free.remove(hint) { hint.clone() } else { self.names.fresh(hint) };
                let def =
                    Def::Constant { scope: plan.scope, constant: Constant::Dense(tensor.clone()), origin };
                let value = self.values.push(Value::new(name, def));
                self.scopes[plan.scope].constants.push(value);
                Some(value)
            })
            .collect();

        let mut results: Vec<Vec<Option<ValueId>>> =
            rewrite.nodes.iter().map(|n| vec![None; n.outputs.len()]).collect();
        for group in &plan.groups {
            if let Source::Output(node, index) = group.source {
                results[node][index] = group.keeper;
            }
        }
        for (domain, version) in &rewrite.imports {
            self.import(plan.scope, domain, *version);
        }
        let mut produced = self.insert(&rewrite, &plan, &constants, &mut results, &mut free);
        // What goes away is copied above; only now may it go.
        produced.extend(self.copy_bodies(&rewrite, &produced, &constants, &results, &mut free));
        for &node in &plan.consumed {
            self.detach(node);
        }
        for &scope in &plan.removed_scopes {
            self.remove_scope(scope);
        }
        self.functions.retain(|function| !rewrite.functions.contains(function));

        for group in &plan.groups {
            let target = match group.source {
                Source::Output(node, index) => results[node][index],
                Source::Constant(index) => constants[index],
                Source::Value(value) => Some(value),
            };
            let Some(target) = target else { continue };
            let keeper = group.keeper.unwrap_or(target);
            if keeper != target {
                self.take_over(keeper, target);
            }
            for &other in &group.others {
                self.forward(other, keeper);
            }
        }
        for &node in &plan.consumed {
            for value in self.nodes[node].outputs.clone().into_iter().flatten() {
                if matches!(self.values[value].def, Def::Node { node: by, .. } if by == node) {
                    self.values[value].def = Def::Removed;
                }
            }
        }
        for &value in &rewrite.dropped {
            self.values[value].def = Def::Removed;
        }
        // Constants that are no inputs have their place only in models of this version.
        if !made.is_empty() && self.header.ir_version.is_some() {
            self.raise_ir_version(version::FREE_CONSTANTS);
        }

        let bytes_after = rewrite.added_bytes();
        let entry = Entry {
            pass: rewrite.pass,
            rule: rewrite.rule,
            accuracy: rewrite.accuracy,
            trusted: rewrite.trusted,
            nodes: produced.len() as i64 - nodes_before,
            bytes: bytes_after.saturating_sub(bytes_before),
            consumed: plan.consumed,
            produced,
            redefined: rewrite.redefined.iter().map(|&(value, _)| value).collect(),
        };
        self.journal.push(entry);
        debug_assert!(self.nodes.len() > DEBUG_VALIDATE || self.validate().is_ok(), "{:?}", self.validate());
        Ok(self.journal.len() - 1)
    }

    /// Declares the type of a value that has no declaration of its own, for `value_info`.
    pub fn declare(&mut self, value: ValueId, info: ValueInfoProto) {
        let Some(scope) = self.scope_of(value) else {
            return;
        };
        if self.values[value].info.is_none() {
            self.scopes[scope].listed.push(Listed::Value(value));
        }
        self.values[value].info = Some(Box::new(info));
    }

    /// The names of what goes away, which new values may have. A name that several values have is none of them.
    fn freed_names(&self, rewrite: &Rewrite, plan: &Plan) -> HashSet<Str> {
        let redefined: HashSet<ValueId> = rewrite.redefined.iter().map(|&(value, _)| value).collect();
        let inside = plan.removed_scopes.iter().flat_map(|&scope| self.values_in(scope));
        let gone = rewrite.dropped.iter().copied().chain(inside.filter(|value| !redefined.contains(value)));
        let names = gone.map(|value| &self.values[value].name);
        names.filter(|name| !self.names.is_repeated(name)).cloned().collect()
    }

    /// Every value that is defined in a scope itself.
    fn values_in(&self, scope: ScopeId) -> impl Iterator<Item = ValueId> {
        let inputs = self.scopes[scope].inputs.iter().map(|port| port.value);
        let results = self.nodes_in(scope).flat_map(|(_, node)| node.outputs.iter().flatten().copied());
        inputs.chain(self.constants_in(scope).map(|(value, _)| value)).chain(results)
    }

    /// The bytes of constants that the rewrite removes.
    fn constant_bytes(&self, rewrite: &Rewrite, plan: &Plan) -> i64 {
        let own = rewrite.dropped.iter().chain(rewrite.redefined.iter().map(|(value, _)| value)).copied();
        let in_bodies =
            plan.removed_scopes.iter().flat_map(|&scope| self.constants_in(scope).map(|(id, _)| id));
        let removed = ordered(own.chain(in_bodies));
        saturating_sum(
            removed.iter().filter_map(|&value| self.values[value].constant()).map(Constant::byte_len),
        )
    }
}

/// A sum that stays at the largest number instead of overflowing: a file may claim any sizes.
fn saturating_sum(sizes: impl Iterator<Item = u64>) -> i64 {
    sizes.fold(0i64, |sum, size| sum.saturating_add(i64::try_from(size).unwrap_or(i64::MAX)))
}

/// Each item once, in the order of its first appearance.
fn ordered<T: Copy + Eq + std::hash::Hash>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    items.filter(|&item| seen.insert(item)).collect()
}
