//! The pairing of two models: from outputs back to inputs it is forced, because inputs are ordered.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use super::content::{Contents, hash, same_attr, same_form, sketch_constant};
use super::hashes::{Hashes, sorted, trimmed};
use onnxforge_ir::id::Id;
use onnxforge_ir::{Constant, Def, Model, NodeId, ScopeId, Use, ValueId};

/// Rounds in which nodes are told apart by their neighbours.
const ROUNDS: usize = 4;
/// Ways that are tried for a node that no output depends on.
const WAYS: usize = 4;
/// How many steps the search may take for each node and value.
const STEPS: usize = 64;

/// Why two models cannot be paired.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// Nodes that would have to be partners.
    pub nodes: Option<(NodeId, NodeId)>,
    /// What does not fit.
    pub what: String,
}

fn conflict(nodes: Option<(NodeId, NodeId)>, what: impl Into<String>) -> Conflict {
    Conflict { nodes, what: what.into() }
}

/// Constants that have to be partners and hold something else.
pub type Unlike = Vec<(ValueId, ValueId)>;

/// Pairs everything in the models. Paired constants that differ in their elements are returned: but for those the models are equal.
pub fn pair(a: &Model, b: &Model, contents: &mut Contents) -> Result<Unlike, Conflict> {
    let size = a.nodes().count() + a.values().count() + b.nodes().count() + b.values().count();
    let mut pairing = Pairing {
        a,
        b,
        nodes: Partners::default(),
        values: Partners::default(),
        scopes: Partners::default(),
        open: Vec::new(),
        constants: Vec::new(),
        steps: STEPS.saturating_mul(size + 1),
    };
    for (a, b) in functions(a, b)? {
        pairing.pair_scopes(a, b)?;
    }
    pairing.pair_scopes(a.main(), b.main())?;
    pairing.follow()?;
    pairing.pair_rest(contents)?;
    let constants = std::mem::take(&mut pairing.constants);
    Ok(constants
        .into_iter()
        .filter(|&((x, y), first, second)| !contents.same((x, y), first, second))
        .map(|(values, ..)| values)
        .collect())
}

/// Functions that are called alike.
fn functions(a: &Model, b: &Model) -> Result<Vec<(ScopeId, ScopeId)>, Conflict> {
    let sorted = |model: &Model| {
        let mut found: Vec<_> = model.functions().iter().map(|&id| (model.called_as(id), id)).collect();
        found.sort();
        found
    };
    let (left, right) = (sorted(a), sorted(b));
    let called = |found: &[(Option<onnxforge_ir::Op>, ScopeId)]| -> Vec<_> {
        found.iter().map(|(op, _)| op.clone()).collect()
    };
    if called(&left) != called(&right) {
        return Err(conflict(None, "other local functions"));
    }
    Ok(left.into_iter().zip(right).map(|((_, a), (_, b))| (a, b)).collect())
}

/// Partners, each of which has one, in the order in which they were found.
#[derive(Debug)]
struct Partners<K> {
    there: HashMap<K, K>,
    back: HashMap<K, K>,
    found: Vec<(K, K)>,
}

impl<K> Default for Partners<K> {
    fn default() -> Self {
        Self { there: HashMap::new(), back: HashMap::new(), found: Vec::new() }
    }
}

impl<K: Id + Hash> Partners<K> {
    /// Whether they are partners; `None` while both have none.
    fn are(&self, a: K, b: K) -> Option<bool> {
        match (self.there.get(&a), self.back.get(&b)) {
            (None, None) => None,
            (partner, _) => Some(partner == Some(&b)),
        }
    }

    fn add(&mut self, a: K, b: K) {
        self.there.insert(a, b);
        self.back.insert(b, a);
        self.found.push((a, b));
    }

    fn forget(&mut self, from: usize) {
        for (a, b) in self.found.drain(from.min(self.found.len())..) {
            self.there.remove(&a);
            self.back.remove(&b);
        }
    }
}

struct Pairing<'a> {
    a: &'a Model,
    b: &'a Model,
    nodes: Partners<NodeId>,
    values: Partners<ValueId>,
    scopes: Partners<ScopeId>,
    /// Partners whose inputs and bodies are still to be paired.
    open: Vec<(NodeId, NodeId)>,
    /// Paired constants whose elements were not compared yet.
    constants: Vec<((ValueId, ValueId), &'a Constant, &'a Constant)>,
    /// Steps that are left.
    steps: usize,
}

