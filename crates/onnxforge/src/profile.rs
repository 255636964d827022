//! How long each PyTorch module of a model takes.

use std::collections::HashMap;
use std::path::Path;

pub use onnxforge_analysis::profile::{
    Attributed, GroupTime, ModuleTime, NodeTime, Observed, Profile, flame, trace,
};
use onnxforge_hierarchy::{Hierarchy, Tags};
use onnxforge_ir::{Model, NodeId};
use onnxforge_ops::Value;
use onnxforge_ops::eval::RunError;
use onnxforge_proto::progress::Progress;
use onnxforge_verify::bench::BenchError;
pub use onnxforge_verify::profile::Options as Measurement;
use onnxforge_verify::profile::{in_runtime, in_this_library};
use onnxforge_verify::runtime::profiled::OnDisk;
use onnxforge_verify::runtime::{Missing, Runtime, RuntimeError};
use serde::Serialize;

/// What runs a model to be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// ONNX Runtime where it is found and can run the model, else this library.
    #[default]
    Auto,
    /// ONNX Runtime.
    Ort,
    /// This library.
    Native,
}

/// What ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ran {
    /// ONNX Runtime.
    Ort,
    /// This library.
    Native,
}

/// How long a model and its modules take, and what that was found from.
#[derive(Debug)]
pub struct Profiled {
    /// What ran it.
    pub engine: Ran,
    /// The version of ONNX Runtime, where that did.
    pub runtime: Option<String>,
    /// The times.
    pub profile: Profile,
    /// The runs.
    pub observed: Observed,
}

/// Why a model was not measured.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// ONNX Runtime is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// It does not load or run the model.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The same of what belongs to no session.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// This library does not run the model.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The model has an operator that only this library has, as files of TensorFlow Lite do.
    #[error("ONNX Runtime has no operator {0}; the native engine runs it (--engine native)")]
    OwnOperator(String),
    /// Nothing was measured.
    #[error("too few sessions were measured")]
    TooFew,
}

/// Measures the model at `path`, which was loaded as `model`.
pub fn profile(
    path: &Path,
    model: &Model,
    (hierarchy, tags): (&Hierarchy, &Tags),
    inputs: &HashMap<String, Value>,
    (engine, options): (Engine, &Measurement),
    progress: &dyn Progress,
) -> Result<Profiled, ProfileError> {
    let ours = own_operator(model);
    let runtime = match (engine, ours) {
        (Engine::Native, _) | (Engine::Auto, Some(_)) => None,
        (Engine::Auto, None) => Runtime::get().ok(),
        (Engine::Ort, Some(op)) => return Err(ProfileError::OwnOperator(op)),
        (Engine::Ort, None) => Some(Runtime::get().map_err(Clone::clone)?),
    };
    let Some(runtime) = runtime else {
        let sessions = in_this_library(model, inputs, options, progress)?;
        let observed = Observed::in_this_library(sessions, model, hierarchy);
        let profile = summed(&observed, hierarchy, tags)?;
        return Ok(Profiled { engine: Ran::Native, runtime: None, profile, observed });
    };
    // Names tell which node a time is of. Where the file has none, a copy with names is measured.
    let named = with_names(model);
    let copy = named.as_ref().map(OnDisk::of).transpose()?;
    let measured = copy.as_ref().map_or(path, |copy| &copy.path);
    let sessions = in_runtime(measured, inputs, options, progress)?;
    let saved = runtime.saved(measured, options.level)?;
    let observed = Observed::in_runtime(sessions, &saved.model, named.as_ref().unwrap_or(model), hierarchy);
    let profile = summed(&observed, hierarchy, tags)?;
    Ok(Profiled { engine: Ran::Ort, runtime: runtime.version(), profile, observed })
}

/// An operator that no runtime has.
fn own_operator(model: &Model) -> Option<String> {
    let mut operators = model.nodes().map(|(_, node)| node.op());
    operators.find(|op| op.domain.starts_with("onnxforge.")).map(ToString::to_string)
}

fn summed(observed: &Observed, hierarchy: &Hierarchy, tags: &Tags) -> Result<Profile, ProfileError> {
    onnxforge_analysis::profile::profile(observed, hierarchy, tags).ok_or(ProfileError::TooFew)
}

/// The model with a name for every node, where its file has nodes without, or of one name.
fn with_names(model: &Model) -> Option<Model> {
    let is_unnamed = |id: NodeId| model.node(id).name().is_none_or(|name| name.is_empty());
    let unnamed: Vec<NodeId> = model.nodes().map(|(id, _)| id).filter(|&id| is_unnamed(id)).collect();
    if unnamed.is_empty() && model.mended().is_empty() {
        return None;
    }
    let mut named = model.clone();
    for (number, id) in unnamed.into_iter().enumerate() {
        named.name_node(id, &format!("onnxforge/{number}"));
    }
    Some(named)
}
