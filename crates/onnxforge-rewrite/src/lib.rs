//! The rewriting engine: rules say what may become what, the driver makes sure that nothing else changes.
//!
//! A [`Rule`] looks at one node and answers with a [`Change`] or with the reason why not, a [`Skip`]. It reads the model
//! through [`Cx`], which knows the facts about every value. Rules are functions of a node ([`At`]), which may walk along a
//! [`Trail`].
//!
//! The [`Workbench`] applies rules until none fires any more. For every change of every rule it makes sure that
//! - each value that gets another definition keeps its element type and its shape: inference proves it, or it cannot tell and the change
//!   gives one of the arguments that its pass declares ([`Trust`](onnxforge_ir::Trust)), which the journal then names; a type or shape
//!   that inference knows to be another one is refused always;
//! - every new node is a valid call at the operator set that holds where it stands;
//! - what nothing reads any more goes with the change that orphaned it, nodes and constants alike;
//! - the constants do not grow beyond the budget;
//! - where only a part of the model may change ([`Within`]), every other node stays as it is;
//! - interfaces stay: inputs, outputs, their names and types (see [`onnxforge_ir::edit`]).

mod author;
mod change;
mod cx;
mod driver;
pub mod interface;
mod packed;
pub mod passes;
mod rule;
mod same;
mod skip;
mod trail;
pub mod upgrade;
mod within;
mod witness;

pub use author::Author;
pub use change::Change;
pub use cx::Cx;
pub use driver::{Budget, Skipped, Workbench};
pub use rule::{At, Rule};
pub use skip::{Reason, Skip};
pub use trail::Trail;
pub use within::Within;
pub use witness::Witness;