impl<'a> Pairing<'a> {
    fn pair_scopes(&mut self, a: ScopeId, b: ScopeId) -> Result<(), Conflict> {
        let (first, second) = (self.a.scope(a), self.b.scope(b));
        let at = first.holder().zip(second.holder());
        let constants = |model: &Model, id| model.constants_in(id).count();
        for (what, here, there) in [
            ("inputs", first.inputs().len(), second.inputs().len()),
            ("outputs", first.outputs().len(), second.outputs().len()),
            ("nodes", first.node_count(), second.node_count()),
            ("initializers", constants(self.a, a), constants(self.b, b)),
        ] {
            if here != there {
                return Err(conflict(at, format!("{here} {what} and {there}")));
            }
        }
        self.scopes.add(a, b);
        let ports = |x: &'a onnxforge_ir::scope::Scope| x.inputs().iter().chain(x.outputs());
        if ports(first).zip(ports(second)).any(|(x, y)| x.declared() != y.declared()) {
            return Err(conflict(at, "a body whose inputs or outputs are declared otherwise"));
        }
        for (x, y) in first.inputs().iter().zip(second.inputs()) {
            self.values.add(x.value, y.value);
            match (self.a.value(x.value).def(), self.b.value(y.value).def()) {
                (Def::Input { default: None, .. }, Def::Input { default: None, .. }) => {}
                (Def::Input { default: Some(c), .. }, Def::Input { default: Some(d), .. })
                    if same_form(c, d) =>
                {
                    self.constants.push(((x.value, y.value), c, d));
                }
                _ => {
                    let name = self.a.value(x.value).name();
                    return Err(conflict(at, format!("the default of input {name}")));
                }
            }
        }
        for (index, (x, y)) in first.outputs().iter().zip(second.outputs()).enumerate() {
            self.pair_values(x.value, y.value, at, || format!("output {index}"))?;
        }
        Ok(())
    }

    fn pair_values(
        &mut self,
        a: ValueId,
        b: ValueId,
        at: Option<(NodeId, NodeId)>,
        place: impl Fn() -> String,
    ) -> Result<(), Conflict> {
        self.steps = self.steps.checked_sub(1).ok_or_else(|| conflict(at, "too many ways to try"))?;
        let names = || format!("{} and {}", self.a.value(a).name(), self.b.value(b).name());
        match self.values.are(a, b) {
            Some(true) => return Ok(()),
            Some(false) => {
                return Err(conflict(at, format!("{}: {} are not the same value", place(), names())));
            }
            None => {}
        }
        match (self.a.value(a).def(), self.b.value(b).def()) {
            (Def::Constant { scope, constant: c, .. }, Def::Constant { scope: other, constant: d, .. }) => {
                if self.scopes.are(*scope, *other) != Some(true) || !same_form(c, d) {
                    return Err(conflict(at, format!("{}: constants {} differ", place(), names())));
                }
                self.values.add(a, b);
                self.constants.push(((a, b), c, d));
                Ok(())
            }
            (Def::Node { node: x, index: i }, Def::Node { node: y, index: j }) if i == j => {
                self.pair_nodes(*x, *y)
            }
            _ => Err(conflict(at, format!("{}: {} come from something else", place(), names()))),
        }
    }

    fn pair_nodes(&mut self, a: NodeId, b: NodeId) -> Result<(), Conflict> {
        let at = Some((a, b));
        match self.nodes.are(a, b) {
            Some(true) => return Ok(()),
            Some(false) => return Err(conflict(at, "one of them is the partner of another node")),
            None => {}
        }
        let (first, second) = (self.a.node(a), self.b.node(b));
        let (mine, yours) = (sorted(first), sorted(second));
        let same = first.op() == second.op()
            && self.scopes.are(first.scope(), second.scope()) == Some(true)
            && mine.len() == yours.len()
            && mine.iter().zip(&yours).all(|(x, y)| x.name == y.name && same_attr(&x.value, &y.value));
        let present =
            |ids: &[Option<ValueId>]| -> Vec<bool> { trimmed(ids).iter().map(Option::is_some).collect() };
        if !same
            || present(first.inputs()) != present(second.inputs())
            || present(first.outputs()) != present(second.outputs())
        {
            return Err(conflict(at, "they are different calls"));
        }
        self.nodes.add(a, b);
        for (x, y) in first.outputs().iter().flatten().zip(second.outputs().iter().flatten()) {
            match self.values.are(*x, *y) {
                None => self.values.add(*x, *y),
                Some(true) => {}
                Some(false) => return Err(conflict(at, "other outputs")),
            }
        }
        self.open.push((a, b));
        Ok(())
    }

