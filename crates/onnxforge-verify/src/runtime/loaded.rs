//! ONNX Runtime through the crate `ort`.

mod handed;
pub mod profiled;
pub mod timed;
mod values;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ort::environment::Environment;
use ort::ep::CPU;
use ort::logging::LogLevel;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{RunOptions, Session};

use super::find::{self, Candidate, Source};
use super::{Level, Missing, RuntimeError};
use onnxforge_ir::Model;
use onnxforge_ir::io::{LoadOptions, load};
use onnxforge_ops::Value;
use onnxforge_proto::cancel::{checkpoint, on_cancel};

/// The name of the file in which ONNX Runtime leaves large weights of a model that it saves.
const WEIGHTS: &str = "weights.bin";
/// Weights of so many bytes go there.
const LARGE: &str = "1024";

/// A loaded ONNX Runtime.
#[derive(Debug)]
pub struct Runtime {
    environment: Environment,
    /// The file that holds it.
    pub file: PathBuf,
    /// Where it was found.
    pub source: Source,
    /// What the library says of its build.
    pub build: String,
}

/// Why a library does not load, with what the system says of it.
fn reason(error: &ort::LoadDynamicError) -> String {
    match error {
        ort::LoadDynamicError::Dlopen { error, .. } => {
            std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
        }
        other => other.to_string(),
    }
}

impl From<Level> for GraphOptimizationLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Off => Self::Disable,
            Level::Basic => Self::Level1,
            Level::Extended => Self::Level2,
            Level::All => Self::All,
        }
    }
}

impl Runtime {
    /// The ONNX Runtime of this machine. It is looked for once.
    pub fn get() -> Result<&'static Self, &'static Missing> {
        static FOUND: OnceLock<Result<Runtime, Missing>> = OnceLock::new();
        FOUND.get_or_init(|| Self::first(find::candidates())).as_ref()
    }

    /// The first candidate that loads.
    fn first(candidates: impl Iterator<Item = Candidate>) -> Result<Self, Missing> {
        let mut failures = Vec::new();
        for Candidate { library, source } in candidates {
            let loaded = ort::init_from(&library).map_err(|error| reason(&error)).and_then(|builder| {
                builder.with_name("onnxforge").build().map_err(|error| error.to_string())
            });
            match loaded {
                Ok(environment) => {
                    return Ok(Self { environment, file: library, source, build: ort::info().to_owned() });
                }
                // That a library of the system is not there is no failure worth telling.
                Err(_) if source == Source::System => {}
                Err(reason) if source == Source::Variable => return Err(Missing::Variable(library, reason)),
                Err(reason) => failures.push((library, reason)),
            }
        }
        Err(Missing::Nowhere(failures))
    }

    /// The version, as far as the library tells: in its file name, or in the branch that it was built from.
    pub fn version(&self) -> Option<String> {
        let name = self.file.file_name()?.to_string_lossy();
        let branch = self.build.split("git-branch=rel-").nth(1);
        let of_name = name.split(".so.").nth(1).filter(|version| version.contains('.'));
        let version = of_name.or_else(|| branch?.split([',', ' ']).next())?;
        Some(version.to_owned())
    }

    /// How to make a session that rewrites so much.
    fn session(&self, level: Level) -> Result<SessionBuilder, RuntimeError> {
        let builder = Session::builder(&self.environment).map_err(refused)?;
        let builder = builder.with_optimization_level(level.into()).map_err(refused)?;
        builder.with_log_level(LogLevel::Fatal).map_err(refused)
    }

    /// A session that runs the model at `path`, the same way each time.
    pub fn open(&self, path: &Path, level: Level) -> Result<Opened, RuntimeError> {
        let builder = self.session(level)?.with_deterministic_compute(true).map_err(refused)?;
        let session = { builder }.commit_from_file(path).map_err(refused)?;
        Ok(Opened { session })
    }

