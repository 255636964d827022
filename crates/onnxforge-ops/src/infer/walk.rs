//! The walk over a model, node by node, into bodies and functions.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use super::declare::{contradicts, same_elements};
use super::demand::{Demands, Shown};
use super::growth::{Growth, growing};
use super::{
    Conflict, ConflictKind, Given, Inference, Options, constant_fact, declared_fact, learn, shaped_fact,
    without_names,
};
use crate::apply::{self, NoBodies, Settings};
use crate::array::Array;
use crate::call::{Bindings, Call};
use crate::callee::{Callee, Functions, MAX_CALLS, bindings};
use crate::error::invalid;
use crate::eval_call::{Memory, check_deadline};
use crate::fact::Known;
use crate::infer_call::InferScope;
use crate::signature::Presence;
use crate::{Fact, OpError, TensorFact, Value};
use onnxforge_ir::dim::{Dim, Solution, Symbol, Symbols};
use onnxforge_ir::id::Id;
use onnxforge_ir::value::{Constant, Def, Use};
use onnxforge_ir::{Model, NodeId, ScopeId, Type, ValueId};
use onnxforge_proto::clock::Instant;

/// Memory for the evaluation of calls whose inputs are all known.
const FOLD_MEMORY: u64 = 256 * 1024;
/// How many nodes of bodies and functions are walked, besides so many times the nodes that there are: a body is walked once
/// for several turns and a function once for each call, and both may hold others.
const MAX_WALKED: usize = 1 << 16;
const MAX_TIMES: usize = 64;

/// Walks a model. Where the walk itself shows more of the dimensions of inputs, it begins again: each time with more of them, so that it ends.
pub fn walk(model: &Model, options: &Options) -> Inference {
    let mut shown = Shown::default();
    loop {
        match walk_once(model, options, &shown) {
            Ok(inference) => return inference,
            Err(more) => {
                shown.may_be_empty.extend(more.may_be_empty);
                shown.sizes.extend(more.sizes);
            }
        }
    }
}

/// A walk that assumes elements along all dimensions of inputs but those that may be empty and those that are concatenated as they are. Fails with
/// dimensions for which the walk shows that this was assumed too much, and with those whose size it shows.
fn walk_once(model: &Model, options: &Options, shown: &Shown) -> Result<Inference, Shown> {
    let last = model.values().map(|(id, _)| id.index() + 1).max().unwrap_or(0);
    let mut walker = Walker {
        model,
        functions: Functions::of(model),
        facts: vec![Fact::Unknown; last],
        conflicts: Vec::new(),
        bindings: Vec::new(),
        absent: HashSet::new(),
        for_all_calls: false,
        left: model.node_count().saturating_mul(MAX_TIMES).saturating_add(MAX_WALKED),
        deadline: options.deadline,
        is_late: false,
        complete: true,
        growth: if options.may_be_empty { Growth::default() } else { Growth::of_inputs(model) },
        solution: Solution::default(),
        demands: if options.names_apart { Demands::default() } else { Demands::of(model) },
    };
    let mut symbols = Symbols::default();
    for port in model.scope(model.main()).inputs() {
        let declared = match options.names_apart {
            true => without_names(port.declared()),
            false => port.declared(),
        };
        // The constants of a model below IR 4 are listed as inputs too.
        walker.facts[port.value.index()] =
            match (options.given.get(model.value(port.value).name()), model.constant(port.value)) {
                (Some(Given::Value(value)), _) => Fact::of(value, &mut symbols),
                (Some(Given::TypeOf(value)), _) => Fact::of(value, &mut symbols).without_elements(),
                (Some(Given::Shape(shape)), _) => shaped_fact(&declared, shape),
                (None, Some(_)) => walker.constant(port.value),
                (None, None) => declared_fact(&declared, &mut symbols),
            };
    }
    let input_symbols = symbols.len();
    walker.solution = Solution::new(input_symbols);
    for port in model.scope(model.main()).inputs() {
        if let Fact::Tensor(TensorFact { shape: Some(shape), .. }) = &mut walker.facts[port.value.index()] {
            shape.iter_mut().for_each(|dim| shown.settle(dim, &symbols));
        }
    }
    let mut assumed = BTreeSet::new();
    if !options.may_be_empty {
        assumed = walker.assume_elements(&shown.may_be_empty, &mut symbols);
    }
    walker.demands.inputs = input_symbols;
    walker.nodes(model.main(), &mut symbols);
    let may_be_empty: BTreeSet<Symbol> = walker.growth.symbols().intersection(&assumed).copied().collect();
    let sizes = std::mem::take(&mut walker.demands.sizes);
    if !may_be_empty.is_empty() || !sizes.is_empty() {
        return Err(Shown { may_be_empty, sizes });
    }
    let all: Vec<usize> = (0..walker.facts.len()).collect();
    walker.solve(&symbols, &all);
    let certain = symbols.requirements().len();
    walker.functions_for_all_calls(&mut symbols);
    symbols.forget_requirements(certain);
    let mut conflicts = walker.conflicts;
    // A body may be walked several times; what is found twice is one contradiction.
    let mut seen = HashSet::new();
    conflicts.retain(|conflict| seen.insert((conflict.node, conflict.kind.to_string())));
    Ok(Inference { facts: walker.facts, symbols, input_symbols, conflicts, complete: walker.complete })
}

