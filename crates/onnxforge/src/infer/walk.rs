//! The walk over a model, node by node, into bodies and functions.

use std::collections::{BTreeSet, HashMap};

use super::{Conflict, ConflictKind, Given, Inference, Options, constant_fact, declared_fact};
use crate::eval::{bindings, functions};
use crate::ir::dim::{Dim, Symbols};
use crate::ir::id::Id;
use crate::ir::types::DeclaredDim;
use crate::ir::value::{Def, Use};
use crate::ir::{Model, NodeId, Op, ScopeId, Type, ValueId};
use crate::ops::apply::{self, NoBodies, Settings};
use crate::ops::array::Array;
use crate::ops::call::{Bindings, Call};
use crate::ops::error::invalid;
use crate::ops::eval::Memory;
use crate::ops::fact::Known;
use crate::ops::infer::InferScope;
use crate::ops::{Fact, OpError, TensorFact, Value};

/// Memory for the evaluation of calls whose inputs are all known.
const FOLD_MEMORY: u64 = 256 * 1024;
/// Deepest nesting of function calls.
const MAX_CALLS: usize = 64;

pub fn walk(model: &Model, options: &Options) -> Inference {
    let last = model.values().map(|(id, _)| id.index() + 1).max().unwrap_or(0);
    let mut walker = Walker {
        model,
        functions: functions(model),
        facts: vec![Fact::Unknown; last],
        conflicts: Vec::new(),
        bindings: Vec::new(),
    };
    let mut symbols = Symbols::default();
    for port in model.scope(model.main()).inputs() {
        let declared = port.declared();
        // The constants of a model below IR 4 are listed as inputs too.
        walker.facts[port.value.index()] =
            match (options.given.get(model.value(port.value).name()), model.constant(port.value)) {
                (Some(Given::Value(value)), _) => Fact::of(value, &mut symbols),
                (Some(Given::TypeOf(value)), _) => Fact::of(value, &mut symbols).without_elements(),
                (None, Some(_)) => walker.constant(port.value),
                (None, None) => declared_fact(&declared, &mut symbols),
            };
    }
    let input_symbols = symbols.len();
    if !options.may_be_empty {
        walker.assume_elements(&mut symbols);
    }
    walker.nodes(model.main(), &mut symbols);
    let mut conflicts = walker.conflicts;
    // A body may be walked several times; what is found twice is one contradiction.
    let mut seen = std::collections::HashSet::new();
    conflicts.retain(|conflict| seen.insert((conflict.node, conflict.kind.to_string())));
    Inference { facts: walker.facts, symbols, input_symbols, conflicts }
}

struct Walker<'m> {
    model: &'m Model,
    functions: HashMap<Op, ScopeId>,
    facts: Vec<Fact>,
    conflicts: Vec<Conflict>,
    bindings: Vec<Bindings>,
}

