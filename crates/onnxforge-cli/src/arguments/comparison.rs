//! How models are compared.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use onnxforge::ir::Model;
use onnxforge::optimize::Verification;
use onnxforge::verify::engine::{Choice, Engine};
use onnxforge::verify::guard::{self, When};

use super::inputs::{check_dims, given};
use super::named_size;
use crate::failure::Failure;
use crate::output::Output;

/// How an optimized model is verified.
#[derive(Debug, clap::Args)]
pub struct Checks {
    /// When to verify: at the end, after each pass, or never. A faulty rewrite is reverted.
    #[arg(long, value_enum, default_value = "final")]
    verify: VerifyArg,
    #[command(flatten)]
    comparison: Comparison,
    /// Exit 0 even if a faulty rewrite was reverted.
    #[arg(long)]
    pub allow_revert: bool,
    /// Exit 1 if the result could not be compared with the original, or nothing can be said of it.
    #[arg(long)]
    pub require_verified: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum VerifyArg {
    Off,
    Final,
    Each,
}

/// How a model is compared with what it was made from.
#[derive(Debug, clap::Args)]
pub struct Comparison {
    /// Number of inputs to compare on, each with other sizes of symbolic dimensions.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    samples: usize,
    /// Engine that runs the models.
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineArg,
    /// Inputs for the comparison by name; others are synthetic.
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,
    /// Size of a symbolic dimension in synthetic inputs; the model does not change.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    verify_dim: Vec<(String, usize)>,
    /// Seed for synthetic inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Which engine runs models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EngineArg {
    /// For what passes made of a model this library, otherwise ONNX Runtime where it is found.
    Auto,
    /// This library.
    Native,
    /// ONNX Runtime without its optimizations.
    Ort,
    /// ONNX Runtime with all of its optimizations, as users run it.
    OrtAll,
    /// This library, every float in 64 bits.
    Oracle,
}

impl From<EngineArg> for Choice {
    fn from(arg: EngineArg) -> Self {
        match arg {
            EngineArg::Auto => Self::Auto,
            EngineArg::Native => Self::This(Engine::Native),
            EngineArg::Ort => Self::This(Engine::Ort),
            EngineArg::OrtAll => Self::This(Engine::OrtAll),
            EngineArg::Oracle => Self::This(Engine::Oracle),
        }
    }
}

impl Checks {
    /// How results are verified. Inputs are those of `model`, as it is in the file.
    pub fn verification(&self, model: &Model, output: &Output) -> Result<Verification, Failure> {
        let when = match self.verify {
            VerifyArg::Off => When::Off,
            VerifyArg::Final => When::Final,
            VerifyArg::Each => When::Each,
        };
        self.comparison.verification(when, model, output)
    }

    /// What is to be checked, with the model as it is now as the original.
    pub fn resolve(&self, model: &Model, output: &Output) -> Result<guard::Options, Failure> {
        Ok(self.verification(model, output)?.checks(model)?)
    }
}

impl Comparison {
    /// How results are verified.
    fn verification(&self, when: When, model: &Model, output: &Output) -> Result<Verification, Failure> {
        check_dims("--verify-dim", &self.verify_dim, model)?;
        Ok(Verification {
            when,
            samples: self.samples,
            seed: self.seed,
            given: given(self.inputs.as_deref(), model, output)?,
            dims: self.verify_dim.iter().cloned().collect(),
            engine: self.engine.into(),
            ..Verification::default()
        })
    }

    /// What is to be checked, with the model as it is now as the original.
    pub fn resolve(&self, when: When, model: &Model, output: &Output) -> Result<guard::Options, Failure> {
        Ok(self.verification(when, model, output)?.checks(model)?)
    }
}
