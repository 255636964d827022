//! What a model is made for.
//!
//! A pass says itself which targets want it ([`Runs`](super::Runs)); a target has no list of its own.

use super::{PASSES, Pass, Runs};

/// What a model is made for.
#[derive(Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
}

/// Every runtime: operators of the standard only.
pub static PORTABLE: Target =
    Target { name: "portable", summary: "Every runtime: operators of the standard only" };

/// ONNX Runtime.
pub static ORT: Target =
    Target { name: "ort", summary: "ONNX Runtime: its own operators where it runs them as fast or faster" };

/// Converters to TensorFlow Lite.
pub static TFLITE: Target = Target {
    name: "tflite",
    summary: "Converters to TensorFlow Lite: LayerNormalization in primitive operators, nothing fused into newer ones",
};

/// Converters to Core ML.
pub static COREML: Target = Target {
    name: "coreml",
    summary: "Converters to Core ML: LayerNormalization and Gelu, but attention in primitive operators",
};

/// A file of TensorFlow Lite: operators that its writer takes one by one, those of [`tflite`](onnxforge_ops::tflite) among them.
pub static TFLITE_FILE: Target = Target {
    name: "tflite-file",
    summary: "Files of TensorFlow Lite: no ONNX model any more, but one that is written as .tflite",
};

/// A package of Core ML: operators that its writer takes one by one.
pub static COREML_FILE: Target = Target {
    name: "coreml-file",
    summary: "Packages of Core ML: no ONNX model any more, but one that is written as .mlpackage",
};

/// Those that a conversion to another format chooses; nobody asks for them by name, for what they make is for its writer alone.
pub static FORMATS: [&Target; 2] = [&TFLITE_FILE, &COREML_FILE];

/// The targets, the default first.
pub static TARGETS: [&Target; 4] = [&PORTABLE, &ORT, &TFLITE, &COREML];

impl Target {
    /// The passes that run for it unless others are asked for, in the order in which they run.
    pub fn passes(&self) -> impl Iterator<Item = &'static Pass> {
        PASSES.iter().copied().filter(|pass| pass.runs_for(self))
    }

    /// The passes that run for it and not for every target.
    pub fn adds(&self) -> impl Iterator<Item = &'static Pass> {
        self.passes().filter(|pass| matches!(pass.runs, Runs::Only(_)))
    }

    /// The passes whose results it cannot use.
    pub fn omits(&self) -> impl Iterator<Item = &'static Pass> {
        PASSES.iter().copied().filter(|pass| matches!(pass.runs, Runs::Except(_)) && !pass.runs_for(self))
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Target {}