    /// Pairs what follows from the partners that were found.
    fn follow(&mut self) -> Result<(), Conflict> {
        while let Some((a, b)) = self.open.pop() {
            let (first, second) = (self.a.node(a), self.b.node(b));
            for (index, (x, y)) in first.inputs().iter().zip(second.inputs()).enumerate() {
                if let (Some(x), Some(y)) = (*x, *y) {
                    self.pair_values(x, y, Some((a, b)), || format!("input {index}"))?;
                }
            }
            for (x, y) in sorted(first).into_iter().zip(sorted(second)) {
                for (&body, &other) in x.scopes().iter().zip(y.scopes()) {
                    self.pair_scopes(body, other)?;
                }
            }
        }
        Ok(())
    }

    /// Pairs what no output depends on.
    fn pair_rest(&mut self, contents: &mut Contents) -> Result<(), Conflict> {
        let mut colours = None;
        let mut next = self.scopes.found.len();
        let mut waiting: Vec<(ScopeId, ScopeId)> = self.scopes.found.clone();
        // Bodies are found after what holds them, so what is read from inside is forced before it is searched for.
        while let Some((a, b)) = waiting.pop() {
            if !self.a.nodes_in(a).all(|(id, _)| self.nodes.there.contains_key(&id)) {
                let colours = colours.get_or_insert_with(|| Colours::of(self));
                self.search(a, b, colours, contents)?;
            }
            waiting.extend(self.scopes.found.iter().skip(next));
            next = self.scopes.found.len();
        }
        // Constants come last: nodes that were just paired read some of them.
        for (a, b) in self.scopes.found.clone() {
            self.unused_constants(a, b, contents)?;
        }
        Ok(())
    }

