//! Applies rules to a model until none fires, and checks each change before it is made.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::author::Author;
use super::change::Change;
use super::cx::Cx;
use super::packed::stay_packed;
use super::rule::Rule;
use super::same::Same;
use super::skip::{Reason, Skip};
use super::within::Within;
use super::witness::Witness;
use onnxforge_ir::edit::{Operand, Rewrite};
use onnxforge_ir::value::{Def, Use};
use onnxforge_ir::{Accuracy, Attr, AttrValue, Model, NodeId, ScopeId, Trust, ValueId};
use onnxforge_ops::Fact;
use onnxforge_ops::apply::{self, NoBodies};
use onnxforge_ops::callee::Functions;
use onnxforge_ops::infer::Inference;
use onnxforge_ops::signature::latest_opset;
use onnxforge_proto::Str;
use onnxforge_proto::cancel::checkpoint;

/// What changes may cost.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Bytes by which all changes together may make the constants larger.
    pub growth: u64,
    /// The longest that the elements of one node may be computed.
    pub time: Duration,
    /// Bytes that the results of one node may take.
    pub result: u64,
    /// How many changes may be made.
    pub edits: usize,
    /// Only changes that keep every bit are made.
    pub exact: bool,
    /// Rules that may change nothing, each with its pass.
    pub barred: Vec<(Str, Str)>,
    /// Where changes may be made; everywhere without it.
    pub within: Option<Arc<Within>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            growth: 1 << 20,
            time: Duration::from_secs(10),
            result: 1 << 30,
            edits: usize::MAX,
            exact: false,
            barred: Vec::new(),
            within: None,
        }
    }
}

impl Budget {
    /// Fails where only changes that keep every bit are made, and one that promises this may not.
    pub fn allows(&self, accuracy: Accuracy) -> Result<(), Skip> {
        if self.exact && accuracy != Accuracy::BitExact { Err(Reason::NotExact.into()) } else { Ok(()) }
    }
}

/// Something that a rule is about and that stays.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// The rule.
    pub rule: &'static str,
    /// Where.
    pub node: NodeId,
    /// Why.
    pub reason: Reason,
    /// The value that stands in the way.
    pub culprit: Option<ValueId>,
}

/// A model that is being changed, with what is known of it.
///
/// Facts about a value are proofs about what it computes. Changes keep what values compute, so facts stay true: only new
/// values need new ones.
pub struct Workbench<'m> {
    /// The model.
    pub model: &'m mut Model,
    /// What is known of its values.
    pub facts: Inference,
    /// What changes may cost.
    pub budget: Budget,
    functions: Functions,
    /// By how many bytes the constants have grown.
    grown: i64,
    /// Nodes that changes have touched, in order: their neighbours changed, or they are new.
    touched: Vec<NodeId>,
    witness: Option<&'m mut dyn Witness>,
    /// The witness has seen something wrong.
    halted: bool,
}

impl<'m> Workbench<'m> {
    /// A workbench for a model of which `facts` are known.
    pub fn new(model: &'m mut Model, facts: Inference, budget: Budget) -> Self {
        let functions = Functions::of(model);
        Self { model, facts, budget, functions, grown: 0, touched: Vec::new(), witness: None, halted: false }
    }

    /// The same, with somebody who sees every change.
    pub fn watched(self, witness: Option<&'m mut dyn Witness>) -> Self {
        Self { witness, ..self }
    }

    /// Tells the witness that a pass is done.
    pub fn passed(&mut self, pass: &'static str) {
        if let Some(witness) = &mut self.witness
            && !self.halted
        {
            self.halted = !witness.passed(self.model, pass);
        }
    }

    /// How far the list of touched nodes goes; a pass that has seen the model at this point has only to look at later ones.
    pub fn mark(&self) -> usize {
        self.touched.len()
    }

    /// Whether nothing more may be changed: the budget of changes is used up, or the witness has seen something wrong.
    pub fn is_spent(&self) -> bool {
        self.halted || self.model.journal().len() >= self.budget.edits
    }