/// Walks nodes that are new, with what is known of the values that they read. Calls of functions are not followed: what is
/// known inside of functions has to hold for all calls.
pub fn extend(inference: &mut Inference, model: &Model, nodes: &[NodeId]) {
    let last = model.values().map(|(id, _)| id.index() + 1).max().unwrap_or(0);
    let mut facts = std::mem::take(&mut inference.facts);
    facts.resize(last.max(facts.len()), Fact::Unknown);
    let mut walker = Walker {
        model,
        functions: Functions::of(model),
        facts,
        conflicts: Vec::new(),
        bindings: Vec::new(),
        absent: HashSet::new(),
        for_all_calls: true,
        left: nodes.len().saturating_mul(MAX_TIMES).saturating_add(MAX_WALKED),
        deadline: None,
        is_late: false,
        complete: true,
        growth: Growth::default(),
        solution: Solution::default(),
        demands: Demands::default(),
    };
    for &id in nodes {
        let outputs: Vec<ValueId> = model.node(id).outputs().iter().flatten().copied().collect();
        let known: Vec<Fact> = outputs.iter().map(|value| walker.facts[value.index()].clone()).collect();
        walker.node(id, &mut inference.symbols);
        for (value, known) in outputs.into_iter().zip(known) {
            let fact = std::mem::replace(&mut walker.facts[value.index()], known);
            learn(&mut walker.facts[value.index()], fact);
        }
    }
    inference.facts = walker.facts;
}

struct Walker<'m> {
    model: &'m Model,
    functions: Functions,
    facts: Vec<Fact>,
    conflicts: Vec<Conflict>,
    /// What the functions that are being called were given as attributes.
    bindings: Vec<Rc<Bindings>>,
    /// Inputs of the functions that are being called that the calls leave out.
    absent: HashSet<ValueId>,
    /// A function is walked for all of its calls at once: nothing is known of its inputs and attributes.
    for_all_calls: bool,
    /// How many nodes of bodies and functions may still be walked.
    left: usize,
    deadline: Option<Instant>,
    is_late: bool,
    /// Everything was walked that was to be.
    complete: bool,
    /// Inputs that may start empty.
    growth: Growth,
    /// What follows from the requirements so far.
    solution: Solution,
    demands: Demands,
}

