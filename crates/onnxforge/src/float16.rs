//! Models whose floats have 16 bits instead of 32: half of the weights, the same graph.
//!
//! A node computes in 16 bits if its operator does. It stays in 32 bits where that would not do:
//!
//! - it was asked for, by name or by operator;
//! - its operator has no form for float16, has bodies, or accumulates (sums, means, powers, logarithms);
//! - a value that it reads or makes is too large or too small. The original runs on synthetic inputs for this, with every float in 64 bits, and
//!   constants are looked at;
//! - its result is not finite when the converted model runs, and was in the original.
//!
//! Casts stand where the two meet, one for each value. Bodies and local functions stay as they are. What comes out is run beside the original, and
//! refused where it differs by more than is accepted.

mod plan;
mod trials;
mod writer;

use std::collections::HashMap;

use onnxforge_ir::Model;
use onnxforge_ops::Value;
use onnxforge_ops::eval::{self, Session};
use onnxforge_proto::progress::{Progress, Silent};
use onnxforge_verify::engine::Engine;
use onnxforge_verify::runtime::Runtime;
use serde::Serialize;

use self::plan::Plan;
use self::trials::{Trials, running};
use crate::Error;

/// How a model is converted. The default: inputs and outputs stay as they are, two samples, a hundredth of the scale.
#[derive(Clone, Debug)]
pub struct Float16Options {
    /// Names of nodes that stay in 32 bits; `*` stands for anything.
    pub keep: Vec<String>,
    /// Operators that stay in 32 bits.
    pub keep_operators: Vec<String>,
    /// Inputs and outputs become float16, too.
    pub interface: bool,
    /// The most that an output may differ from the float64 run of the original, as a share of its largest magnitude.
    pub tolerance: f64,
    /// How many inputs are tried.
    pub samples: usize,
    /// What synthetic inputs start from.
    pub seed: u64,
    /// Inputs that are given; others are synthetic.
    pub given: HashMap<String, Value>,
    /// Sizes of named dimensions in synthetic inputs.
    pub dims: HashMap<String, usize>,
}

impl Default for Float16Options {
    fn default() -> Self {
        Self {
            keep: Vec::new(),
            keep_operators: Vec::new(),
            interface: false,
            tolerance: 0.01,
            samples: 2,
            seed: 0,
            given: HashMap::new(),
            dims: HashMap::new(),
        }
    }
}

/// Why a model is not converted.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Float16Error {
    #[error("no node is called {name:?}, and none fits that pattern")]
    NoNode { name: String },
    #[error("the model has no {name} nodes to keep in 32 bits")]
    NoOperator { name: String },
    #[error("output {output} of the converted model is not finite where the original's is")]
    NotFinite { output: String },
    #[error(
        "output {output} differs by {error:.1e} of its scale, and {tolerance:.1e} is accepted; keep more nodes in 32 bits, or accept more"
    )]
    Differs { output: String, error: f64, tolerance: f64 },
    #[error("the converted model does not run: {why}")]
    Broken { why: String },
    #[error("ONNX Runtime loads the original and not the converted model: {why}")]
    Refused { why: String },
}

/// What became of a model.
#[derive(Debug, Serialize)]
pub struct Float16Report {
    /// Version of this layout.
    pub schema: u32,
    /// Nodes of the graph that compute in 16 bits now.
    pub converted: usize,
    /// Nodes with floats that stay in 32 bits.
    pub kept: Vec<Kept>,
    /// Casts that were added.
    pub casts: usize,
    /// Bytes of constants, before and after.
    pub constants: (u64, u64),
    /// Whether ONNX Runtime loads the result; nothing where it is not there, or does not load the original.
    pub loads: Option<bool>,
    /// How far outputs are from the float64 run of the original.
    pub outputs: Vec<OutputError>,
    /// Why the model was not run: then ranges are those of constants alone.
    pub unverified: Option<String>,
}

/// A node that stays in 32 bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The node.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// Why.
    pub reason: String,
}

/// How far an output is from the float64 run of the original.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputError {
    /// Its name.
    pub name: String,
    /// The largest difference, as a share of the largest magnitude; for other elements than floats, the share of those that differ.
    pub error: f64,
}

/// A converted model, and what was done.
#[derive(Debug)]
pub struct Float16 {
    /// The model.
    pub model: Model,
    /// What was done.
    pub report: Float16Report,
}

/// Lets a model compute with floats of 16 bits wherever that does.
pub fn float16(model: &Model, options: &Float16Options) -> Result<Float16, Error> {
    float16_with(model, options, &Silent)
}

/// The same, with somebody who hears about progress.
pub fn float16_with(
    model: &Model,
    options: &Float16Options,
    progress: &dyn Progress,
) -> Result<Float16, Error> {
    eval::check_given(model, &options.given)?;
    let mut plan = Plan::new(model, options)?;
    let trials = Trials::new(model, options, progress);
    let (mut ranges, mut unverified) = (HashMap::new(), None);
    match &trials {
        Ok(trials) => ranges = trials.ranges(&plan.floats),
        Err(why) => unverified = Some(why.clone()),
    }
    plan.decide(&ranges);
    let (converted, casts, outputs) = loop {
        let (converted, casts) = plan.convert()?;
        let Ok(trials) = &trials else { break (converted, casts, Vec::new()) };
        match trials.compare(&Session::new(&converted, running(false)), options.interface) {
            Ok(outputs) => break (converted, casts, outputs),
            // Each round keeps a node, of which there are only so many.
            Err(Float16Error::NotFinite { .. }) if plan.keep_overflowing(&converted, trials) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let too_far = |output: &&OutputError| output.error.is_nan() || output.error > options.tolerance;
    if let Some(worst) = outputs.iter().find(too_far) {
        let (output, error) = (worst.name.clone(), worst.error);
        return Err(Float16Error::Differs { output, error, tolerance: options.tolerance }.into());
    }
    let report = Float16Report {
        schema: 1,
        converted: plan.nodes.iter().filter(|&&id| plan.is_half(id)).count(),
        kept: plan.kept(),
        casts,
        constants: (model.stored_bytes(), converted.stored_bytes()),
        loads: loads(model, &converted)?,
        outputs,
        unverified,
    };
    Ok(Float16 { model: converted, report })
}

/// Whether ONNX Runtime, where it is there and takes the original, takes what was made of it.
fn loads(original: &Model, converted: &Model) -> Result<Option<bool>, Float16Error> {
    if Runtime::get().is_err() || Engine::Ort.open(original).is_err() {
        return Ok(None);
    }
    match Engine::Ort.open(converted) {
        Ok(_) => Ok(Some(true)),
        Err(why) => Err(Float16Error::Refused { why: why.to_string() }),
    }
}
