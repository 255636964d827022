//! The operators: what they look like, what follows about their results, and what they compute.
//!
//! One file per family. Each family lists its operators in `OPS` with an inference function and an evaluation function;
//! [`find`] looks an operator up, [`apply`] calls it. Versions are told apart inside the functions, by
//! [`call::Call::since`].

pub mod apply;
pub mod array;
pub mod call;
pub mod callee;
pub mod check;
pub mod def;
pub mod error;
pub mod eval;
pub mod eval_call;
pub mod fact;
pub mod infer;
pub mod infer_call;
pub mod kernel;
pub mod liveness;
pub mod signature;
pub mod value;

mod attention;
mod cast;
mod concat;
pub mod contrib;
mod control;
mod conv;
mod elementwise;
pub mod foreign;
mod generate;
mod index;
mod layout;
mod loss;
mod matmul;
mod ml;
mod norm;
mod pool;
mod quant;
mod random;
mod reduce;
mod resize;
mod rnn;
mod sequence;
mod signal;
mod strings;
pub mod tflite;

use std::collections::HashMap;
use std::sync::OnceLock;

pub use array::Array;
pub use def::{Category, OpDef};
pub use error::OpError;
pub use fact::{Fact, TensorFact};
pub use value::Value;

/// The families, in no particular order.
static FAMILIES: &[&[OpDef]] = &[
    attention::OPS,
    cast::OPS,
    concat::OPS,
    contrib::OPS,
    control::OPS,
    conv::OPS,
    elementwise::OPS,
    foreign::OPS,
    generate::OPS,
    index::OPS,
    layout::OPS,
    loss::OPS,
    matmul::OPS,
    ml::OPS,
    norm::OPS,
    pool::OPS,
    quant::OPS,
    random::OPS,
    reduce::OPS,
    resize::OPS,
    rnn::OPS,
    sequence::OPS,
    signal::OPS,
    strings::OPS,
    tflite::OPS,
];

/// Every operator of the table.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().copied().flatten()
}

/// The operator `name` of `domain`, where `ai.onnx` is another spelling of the standard domain.
pub fn find(domain: &str, name: &str) -> Option<&'static OpDef> {
    static TABLE: OnceLock<HashMap<(&str, &str), &OpDef>> = OnceLock::new();
    let table = TABLE.get_or_init(|| all().map(|def| ((def.domain, def.name), def)).collect());
    table.get(&(onnxforge_ir::node::normal_domain(domain), name)).copied()
}
