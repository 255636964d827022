//! The rewriting engine: rules say what may become what, the driver makes sure that nothing else changes.
//!
//! A [`Rule`] looks at one node and answers with a [`Change`] or with the reason why not, a [`Skip`]. It reads the model
//! through [`Cx`], which knows the facts about every value. Rules are written as functions of a node ([`At`], which may walk
//! along a [`Trail`]) or as a pattern in ONNX text ([`Fusion`]).
//!
//! The [`Workbench`] applies rules until none fires any more. For every change of every rule it makes sure that
//! - each value that gets another definition keeps its element type and a provably equal shape;
//! - every new node is a valid call at the operator set that holds where it stands;
//! - what nothing reads any more goes with the change that orphaned it, nodes and constants alike;
//! - the constants do not grow beyond the budget;
//! - interfaces stay: inputs, outputs, their names and types (see [`crate::ir::edit`]).

mod change;
mod cx;
mod driver;
mod matcher;
mod pattern;
mod rule;
mod skip;
mod trail;
mod witness;

pub use change::Change;
pub use cx::Cx;
pub use driver::{Budget, Skipped, Workbench};
pub use pattern::{Pattern, PatternError};
pub use rule::{At, Fusion, Rule};
pub use skip::{Reason, Skip};
pub use trail::Trail;
pub use witness::Witness;
