//! Shapes of inputs at which a model can run, the smallest first.
//!
//! Inference knows what a graph demands of its sizes ([`Requirement`]). Equations among these are solved; what is left free takes small
//! sizes that meet the rest. Inference at the sizes themselves, which runs nothing, then shows whether anything contradicts them and how much
//! memory a run needs. One name on several dimensions is one size here unless the graph says otherwise.

mod assign;
mod names;
mod reach;
mod solve;

use std::collections::{BTreeMap, HashMap, HashSet};

use self::assign::{ASSIGNMENTS, Assignment, LARGER, repaired};
pub use self::names::{Names, Place};
use self::reach::{Reach, reaches};
use self::solve::System;
use crate::Value;
use crate::infer::{ConflictKind, Given, Inference, Options as Assumed};
use crate::liveness::peak;
use onnxforge_ir::dim::{Dim, Requirement, Symbol, Symbols};
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::{Def, Model, NodeId, Type, ValueId};
use onnxforge_proto::Str;
use onnxforge_proto::clock::Instant;

/// What shapes have to be like.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Sizes of named dimensions.
    pub dims: HashMap<String, usize>,
    /// Shapes of inputs, by name.
    pub shapes: HashMap<String, Vec<usize>>,
    /// Bytes that the values of a run may take.
    pub memory: u64,
    /// Sizes of 1 come first; otherwise sizes that differ from each other do.
    pub ones_first: bool,
    /// When the search has to have ended.
    pub deadline: Option<Instant>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            dims: HashMap::new(),
            shapes: HashMap::new(),
            memory: u64::MAX,
            ones_first: false,
            deadline: None,
        }
    }
}

impl Wanted {
    /// The shapes of inputs that are given are wanted.
    pub fn with_given(mut self, given: &HashMap<String, Value>) -> Self {
        let shapes = given
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.array().ok()?.shape().to_vec())));
        self.shapes.extend(shapes);
        self
    }
}

/// Shapes at which nothing is known to keep a model from running.
#[derive(Clone, Debug)]
pub struct Shapes {
    /// The shape of each input that is a tensor of known rank.
    pub inputs: BTreeMap<String, Vec<usize>>,
    /// The sizes of dimensions that are not fixed, as people call them.
    pub sizes: Vec<(String, usize)>,
    /// Bytes that the values of a run take, as far as that is known.
    pub bytes: u64,
    /// What is known of the model's values at these shapes.
    pub inference: Inference,
}

impl Shapes {
    /// Bytes of a value at these shapes, where that is known.
    pub fn bytes_of(&self, value: ValueId) -> Option<u64> {
        bytes(&self.inference, value)
    }

    /// Bytes of all constants and values together, each counted once: what a run has to read and write at least.
    pub fn traffic(&self, model: &Model) -> u64 {
        let all = model.values().filter_map(|(value, _)| self.bytes_of(value));
        all.fold(0, u64::saturating_add)
    }

    /// The sizes in words: `batch=2, seq=3`.
    pub fn describe(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        sizes.join(", ")
    }
}

/// A dimension of an input that is not fixed.
#[derive(Debug)]
struct Slot {
    input: Str,
    axis: usize,
    name: Option<Str>,
    symbol: Symbol,
}

/// A search for shapes. Its items are shapes at which nothing is known to keep the model from running.
#[derive(Debug)]
pub struct Search<'m> {
    problem: Problem<'m>,
    /// The next assignment to try.
    next: usize,
    tried: HashSet<Vec<usize>>,
    refusal: Option<Refusal>,
}

/// What sizes have to meet.
#[derive(Debug)]
struct Problem<'m> {
    model: &'m Model,
    wanted: Wanted,
    /// With one symbol for every dimension that is not fixed.
    inference: Inference,
    slots: Vec<Slot>,
    /// How long dimensions have to be for indices that follow from sizes.
    reaches: Vec<Reach>,
    /// Nodes that fail at any size.
    always: HashSet<NodeId>,
}

