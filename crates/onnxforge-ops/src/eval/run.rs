//! One run of a model.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use super::declared::check;
use super::{RunError, Session};
use crate::apply::{self, Settings};
use crate::call::{Bindings, Call};
use crate::callee::{Callee, MAX_CALLS, bindings};
use crate::error::{invalid, unsupported};
use crate::eval_call::{Memory, RunScope, check_deadline};
use crate::kernel::widen::{each_array, widest};
use crate::tflite::DOMAIN;
use crate::{OpError, Value};
use onnxforge_ir::id::Id;
use onnxforge_ir::{DType, NodeId, ScopeId, ValueId};
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::Unit;

/// Where an error happened.
#[derive(Clone, Copy)]
enum Place {
    Node(NodeId),
    Constant(ValueId),
}

/// The state of one run: a slot for every value of the model. Bodies and functions never run inside themselves, so one
/// slot is enough.
pub struct Run<'s, 'm> {
    session: &'s Session<'m>,
    slots: RefCell<Vec<Option<Value>>>,
    /// Values of the main graph that are kept to the end.
    kept: RefCell<HashSet<ValueId>>,
    /// What the functions that are being called were given as attributes.
    bindings: RefCell<Vec<Rc<Bindings>>>,
    memory: Memory,
    /// Where the innermost error happened.
    failed_at: Cell<Option<Place>>,
}

impl<'s, 'm> Run<'s, 'm> {
    pub fn new(session: &'s Session<'m>) -> Self {
        Self {
            session,
            slots: RefCell::new(vec![None; session.constants.len()]),
            kept: RefCell::default(),
            bindings: RefCell::default(),
            memory: Memory::new(session.options.memory),
            failed_at: Cell::new(None),
        }
    }

    pub fn main(&self, inputs: &HashMap<String, Value>, wanted: &[ValueId]) -> Result<Vec<Value>, RunError> {
        let model = self.session.model;
        let main = model.scope(model.main());
        let wide = self.session.options.wide;
        check(model, inputs, wide).map_err(RunError::Input)?;
        for port in main.inputs() {
            let name = model.value(port.value).name();
            let Some(value) = inputs.get(&**name) else { continue };
            let named = |error: OpError| RunError::Input(format!("the input {name}: {error}"));
            self.memory.check(held_bytes(value, wide)).map_err(named)?;
            let value = if wide { each_array(value, &widest).map_err(named)? } else { value.clone() };
            self.put(port.value, value);
        }
        self.kept.borrow_mut().extend(wanted);
        self.session.progress.begin("running", main.node_count() as u64, Unit::Nodes);
        let done = self.nodes(model.main());
        self.session.progress.end();
        done.map_err(|error| self.placed(error))?;
        wanted.iter().map(|&id| self.get(id).map_err(|error| self.placed(error))).collect()
    }

    fn placed(&self, error: OpError) -> RunError {
        let model = self.session.model;
        match self.failed_at.get() {
            Some(Place::Constant(id)) => RunError::Constant { name: model.value(id).name().clone(), error },
            Some(Place::Node(id)) => RunError::Node { node: model.node_label(id), error },
            None => RunError::Node { node: "the outputs".to_owned(), error },
        }
    }

    /// Remembers where an error happened, unless a place further inside is known.
    fn fail_at(&self, place: Place) {
        if self.failed_at.get().is_none() {
            self.failed_at.set(Some(place));
        }
    }

    /// Runs every node of a scope.
    fn nodes(&self, scope: ScopeId) -> Result<(), OpError> {
        let Some(plan) = self.session.plans.get(&scope) else { return invalid("a body that is not there") };
        for (id, last) in &plan.steps {
            let clock = self.session.clock.map(|clock| (clock, Instant::now()));
            if let Err(error) = self.check_time().and_then(|()| self.node(*id, last)) {
                self.fail_at(Place::Node(*id));
                return Err(error);
            }
            if let Some((clock, start)) = clock {
                clock.ran(*id, start, Instant::now());
            }
            if scope == self.session.model.main() {
                self.session.progress.advance(1);
            }
        }
        Ok(())
    }

    fn node(&self, id: NodeId, last: &BTreeSet<ValueId>) -> Result<(), OpError> {
        let model = self.session.model;
        let node = model.node(id);
        if let Some(values) = self.session.kept(id) {
            node.outputs().iter().flatten().zip(values).for_each(|(&output, value)| self.put(output, value));
            self.forget(last);
            return Ok(());
        }
        let turned = &self.session.turned;
        let is_wanted = || node.outputs().iter().flatten().any(|output| self.kept.borrow().contains(output));
        if turned.spared.contains(&id) && !is_wanted() {
            self.forget(last);
            return Ok(());
        }
        let weights = turned.weights.get(&id).copied();
        let mut inputs = Vec::with_capacity(node.inputs().len());
        for (index, input) in node.inputs().iter().enumerate() {
            let Some(input) = weights.filter(|_| index == 1).or(*input) else {
                inputs.push(None);
                continue;
            };
            let again = node.inputs().iter().skip(index + 1).any(|other| *other == Some(input));
            // What nobody reads any more is handed over, so that it can be changed in place; bodies may still read it.
            let moves = last.contains(&input)
                && !again
                && !self.kept.borrow().contains(&input)
                && node.bodies().next().is_none();
            let held = if moves { self.drop_slot(input) } else { self.peek(input) };
            inputs.push(match held {
                Some(value) => Some(value),
                None => self.constant(input)?,
            });
        }
        let read = inputs.iter().flatten().map(Value::byte_len).sum();
        let bindings = self.bindings.borrow().last().cloned();
        let outputs = match self.session.functions.callee(model, id, bindings.as_deref()) {
            Callee::Function(function) => self.function(id, function, inputs)?,
            Callee::Operator(call) => {
                let call = if weights.is_some() { call.custom(DOMAIN, "FullyConnected")? } else { call };
                self.operator(id, call, inputs)?
            }
            Callee::Unknown => {
                let opset = model.opset(node.scope(), &node.op().domain).unwrap_or(0);
                return unsupported(format!("the operator {} (opset {opset})", node.op()));
            }
        };
        self.session.keep(id, read, &outputs);
        for (index, &output) in node.outputs().iter().enumerate() {
            match (output, outputs.get(index)) {
                (Some(output), Some(value)) => self.put(output, value.clone()),
                (Some(output), None) if !model.value(output).uses().is_empty() => {
                    return unsupported(format!("output {index} of {}", node.op()));
                }
                _ => {}
            }
        }
        self.forget(last);
        Ok(())
    }

