//! Why something that was asked of the library cannot be done.

use std::fmt;

use onnxforge_convert::UnknownFormat;
use onnxforge_hierarchy::extract::ExtractError;
use onnxforge_hierarchy::lineage::Stray;
use onnxforge_hierarchy::select::NoModule;
use onnxforge_ir::io::{LoadError, SaveError};
use onnxforge_ops::check::Problem;
use onnxforge_ops::eval::RunError;
use onnxforge_ops::eval::sample::SampleError;
use onnxforge_rewrite::interface::InterfaceError;
use onnxforge_rewrite::upgrade::UpgradeError;
use onnxforge_verify::VerifyError;
use onnxforge_verify::engine::EngineError;
use onnxforge_verify::guard::GuardError;
use onnxforge_verify::runtime::Missing;
use onnxforge_verify::runtime::litert::LiteRtError;

use crate::float16::Float16Error;
use crate::opset::OpsetError;
use crate::selection::SelectionError;

/// Why something that was asked of the library cannot be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read, or holds no model.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A model contradicts the standard.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Sizes, shapes or outputs that the model cannot have.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Passes that do not go together, or do not exist.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The model cannot be converted to the operator set.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
    /// ONNX Runtime takes no version of the standard operators that was asked for.
    #[error(transparent)]
    Opset(#[from] OpsetError),
    /// Checks found more faulty rewrites than could be reverted.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// A node was attributed to a module that it does not come from.
    #[error(transparent)]
    Stray(#[from] Stray),
    /// ONNX Runtime is asked for and not there.
    #[error(transparent)]
    Runtime(#[from] Missing),
    /// Given inputs do not fit the model.
    #[error(transparent)]
    Inputs(#[from] RunError),
    /// Two models cannot be compared.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// No module fits.
    #[error(transparent)]
    NoModule(#[from] NoModule),
    /// Only some modules may change, and the whole model is to be converted to other operators.
    #[error(
        "another operator set concerns the whole model; convert it first (`onnxforge upgrade`), or leave the choice of modules out"
    )]
    WholeModel,
    /// A module cannot be cut out.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// 16 bits are not enough.
    #[error(transparent)]
    Float16(#[from] Float16Error),
    /// Nothing says which format is wanted.
    #[error(transparent)]
    Format(#[from] UnknownFormat),
    /// LiteRT is asked for and not there, or refuses a file.
    #[error(transparent)]
    LiteRt(#[from] LiteRtError),
    /// There are no inputs that a file can run on.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A file does not run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file cannot be written.
    #[error(transparent)]
    Save(#[from] SaveError),
}

/// A model that contradicts the standard: it has no meaning that could be kept.
#[derive(Clone, Debug)]
pub struct Invalid {
    /// The worst that is wrong.
    pub first: Problem,
    /// How much else is wrong.
    pub more: usize,
}

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.first.place, self.first.message)?;
        match self.more {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}
