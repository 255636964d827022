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

/// The longest that a run of a model in this library may take.
const LONGEST: Duration = Duration::from_secs(120);
/// The same for a model with a loop that may have no end.
const LONGEST_ENDLESS: Duration = Duration::from_secs(4);

/// Whether a Loop ends only where its body says so; only the native engine can be stopped.
pub fn may_run_forever(model: &Model) -> bool {
    model.nodes().any(|(_, node)| node.op().is("Loop") && node.input(0).is_none())
}

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
    /// The one that suits: [`Choice::engines`], [`Choice::engines_for_results`].
    #[default]
    Auto,
    /// This one.
    This(Engine),
}

impl Choice {
    /// The engine that runs models of any origin, and the one that takes over where it cannot.
    pub fn engines(self) -> Engines {
        match self {
            Self::Auto if Runtime::get().is_ok() => {
                Engines { first: Engine::Ort, instead: Some(Engine::Native) }
            }
            Self::Auto => Engines::only(Engine::Native),
            Self::This(engine) => Engines::only(engine),
        }
    }

    /// The engine that compares a model with what passes made of it, and the one that takes over where it cannot. Models run once or twice, and
    /// then the native engine takes half of the memory of ONNX Runtime, which copies weights and keeps what it has allocated, and less time.
    pub fn engines_for_results(self) -> Engines {
        match self {
            Self::Auto => {
                Engines { first: Engine::Native, instead: Runtime::get().is_ok().then_some(Engine::Ort) }
            }
            Self::This(engine @ (Engine::Ort | Engine::OrtAll)) => {
                Engines { first: engine, instead: Some(Engine::Native) }
            }
            Self::This(engine) => Engines::only(engine),
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

/// An engine, and the one that takes over where it cannot run a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engines {
    /// The engine.
    pub first: Engine,
    /// What takes over.
    pub instead: Option<Engine>,
}

impl Engines {
    /// Nothing takes over.
    pub fn only(first: Engine) -> Self {
        Self { first, instead: None }
    }

    /// Does work with the first engine. Where that fails with an error that is `refused`, because the engine could not run what it had to, the
    /// other one takes over; then the reason stands beside the result.
    pub fn work<T, E: fmt::Display>(
        self,
        refused: impl Fn(&E) -> bool,
        mut work: impl FnMut(Engine) -> Result<T, E>,
    ) -> (Result<T, E>, Option<String>) {
        match (work(self.first), self.instead) {
            (Err(error), Some(instead)) if refused(&error) => {
                tracing::info!("{error}; the {} engine takes over", instead.name());
                (work(instead), Some(error.to_string()))
            }
            (done, _) => (done, None),
        }
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
    /// Whether the engine lacks something, rather than the model.
    pub fn is_about_support(&self) -> bool {
        matches!(self, Self::Run(error) if matches!(error.cause(), Some(OpError::Unsupported(_) | OpError::TimeOut)))
    }

    /// Whether inputs of other sizes may do.
    pub fn may_be_about_sizes(&self) -> bool {
        match self {
            // Sizes that come later are rarely smaller, and constants are the same at all of them.
            Self::Run(RunError::Constant { .. }) => false,
            Self::Run(_) => !self.is_about_support(),
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
                let longest = if may_run_forever(model) { LONGEST_ENDLESS } else { LONGEST };
                Ok(Ready::Own(Box::new(Session::new(model, options)), longest))
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
    /// In this library, for so long at most.
    Own(Box<Session<'m>>, Duration),
    /// In ONNX Runtime.
    Ort(Box<Opened>),
}

impl Ready<'_> {
    /// The outputs of the model by name, given its inputs by name.
    pub fn run(&mut self, inputs: &HashMap<String, Value>) -> Result<HashMap<String, Value>, EngineError> {
        match self {
            Self::Own(session, longest) => {
                session.end_at(Instant::now() + *longest);
                let outputs = session.run(inputs)?;
                Ok(outputs.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
            }
            Self::Ort(opened) => Ok(opened.run(inputs)?.into_iter().collect()),
        }
    }
}