    /// Drops values that nothing reads any more.
    fn forget(&self, last: &BTreeSet<ValueId>) {
        for &id in last {
            if !self.kept.borrow().contains(&id) {
                self.drop_slot(id);
            }
        }
    }

    fn operator(
        &self,
        id: NodeId,
        call: Call<'_>,
        inputs: Vec<Option<Value>>,
    ) -> Result<Vec<Value>, OpError> {
        let seed = self.session.options.seed ^ (id.index() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let settings = Settings { memory: &self.memory, scopes: self, wide: self.session.options.wide, seed };
        apply::evaluate(call, inputs, settings)
    }

    /// Runs a local function.
    fn function(
        &self,
        id: NodeId,
        function: ScopeId,
        inputs: Vec<Option<Value>>,
    ) -> Result<Vec<Value>, OpError> {
        let model = self.session.model;
        if self.bindings.borrow().len() >= MAX_CALLS {
            return invalid(format!("the function {} is called from itself", model.node(id).op()));
        }
        let bindings = bindings(model, id, function, self.bindings.borrow().last().map(|b| &**b));
        let scope = model.scope(function);
        for (index, port) in scope.inputs().iter().enumerate() {
            self.drop_slot(port.value);
            if let Some(Some(value)) = inputs.get(index) {
                self.put(port.value, value.clone());
            }
        }
        self.bindings.borrow_mut().push(Rc::new(bindings));
        let result = self.nodes(function).and_then(|()| self.outputs(function));
        self.bindings.borrow_mut().pop();
        result
    }

    /// Takes the outputs of a scope that has run, and forgets its inputs.
    fn outputs(&self, scope: ScopeId) -> Result<Vec<Value>, OpError> {
        let ports = self.session.model.scope(scope);
        let outputs = ports.outputs().iter().map(|port| self.get(port.value)).collect();
        for port in ports.inputs().iter().chain(ports.outputs()) {
            if self.session.model.scope_of(port.value) == Some(scope) {
                self.drop_slot(port.value);
            }
        }
        outputs
    }

    fn get(&self, id: ValueId) -> Result<Value, OpError> {
        if let Some(value) = self.peek(id) {
            return Ok(value);
        }
        match self.constant(id)? {
            Some(value) => Ok(value),
            None => invalid(format!("{} has no value", self.session.model.value(id).name())),
        }
    }

    fn constant(&self, id: ValueId) -> Result<Option<Value>, OpError> {
        self.session.constant(id).inspect_err(|_| self.fail_at(Place::Constant(id)))
    }

    fn peek(&self, id: ValueId) -> Option<Value> {
        self.slots.borrow().get(id.index()).cloned().flatten()
    }

    fn put(&self, id: ValueId, value: Value) {
        self.memory.hold(value.byte_len());
        let old = self.slots.borrow_mut().get_mut(id.index()).and_then(|slot| slot.replace(value));
        if let Some(old) = old {
            self.memory.release(old.byte_len());
        }
    }

    fn drop_slot(&self, id: ValueId) -> Option<Value> {
        let value = self.slots.borrow_mut().get_mut(id.index()).and_then(Option::take)?;
        self.memory.release(value.byte_len());
        Some(value)
    }
}

impl RunScope for Run<'_, '_> {
    fn scope(&self, scope: ScopeId, inputs: Vec<Value>) -> Result<Vec<Value>, OpError> {
        let ports = self.session.model.scope(scope).inputs();
        if inputs.len() > ports.len() {
            return invalid(format!("{} inputs for a body that takes {}", inputs.len(), ports.len()));
        }
        for (port, value) in ports.iter().zip(inputs) {
            self.put(port.value, value);
        }
        self.nodes(scope)?;
        self.outputs(scope)
    }

    fn check_time(&self) -> Result<(), OpError> {
        check_deadline(self.session.options.deadline)
    }
}

/// Bytes that a value takes in a run; in a wide one every float has 64 bits.
fn held_bytes(value: &Value, wide: bool) -> u64 {
    match value {
        Value::Tensor(array) if wide && matches!(array.dtype(), DType::F32 | DType::F16 | DType::BF16) => {
            (array.len() as u64).saturating_mul(8)
        }
        value => value.byte_len(),
    }
}
