//! `onnxforge export`: PyTorch's own export lives in Python, so this one only tells the way.

use std::ffi::OsString;

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Export a PyTorch model with its modules, by the Python package.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the command of the Python package takes: `python -m onnxforge export --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub fn run(args: &Args, _: &Output) -> Result<Verdict, Failure> {
    let words = args.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    Err(Failure::new(format!(
        "export runs in Python, beside PyTorch: pip install 'onnxforge[torch]', then python -m onnxforge export {words}"
    )))
}