impl Walker<'_> {
    /// Raises the lower bound of the inputs' dimensions to 1, except along axes on which an input is seen to grow at once. Answers the dimensions of which
    /// this is assumed.
    fn assume_elements(&self, may_be_empty: &BTreeSet<Symbol>, symbols: &mut Symbols) -> BTreeSet<Symbol> {
        let (mut all, mut grow) = (BTreeSet::new(), may_be_empty.clone());
        for port in self.model.scope(self.model.main()).inputs() {
            let Some(shape) = self.facts[port.value.index()].tensor().and_then(|fact| fact.shape.as_ref())
            else {
                continue;
            };
            all.extend(shape.iter().flat_map(Dim::symbols));
            for used in self.model.value(port.value).uses() {
                let Use::Input { node, index } = *used else { continue };
                for (_, axis) in growing(self.model.node(node)).filter(|(input, _)| *input == index as usize)
                {
                    if let Ok(axis) = crate::call::axis(axis, shape.len()) {
                        grow.extend(shape[axis].symbols());
                    }
                }
            }
        }
        all.retain(|symbol| !grow.contains(symbol));
        all.iter().for_each(|symbol| symbols.raise_lower(*symbol, 1));
        all
    }

    /// Says what is known of values in terms of fewer symbols: those of the inputs, and those that requirements do not determine.
    fn solve(&mut self, symbols: &Symbols, values: &[usize]) {
        if self.solution.is_empty() {
            return;
        }
        let apply = |dim: &mut Dim| {
            if let Some(solved) = self.solution.apply(dim, symbols) {
                *dim = solved;
            }
        };
        for &value in values {
            let Some(Fact::Tensor(tensor)) = self.facts.get_mut(value) else { continue };
            tensor.shape.iter_mut().flatten().for_each(apply);
            if let Some(Known::Dims(dims)) = &mut tensor.value {
                let mut now = dims.to_vec();
                now.iter_mut().for_each(apply);
                *dims = now.into();
            }
            settle(&mut self.facts[value]);
        }
    }

    fn constant(&self, id: ValueId) -> Fact {
        match self.model.value(id).def() {
            Def::Constant { constant, .. } | Def::Input { default: Some(constant), .. } => match constant {
                Constant::Dense(tensor) => constant_fact(tensor),
                Constant::Sparse(sparse) => {
                    let shape = sparse.dims.iter().map(|&size| Dim::from(size)).collect();
                    TensorFact::new(sparse.values.dtype(), shape).into()
                }
            },
            _ => TensorFact::default().into(),
        }
    }

    fn nodes(&mut self, scope: ScopeId, symbols: &mut Symbols) {
        let model = self.model;
        let constants = model.constants_in(scope).count();
        if !self.may_walk(scope, constants) {
            return self.forget(scope);
        }
        for (id, _) in model.constants_in(scope) {
            self.facts[id.index()] = self.constant(id);
        }
        for (id, node) in model.nodes_in(scope) {
            if self.may_walk(scope, 1) {
                let known = symbols.requirements().len();
                self.node(id, symbols);
                self.demands.see(id, &symbols.requirements()[known..]);
            } else {
                self.forget_node(id);
            }
            // What holds in a body holds where it runs only.
            if scope == model.main() {
                match self.demands.counts(id) {
                    true => self.solution.update(symbols),
                    false => self.solution.skip(symbols),
                }
                let outputs: Vec<usize> =
                    node.outputs().iter().flatten().map(|output| output.index()).collect();
                self.solve(symbols, &outputs);
            }
        }
    }

    /// Whether time and the number of nodes allow to walk `count` more nodes of a scope. The main graph is walked just
    /// once; only time ends that.
    fn may_walk(&mut self, scope: ScopeId, count: usize) -> bool {
        self.is_late = self.is_late || check_deadline(self.deadline).is_err();
        let left = if scope == self.model.main() { Some(self.left) } else { self.left.checked_sub(count) };
        self.left = left.unwrap_or(0);
        let may = left.is_some() && !self.is_late;
        self.complete &= may;
        may
    }

    /// Nothing is known of the values of a scope: what an earlier walk found held for that walk.
    fn forget(&mut self, scope: ScopeId) {
        let model = self.model;
        for port in model.scope(scope).inputs() {
            self.facts[port.value.index()] = Fact::Unknown;
        }
        for (id, _) in model.nodes_in(scope) {
            self.forget_node(id);
        }
    }

    fn forget_node(&mut self, id: NodeId) {
        let node = self.model.node(id);
        for output in node.outputs().iter().flatten() {
            self.facts[output.index()] = Fact::Unknown;
        }
        node.bodies().for_each(|body| self.forget(body));
    }

    /// Walks every function with nothing known of its inputs and attributes, so that the facts of its values hold in every
    /// call.
    fn functions_for_all_calls(&mut self, symbols: &mut Symbols) {
        self.for_all_calls = true;
        self.absent.clear();
        for &function in self.model.functions() {
            for port in self.model.scope(function).inputs() {
                self.facts[port.value.index()] = Fact::Unknown;
            }
            self.nodes(function, symbols);
        }
    }

    fn node(&mut self, id: NodeId, symbols: &mut Symbols) {
        let (model, node) = (self.model, self.model.node(id));
        let present = |value: &Option<ValueId>| value.filter(|value| !self.absent.contains(value));
        let inputs = node.inputs().iter().map(present);
        let inputs: Vec<Option<Fact>> =
            inputs.map(|value| value.map(|value| self.facts[value.index()].clone())).collect();
        if !self.for_all_calls {
            self.growth.see(node, |value| &self.facts[value.index()]);
        }
        let bindings = self.bindings.last().cloned();
        let facts = match self.functions.callee(model, id, bindings.as_deref()) {
            Callee::Function(function) => self.function(id, function, inputs, symbols),
            Callee::Operator(call) => self.operator(id, call, &inputs, symbols),
            Callee::Unknown => Vec::new(),
        };
        let mut facts = facts.into_iter();
        for output in node.outputs() {
            let fact = facts.next().unwrap_or_default();
            if let Some(output) = *output {
                self.facts[output.index()] = self.declared(id, output, fact, symbols);
            }
        }
    }

    fn operator(
        &mut self,
        id: NodeId,
        call: Call<'_>,
        inputs: &[Option<Fact>],
        symbols: &mut Symbols,
    ) -> Vec<Fact> {
        if self.for_all_calls && self.may_lack_input(call) {
            call.node.bodies().for_each(|body| self.forget(body));
            return crate::infer_call::outputs_by_signature(&call, inputs);
        }
        if let Some(values) = fold(call, inputs) {
            return values.iter().map(|value| Fact::of(value, symbols)).collect();
        }
        let (mut facts, error) = apply::infer(call, inputs, symbols, self);
        if let Some(error) = error {
            self.conflict(id, ConflictKind::Call(error));
        }
        facts.iter_mut().for_each(settle);
        facts
    }

    /// Whether an input that the operator can do without comes from the function's caller, who may leave it out.
    fn may_lack_input(&self, call: Call<'_>) -> bool {
        let of_caller = |value: ValueId| match self.model.value(value).def() {
            Def::Input { scope, .. } => self.model.functions().contains(scope),
            _ => false,
        };
        let required = |index: usize| {
            let param = call.signature.and_then(|signature| signature.input(index));
            param.is_some_and(|param| matches!(param.presence, Presence::Required))
        };
        let mut inputs = call.node.inputs().iter().enumerate();
        inputs.any(|(index, input)| input.is_some_and(of_caller) && !required(index))
    }

    /// Walks a local function with the facts of this call.
    fn function(
        &mut self,
        id: NodeId,
        function: ScopeId,
        inputs: Vec<Option<Fact>>,
        symbols: &mut Symbols,
    ) -> Vec<Fact> {
        if self.for_all_calls {
            // The facts inside are to hold in every call, not in this one.
            return Vec::new();
        }
        if self.bindings.len() >= MAX_CALLS {
            self.conflict(
                id,
                ConflictKind::Call(OpError::Invalid("the function is called from itself".into())),
            );
            return Vec::new();
        }
        let bound = bindings(self.model, id, function, self.bindings.last().map(|outer| &**outer));
        let scope = self.model.scope(function);
        for (index, port) in scope.inputs().iter().enumerate() {
            let given = inputs.get(index).cloned().flatten();
            self.growth.bind(port.value, self.model.node(id).input(index));
            match given {
                Some(_) => self.absent.remove(&port.value),
                None => self.absent.insert(port.value),
            };
            self.facts[port.value.index()] = given.unwrap_or_default();
        }
        self.bindings.push(Rc::new(bound));
        self.nodes(function, symbols);
        self.bindings.pop();
        for (output, port) in self.model.node(id).outputs().iter().zip(scope.outputs()) {
            output.iter().for_each(|output| self.growth.bind(*output, Some(port.value)));
        }
        scope.outputs().iter().map(|port| self.facts[port.value.index()].clone()).collect()
    }

    /// The fact, compared with what is declared of the value. A declaration is taken at its word only where nothing else
    /// is known.
    fn declared(&mut self, node: NodeId, id: ValueId, fact: Fact, symbols: &mut Symbols) -> Fact {
        let declared = self.model.declared_type(id);
        // In a function the same declaration would have to hold for every call.
        if declared == Type::Unknown || self.for_all_calls || !self.bindings.is_empty() {
            return fact;
        }
        if contradicts(&declared, &fact) {
            let inferred = match &fact {
                Fact::Tensor(fact) => fact.display(symbols).to_string(),
                _ => "another kind of value".to_owned(),
            };
            let name = self.model.value(id).name().clone();
            self.conflict(node, ConflictKind::Declared { value: id, name, declared, inferred });
            return fact;
        }
        let known = crate::find(&self.model.node(node).op().domain, &self.model.node(node).op().name);
        match fact {
            Fact::Unknown if known.is_none() => declared_fact(&declared, symbols),
            fact => fact,
        }
    }

    fn conflict(&mut self, node: NodeId, kind: ConflictKind) {
        // What contradicts itself for all calls at once need not do so in any of them.
        if !self.for_all_calls {
            self.conflicts.push(Conflict { node, kind });
        }
    }
}

