//! In place of ONNX Runtime, in a build without it. Nothing here can be made, so nothing here can be asked.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use super::find::Source;
use super::{Level, Missing, RuntimeError};
use onnxforge_ir::Model;
use onnxforge_ops::Value;

/// A loaded ONNX Runtime.
#[derive(Debug)]
pub struct Runtime {
    /// The file that holds it.
    pub file: PathBuf,
    /// Where it was found.
    pub source: Source,
    /// What the library says of its build.
    pub build: String,
    never: Infallible,
}

impl Runtime {
    /// Says that this build has no ONNX Runtime.
    pub fn get() -> Result<&'static Self, &'static Missing> {
        Err(&Missing::NotBuilt)
    }

    /// The version.
    pub fn version(&self) -> Option<String> {
        match self.never {}
    }

    /// A session that runs the model at `path`.
    pub fn open(&self, _path: &Path, _level: Level) -> Result<Opened, RuntimeError> {
        match self.never {}
    }

    /// A session that runs a model as it is in memory.
    pub fn open_model(&self, _model: &Model, _level: Level) -> Result<Opened, RuntimeError> {
        match self.never {}
    }

    /// Whether it takes a model.
    pub fn takes(&self, _model: &Model) -> Result<(), RuntimeError> {
        match self.never {}
    }

    /// How often each operator is called in what ONNX Runtime makes of a model when it loads it.
    pub fn rewritten(&self, _model: &Path, _level: Level) -> Result<BTreeMap<String, usize>, RuntimeError> {
        match self.never {}
    }

    /// The graph that ONNX Runtime makes of a model when it loads it, and runs.
    pub fn saved(&self, _model: &Path, _level: Level) -> Result<Saved, RuntimeError> {
        match self.never {}
    }
}

/// A model as ONNX Runtime saved it.
#[derive(Debug)]
pub struct Saved {
    /// The model.
    pub model: Model,
}

/// A model that ONNX Runtime has loaded.
#[derive(Debug)]
pub struct Opened {
    never: Infallible,
}

impl Opened {
    /// The outputs of the model, given its inputs by name.
    pub fn run(&mut self, _inputs: &HashMap<String, Value>) -> Result<Vec<(String, Value)>, RuntimeError> {
        match self.never {}
    }
}

/// Sessions of ONNX Runtime whose loading and running is timed.
pub mod timed {
    use std::time::Duration;

    use super::{HashMap, Infallible, Level, Path, Runtime, RuntimeError, Value};

    /// Inputs in the form that sessions take.
    #[derive(Debug)]
    pub struct Inputs(());

    impl Inputs {
        /// Nothing: there is no session to take them.
        pub fn new(_values: &HashMap<String, Value>) -> Result<Self, RuntimeError> {
            Ok(Self(()))
        }
    }

    /// A model that ONNX Runtime has loaded, to be timed.
    #[derive(Debug)]
    pub struct Timed {
        never: Infallible,
    }

    impl Runtime {
        /// Makes what all sessions of this process share.
        pub fn warm_up(&self) -> Result<(), RuntimeError> {
            match self.never {}
        }

        /// Loads the model at `path` for runs on so many threads; the time that this takes.
        pub fn time_load(
            &self,
            _path: &Path,
            _level: Level,
            _threads: usize,
        ) -> Result<(Timed, Duration), RuntimeError> {
            match self.never {}
        }
    }

    impl Timed {
        /// The time of one run.
        pub fn run(&mut self, _inputs: &Inputs) -> Result<Duration, RuntimeError> {
            match self.never {}
        }
    }
}

/// Sessions of ONNX Runtime that write down how long each node takes.
pub mod profiled {
    use std::time::Duration;

    use super::super::Span;
    use super::timed::Inputs;
    use super::{Infallible, Level, Model, Path, PathBuf, Runtime, RuntimeError};

    /// A model in a file of its own.
    #[derive(Debug)]
    pub struct OnDisk {
        /// The file.
        pub path: PathBuf,
    }

    impl OnDisk {
        /// Says that there is nothing that would read it.
        pub fn of(_model: &Model) -> Result<Self, RuntimeError> {
            Err(RuntimeError::Unwritable(super::super::Missing::NotBuilt.to_string()))
        }
    }

    /// A session that writes down how long each node takes.
    #[derive(Debug)]
    pub struct Profiled {
        never: Infallible,
    }

    impl Runtime {
        /// A session that writes down how long each node takes.
        pub fn profiled(
            &self,
            _path: &Path,
            _level: Level,
            _threads: usize,
        ) -> Result<Profiled, RuntimeError> {
            match self.never {}
        }
    }

    impl Profiled {
        /// The time of one run.
        pub fn run(&mut self, _inputs: &Inputs) -> Result<Duration, RuntimeError> {
            match self.never {}
        }

        /// What was written down.
        pub fn finish(self) -> Result<Vec<Span>, RuntimeError> {
            match self.never {}
        }
    }
}