    fn search(
        &mut self,
        a: ScopeId,
        b: ScopeId,
        colours: &Colours,
        contents: &mut Contents,
    ) -> Result<(), Conflict> {
        let mut candidates: HashMap<u64, Vec<NodeId>> = HashMap::new();
        for (id, _) in self.b.nodes_in(b) {
            if !self.nodes.back.contains_key(&id) {
                candidates.entry(colours.second(id)).or_default().push(id);
            }
        }
        let mine: Vec<NodeId> = self.a.nodes_in(a).map(|(id, _)| id).collect();
        for id in mine.into_iter().rev() {
            if self.nodes.there.contains_key(&id) {
                continue;
            }
            let alike = candidates.get_mut(&colours.first(id));
            let alike =
                alike.ok_or_else(|| conflict(None, format!("no partner for {}", self.a.node_label(id))))?;
            while alike.last().is_some_and(|last| self.nodes.back.contains_key(last)) {
                alike.pop();
            }
            let free = alike.iter().rev().filter(|other| !self.nodes.back.contains_key(other));
            let tried: Vec<NodeId> = free.take(WAYS).copied().collect();
            let mut failure = conflict(None, format!("no partner for {}", self.a.node_label(id)));
            let mut found = false;
            for other in tried {
                match self.attempt(id, other, contents) {
                    Ok(()) => {
                        found = true;
                        break;
                    }
                    Err(why) => failure = why,
                }
            }
            if !found {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Pairs two nodes and everything that follows, or nothing.
    fn attempt(&mut self, a: NodeId, b: NodeId, contents: &mut Contents) -> Result<(), Conflict> {
        let marks = (self.nodes.found.len(), self.values.found.len(), self.scopes.found.len());
        let constants = self.constants.len();
        let result = self.pair_nodes(a, b).and_then(|()| self.follow()).and_then(|()| {
            let new = self.constants.get(constants..).unwrap_or_default();
            let same = new.iter().all(|&(values, c, d)| contents.same(values, c, d));
            if same { Ok(()) } else { Err(conflict(Some((a, b)), "constants differ")) }
        });
        if result.is_err() {
            self.open.clear();
            self.nodes.forget(marks.0);
            self.values.forget(marks.1);
            self.scopes.forget(marks.2);
            self.constants.truncate(constants);
        }
        result
    }

    /// Pairs constants that nothing reads.
    fn unused_constants(&mut self, a: ScopeId, b: ScopeId, contents: &mut Contents) -> Result<(), Conflict> {
        let mut candidates: HashMap<u64, Vec<(ValueId, &Constant)>> = HashMap::new();
        for (id, constant) in self.b.constants_in(b) {
            if !self.values.back.contains_key(&id) {
                candidates.entry(digest(constant)).or_default().push((id, constant));
            }
        }
        for (id, constant) in self.a.constants_in(a) {
            if self.values.there.contains_key(&id) {
                continue;
            }
            let partner = candidates.get_mut(&digest(constant)).and_then(Vec::pop);
            match partner {
                Some((other, there)) if contents.same((id, other), constant, there) => {
                    self.values.add(id, other);
                }
                _ => {
                    let name = self.a.value(id).name();
                    return Err(conflict(None, format!("no partner for unused initializer {name}")));
                }
            }
        }
        Ok(())
    }
}

/// The hash of everything that a constant is.
fn digest(constant: &Constant) -> u64 {
    hash(|h| {
        sketch_constant(constant, h);
        let tensors = match constant {
            Constant::Dense(tensor) => vec![tensor],
            Constant::Sparse(sparse) => vec![&sparse.values, &sparse.indices],
        };
        tensors.into_iter().filter_map(|tensor| tensor.bytes().ok()).for_each(|bytes| bytes.hash(h));
    })
}

/// Hashes of nodes without a partner, of what they read and what reads them, that are the same in both models for the same.
struct Colours {
    first: HashMap<NodeId, u64>,
    second: HashMap<NodeId, u64>,
}

impl Colours {
    fn of(pairing: &Pairing<'_>) -> Self {
        // Partners are what they are, whatever they are computed from.
        let mut given = (HashMap::new(), HashMap::new());
        for (index, (a, b)) in pairing.values.found.iter().enumerate() {
            let token = hash(|h| ("partners", index).hash(h));
            given.0.insert(*a, token);
            given.1.insert(*b, token);
        }
        let of = |model, given, paired: &HashMap<NodeId, NodeId>| {
            let hashes = Hashes::of(model, given);
            let paired: HashSet<NodeId> =
                hashes.order.iter().copied().filter(|id| paired.contains_key(id)).collect();
            refined(model, &hashes, &paired)
        };
        Self {
            first: of(pairing.a, given.0, &pairing.nodes.there),
            second: of(pairing.b, given.1, &pairing.nodes.back),
        }
    }

    fn first(&self, id: NodeId) -> u64 {
        self.first.get(&id).copied().unwrap_or(0)
    }

    fn second(&self, id: NodeId) -> u64 {
        self.second.get(&id).copied().unwrap_or(0)
    }
}

fn refined(model: &Model, hashes: &Hashes, paired: &HashSet<NodeId>) -> HashMap<NodeId, u64> {
    let order: Vec<NodeId> = hashes.order.iter().copied().filter(|id| !paired.contains(id)).collect();
    let mut colours: HashMap<NodeId, u64> = order.iter().map(|&id| (id, hashes.node(id))).collect();
    for _ in 0..ROUNDS {
        for &id in order.iter().rev() {
            let mut readers: Vec<(usize, u64, u32)> = Vec::new();
            for (index, output) in model.node(id).outputs().iter().enumerate() {
                let uses = output.map_or(&[][..], |output| model.value(output).uses());
                readers.extend(uses.iter().map(|used| match used {
                    Use::Input { node, index: at } => (index, colours.get(node).copied().unwrap_or(0), *at),
                    Use::Output { index: at, .. } => (index, 1, *at),
                }));
            }
            readers.sort_unstable();
            colours.insert(id, hash(|h| (colours.get(&id), readers).hash(h)));
        }
        for &id in &order {
            let node = model.node(id);
            let read: Vec<Option<u64>> = trimmed(node.inputs())
                .iter()
                .map(|input| input.and_then(|input| colours.get(&model.value(input).node()?).copied()))
                .collect();
            let inside: Vec<u64> = {
                let mut inside: Vec<u64> = node
                    .bodies()
                    .flat_map(|body| model.nodes_in(body))
                    .filter_map(|(id, _)| colours.get(&id).copied())
                    .collect();
                inside.sort_unstable();
                inside
            };
            colours.insert(id, hash(|h| (colours.get(&id), read, inside).hash(h)));
        }
    }
    colours
}
