//! Options that several commands have.

mod comparison;
mod coreml;
mod inputs;
mod plan;
mod selection;
mod values;

pub use self::comparison::{Checks, Comparison, EngineArg};
pub use self::coreml::CoreMl;
pub use self::inputs::{check_dims, complete, given, list, stored};
pub use self::plan::PlanArgs;
pub use self::selection::{SelectionArgs, find};
pub use self::values::{gigabytes, named_shape, named_size, seconds, version, version_or_keep};
