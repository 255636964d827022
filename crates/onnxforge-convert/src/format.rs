//! The formats: which there are, and what is the same for all.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use onnxforge_ir::io::{LoadError, Source};
use onnxforge_ir::{Model, NodeId};
use onnxforge_rewrite::passes::targets::{COREML_FILE, TFLITE_FILE, Target};
use serde::Serialize;

use crate::artifact::{Artifact, ChannelsLast};
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

/// How weights are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// As they are in the model.
    #[default]
    Float32,
    /// Floats of 32 bits rounded to 16.
    Float16,
}

/// The layout of inputs and outputs that are images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// That of the model.
    #[default]
    Keep,
    /// Channels last, where a Transpose to that is all that reads an input, or all that gives an output.
    Nhwc,
}

/// What a file is to be like, and what is known of the model beside it.
#[derive(Clone, Copy, Default)]
pub struct Settings<'a> {
    /// How weights are stored.
    pub weights: Weights,
    /// The layout of inputs and outputs that are images.
    pub layout: Layout,
    /// What identifies the model that the file is made of.
    pub source: Option<&'a str>,
    /// The path of the PyTorch module that a node comes from, where that is known.
    pub module: Option<&'a dyn Fn(NodeId) -> Option<String>>,
    /// What packages of Core ML are to be like.
    pub coreml: Option<&'a coreml::Settings>,
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
    pub fn lower(self, model: &Model, settings: &Settings<'_>) -> Result<Artifact, Refusals> {
        match self {
            Self::TfLite => tflite::lower(model, settings),
            Self::CoreMl => coreml::lower(model, settings.coreml.unwrap_or(&coreml::Settings::default())),
        }
    }

    /// A file of this format as a message, whose weights stay where they are; inputs and outputs of these names get their channels first again.
    pub fn open_as_model(self, path: &Path, channels_last: &ChannelsLast) -> Result<Source, LoadError> {
        match self {
            Self::TfLite => tflite::open_with(path, channels_last),
            Self::CoreMl => coreml::open(path),
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
