//! The model in memory: one arena of nodes and values, scopes for graphs, bodies and functions.
//!
//! Values are stable and nodes are replaceable: a rewrite gives a value another definition, and its name, readers and
//! type stay. Everything is read through [`Model`] and changed through [`edit::Rewrite`].

pub(crate) mod build;
pub mod cut;
pub mod dim;
pub mod dtype;
pub mod edit;
pub mod element;
pub mod id;
pub mod io;
pub mod journal;
pub mod lazy;
pub mod mended;
pub mod model;
pub mod names;
pub mod node;
pub mod origin;
pub mod redact;
pub mod scope;
pub mod tensor;
pub mod text;
pub mod types;
mod validate;
pub mod value;

pub use dtype::DType;
pub use edit::{EditError, Operand, Rewrite};
pub use id::{NodeId, OriginId, ScopeId, ValueId};
pub use journal::{Accuracy, Entry, Trust};
pub use model::Model;
pub use node::{Attr, AttrValue, Node, Op};
pub use tensor::Tensor;
pub use types::Type;
pub use value::{Constant, Def, Use, Value};