/// Why shapes do not do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// A node would fail.
    #[error("at {sizes}: {node}: {why}")]
    Fails {
        /// The sizes.
        sizes: String,
        /// The node.
        node: String,
        /// Why.
        why: String,
    },
    /// It takes more memory than there is.
    #[error("at {sizes} a run takes {needed} MB of memory, more than the {allowed} MB that it may take")]
    Memory {
        /// The sizes.
        sizes: String,
        /// Megabytes that a run needs.
        needed: u64,
        /// Megabytes that it may take.
        allowed: u64,
    },
}

impl<'m> Search<'m> {
    /// A search for the inputs of the model's graph.
    pub fn new(model: &'m Model, wanted: Wanted) -> Self {
        let next = usize::from(!wanted.ones_first);
        Self { problem: Problem::new(model, wanted), next, tried: HashSet::new(), refusal: None }
    }

    /// Whether all sizes are fixed, so that there is one assignment.
    pub fn is_fixed(&self) -> bool {
        let system = self.problem.system(Trust::Names);
        self.problem.free(&system).is_empty()
    }

    /// Whether an input is a cache that may be empty.
    pub fn has_cache(&self) -> bool {
        let system = self.problem.system(Trust::Names);
        !self.problem.caches(&self.problem.free(&system)).is_empty()
    }

    /// Whether inference shows a node of the graph that fails whatever the sizes are.
    pub fn is_hopeless(&self) -> bool {
        let model = self.problem.model;
        self.problem.always.iter().any(|&node| model.node(node).scope() == model.main())
    }

    /// Why the last shapes that did not do, did not.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }
}

impl<'m> Search<'m> {
    /// Shapes with larger sizes, one after the other, at which nothing is known to keep the model from running.
    pub fn larger(&mut self) -> impl Iterator<Item = Shapes> + use<'_, 'm> {
        LARGER.into_iter().filter_map(|assignment| self.found(assignment))
    }

    /// The shapes of an assignment, unless they were tried before.
    fn found(&mut self, assignment: Assignment) -> Option<Shapes> {
        let problem = &self.problem;
        // Dimensions of inputs that are alike are taken for equal only where sizes do not do otherwise.
        for trust in [Trust::Names, Trust::Likeness] {
            let system = problem.system(trust);
            let (free, requirements) = (problem.free(&system), problem.requirements(&system));
            let sizes = repaired(problem.assigned(&free, assignment), &requirements);
            let Some(values) = problem.evaluated(&system, &sizes) else { continue };
            if !self.tried.insert(values.clone()) {
                return None;
            }
            match problem.at(&values, !free.is_empty()) {
                Ok(shapes) => return Some(shapes),
                Err(refusal) => self.refusal = Some(refusal),
            }
            if problem.wanted.deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return None;
            }
        }
        None
    }
}

impl Iterator for Search<'_> {
    type Item = Shapes;

    /// The next shapes at which nothing is known to keep the model from running.
    fn next(&mut self) -> Option<Shapes> {
        while let Some(&assignment) = ASSIGNMENTS.get(self.next) {
            self.next += 1;
            if let Some(shapes) = self.found(assignment) {
                return Some(shapes);
            }
            if self.problem.wanted.deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return None;
            }
        }
        None
    }
}

impl<'m> Problem<'m> {
    fn new(model: &'m Model, wanted: Wanted) -> Self {
        let options = Assumed { names_apart: true, deadline: wanted.deadline, ..Assumed::default() };
        let inference = Inference::with(model, &options);
        let slots = slots(model, &inference);
        let reaches = reaches(model, &inference);
        let always = failing(&inference).map(|(node, _)| node).collect();
        Self { model, wanted, inference, slots, reaches, always }
    }

