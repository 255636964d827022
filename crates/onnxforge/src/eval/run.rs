//! One run of a model.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::time::Instant;

use super::{RunError, Session};
use crate::ir::id::Id;
use crate::ir::scope::ScopeKind;
use crate::ir::value::Def;
use crate::ir::{AttrValue, NodeId, ScopeId, ValueId};
use crate::ops::apply::{self, Settings};
use crate::ops::call::Bindings;
use crate::ops::error::{invalid, unsupported};
use crate::ops::eval::{Memory, RunScope};
use crate::ops::kernel::widen::{each_array, widest};
use crate::ops::{OpError, Value};
use crate::progress::Unit;

/// Deepest nesting of function calls: valid models never call a function from itself.
const MAX_CALLS: usize = 64;

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
    deadline: Option<Instant>,
    /// Where the innermost error happened.
    failed_at: Cell<Option<NodeId>>,
}

impl<'s, 'm> Run<'s, 'm> {
    pub fn new(session: &'s Session<'m>) -> Self {
        Self {
            session,
            slots: RefCell::new(vec![None; session.constants.len()]),
            kept: RefCell::default(),
            bindings: RefCell::default(),
            memory: Memory::new(session.options.memory),
            deadline: session.options.time.and_then(|time| Instant::now().checked_add(time)),
            failed_at: Cell::new(None),
        }
    }

    pub fn main(&self, inputs: &HashMap<String, Value>, wanted: &[ValueId]) -> Result<Vec<Value>, RunError> {
        let model = self.session.model;
        let main = model.scope(model.main());
        let mut given = 0;
        for port in main.inputs() {
            let name = model.value(port.value).name();
            let Some(value) = inputs.get(&**name) else {
                if matches!(model.value(port.value).def(), Def::Input { default: Some(_), .. }) {
                    continue;
                }
                return Err(RunError::Input(format!("the input {name} is missing ({})", port.declared())));
            };
            given += 1;
            if !self.session.accepts(&port.declared(), value) {
                let found = match value {
                    Value::Tensor(array) => array.dtype().name(),
                    other => other.form(),
                };
                return Err(RunError::Input(format!("the input {name} is {found}, not {}", port.declared())));
            }
            let value = if self.session.options.wide {
                each_array(value, &widest).map_err(|error| RunError::Input(error.to_string()))?
            } else {
                value.clone()
            };
            self.put(port.value, value);
        }
        if given < inputs.len() {
            let known =
                |name: &&String| main.inputs().iter().any(|port| **model.value(port.value).name() == ***name);
            let mut unknown: Vec<&String> = inputs.keys().filter(|name| !known(name)).collect();
            unknown.sort();
            return Err(RunError::Input(format!("the model has no input {}", unknown[0])));
        }
        self.kept.borrow_mut().extend(wanted);
        self.session.progress.begin("running", main.node_count() as u64, Unit::Nodes);
        let done = self.nodes(model.main());
        self.session.progress.end();
        done.map_err(|error| self.placed(error))?;
        wanted.iter().map(|&id| self.get(id).map_err(|error| self.placed(error))).collect()
    }

    fn placed(&self, error: OpError) -> RunError {
        let node = self.failed_at.get().map_or_else(String::new, |id| {
            let model = self.session.model;
            let node = model.node(id);
            let output = || node.outputs().iter().flatten().next().map(|&id| model.value(id).name());
            let name = node.name().filter(|name| !name.is_empty()).or_else(output);
            name.map_or_else(|| node.op().to_string(), |name| format!("{} {name}", node.op()))
        });
        RunError::Node { node, error }
    }

    /// Runs every node of a scope.
    fn nodes(&self, scope: ScopeId) -> Result<(), OpError> {
        let Some(plan) = self.session.plans.get(&scope) else { return invalid("a body that is not there") };
        for (id, last) in &plan.steps {
            if let Err(error) = self.check_time().and_then(|()| self.node(*id, last)) {
                if self.failed_at.get().is_none() {
                    self.failed_at.set(Some(*id));
                }
                return Err(error);
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
        let mut inputs = Vec::with_capacity(node.inputs().len());
        for (index, input) in node.inputs().iter().enumerate() {
            let Some(input) = *input else {
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
                None => self.session.constant(input).map_err(|error| match error {
                    RunError::Constant { error, .. } => error,
                    other => OpError::Invalid(other.to_string()),
                })?,
            });
        }
        let outputs = match self.session.functions.get(node.op()) {
            Some(&function) => self.call(id, function, inputs)?,
            None => self.operator(id, inputs)?,
        };
        for (index, &output) in node.outputs().iter().enumerate() {
            match (output, outputs.get(index)) {
                (Some(output), Some(value)) => self.put(output, value.clone()),
                (Some(output), None) if !model.value(output).uses().is_empty() => {
                    return unsupported(format!("output {index} of {}", node.op()));
                }
                _ => {}
            }
        }
        for &id in last {
            if !self.kept.borrow().contains(&id) {
                self.drop_slot(id);
            }
        }
        Ok(())
    }

    fn operator(&self, id: NodeId, inputs: Vec<Option<Value>>) -> Result<Vec<Value>, OpError> {
        let model = self.session.model;
        let node = model.node(id);
        let bindings = self.bindings.borrow().last().cloned();
        let opset = model.opset(node.scope(), &node.op().domain);
        let Some(call) = apply::call(node, opset, bindings.as_deref()) else {
            return unsupported(format!("the operator {} (opset {})", node.op(), opset.unwrap_or(0)));
        };
        let seed = self.session.options.seed ^ (id.index() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let settings = Settings { memory: &self.memory, scopes: self, wide: self.session.options.wide, seed };
        apply::evaluate(call, inputs, settings)
    }

    /// Runs a local function.
    fn call(&self, id: NodeId, function: ScopeId, inputs: Vec<Option<Value>>) -> Result<Vec<Value>, OpError> {
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
        match self.session.constant(id) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => invalid(format!("{} has no value", self.session.model.value(id).name())),
            Err(error) => Err(error.cause().cloned().unwrap_or_else(|| OpError::Invalid(error.to_string()))),
        }
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

/// What a call of a function binds its attributes to: the caller's attributes over the function's defaults.
pub(crate) fn bindings(
    model: &crate::ir::Model,
    id: NodeId,
    function: ScopeId,
    outer: Option<&Bindings>,
) -> Bindings {
    let mut bindings = Bindings::new();
    if let ScopeKind::Function(rest) = model.scope(function).kind() {
        for default in &rest.attribute_proto {
            if let Some(attr) = crate::io::resolve::plain_attribute(default) {
                bindings.insert(attr.name, attr.value);
            }
        }
    }
    for attr in model.node(id).attrs() {
        let value = match &attr.value {
            AttrValue::Reference { name, .. } => outer.and_then(|outer| outer.get(name)).cloned(),
            value => Some(value.clone()),
        };
        if let Some(value) = value {
            bindings.insert(attr.name.clone(), value);
        }
    }
    bindings
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
        match self.deadline {
            Some(deadline) if Instant::now() > deadline => Err(OpError::TimeOut),
            _ => Ok(()),
        }
    }
}
