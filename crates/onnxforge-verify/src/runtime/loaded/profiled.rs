//! Sessions of ONNX Runtime that write down how long each node takes.

use std::path::Path;
use std::time::Duration;

use ort::session::Session;
use serde::Deserialize;

use super::super::{Named, Span};
use super::timed::{Inputs, time_run};
use super::{Level, Runtime, RuntimeError, refused};
use onnxforge_ir::Model;
use onnxforge_ir::io::{External, SaveOptions, save};

/// A session that writes down how long each node takes.
#[derive(Debug)]
pub struct Profiled {
    session: Session,
    folder: tempfile::TempDir,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    tid: i64,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    #[serde(default)]
    op_name: String,
}

/// What ends the name of a node in the events of its kernel.
const KERNEL: &str = "_kernel_time";

impl Runtime {
    /// A session that writes down how long each node takes, on so many threads.
    pub fn profiled(&self, path: &Path, level: Level, threads: usize) -> Result<Profiled, RuntimeError> {
        let folder = tempfile::tempdir()?;
        let builder = self.session(level)?.with_intra_threads(threads).map_err(refused)?;
        let builder = builder.with_inter_threads(threads).map_err(refused)?;
        let mut builder = builder.with_profiling(folder.path().join("profile")).map_err(refused)?;
        let session = builder.commit_from_file(path).map_err(refused)?;
        Ok(Profiled { session, folder })
    }
}

/// A model in a file of its own, which goes with this.
#[derive(Debug)]
pub struct OnDisk {
    /// The file.
    pub path: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl OnDisk {
    /// Writes the model to a temporary folder.
    pub fn of(model: &Model) -> Result<Self, RuntimeError> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("model.onnx");
        let options = SaveOptions { external: External::Auto };
        save(model, &path, &options).map_err(|error| RuntimeError::Unwritable(error.to_string()))?;
        Ok(Self { path, _folder: folder })
    }
}

impl Profiled {
    /// The time of one run. The outputs are computed and dropped.
    pub fn run(&mut self, inputs: &Inputs) -> Result<Duration, RuntimeError> {
        time_run(&mut self.session, inputs)
    }

    /// What was written down: runs, and the nodes that they ran.
    pub fn finish(mut self) -> Result<Vec<Span>, RuntimeError> {
        self.session.end_profiling().map_err(refused)?;
        // The folder holds nothing else; the name that ONNX Runtime gives the file has the time in it.
        let file = self.folder.path().read_dir()?.next().transpose()?;
        let unreadable = |reason: String| RuntimeError::Unreadable(format!("the profile: {reason}"));
        let file = file.ok_or_else(|| unreadable("it was not written".to_owned()))?;
        let bytes = std::fs::read(file.path())?;
        spans(&bytes).map_err(|error| unreadable(error.to_string()))
    }
}

fn spans(json: &[u8]) -> Result<Vec<Span>, serde_json::Error> {
    let events: Vec<Event> = serde_json::from_slice(json)?;
    let span = |event: Event| {
        let node = match (&*event.cat, event.name.strip_suffix(KERNEL)) {
            ("Node", Some(name)) => Some(Named { name: name.to_owned(), op: event.args.op_name }),
            ("Session", _) if event.name == "model_run" => None,
            _ => return None,
        };
        Some(Span { node, start: event.ts, time: event.dur, thread: event.tid })
    };
    Ok(events.into_iter().filter_map(span).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_kernels_are_read_and_the_rest_is_not() {
        let json = br#"[
            {"cat": "Session", "pid": 1, "tid": 7, "dur": 90, "ts": 1, "ph": "X", "name": "model_loading_uri", "args": {}},
            {"cat": "Node", "tid": 7, "dur": 5, "ts": 101, "ph": "X", "name": "a_fence_before", "args": {"op_name": "Add"}},
            {"cat": "Node", "tid": 7, "dur": 20, "ts": 110, "ph": "X", "name": "a_kernel_time", "args": {"op_name": "Add", "node_index": "0"}},
            {"cat": "Session", "tid": 7, "dur": 50, "ts": 100, "ph": "X", "name": "model_run", "args": {}}
        ]"#;
        let found = spans(json).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].node, Some(Named { name: "a".to_owned(), op: "Add".to_owned() }));
        assert_eq!((found[1].start, found[1].time, found[1].node.is_none()), (100.0, 50.0, true));
        assert!(spans(b"[{\"cat\":").is_err());
    }
}