    /// What is known of sizes. Where names are not trusted, only what the graph demands.
    fn system(&self, trust: Trust) -> System<'_> {
        let symbols = self.inference.symbols();
        let mut system = System::new(symbols, self.slots.iter().map(|slot| slot.symbol).collect());
        for slot in &self.slots {
            if let Some(size) = self.wanted_size(slot) {
                system.equate(&slot.symbol.into(), &Dim::from(size as i64));
            }
        }
        for requirement in symbols.requirements() {
            if let Requirement::Equal(a, b) = requirement {
                system.equate(a, b);
            }
        }
        if trust == Trust::Graph {
            return system;
        }
        let mut named: BTreeMap<&str, Symbol> = BTreeMap::new();
        for slot in &self.slots {
            let Some(name) = &slot.name else { continue };
            let first = *named.entry(name).or_insert(slot.symbol);
            system.equate(&slot.symbol.into(), &first.into());
        }
        for slot in &self.slots {
            let expression = slot.name.as_deref().and_then(|name| expressed(name, &named, symbols));
            if let Some(expression) = expression {
                system.equate(&slot.symbol.into(), &expression);
            }
        }
        // What outputs are declared to be says more of names.
        for port in self.model.scope(self.model.main()).outputs() {
            let (Type::Tensor(_, Some(dims)), Some(shape)) =
                (port.declared(), self.inference.shape(port.value))
            else {
                continue;
            };
            for (declared, dim) in dims.iter().zip(shape) {
                if let DeclaredDim::Named(name) = declared
                    && let Some(&symbol) = named.get(&**name)
                {
                    system.equate(&symbol.into(), dim);
                }
            }
        }
        // What decoders call their sizes is a hint where the graph has none: all that there is was there or is new.
        let called = |wanted: &str, others: &[&str]| {
            let mut names = named.iter().map(|(name, symbol)| (name.to_lowercase(), *symbol));
            let fits = |name: &str| name.contains(wanted) && !others.iter().any(|other| name.contains(other));
            names.find(|(name, _)| fits(name)).map(|(_, symbol)| Dim::from(symbol))
        };
        if let (Some(total), Some(past), Some(new)) =
            (called("total", &[]), called("past", &["total"]), called("seq", &["past", "total"]))
            && let Some(sum) = past.add(&new)
        {
            system.equate(&total, &sum);
        }
        for requirement in symbols.requirements() {
            if let Requirement::Broadcast(a, b) = requirement {
                system.equate(a, b);
            }
        }
        // What positions are looked up in is as long as they reach: so are masks. The first token, which every text has, says nothing of that.
        for Reach { size, .. } in self.reaches.iter().filter(|reach| !reach.least.is_const()) {
            let size = system.resolved(size);
            let same = self.reaches.iter().filter(|reach| system.resolved(&reach.size) == size);
            let least: Vec<Dim> = same.map(|reach| system.resolved(&reach.least)).collect();
            let covers = |most: &&Dim| {
                let covered = |other: &Dim| most.sub(other).is_some_and(|rest| rest.provably_nonneg(symbols));
                least.iter().all(covered)
            };
            let is_input =
                size.as_symbol().is_some_and(|symbol| self.slots.iter().any(|slot| slot.symbol == symbol));
            if let Some(most) = least.iter().find(covers).filter(|_| is_input) {
                system.equate(&size, most);
            }
        }
        if trust == Trust::Likeness {
            self.equate_alike(&mut system);
        }
        system
    }

    /// Makes dimensions equal that stand at the same place of inputs that are alike: the first of all inputs, which is the batch, and those of tensors
    /// with three axes or more whose other sizes are the same, as caches of all layers are. Only what is free is made equal to what is free.
    fn equate_alike(&self, system: &mut System<'_>) {
        let symbols = self.inference.symbols();
        let mut groups: BTreeMap<Likeness, Symbol> = BTreeMap::new();
        let fixed: HashMap<&Str, Vec<Option<i64>>> = tensors(self.model)
            .filter_map(|port| {
                let shape = self.inference.shape(port.value)?;
                Some((self.model.value(port.value).name(), shape.iter().map(Dim::as_const).collect()))
            })
            .collect();
        for slot in &self.slots {
            let Some(sizes) = fixed.get(&slot.input).filter(|sizes| slot.axis == 0 || sizes.len() > 2) else {
                continue;
            };
            let likeness = match slot.axis {
                0 => None,
                axis => Some((axis, sizes.clone(), symbols.lower(slot.symbol))),
            };
            let first = *groups.entry(likeness).or_insert(slot.symbol);
            let [a, b] = [slot.symbol, first].map(|symbol| system.resolved(&symbol.into()));
            if a.as_symbol().is_some() && b.as_symbol().is_some() {
                system.equate(&a, &b);
            }
        }
    }

    /// The size that a dimension is wanted to have.
    fn wanted_size(&self, slot: &Slot) -> Option<usize> {
        let by_shape = self.wanted.shapes.get(&*slot.input).and_then(|shape| shape.get(slot.axis).copied());
        by_shape.or_else(|| self.wanted.dims.get(slot.name.as_deref()?).copied())
    }

    /// The symbols of inputs that nothing fixes, in their order.
    fn free(&self, system: &System<'_>) -> Vec<Symbol> {
        let mut free = Vec::new();
        for slot in &self.slots {
            for symbol in system.resolved(&slot.symbol.into()).symbols() {
                if !free.contains(&symbol) {
                    free.push(symbol);
                }
            }
        }
        free
    }

    /// What the graph demands, in terms of free symbols.
    fn requirements(&self, system: &System<'_>) -> Vec<Requirement> {
        let reaches = self.reaches.iter().filter_map(Reach::requirement);
        let all = self.inference.symbols().requirements().iter().cloned().chain(reaches);
        all.map(|requirement| system.resolved_requirement(&requirement)).collect()
    }

    /// The size of every slot under an assignment of free symbols.
    fn evaluated(&self, system: &System<'_>, sizes: &BTreeMap<Symbol, i64>) -> Option<Vec<usize>> {
        let of = |slot: &Slot| {
            let size = system.resolved(&slot.symbol.into()).evaluate(&|symbol| sizes.get(&symbol).copied());
            usize::try_from(size?).ok()
        };
        self.slots.iter().map(of).collect()
    }

    /// Whether the model can run with slots of these sizes, as far as inference tells. Where there is no choice, what inference says of nodes does not
    /// matter: whoever runs the model will see.
    fn at(&self, sizes: &[usize], is_choice: bool) -> Result<Shapes, Refusal> {
        let (inputs, called) = (self.shapes(sizes), self.called(sizes));
        let given = inputs.iter().map(|(name, shape)| (name.as_str().into(), Given::Shape(shape.clone())));
        let options = Assumed {
            given: given.collect(),
            may_be_empty: true,
            deadline: self.wanted.deadline,
            ..Assumed::default()
        };
        let inference = Inference::with(self.model, &options);
        let bytes = peak(self.model, &|value| bytes(&inference, value)).bytes;
        let shapes = Shapes { inputs, sizes: called, bytes, inference };
        let fails = failing(&shapes.inference).find(|(node, _)| !self.always.contains(node));
        if let Some((node, why)) = fails.filter(|_| is_choice) {
            let node = self.model.node_label(node);
            return Err(Refusal::Fails { sizes: shapes.describe(), node, why });
        }
        if bytes > self.wanted.memory {
            let [needed, allowed] = [bytes, self.wanted.memory].map(|bytes| bytes / 1_000_000);
            return Err(Refusal::Memory { sizes: shapes.describe(), needed, allowed });
        }
        Ok(shapes)
    }

    fn shapes(&self, sizes: &[usize]) -> BTreeMap<String, Vec<usize>> {
        let mut shapes = BTreeMap::new();
        for port in tensors(self.model) {
            let name = self.model.value(port.value).name();
            let Type::Tensor(_, Some(dims)) = port.declared() else { continue };
            let size = |(axis, dim): (usize, &DeclaredDim)| match dim {
                DeclaredDim::Size(size) => usize::try_from(*size).unwrap_or(usize::MAX),
                _ => {
                    let place = self.slots.iter().position(|slot| slot.input == *name && slot.axis == axis);
                    place.and_then(|place| sizes.get(place).copied()).unwrap_or(1)
                }
            };
            shapes.insert(name.to_string(), dims.iter().enumerate().map(size).collect());
        }
        shapes
    }

    /// Sizes under the names of dimensions; where a name has several, or there is none, under those of inputs and axes.
    fn called(&self, sizes: &[usize]) -> Vec<(String, usize)> {
        let mut called: Vec<(String, usize)> = Vec::new();
        for (slot, &size) in self.slots.iter().zip(sizes) {
            let place = || format!("{}[{}]", slot.input, slot.axis);
            let entry = match &slot.name {
                Some(name) => match called.iter().find(|(known, _)| **known == **name) {
                    Some((_, known)) if *known == size => continue,
                    Some(_) => (place(), size),
                    None => (name.to_string(), size),
                },
                None => (place(), size),
            };
            called.push(entry);
        }
        called
    }
}

