//! Options that several commands have.

mod comparison;
mod inputs;
mod selection;
mod values;

pub use self::comparison::{Checks, Comparison, EngineArg};
pub use self::inputs::{check_dims, complete, given, list, stored};
pub use self::selection::{SelectionArgs, find};
pub use self::values::{gigabytes, named_shape, named_size, seconds};