impl InferScope for Walker<'_> {
    fn scope(
        &mut self,
        scope: ScopeId,
        inputs: Vec<Fact>,
        symbols: &mut Symbols,
    ) -> Result<Vec<Fact>, OpError> {
        let ports = self.model.scope(scope);
        if inputs.len() > ports.inputs().len() {
            return invalid(format!(
                "{} inputs for a body that takes {}",
                inputs.len(),
                ports.inputs().len()
            ));
        }
        for (port, fact) in ports.inputs().iter().zip(inputs) {
            let declared = port.declared();
            if let (Some(holder), false) = (ports.holder(), same_elements(&declared, &fact)) {
                let inferred = fact.tensor().map_or_else(
                    || "another kind of value".to_owned(),
                    |fact| fact.display(symbols).to_string(),
                );
                let (value, name) = (port.value, self.model.value(port.value).name().clone());
                self.conflict(holder, ConflictKind::Declared { value, name, declared, inferred });
            }
            self.facts[port.value.index()] = fact;
        }
        // A body may be passed by: what it asks for need not hold.
        let certain = symbols.requirements().len();
        self.nodes(scope, symbols);
        symbols.forget_requirements(certain);
        Ok(ports.outputs().iter().map(|port| self.facts[port.value.index()].clone()).collect())
    }
}