/// The sizes of the first shapes at which the model can run.
fn first(problem: &Problem<'_>) -> Option<Vec<usize>> {
    let system = problem.system(Trust::Names);
    let (free, requirements) = (problem.free(&system), problem.requirements(&system));
    ASSIGNMENTS.into_iter().skip(1).find_map(|assignment| {
        let sizes = repaired(problem.assigned(&free, assignment), &requirements);
        problem.evaluated(&system, &sizes).filter(|values| problem.at(values, true).is_ok())
    })
}

/// What sizes follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// What the graph demands.
    Graph,
    /// That, and names: one name is one size.
    Names,
    /// That, and likeness: what stands at one place of inputs that are alike is one size.
    Likeness,
}

/// What dimensions of one size have in common: axis, fixed sizes of the input and lower bound; `None` for those of the first axis.
type Likeness = Option<(usize, Vec<Option<i64>>, Option<i64>)>;

/// Inputs of the graph that have to be given and are tensors.
fn tensors(model: &Model) -> impl Iterator<Item = &onnxforge_ir::value::Port> {
    model.scope(model.main()).inputs().iter().filter(|port| {
        matches!(model.value(port.value).def(), Def::Input { default: None, .. })
            && matches!(port.declared(), Type::Tensor(..))
    })
}

