//! Files to models and back.

mod ahead;
pub mod external;
pub mod load;
pub mod message;
pub mod model_error;
mod plan;
pub(crate) mod resolve;
pub mod save;
mod staged;
pub mod tensor;

pub use external::LinkPolicy;
pub use load::{LoadError, LoadOptions, load, load_bytes};
pub use save::{External, SaveError, SaveOptions, Saved, save, save_with, to_bytes, write_file};
