//! ONNX models to the files of other runtimes, and back.
//!
//! Passes of a format's own [target](Format::target) say a model in what the format has; [`Format::lower`] then turns operators into the format's, one by
//! one, and answers an [`Artifact`] that is ready to be written, or every node that has no place in the format ([`Refusal`]). [`Format::open`] reads such a file back
//! into a message, so that whoever runs and compares ONNX models can do so with it.

pub mod artifact;
pub mod coreml;
pub mod format;
mod message;
pub mod refusal;
pub mod tflite;
pub mod view;

pub use artifact::{Artifact, ChannelsLast, Delegate, Moved, Part, Staged, Summary};
pub use format::{Format, Layout, Settings, UnknownFormat, Weights};
pub use refusal::{Refusal, Refusals};
