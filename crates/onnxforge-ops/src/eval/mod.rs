//! Runs models with the operators of this library: no outside runtime.
//!
//! [`Session`] prepares a model once; [`Session::run`] runs it. Constants are decoded when they are first needed, values are
//! dropped after their last use, and memory and time are bounded by [`Options`].

mod boxes;
mod declared;
pub mod npz;
mod plan;
mod run;
pub mod sample;
pub mod shapes;
pub mod stored;

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use plan::Plan;

use crate::array::Array;
use crate::array::spare::Reuse;
use crate::callee::{Functions, constant_nodes};
use crate::eval_call::Memory;
use crate::kernel::sparse::densify;
use crate::kernel::widen::{each_array, widest};
use crate::{OpError, Value};
use onnxforge_ir::id::Id;
use onnxforge_ir::value::{Constant, Def};
use onnxforge_ir::{Model, NodeId, ScopeId, ValueId};
use onnxforge_proto::Str;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Silent};

/// How a model is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that the values of the run may take at any moment; constants of the model do not count.
    pub memory: u64,
    /// When every run has to have ended.
    pub deadline: Option<Instant>,
    /// Compute every float in 64 bits, whatever the model declares: the result tells rounding from error.
    pub wide: bool,
    /// What random operators start from.
    pub seed: u64,
    /// Keep decoded constants, and what the graph computes from them alone, between runs, at the price of their memory.
    pub keep_constants: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory: 16 << 30, deadline: None, wide: false, seed: 0, keep_constants: true }
    }
}

/// Why a run gave no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// A node has no result.
    #[error("{node}: {error}")]
    Node {
        /// The node: operator and name, or first output.
        node: String,
        /// Why.
        error: OpError,
    },
    /// A constant cannot be read.
    #[error("the constant {name}: {error}")]
    Constant {
        /// Its name.
        name: Str,
        /// Why.
        error: OpError,
    },
    /// An input is missing, unknown, too large, or of another type or shape.
    #[error("{0}")]
    Input(String),
}

impl RunError {
    /// The reason without the place.
    pub fn cause(&self) -> Option<&OpError> {
        match self {
            Self::Node { error, .. } | Self::Constant { error, .. } => Some(error),
            Self::Input(_) => None,
        }
    }
}

/// Why a model cannot take these inputs: one is missing, unknown, or of another type or shape than is declared.
pub fn check_inputs(model: &Model, inputs: &HashMap<String, Value>) -> Result<(), RunError> {
    declared::check(model, inputs, false).map_err(RunError::Input)
}

/// The same for some of the inputs: others may be missing.
pub fn check_given(model: &Model, inputs: &HashMap<String, Value>) -> Result<(), RunError> {
    declared::check_given(model, inputs, false).map_err(RunError::Input)
}

/// A model that is ready to run.
pub struct Session<'m> {
    model: &'m Model,
    options: Options,
    plans: HashMap<ScopeId, Plan>,
    functions: Functions,
    constants: Vec<OnceLock<Value>>,
    /// Nodes of the graph that compute the same in every run.
    fixed: HashSet<NodeId>,
    progress: &'m dyn Progress,
    clock: Option<&'m dyn Clock>,
}

/// Hears when each node began and ended, those in bodies and functions before the nodes that hold or call them.
pub trait Clock: Sync {
    /// A node was run.
    fn ran(&self, node: NodeId, start: Instant, end: Instant);
}

impl<'m> Session<'m> {
    /// Prepares a model.
    pub fn new(model: &'m Model, options: Options) -> Self {
        let plans = model.scopes().map(|(scope, _)| (scope, Plan::new(model, scope))).collect();
        let last = model.values().map(|(id, _)| id.index() + 1).max().unwrap_or(0);
        let constants = (0..last).map(|_| OnceLock::new()).collect();
        let mut fixed = if options.keep_constants { constant_nodes(model) } else { HashSet::new() };
        fixed.retain(|&node| model.node(node).scope() == model.main());
        Self {
            model,
            options,
            plans,
            functions: Functions::of(model),
            constants,
            fixed,
            progress: &Silent,
            clock: None,
        }
    }

    /// The same, reporting every node of the model's graph that is done.
    pub fn watched(self, progress: &'m dyn Progress) -> Self {
        Self { progress, ..self }
    }

    /// The same, telling when each node began and ended.
    pub fn timed(self, clock: &'m dyn Clock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// From now on, runs end at this time.
    pub fn end_at(&mut self, deadline: Instant) {
        self.options.deadline = Some(deadline);
    }

    /// The outputs of the model's graph, in order, given its inputs by name. Inputs must have the element types, ranks and
    /// sizes that are declared, and one size under each name of a dimension.
    pub fn run(&self, inputs: &HashMap<String, Value>) -> Result<Vec<(Str, Value)>, RunError> {
        let ports = self.model.scope(self.model.main()).outputs();
        let wanted: Vec<ValueId> = ports.iter().map(|port| port.value).collect();
        let values = self.run_values(inputs, &wanted)?;
        Ok(wanted.iter().map(|&id| self.model.value(id).name().clone()).zip(values).collect())
    }

    /// The values of the model's graph that are wanted, given its inputs by name.
    pub fn run_values(
        &self,
        inputs: &HashMap<String, Value>,
        wanted: &[ValueId],
    ) -> Result<Vec<Value>, RunError> {
        let _reuse = Reuse::begin();
        run::Run::new(self).main(inputs, wanted)
    }

    /// What a node gave in an earlier run, where it gives the same in every run.
    fn kept(&self, node: NodeId) -> Option<Vec<Value>> {
        let outputs = self.fixed.contains(&node).then(|| self.model.node(node).outputs())?;
        let kept = |value: &ValueId| self.constants.get(value.index())?.get().cloned();
        outputs.iter().flatten().map(kept).collect()
    }

    /// Keeps what a node gives in every run, unless it takes more memory than what it was computed from.
    fn keep(&self, node: NodeId, inputs: u64, outputs: &[Value]) {
        let bytes: u64 = outputs.iter().map(Value::byte_len).sum();
        if bytes > inputs || !self.fixed.contains(&node) {
            return;
        }
        for (output, value) in self.model.node(node).outputs().iter().zip(outputs) {
            let cell = output.and_then(|output| self.constants.get(output.index()));
            cell.map(|cell| cell.get_or_init(|| value.clone()));
        }
    }

    /// The constant that a value is, when it is one.
    fn constant(&self, id: ValueId) -> Result<Option<Value>, OpError> {
        let constant = match self.model.value(id).def() {
            Def::Constant { constant, .. } | Def::Input { default: Some(constant), .. } => constant,
            _ => return Ok(None),
        };
        let cell = self.constants.get(id.index());
        if let Some(value) = cell.and_then(OnceLock::get) {
            return Ok(Some(value.clone()));
        }
        let value = Value::from(decode(constant, &Memory::new(self.options.memory))?);
        let value = if self.options.wide { each_array(&value, &widest)? } else { value };
        if let Some(cell) = cell.filter(|_| self.options.keep_constants) {
            return Ok(Some(cell.get_or_init(|| value).clone()));
        }
        Ok(Some(value))
    }
}

fn decode(constant: &Constant, memory: &Memory) -> Result<Array, OpError> {
    match constant {
        Constant::Dense(tensor) => Array::from_tensor(tensor),
        Constant::Sparse(sparse) => densify(sparse, memory),
    }
}
