//! What an operator's evaluation sees: the inputs, the attributes and the memory it may use.

use std::sync::atomic::{AtomicU64, Ordering};

use super::array::{Array, Elem};
use super::call::Call;
use super::error::{OpError, invalid, unsupported};
use super::value::Value;
use onnxforge_ir::tensor::element_count;
use onnxforge_ir::{DType, ScopeId};
use onnxforge_proto::cancel::checkpoint;
use onnxforge_proto::clock::Instant;

/// Memory that evaluation may use: what is alive, and the most that may be.
#[derive(Debug)]
pub struct Memory {
    limit: u64,
    used: AtomicU64,
}

impl Memory {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Whether `bytes` more fit.
    pub fn check(&self, bytes: u64) -> Result<(), OpError> {
        let left = self.limit.saturating_sub(self.used.load(Ordering::Relaxed));
        if bytes > left { Err(OpError::TooLarge { needed: bytes, left }) } else { Ok(()) }
    }

    /// Counts a value that came to life.
    pub fn hold(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a value that was dropped.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Fails when the deadline has passed; also a checkpoint of work that may be cancelled.
pub fn check_deadline(deadline: Option<Instant>) -> Result<(), OpError> {
    checkpoint();
    match deadline {
        Some(deadline) if Instant::now() > deadline => Err(OpError::TimeOut),
        _ => Ok(()),
    }
}

/// Runs the bodies of nodes: what an operator with bodies asks of whoever runs the model.
pub trait RunScope {
    /// The outputs of a body, given its inputs.
    fn scope(&self, scope: ScopeId, inputs: Vec<Value>) -> Result<Vec<Value>, OpError>;

    /// Fails when the run should stop.
    fn check_time(&self) -> Result<(), OpError>;
}

/// The evaluation of one call.
pub struct Eval<'a> {
    /// The call: version and attributes.
    pub call: Call<'a>,
    /// Every float is computed in 64 bits, whatever the model declares: the run is an oracle for rounding.
    pub wide: bool,
    /// What random operators start from, different for every node.
    pub seed: u64,
    inputs: Vec<Option<Value>>,
    memory: &'a Memory,
    scopes: &'a dyn RunScope,
}

impl<'a> Eval<'a> {
    /// The evaluation of `call` on these inputs.
    pub(crate) fn new(
        call: Call<'a>,
        inputs: Vec<Option<Value>>,
        memory: &'a Memory,
        scopes: &'a dyn RunScope,
    ) -> Self {
        Self { call, wide: false, seed: 0, inputs, memory, scopes }
    }

    /// How many inputs the node lists, absent ones included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Whether input `index` is given.
    pub fn has(&self, index: usize) -> bool {
        matches!(self.inputs.get(index), Some(Some(_)))
    }

    /// Input `index`, if it is given.
    pub fn value(&self, index: usize) -> Option<&Value> {
        self.inputs.get(index).and_then(Option::as_ref)
    }

    /// Input `index`, which must be a tensor.
    pub fn array(&self, index: usize) -> Result<&Array, OpError> {
        match self.value(index) {
            Some(value) => value.array(),
            None => invalid(format!("input {index} is missing")),
        }
    }

    /// Input `index`, which must be a tensor if it is given.
    pub fn opt_array(&self, index: usize) -> Result<Option<&Array>, OpError> {
        self.value(index).map(Value::array).transpose()
    }

    /// Every input from `first` on; all must be tensors that are given.
    pub fn arrays_from(&self, first: usize) -> Result<Vec<&Array>, OpError> {
        (first..self.input_count()).map(|index| self.array(index)).collect()
    }

    /// Takes input `index` out, so that its elements can be changed in place when nobody else holds them.
    pub fn take(&mut self, index: usize) -> Result<Array, OpError> {
        match self.take_value(index) {
            Some(Value::Tensor(array)) => Ok(array),
            Some(value) => invalid(format!("input {index} must be a tensor, not {}", value.form())),
            None => invalid(format!("input {index} is missing")),
        }
    }

    /// Takes input `index` out, if it is given.
    pub fn take_value(&mut self, index: usize) -> Option<Value> {
        self.inputs.get_mut(index).and_then(Option::take)
    }

    /// The integers at input `index`, if it is given.
    pub fn ints(&self, index: usize) -> Result<Option<Vec<i64>>, OpError> {
        self.opt_array(index)?.map(Array::to_i64s).transpose()
    }

    /// Checks that `count` elements of `T` fit into memory. Every buffer whose size an input decides is asked for here
    /// or by [`Eval::zeros`] before it is made.
    pub fn reserve<T>(&self, count: usize) -> Result<(), OpError> {
        self.memory.check((count as u64).saturating_mul(size_of::<T>() as u64))
    }

    /// A buffer of zeros (or `false`, or empty strings) for this shape, within the memory budget.
    pub fn zeros<T: Elem>(&self, shape: &[usize]) -> Result<Vec<T>, OpError> {
        let count = self.count(shape)?;
        self.reserve::<T>(count)?;
        Ok(vec![T::default(); count])
    }

    /// The number of elements of a shape.
    pub fn count(&self, shape: &[usize]) -> Result<usize, OpError> {
        element_count(shape).ok_or(OpError::TooLarge { needed: u64::MAX, left: 0 })
    }

    /// The budget itself, for kernels that allocate.
    pub fn memory(&self) -> &'a Memory {
        self.memory
    }

    /// The type in which floats of this declared type are computed: itself, or 64 bits in an oracle run.
    pub fn computed(&self, dtype: DType) -> DType {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 if self.wide => DType::F64,
            _ => dtype,
        }
    }

    /// The outputs of a body, given its inputs.
    pub fn body(&self, scope: ScopeId, inputs: Vec<Value>) -> Result<Vec<Value>, OpError> {
        self.scopes.scope(scope, inputs)
    }

    /// The outputs of a standard operator on these inputs, with the attributes of this node. 16-bit floats are as the
    /// caller has them: widened when this operator is.
    pub fn standard(
        &self,
        name: &str,
        opset: i64,
        inputs: Vec<Option<Value>>,
    ) -> Result<Vec<Value>, OpError> {
        let call = self.call.standard(name, opset)?;
        let Ok(function) = call.def.eval else { return unsupported(format!("evaluating {name}")) };
        let mut cx = Eval { call, inputs, ..*self };
        function(&mut cx)
    }

    /// Fails when the run should stop; loops ask once per turn.
    pub fn check_time(&self) -> Result<(), OpError> {
        self.scopes.check_time()
    }
}

/// The outputs of an operator with one output.
pub fn one(array: Array) -> Result<Vec<Value>, OpError> {
    Ok(vec![array.into()])
}
