//! Why an operator gives no answer.

use onnxforge_ir::tensor::TensorError;

/// Why an operator gives no answer. None of these is a wrong answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OpError {
    /// The operator, or this form of it, is not implemented.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// Inputs or attributes contradict the operator's definition.
    #[error("{0}")]
    Invalid(String),
    /// The result does not fit into the memory that may be used.
    #[error("{needed} bytes are needed and {left} are left of the memory budget")]
    TooLarge {
        /// Bytes that are needed at once.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// A constant cannot be read.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// It took longer than it may.
    #[error("the time budget is used up")]
    TimeOut,
}

/// Fails because inputs or attributes contradict the operator's definition.
pub fn invalid<T>(what: impl Into<String>) -> Result<T, OpError> {
    Err(OpError::Invalid(what.into()))
}

/// Fails because this form of the operator is not implemented; `what` is a noun phrase.
pub fn unsupported<T>(what: impl Into<String>) -> Result<T, OpError> {
    Err(OpError::Unsupported(what.into()))
}
