//! Packages of Core ML: ML Programs.
//!
//! [`mod@write`] makes a program of a model, node by node; [`read`] makes a message of a program. What messages a package holds is in [`schema`], how it stores weights in
//! [`weights`], and which files it has in [`package`].

pub mod package;
pub mod read;
pub mod schema;
pub mod weights;
pub mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onnxforge_ir::io::{LoadError, Source};
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::{Model, Type};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::wire;
use serde::{Deserialize, Serialize};

use crate::artifact::{Artifact, Summary};
use crate::refusal::{Refusal, Refusals};
use schema::{
    BlockEntry, Description, Function, FunctionEntry, Metadata, Operation, Program, Spec, TextEntry,
};
use write::Written;

pub use package::is_one;

/// Under this name the package keeps how its interface is that of the model.
const PORTS: &str = "onnxforge.ports";

/// What a package is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The first version of iOS that runs it: 15 to 18.
    pub ios: u32,
    /// Whether floats of 32 bits are computed in 16, where they fit.
    pub half: bool,
    /// The sizes that dimensions of inputs may have, by their names.
    pub ranges: BTreeMap<String, (usize, usize)>,
    /// The shapes that inputs may have, by their names; the first one is what it has unless users say otherwise.
    pub shapes: BTreeMap<String, Vec<Vec<usize>>>,
    /// Inputs that are images, and how their numbers follow from those of the image.
    pub images: BTreeMap<String, Pixels>,
    /// Who made it, and what for.
    pub about: About,
}

/// How numbers follow from those of an image, which are 0 to 255: by a factor, and by a summand for each channel or one for all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pixels {
    /// The factor.
    pub scale: f32,
    /// The summands.
    pub bias: Vec<f32>,
}

/// Texts about a model.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// What it does.
    pub summary: Option<String>,
    /// Who made it.
    pub author: Option<String>,
    /// What others may do with it.
    pub license: Option<String>,
    /// Its version.
    pub version: Option<String>,
}

/// How far results in float16 may be from those in float32, as a share of their scale: 64 units in the last place.
pub const HALF: f64 = 64.0 / 2048.0;

/// The versions of iOS that there are operators for.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 15..=18;

impl Default for Settings {
    fn default() -> Self {
        Self {
            ios: 17,
            half: true,
            ranges: BTreeMap::new(),
            shapes: BTreeMap::new(),
            images: BTreeMap::new(),
            about: About::default(),
        }
    }
}

/// Names in settings that the model does not have.
fn unknown(model: &Model, settings: &Settings) -> Vec<Refusal> {
    let ports = model.scope(model.main()).inputs();
    let inputs: BTreeSet<String> =
        ports.iter().map(|port| model.value(port.value).name().to_string()).collect();
    let dims: BTreeSet<String> = ports
        .iter()
        .filter_map(
            |port| if let Type::Tensor(_, Some(shape)) = port.declared() { Some(shape) } else { None },
        )
        .flatten()
        .filter_map(|dim| if let DeclaredDim::Named(name) = dim { Some(name.to_string()) } else { None })
        .collect();
    let images = settings.images.keys().map(|name| ("--image", name, &inputs, "the model has no such input"));
    let shapes =
        settings.shapes.keys().map(|name| ("--shapes", name, &inputs, "the model has no such input"));
    let ranges =
        settings.ranges.keys().map(|name| ("--range", name, &dims, "no input has a dimension of this name"));
    let wrong = images.chain(shapes).chain(ranges).filter(|(_, name, known, _)| !known.contains(*name));
    wrong.map(|(option, name, _, why)| Refusal::about(option, name, why)).collect()
}