fn slots(model: &Model, inference: &Inference) -> Vec<Slot> {
    let mut slots = Vec::new();
    for port in tensors(model) {
        let (Type::Tensor(_, Some(dims)), Some(shape)) = (port.declared(), inference.shape(port.value))
        else {
            continue;
        };
        for (axis, (declared, dim)) in dims.iter().zip(shape).enumerate() {
            let Some(symbol) = dim.as_symbol() else { continue };
            let name = match declared {
                DeclaredDim::Named(name) => Some(name.clone()),
                _ => None,
            };
            slots.push(Slot { input: model.value(port.value).name().clone(), axis, name, symbol });
        }
    }
    slots
}

/// A name that is an expression of other names, in terms of their symbols. Names that no dimension has stand for 1.
fn expressed(name: &str, named: &BTreeMap<&str, Symbol>, symbols: &Symbols) -> Option<Dim> {
    let mut own = Symbols::default();
    let dim = Dim::from_param(name, &mut own);
    if dim.as_symbol().is_some() || dim.is_const() {
        return None;
    }
    let known = |symbol: Symbol| named.get(&*own.name(symbol)).map_or(Dim::ONE, |&symbol| symbol.into());
    dim.substitute(&|symbol| Some(known(symbol)), symbols)
}

/// Nodes that will fail.
fn failing(inference: &Inference) -> impl Iterator<Item = (NodeId, String)> {
    let conflicts = inference.conflicts().iter();
    conflicts.filter_map(|conflict| match &conflict.kind {
        ConflictKind::Call(error) => Some((conflict.node, error.to_string())),
        ConflictKind::Declared { .. } => None,
    })
}

/// Bytes of a value whose shape is known.
fn bytes(inference: &Inference, value: ValueId) -> Option<u64> {
    let fact = inference.tensor(value)?;
    let elements =
        fact.shape.as_ref()?.iter().try_fold(1u64, |product, dim| {
            Some(product.saturating_mul(u64::try_from(dim.as_const()?).ok()?))
        })?;
    Some(elements.saturating_mul(u64::from(fact.dtype?.bits())).div_ceil(8))
}
