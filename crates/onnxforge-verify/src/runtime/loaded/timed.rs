//! Sessions of ONNX Runtime whose loading and running is timed.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use ort::session::{Session, SessionInputValue};
use ort::value::DynValue;

use super::{Level, Runtime, RuntimeError, refused, values};
use onnxforge_ir::text;
use onnxforge_ops::Value;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::wire;

/// A model that takes no time to load.
const SMALLEST: &str =
    "<ir_version: 8, opset_import: [\"\" : 13]> g (float x) => (float y) { y = Identity(x) }";

/// Inputs in the form that sessions take: made once, read by every run.
#[derive(Debug)]
pub struct Inputs(Vec<(String, DynValue)>);

impl Inputs {
    /// The inputs of these names.
    pub fn new(values: &HashMap<String, Value>) -> Result<Self, RuntimeError> {
        let values = values.iter().map(|(name, value)| Ok((name.clone(), values::given(value.clone())?)));
        values.collect::<Result<_, _>>().map(Self)
    }

    /// As a run takes them. They must outlive what is read of its outputs: an output may be an input's very memory.
    pub(super) fn given(&self) -> Vec<(&str, SessionInputValue<'_>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.into())).collect()
    }
}

/// A model that ONNX Runtime has loaded, to be timed.
#[derive(Debug)]
pub struct Timed {
    session: Session,
}

impl Runtime {
    /// Makes what all sessions of this process share, so that the first one that is timed does not pay for it.
    pub fn warm_up(&self) -> Result<(), RuntimeError> {
        let model = text::parse(SMALLEST).map_err(|error| RuntimeError::Unreadable(error.to_string()))?;
        let mut bytes = Vec::new();
        wire::encode(&model).write_to(&mut bytes)?;
        self.session(Level::All)?.commit_from_memory(&bytes).map_err(refused)?;
        Ok(())
    }

    /// Loads the model at `path` for runs on so many threads; the time that this takes.
    pub fn time_load(
        &self,
        path: &Path,
        level: Level,
        threads: usize,
    ) -> Result<(Timed, Duration), RuntimeError> {
        let builder = self.session(level)?.with_intra_threads(threads).map_err(refused)?;
        let builder = builder.with_inter_threads(threads).map_err(refused)?;
        // Threads of a session that is not running must not keep a core from the one that is.
        let mut builder = builder.with_config_entry("session.force_spinning_stop", "1").map_err(refused)?;
        let start = Instant::now();
        let session = builder.commit_from_file(path).map_err(refused)?;
        Ok((Timed { session }, start.elapsed()))
    }
}

impl Timed {
    /// The time of one run. The outputs are computed and dropped.
    pub fn run(&mut self, inputs: &Inputs) -> Result<Duration, RuntimeError> {
        time_run(&mut self.session, inputs)
    }
}

/// The time of one run of a session.
pub(super) fn time_run(session: &mut Session, inputs: &Inputs) -> Result<Duration, RuntimeError> {
    let given = inputs.given();
    let start = Instant::now();
    let outputs = session.run(given).map_err(refused)?;
    let time = start.elapsed();
    drop(outputs);
    Ok(time)
}