impl Walker<'_> {
    /// Raises the lower bound of the inputs' dimensions to 1, except along axes on which an input is concatenated.
    fn assume_elements(&self, symbols: &mut Symbols) {
        let (mut all, mut grow) = (BTreeSet::new(), BTreeSet::new());
        for port in self.model.scope(self.model.main()).inputs() {
            let Some(shape) = self.facts[port.value.index()].tensor().and_then(|fact| fact.shape.as_ref())
            else {
                continue;
            };
            all.extend(shape.iter().flat_map(Dim::symbols));
            for used in self.model.value(port.value).uses() {
                let Use::Input { node, .. } = *used else { continue };
                let node = self.model.node(node);
                if node.op().is("Concat")
                    && let Some(axis) = node.attr_int("axis")
                    && let Ok(axis) = crate::ops::call::axis(axis, shape.len())
                {
                    grow.extend(shape[axis].symbols());
                }
            }
        }
        all.difference(&grow).for_each(|symbol| symbols.raise_lower(*symbol, 1));
    }

    fn constant(&self, id: ValueId) -> Fact {
        let tensor = match self.model.value(id).def() {
            Def::Constant { constant, .. } | Def::Input { default: Some(constant), .. } => constant.dense(),
            _ => None,
        };
        tensor.map_or_else(|| TensorFact::default().into(), constant_fact)
    }

    fn nodes(&mut self, scope: ScopeId, symbols: &mut Symbols) {
        let constants: Vec<ValueId> = self.model.constants_in(scope).map(|(id, _)| id).collect();
        for id in constants {
            self.facts[id.index()] = self.constant(id);
        }
        let nodes: Vec<NodeId> = self.model.nodes_in(scope).map(|(id, _)| id).collect();
        for id in nodes {
            self.node(id, symbols);
        }
    }

    fn node(&mut self, id: NodeId, symbols: &mut Symbols) {
        let node = self.model.node(id);
        let input = |value: &Option<ValueId>| value.map(|value| self.facts[value.index()].clone());
        let inputs: Vec<Option<Fact>> = node.inputs().iter().map(input).collect();
        let facts = match self.functions.get(node.op()).copied() {
            Some(function) => self.function(id, function, inputs, symbols),
            None => self.operator(id, &inputs, symbols),
        };
        let mut facts = facts.into_iter();
        for output in node.outputs() {
            let fact = facts.next().unwrap_or_default();
            if let Some(output) = *output {
                self.facts[output.index()] = self.declared(id, output, fact, symbols);
            }
        }
    }

    fn operator(&mut self, id: NodeId, inputs: &[Option<Fact>], symbols: &mut Symbols) -> Vec<Fact> {
        let node = self.model.node(id);
        let opset = self.model.opset(node.scope(), &node.op().domain);
        let bindings = self.bindings.last().cloned();
        let Some(call) = apply::call(node, opset, bindings.as_ref()) else { return Vec::new() };
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

    /// Walks a local function with the facts of this call.
    fn function(
        &mut self,
        id: NodeId,
        function: ScopeId,
        inputs: Vec<Option<Fact>>,
        symbols: &mut Symbols,
    ) -> Vec<Fact> {
        if self.bindings.len() >= MAX_CALLS {
            self.conflict(
                id,
                ConflictKind::Call(OpError::Invalid("the function is called from itself".into())),
            );
            return Vec::new();
        }
        let bound = bindings(self.model, id, function, self.bindings.last());
        let scope = self.model.scope(function);
        for (index, port) in scope.inputs().iter().enumerate() {
            self.facts[port.value.index()] = inputs.get(index).cloned().flatten().unwrap_or_default();
        }
        self.bindings.push(bound);
        self.nodes(function, symbols);
        self.bindings.pop();
        scope.outputs().iter().map(|port| self.facts[port.value.index()].clone()).collect()
    }

    /// The fact, compared with what is declared of the value. A declaration is taken at its word only where nothing else
    /// is known.
    fn declared(&mut self, node: NodeId, id: ValueId, fact: Fact, symbols: &mut Symbols) -> Fact {
        let declared = self.model.declared_type(id);
        // In a function the same declaration would have to hold for every call.
        if declared == Type::Unknown || !self.bindings.is_empty() {
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
        let known = crate::ops::find(&self.model.node(node).op().domain, &self.model.node(node).op().name);
        match fact {
            Fact::Unknown if known.is_none() => declared_fact(&declared, symbols),
            fact => fact,
        }
    }

    fn conflict(&mut self, node: NodeId, kind: ConflictKind) {
        self.conflicts.push(Conflict { node, kind });
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
            self.facts[port.value.index()] = fact;
        }
        self.nodes(scope, symbols);
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
        Some(crate::ir::DType::I64) => Array::new(shape, numbers),
        Some(crate::ir::DType::I32) => {
            let small = numbers.iter().map(|&n| i32::try_from(n)).collect::<Result<Vec<_>, _>>();
            let Ok(small) = small else { return };
            Array::new(shape, small)
        }
        Some(crate::ir::DType::Bool) => {
            Array::new(shape, numbers.iter().map(|&n| n != 0).collect::<Vec<_>>())
        }
        _ => return,
    };
    if let Ok(array) = array {
        tensor.value = Some(Known::Array(array));
    }
}

/// Whether a declaration and a fact cannot both hold.
fn contradicts(declared: &Type, fact: &Fact) -> bool {
    match (declared, fact) {
        (Type::Tensor(dtype, shape), Fact::Tensor(fact)) => {
            let types = matches!((dtype, fact.dtype), (Some(a), Some(b)) if *a != b);
            let (Some(declared), Some(inferred)) = (shape, &fact.shape) else { return types };
            let differ = |(declared, inferred): (&DeclaredDim, &Dim)| matches!((declared, inferred.as_const()), (DeclaredDim::Size(a), Some(b)) if *a as i64 != b);
            types || declared.len() != inferred.len() || declared.iter().zip(inferred).any(differ)
        }
        (Type::Sequence(element), Fact::Sequence { element: fact, .. })
        | (Type::Optional(element), Fact::Optional { element: fact, .. }) => contradicts(element, fact),
        (Type::Unknown | Type::Sparse(..) | Type::Opaque { .. }, _) | (_, Fact::Unknown) => false,
        (Type::Map(..), Fact::Map) => false,
        _ => true,
    }
}