/// The outputs of a call whose inputs are all known numbers, when it is cheap to compute them.
fn fold(call: Call<'_>, inputs: &[Option<Fact>]) -> Option<Vec<Value>> {
    let deterministic = call.signature.is_none_or(|signature| signature.deterministic) && !call.def.random;
    if !deterministic || call.node.bodies().next().is_some() {
        return None;
    }
    let known = |fact: &Option<Fact>| match fact {
        None => Some(None),
        Some(Fact::Tensor(fact)) => Some(Some(Value::Tensor(fact.array()?.clone()))),
        Some(_) => None,
    };
    let inputs: Vec<Option<Value>> = inputs.iter().map(known).collect::<Option<_>>()?;
    let memory = Memory::new(FOLD_MEMORY);
    let settings = Settings { memory: &memory, scopes: &NoBodies, wide: false, seed: 0 };
    let values = apply::evaluate(call, inputs, settings).ok()?;
    let small = |value: &Value| value.byte_len() <= FOLD_MEMORY;
    values.iter().all(small).then_some(values)
}

/// Expressions that are all numbers become an array.
fn settle(fact: &mut Fact) {
    let Fact::Tensor(tensor) = fact else { return };
    let Some(Known::Dims(dims)) = &tensor.value else { return };
    let numbers: Option<Vec<i64>> = dims.iter().map(Dim::as_const).collect();
    let (Some(numbers), Some(shape)) = (numbers, tensor.static_shape()) else { return };
    let array = match tensor.dtype {
        Some(onnxforge_ir::DType::I64) => Array::new(shape, numbers),
        Some(onnxforge_ir::DType::I32) => {
            let small = numbers.iter().map(|&n| i32::try_from(n)).collect::<Result<Vec<_>, _>>();
            let Ok(small) = small else { return };
            Array::new(shape, small)
        }
        Some(onnxforge_ir::DType::Bool) => {
            Array::new(shape, numbers.iter().map(|&n| n != 0).collect::<Vec<_>>())
        }
        _ => return,
    };
    if let Ok(array) = array {
        tensor.value = Some(Known::Array(array));
    }
}
