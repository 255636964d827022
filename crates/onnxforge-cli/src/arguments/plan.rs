//! What is to become of a model: options that decide about the result of `optimize`.

use std::path::Path;

use clap::builder::NonEmptyStringValueParser;
use onnxforge::interface::Wishes;
use onnxforge::ir::Model;
use onnxforge::optimize::{AccuracyMode, Options};
use onnxforge::upgrade::CONVERTED;
use onnxforge::{Opset, Selection};

use super::{SelectionArgs, named_shape, named_size, version_or_keep};
use crate::failure::Failure;
use crate::output::Output;

/// What is to become of a model.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Fix a symbolic input dimension.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// Fix the shape of an input; symbolic dimensions get the same size everywhere.
    #[arg(long, value_name = "NAME=N,N,…", value_parser = named_shape)]
    set_shape: Vec<(String, Vec<usize>)>,
    /// Make these values of the graph the outputs, and remove what they do not need.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = NonEmptyStringValueParser::new())]
    outputs: Vec<String>,
    /// Convert to this version of the standard operators before the passes run; only upwards.
    ///
    /// `latest` is the newest that ONNX Runtime loads. With `--target ort` a number is an upper bound.
    #[arg(long, value_name = "keep|latest|N", default_value = "keep", value_parser = version_or_keep)]
    opset: Opset,
    /// Accuracy that rewrites must keep.
    #[arg(long, value_enum, default_value = "default")]
    accuracy: AccuracyArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AccuracyArg {
    /// Only rewrites that keep every bit; the comparison demands identical bits.
    Exact,
    /// Rewrites may round, each as much as it declares.
    Default,
}

impl From<AccuracyArg> for AccuracyMode {
    fn from(arg: AccuracyArg) -> Self {
        match arg {
            AccuracyArg::Exact => Self::Exact,
            AccuracyArg::Default => Self::Default,
        }
    }
}

impl PlanArgs {
    /// Which passes run.
    pub fn selection(&self) -> &SelectionArgs {
        &self.selection
    }

    /// The model, which must be valid but for what a conversion takes care of.
    pub fn load(&self, path: &Path, output: &Output) -> Result<Model, Failure> {
        output.files.load_valid(path, if self.opset == Opset::Keep { &[] } else { CONVERTED })
    }

    /// What is to be done, with these passes.
    pub fn options(&self, passes: Selection) -> Options {
        Options {
            interface: Wishes {
                dims: self.set_dim.iter().cloned().collect(),
                shapes: self.set_shape.iter().cloned().collect(),
                outputs: self.outputs.clone(),
            },
            opset: self.opset,
            passes,
            accuracy: self.accuracy.into(),
            ..Options::default()
        }
    }
}