    /// A session that runs a model as it is in memory, the same way each time. Weights that lie in files beside the model's own are read
    /// there by ONNX Runtime itself; others are handed over.
    pub fn open_model(&self, model: &Model, level: Level) -> Result<Opened, RuntimeError> {
        let handed = handed::Handed::new(model)?;
        let builder = self.session(level)?.with_deterministic_compute(true).map_err(refused)?;
        // A second copy of the weights would only make later runs faster, and there are few.
        let mut builder = builder.with_prepacking(false).map_err(refused)?;
        if model.stored_bytes() > LEAN {
            let lean = [CPU::default().with_arena_allocator(false).build()];
            builder = builder.with_execution_providers(lean).map_err(refused)?;
        }
        if let Some(folder) = &handed.folder {
            let key = "session.model_external_initializers_file_folder_path";
            builder = builder.with_config_entry(key, folder.to_string_lossy()).map_err(refused)?;
        }
        for (name, value) in handed.weights {
            builder = builder.with_external_initializer(&*name, value).map_err(refused)?;
        }
        let session = builder.commit_from_memory(&handed.graph).map_err(refused)?;
        Ok(Opened { session })
    }

    /// Whether it takes a model, which is not run. Weights are left out, so that the answer takes as long for large models as for small ones;
    /// they are handed over only where the model is refused without them, since a kernel may want its weights to be constants.
    pub fn takes(&self, model: &Model) -> Result<(), RuntimeError> {
        let bytes = handed::without_weights(model)?;
        match self.session(Level::Off)?.commit_from_memory(&bytes) {
            Ok(_) => Ok(()),
            Err(_) => self.open_model(model, Level::Off).map(drop),
        }
    }

    /// How often each operator is called in what ONNX Runtime makes of a model when it loads it.
    pub fn rewritten(&self, model: &Path, level: Level) -> Result<BTreeMap<String, usize>, RuntimeError> {
        Ok(self.saved(model, level)?.model.operator_counts())
    }

    /// The graph that ONNX Runtime makes of a model when it loads it, and runs.
    pub fn saved(&self, model: &Path, level: Level) -> Result<Saved, RuntimeError> {
        let folder = tempfile::tempdir()?;
        let written = folder.path().join("model.onnx");
        let mut builder = self.session(level)?.with_optimized_model_path(&written).map_err(refused)?;
        // Whatever is larger than a message may be.
        for (key, value) in [("file_name", WEIGHTS), ("min_size_in_bytes", LARGE)] {
            let key = format!("session.optimized_model_external_initializers_{key}");
            builder = builder.with_config_entry(key, value).map_err(refused)?;
        }
        drop(builder.commit_from_file(model).map_err(refused)?);
        let model = load(&written, &LoadOptions::default())
            .map_err(|error| RuntimeError::Unreadable(error.to_string()))?;
        Ok(Saved { model, _folder: folder })
    }
}

/// A model as ONNX Runtime saved it, and the folder in which its weights lie as long as this is kept.
#[derive(Debug)]
pub struct Saved {
    /// The model.
    pub model: Model,
    _folder: tempfile::TempDir,
}

/// Bytes of constants from which on sessions of models in memory take no memory to be faster.
const LEAN: u64 = 1 << 30;

/// A model that ONNX Runtime has loaded.
#[derive(Debug)]
pub struct Opened {
    session: Session,
}

impl Opened {
    /// The outputs of the model, given its inputs by name.
    pub fn run(&mut self, inputs: &HashMap<String, Value>) -> Result<Vec<(String, Value)>, RuntimeError> {
        let inputs = timed::Inputs::new(inputs)?;
        let given = inputs.given();
        let options = Arc::new(RunOptions::new().map_err(refused)?);
        let stopping = Arc::clone(&options);
        let held = on_cancel(move || drop(stopping.terminate()));
        let outputs = self.session.run_with_options(given, &*options);
        drop(held);
        checkpoint();
        let outputs = outputs.map_err(refused)?;
        outputs.iter().map(|(name, value)| Ok((name.to_owned(), values::taken(&value)?))).collect()
    }
}

fn refused<T>(error: ort::Error<T>) -> RuntimeError {
    RuntimeError::Refused(error.to_string())
}