    /// The nodes to look at: all of them, or those that changes have touched since `mark`.
    pub fn worklist(&self, mark: Option<usize>) -> Vec<NodeId> {
        match mark {
            None => self.model.nodes().map(|(id, _)| id).collect(),
            Some(mark) => {
                let since = self.touched.get(mark..).unwrap_or_default();
                let mut nodes: Vec<NodeId> =
                    since.iter().copied().filter(|&id| self.model.node(id).is_live()).collect();
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
        }
    }

    /// What a rule of a pass sees.
    pub fn cx(&self, author: Author, rule: &'static str, accuracy: Accuracy) -> Cx<'_> {
        let (model, facts, budget, functions) = (&*self.model, &self.facts, &self.budget, &self.functions);
        Cx { model, facts, budget, functions, author, rule, accuracy }
    }

    /// Applies the rules until none fires at any of the nodes or where changes lead. Answers how often one fired.
    pub fn rewrite(
        &mut self,
        author: Author,
        rules: &[&dyn Rule],
        start: Vec<NodeId>,
        skipped: &mut Vec<Skipped>,
    ) -> usize {
        let mut fired = 0;
        let mut queued: HashSet<NodeId> = start.iter().copied().collect();
        let mut queue: VecDeque<NodeId> = start.into();
        while let Some(id) = queue.pop_front() {
            queued.remove(&id);
            checkpoint();
            for rule in rules {
                if self.is_spent() || !self.model.node(id).is_live() {
                    break;
                }
                if !is_root(*rule, self.model, id) {
                    continue;
                }
                let mark = self.mark();
                match self.attempt(author, *rule, id) {
                    Ok(()) => {
                        fired += 1;
                        for &node in &self.touched[mark..] {
                            if self.model.node(node).is_live() && queued.insert(node) {
                                queue.push_back(node);
                            }
                        }
                    }
                    Err(Skip { reason: Some(reason), culprit }) => {
                        skipped.push(Skipped { rule: rule.name(), node: id, reason, culprit });
                    }
                    Err(Skip { reason: None, .. }) => {}
                }
            }
        }
        fired
    }

    fn attempt(&mut self, author: Author, rule: &dyn Rule, id: NodeId) -> Result<(), Skip> {
        let change = rule.apply(&self.cx(author, rule.name(), rule.accuracy()), id)?;
        self.commit(change)
    }

    /// What a rule of a pass would do at a node. Nothing is changed, and whether the change could be made is not checked.
    pub fn look(&self, author: Author, rule: &dyn Rule, id: NodeId) -> Result<Change, Skip> {
        if !is_root(rule, self.model, id) {
            return Err(Skip::NOT_HERE);
        }
        rule.apply(&self.cx(author, rule.name(), rule.accuracy()), id)
    }

    /// Makes the change, or says why not and leaves everything as it is.
    pub fn commit(&mut self, mut change: Change) -> Result<(), Skip> {
        if self.is_spent() || self.is_barred(&change.rewrite) {
            return Err(Skip::NOT_HERE);
        }
        self.budget.allows(change.rewrite.accuracy())?;
        if self.budget.exact {
            stay_packed(self.model, &change)?;
        }
        let (learned, trusted) = self.check(&change)?;
        if let Some(trust) = trusted {
            change.rewrite.trust(trust);
        }
        self.absorb(&mut change);
        let growth = self.sweep(&mut change);
        self.copy_outputs(&mut change);
        if let Some(within) = &self.budget.within {
            within.allows(self.model, &change.rewrite)?;
        }
        let left = i64::try_from(self.budget.growth).unwrap_or(i64::MAX).saturating_sub(self.grown);
        if growth > 0 && growth > left {
            return Err(Reason::Growth(growth as u64).into());
        }
        let mut around: Vec<NodeId> = Vec::new();
        for &node in change.rewrite.consumed() {
            // Who computes what a consumed node read may have one reader less.
            around.extend(
                self.model.node(node).inputs().iter().flatten().filter_map(|&v| self.model.value(v).node()),
            );
        }
        // Who reads a redefined value reads something else afterwards.
        around.extend(change.rewrite.redefinitions().flat_map(|(value, _)| self.readers(value)));
        if let Some(witness) = &mut self.witness {
            witness.before(self.model, &self.facts, &change.rewrite);
        }
        let committed = self.model.commit(change.rewrite).map_err(|error| Skip::from(Reason::Edit(error)));
        if let (Err(_), Some(witness)) = (&committed, &mut self.witness) {
            witness.after(self.model, &self.facts, false);
        }
        let edit = committed?;
        self.grown = self.grown.saturating_add(growth);
        let entry = &self.model.journal()[edit];
        let (produced, redefined) = (entry.produced.clone(), entry.redefined.clone());
        let staged = learned.len().min(produced.len());
        for (&node, facts) in produced.iter().zip(learned) {
            let outputs = self.model.node(node).outputs();
            for (output, fact) in outputs.iter().zip(facts) {
                if let Some(output) = *output {
                    self.facts.learn(output, fact);
                }
            }
            for input in self.model.node(node).inputs().iter().flatten() {
                self.facts.learn_constant(self.model, *input);
            }
        }
        for value in redefined {
            self.facts.learn_constant(self.model, value);
        }
        // What is in a body can be known only now that it has its place.
        if produced.iter().any(|&node| self.model.node(node).bodies().next().is_some()) {
            self.facts.extend(self.model, &produced[..staged]);
        }
        for node in produced {
            around.push(node);
            let outputs: Vec<ValueId> = self.model.node(node).outputs().iter().flatten().copied().collect();
            for value in outputs {
                around.extend(self.readers(value));
            }
            let inputs: Vec<ValueId> = self.model.node(node).inputs().iter().flatten().copied().collect();
            around.extend(inputs.iter().filter_map(|&value| self.model.value(value).node()));
        }
        let seen: BTreeSet<NodeId> =
            around.into_iter().filter(|&node| self.model.node(node).is_live()).collect();
        self.touched.extend(seen);
        if let Some(witness) = &mut self.witness {
            self.halted |= !witness.after(self.model, &self.facts, true);
        }
        Ok(())
    }

    fn is_barred(&self, rewrite: &Rewrite) -> bool {
        let (pass, rule) = rewrite.by();
        self.budget.barred.iter().any(|(of, barred)| of == pass && barred == rule)
    }

    /// Whether a node may go that nothing reads any more.
    fn may_go(&self, node: NodeId) -> bool {
        self.budget.within.as_ref().is_none_or(|within| within.has(self.model, node))
    }

    /// Drops functions that nothing else calls any more.
    pub fn drop_functions(&mut self, pass: &'static str, functions: &[ScopeId]) -> Result<(), Skip> {
        if let Some(within) = &self.budget.within {
            within.has_functions(self.model, functions)?;
        }
        let mut rewrite = Rewrite::new(pass, "uncalled", Accuracy::BitExact, Vec::new());
        functions.iter().for_each(|&function| rewrite.drop_function(function));
        self.model.commit(rewrite).map_err(|error| Skip::from(Reason::Edit(error)))?;
        self.functions = Functions::of(self.model);
        Ok(())
    }

    /// Finds out anew what is known of every value.
    pub fn infer(&mut self) {
        self.facts = Inference::of(self.model);
    }

    fn readers(&self, value: ValueId) -> impl Iterator<Item = NodeId> {
        self.model.value(value).uses().iter().filter_map(|used| match used {
            Use::Input { node, .. } => Some(*node),
            Use::Output { .. } => None,
        })
    }

    /// Makes sure that every new node is valid and that values keep type and shape. Answers the facts about the outputs
    /// of the new nodes, and the argument that stands in for a proof where inference does not know enough.
    fn check(&mut self, change: &Change) -> Result<(Vec<Vec<Fact>>, Option<Trust>), Skip> {
        if let Some(trust) = change.trust.filter(|trust| !change.author.trusts.contains(trust)) {
            return Err(Reason::Undeclared(trust).into());
        }
        let rewrite = &change.rewrite;
        let scope = rewrite.consumed().first().map_or(self.model.main(), |&id| self.model.node(id).scope());
        let mut learned: Vec<Vec<Fact>> = Vec::new();
        let constants: Vec<Fact> = rewrite.constants().map(onnxforge_ops::infer::constant_fact).collect();
        let facts = &mut self.facts;
        let fact_of = |facts: &Inference, learned: &[Vec<Fact>], operand: Operand| match operand {
            Operand::Value(value) => Some(facts.fact(value).clone()),
            Operand::Output(node, index) => Some(
                learned.get(node.index()).and_then(|facts| facts.get(index)).cloned().unwrap_or_default(),
            ),
            Operand::Constant(index) => Some(constants.get(index).cloned().unwrap_or_default()),
            Operand::Absent => None,
        };
        for (node, inputs) in rewrite.previews(scope) {
            let domain = &node.op().domain;
            let opset = self.model.opset(scope, domain).or_else(|| rewrite.imported(domain));
            let missing = || Reason::Opset { op: node.op().to_string(), opset: opset.unwrap_or(0) };
            let inputs: Vec<Option<Fact>> =
                inputs.iter().map(|&operand| fact_of(facts, &learned, operand)).collect();
            let called = self.functions.get(node.op()).is_some();
            let was_there = || rewrite.consumed().iter().any(|&id| self.model.node(id).op() == node.op());
            match apply::call(&node, opset, None).filter(|_| !called) {
                Some(call) => {
                    // What runtimes had before the standard did stays where it is, and comes nowhere else.
                    let early =
                        call.signature.is_some_and(|signature| i64::from(signature.since) > call.opset);
                    if opset.is_none() || !apply::fits(&call, &inputs) || early && !was_there() {
                        return Err(missing().into());
                    }
                    let mut bodies = NoBodies;
                    let (facts, error) = if node.bodies().next().is_some() {
                        (vec![Fact::Unknown; node.outputs().len()], None)
                    } else {
                        apply::infer(call, &inputs, facts.symbols_mut(), &mut bodies)
                    };
                    // What a caller gives is not known here, which is no mistake of the call.
                    let refers = |attr: &Attr| matches!(attr.value, AttrValue::Reference { .. });
                    if let Some(error) = error.filter(|_| !node.attrs().iter().any(refers)) {
                        return Err(Reason::Evaluation(error).into());
                    }
                    learned.push(facts);
                }
                // Operators that the table does not know can only have been there before.
                None if !was_there() => return Err(missing().into()),
                None => learned.push(vec![Fact::Unknown; node.outputs().len()]),
            }
        }
        let mut trusted = None;
        for (value, by) in rewrite.redefinitions() {
            let by = fact_of(facts, &learned, by).unwrap_or_default();
            match (Same::of(facts.fact(value), &by, facts.symbols()), change.trust) {
                (Same::Proved, _) => {}
                (Same::Unknown(_), Some(trust)) => trusted = Some(trust),
                (Same::Unknown(reason) | Same::Contradicted(reason), _) => {
                    return Err(Skip::at(reason, value));
                }
            }
        }
        Ok((learned, trusted))
    }

    /// Consumes the absorbed nodes that nobody reads any more.
    fn absorb(&self, change: &mut Change) {
        let mut gone: HashSet<NodeId> = change.rewrite.consumed().iter().copied().collect();
        for &node in &change.absorbed {
            if !gone.contains(&node) && self.may_go(node) && self.is_unread(node, &gone, change) {
                gone.insert(node);
                change.rewrite.consume(node);
            }
        }
    }

    /// Adds what nothing will read any more to the change: nodes and constants. Answers by how many bytes the constants
    /// will grow.
    fn sweep(&self, change: &mut Change) -> i64 {
        let mut gone: HashSet<NodeId> = change.rewrite.consumed().iter().copied().collect();
        let moved = change.rewrite.moved_bodies();
        gone.extend(change.rewrite.consumed().iter().flat_map(|&id| self.nodes_lost(id, &moved)));
        let mut open: Vec<NodeId> = change.rewrite.consumed().to_vec();
        let mut constants: BTreeSet<ValueId> = BTreeSet::new();
        let mut freed = 0u64;
        let redefined: HashSet<ValueId> = change.rewrite.redefinitions().map(|(value, _)| value).collect();
        while let Some(id) = open.pop() {
            freed = freed.saturating_add(tensors_held(self.model, id));
            let mut read: Vec<ValueId> = self.model.node(id).inputs().iter().flatten().copied().collect();
            let mut bodies: Vec<ScopeId> =
                self.model.node(id).bodies().filter(|body| !moved.contains(body)).collect();
            for inner in self.nodes_lost(id, &moved) {
                gone.insert(inner);
                read.extend(self.model.node(inner).inputs().iter().flatten());
                bodies.extend(self.model.node(inner).bodies());
            }
            read.extend(bodies.iter().flat_map(|&body| self.model.constants_in(body).map(|(id, _)| id)));
            for value in read {
                match self.model.value(value).def() {
                    Def::Constant { scope, .. } if self.model.scope(*scope).is_live() => {
                        constants.insert(value);
                    }
                    Def::Node { node, .. }
                        if !gone.contains(node)
                            && self.may_go(*node)
                            && self.is_unread(*node, &gone, change) =>
                    {
                        gone.insert(*node);
                        change.rewrite.consume(*node);
                        open.push(*node);
                    }
                    _ => {}
                }
            }
        }
        for value in constants {
            let held_inside = self.model.scope_of(value).and_then(|scope| self.model.scope(scope).holder());
            let unread = self.unread(value, &gone, change) && !self.model.value(value).is_pinned();
            if unread && !redefined.contains(&value) {
                if let Some(constant) = self.model.value(value).constant() {
                    freed = freed.saturating_add(constant.byte_len());
                }
                // Constants of a body that goes away go with it.
                if held_inside.is_none_or(|holder| !gone.contains(&holder)) {
                    change.rewrite.drop_constant(value);
                }
            }
        }
        change.rewrite.added_bytes().saturating_sub(i64::try_from(freed).unwrap_or(i64::MAX))
    }

    /// An output that would become another name for an input or another output becomes a copy of it, where that still takes fewer nodes.
    fn copy_outputs(&self, change: &mut Change) {
        let is_fixed = |&(value, by): &(ValueId, Operand)| match by {
            Operand::Value(to) => {
                self.model.value(value).is_exposed() && !self.model.can_take_over(value, to)
            }
            _ => false,
        };
        let fixed: Vec<ValueId> =
            change.rewrite.redefinitions().filter(is_fixed).map(|(value, _)| value).collect();
        let gone: BTreeSet<NodeId> = change.rewrite.consumed().iter().copied().collect();
        if gone.len() > change.rewrite.made_nodes() + fixed.len() {
            fixed.into_iter().for_each(|value| change.rewrite.copy(value));
        }
    }

    /// The nodes in the bodies of a node, but for bodies that move.
    fn nodes_lost(&self, id: NodeId, moved: &[ScopeId]) -> Vec<NodeId> {
        let mut lost = Vec::new();
        let mut open: Vec<ScopeId> =
            self.model.node(id).bodies().filter(|body| !moved.contains(body)).collect();
        while let Some(body) = open.pop() {
            for (inner, node) in self.model.nodes_in(body) {
                lost.push(inner);
                open.extend(node.bodies());
            }
        }
        lost
    }

    /// Whether nobody will read any output of the node.
    fn is_unread(&self, id: NodeId, gone: &HashSet<NodeId>, change: &Change) -> bool {
        self.model.node(id).outputs().iter().flatten().all(|&value| self.unread(value, gone, change))
    }

    fn unread(&self, value: ValueId, gone: &HashSet<NodeId>, change: &Change) -> bool {
        let entry = self.model.value(value);
        let outlived = |used: &Use| match used {
            Use::Input { node, .. } => !gone.contains(node),
            Use::Output { scope, .. } => {
                self.model.scope(*scope).holder().is_none_or(|holder| !gone.contains(&holder))
            }
        };
        !entry.is_pinned() && !entry.uses().iter().any(outlived) && !change.rewrite.reads(value)
    }
}

fn is_root(rule: &dyn Rule, model: &Model, id: NodeId) -> bool {
    let node = model.node(id);
    let op = node.op();
    if !rule.roots().is_empty() && !rule.roots().iter().any(|root| op.is(root)) {
        return false;
    }
    // What an operator means in a version that the table does not have yet, nobody here knows.
    let version = model.opset(node.scope(), &op.domain);
    latest_opset(&op.domain).is_none_or(|latest| version.is_none_or(|version| version <= latest))
}

/// Bytes of the tensors in a node's attributes.
fn tensors_held(model: &Model, id: NodeId) -> u64 {
    let held = model.node(id).attrs().iter().map(|attr| match &attr.value {
        AttrValue::Tensor(tensor) => tensor.byte_len(),
        _ => 0,
    });
    held.fold(0, u64::saturating_add)
}
