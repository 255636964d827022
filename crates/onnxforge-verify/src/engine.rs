//! What runs models to compare them.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::runtime::{Level, Missing, Opened, Runtime, RuntimeError};
use onnxforge_ir::Model;
use onnxforge_ops::eval::{self, RunError, Session};
use onnxforge_ops::{OpError, Value};
use onnxforge_proto::clock::Instant;

/// The longest that a run of a model in this library may take: a loop may have no end.
const LONGEST: Duration = Duration::from_secs(120);

/// What runs models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The evaluator of this library, in the declared types.
    Native,
    /// The evaluator of this library, with every float in 64 bits.
    Oracle,
    /// ONNX Runtime without its optimizations.
    Ort,
    /// ONNX Runtime as users run it, with all of its optimizations: a second opinion.
    OrtAll,
}

/// Which engine is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// ONNX Runtime where it is found, the native engine otherwise.
    #[default]
    Auto,
    /// This one.
    This(Engine),
}

impl Choice {
    /// The engine for runs that mostly compute, or mostly read weights ([`Burden`](crate::burden::Burden)).
    pub fn engine(self, is_reading: bool) -> Engine {
        match self {
            Self::Auto if !is_reading && Runtime::get().is_ok() => Engine::Ort,
            Self::Auto => Engine::Native,
            Self::This(engine) => engine,
        }
    }

    /// Fails where ONNX Runtime is asked for and not there.
    pub fn check(self) -> Result<(), Missing> {
        match self {
            Self::This(Engine::Ort | Engine::OrtAll) => Runtime::get().map(drop).map_err(Clone::clone),
            _ => Ok(()),
        }
    }
}

/// Does work with an engine. Where that fails with an error that is `refused`, because the engine could not run what it had to, the native
/// engine takes over; then the reason stands beside the result.
pub fn with_fallback<T, E: fmt::Display>(
    engine: Engine,
    refused: impl Fn(&E) -> bool,
    mut work: impl FnMut(Engine) -> Result<T, E>,
) -> (Result<T, E>, Option<String>) {
    match work(engine) {
        Err(error) if engine != Engine::Native && refused(&error) => {
            tracing::info!("{error}; the native engine takes over");
            (work(Engine::Native), Some(error.to_string()))
        }
        done => (done, None),
    }
}

/// Why an engine has no result.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The evaluator of this library.
    #[error(transparent)]
    Run(#[from] RunError),
    /// ONNX Runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// ONNX Runtime is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
}

impl EngineError {
    /// Whether inputs of other sizes may do.
    pub fn may_be_about_sizes(&self) -> bool {
        match self {
            // Sizes that come later are rarely smaller, and constants are the same at all of them.
            Self::Run(RunError::Constant { .. }) => false,
            Self::Run(error) => !matches!(error.cause(), Some(OpError::TimeOut)),
            Self::Runtime(error) => matches!(error, RuntimeError::Refused(_)),
            Self::Missing(_) => false,
        }
    }
}

impl Engine {
    /// Its name, as users say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Oracle => "oracle",
            Self::Ort => "ort",
            Self::OrtAll => "ort-all",
        }
    }

    /// Units in the last place by which the engine may differ from itself where nothing changed: which kernel of ONNX Runtime computes a
    /// node depends on what is constant around it.
    pub fn own_rounding(self) -> f64 {
        match self {
            Self::Native | Self::Oracle => 0.0,
            Self::Ort | Self::OrtAll => 64.0,
        }
    }

    /// Prepares a model.
    pub fn open(self, model: &Model) -> Result<Ready<'_>, EngineError> {
        match self {
            Self::Native | Self::Oracle => {
                // In 64 bits the weights take twice their memory, so they are decoded anew for each run.
                let wide = self == Self::Oracle;
                let memory = crate::memory::allowed();
                let options =
                    eval::Options { wide, memory, keep_constants: !wide, ..eval::Options::default() };
                Ok(Ready::Own(Box::new(Session::new(model, options))))
            }
            Self::Ort | Self::OrtAll => {
                let level = if self == Self::Ort { Level::Off } else { Level::All };
                let runtime = Runtime::get().map_err(Clone::clone)?;
                Ok(Ready::Ort(Box::new(runtime.open_model(model, level)?)))
            }
        }
    }
}

/// A model that is ready to run.
pub enum Ready<'m> {
    /// In this library.
    Own(Box<Session<'m>>),
    /// In ONNX Runtime.
    Ort(Box<Opened>),
}

impl Ready<'_> {
    /// The outputs of the model by name, given its inputs by name.
    pub fn run(&mut self, inputs: &HashMap<String, Value>) -> Result<HashMap<String, Value>, EngineError> {
        match self {
            Self::Own(session) => {
                session.end_at(Instant::now() + LONGEST);
                let outputs = session.run(inputs)?;
                Ok(outputs.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
            }
            Self::Ort(opened) => Ok(opened.run(inputs)?.into_iter().collect()),
        }
    }
}