/// The model as a package, once the passes of the target ran.
pub fn lower(model: &Model, settings: &Settings) -> Result<Artifact, Refusals> {
    let unknown = unknown(model, settings);
    if !unknown.is_empty() {
        return Err(Refusals(unknown));
    }
    let written = write::write(model, settings)?;
    let summary = summary(&written, settings);
    let (spec, weights) = spec(written, settings);
    let pieces = wire::encode(&spec).pieces().collect();
    Ok(Artifact { parts: package::parts(pieces, weights), summary })
}

fn summary(written: &Written, settings: &Settings) -> Summary {
    let mut summary = Summary::default();
    for Operation { kind, .. } in &written.block.operations {
        let kind = kind.as_deref().unwrap_or_default();
        if kind != "const" {
            *summary.operators.entry(kind.to_owned()).or_default() += 1;
        }
    }
    summary.transposes = summary.operators.get("transpose").copied().unwrap_or(0);
    summary.weights = written.weights.byte_len();
    if settings.half {
        summary.notes.push(format!(
            "computes in float16; {} nodes stay in float32, whose numbers do not fit into 16 bits",
            written.kept
        ));
    }
    for port in &written.ports {
        if port.name != port.model || port.dtype != "float" {
            let name =
                if port.name == port.model { String::new() } else { format!(" is called {}", port.name) };
            let kind = match &*port.dtype {
                "float" | "int32" | "float16" => String::new(),
                dtype => format!(" is int32 instead of {dtype}"),
            };
            if !name.is_empty() || !kind.is_empty() {
                let and = if name.is_empty() || kind.is_empty() { "" } else { " and" };
                summary.notes.push(format!("{}{name}{and}{kind}", port.model));
            }
        }
    }
    summary.notes.extend(written.notes.iter().cloned());
    summary
}

fn spec(written: Written, settings: &Settings) -> (Spec, weights::Weights) {
    let opset = format!("CoreML{}", settings.ios - 10);
    let block = BlockEntry {
        key: Some(opset.as_str().into()),
        value: Some(Box::new(written.block)),
        ..BlockEntry::default()
    };
    let function = Function {
        inputs: written.inputs,
        opset: Some(opset.as_str().into()),
        blocks: vec![block],
        ..Function::default()
    };
    let main = FunctionEntry {
        key: Some("main".into()),
        value: Some(Box::new(function)),
        ..FunctionEntry::default()
    };
    let program = Program { version: Some(1), functions: vec![main], ..Program::default() };
    let [inputs, outputs] = written.features;
    let text = |text: &Option<String>| text.as_deref().map(Into::into);
    let custom = |key: &str, value: &str| TextEntry {
        key: Some(key.into()),
        value: Some(value.into()),
        ..TextEntry::default()
    };
    let ports = serde_json::to_string(&written.ports).unwrap_or_default();
    let metadata = Metadata {
        summary: text(&settings.about.summary),
        version: text(&settings.about.version),
        author: text(&settings.about.author),
        license: text(&settings.about.license),
        custom: vec![custom(PORTS, &ports)],
        ..Metadata::default()
    };
    let description =
        Description { inputs, outputs, metadata: Some(Box::new(metadata)), ..Description::default() };
    let spec = Spec {
        version: Some(settings.ios as i32 - 9),
        description: Some(Box::new(description)),
        program: Some(Box::new(program)),
        ..Spec::default()
    };
    (spec, written.weights)
}

/// A package as a message, whose weights stay where they are.
pub fn open(path: &Path) -> Result<Source, LoadError> {
    message(&package::Package::open(path)?, path)
}

/// The model and the weights of a package as a message. `path` is what errors call it.
pub fn decode(model: &Blob, weights: &Blob, path: &Path) -> Result<Source, LoadError> {
    message(&package::Package::of_bytes(model.clone(), weights.clone()), path)
}

fn message(package: &package::Package, path: &Path) -> Result<Source, LoadError> {
    match read::read(package) {
        Ok(message) => Ok(Source::of_message(message, path)),
        Err(error) => Err(LoadError::NotAModel { path: path.to_owned(), why: error.to_string() }),
    }
}
