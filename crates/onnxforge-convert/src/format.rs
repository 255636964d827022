//! The formats: which there are, and what is the same for all.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use onnxforge_ir::Model;
use onnxforge_ir::io::{LoadError, Source};
use onnxforge_rewrite::passes::targets::{COREML_FILE, TFLITE_FILE, Target};
use serde::Serialize;

use crate::artifact::Artifact;
use crate::refusal::Refusals;
use crate::{coreml, tflite};

/// A format that models are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// TensorFlow Lite: `.tflite`.
    TfLite,
    /// Core ML: `.mlpackage`.
    CoreMl,
}

/// What the result is to be, beyond the model.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// For Core ML.
    pub coreml: coreml::Settings,
}

/// A path from which no format follows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of the result must end in .tflite or .mlpackage")]
pub struct UnknownFormat;

impl Format {
    /// The format of a file of this name.
    pub fn of(path: &Path) -> Result<Self, UnknownFormat> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("tflite") => Ok(Self::TfLite),
            Some("mlpackage") => Ok(Self::CoreMl),
            _ => Err(UnknownFormat),
        }
    }

    /// The format of what lies there, if it is one of these: told by its content, not by its name.
    pub fn found_in(path: &Path) -> Option<Self> {
        if coreml::is_one(path) {
            return Some(Self::CoreMl);
        }
        let mut start = [0; 8];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
        match read {
            Ok(()) if tflite::is_one(&start) => Some(Self::TfLite),
            _ => None,
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::TfLite => "TensorFlow Lite",
            Self::CoreMl => "Core ML",
        }
    }

    /// The target whose passes say a model in what the format has.
    pub fn target(self) -> &'static Target {
        match self {
            Self::TfLite => &TFLITE_FILE,
            Self::CoreMl => &COREML_FILE,
        }
    }

    /// The model in this format, ready to be written, once the passes of the [target](Self::target) ran.
    pub fn lower(self, model: &Model, settings: &Settings) -> Result<Artifact, Refusals> {
        match self {
            Self::TfLite => tflite::lower(model),
            Self::CoreMl => coreml::lower(model, &settings.coreml),
        }
    }

    /// How far results may be from those of the model, as a share of their scale, where the precision that was asked for makes that more than rounding.
    pub fn tolerance(self, settings: &Settings) -> Option<f64> {
        match self {
            Self::TfLite => None,
            Self::CoreMl => settings.coreml.half.then_some(coreml::HALF),
        }
    }

    /// A file of this format as a message, whose weights stay where they are.
    pub fn open(self, path: &Path) -> Result<Source, LoadError> {
        match self {
            Self::TfLite => tflite::open(path),
            Self::CoreMl => coreml::open(path),
        }
    }
}
