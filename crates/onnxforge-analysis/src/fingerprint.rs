//! What kind of network a model is, and how that can be seen.
//!
//! Everything is concluded from structure: operators, shapes, and how values flow. Names (of the model, its nodes, values, dimensions, inputs and
//! files) decide nothing, and neither does metadata. What is looked at is the model without detours and with functions in place, so
//! that the same network looks the same whoever exported it.

mod classes;
mod convolution;
mod features;
mod inputs;
mod masks;
mod selection;

use serde::Serialize;

pub use self::features::Features;
pub use self::inputs::Input;
pub use self::selection::{Fit, Unfit, fitting, may_choose};
use super::scene::{Scene, tidied};
use onnxforge_ir::Model;

/// What a model is.
#[derive(Clone, Debug, Serialize)]
pub struct Fingerprint {
    /// Version of this layout.
    pub schema: u32,
    /// The class.
    pub class: Class,
    /// How sure that is, from 0 to 1: the share of what one expects of the class that is there, less what speaks against it.
    pub confidence: f64,
    /// What it was concluded from, in words.
    pub reasons: Vec<String>,
    /// What was looked at.
    pub features: Features,
    /// The passes that matter for it.
    pub selects: Vec<Fit>,
}

/// A class of networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Convolutions on images, without attention.
    Vision,
    /// Attention that sees everything at once: encoders of text or of patches of images, encoders with decoders.
    Transformer,
    /// Convolutions and attention on images.
    Hybrid,
    /// Text, one token after the other.
    Llm,
    /// Sound, as a wave or as a spectrogram.
    Audio,
    /// None of these.
    Other,
}

impl Class {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vision => "vision",
            Self::Transformer => "transformer",
            Self::Hybrid => "hybrid",
            Self::Llm => "llm",
            Self::Audio => "audio",
            Self::Other => "other",
        }
    }
}

impl Fingerprint {
    /// Looks at a model.
    pub fn of(model: &Model) -> Self {
        let mut plain = tidied(model, true);
        let features = Features::of(model, &Scene::of(&mut plain));
        let classes::Conclusion { class, confidence, reasons } = classes::conclude(&features);
        let selects = selection::select(class, &features);
        Self { schema: 1, class, confidence, reasons, features, selects }
    }

    /// The passes that matter for this model, and why.
    pub fn passes(&self) -> &[Fit] {
        &self.selects
    }
}
