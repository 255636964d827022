//! Files to models and back.

mod ahead;
pub mod external;
pub mod load;
mod mend;
pub mod message;
pub mod model_error;
mod owner;
mod plan;
mod request;
mod resolve;
pub mod save;
mod staged;
pub mod tensor;

pub use external::LinkPolicy;
pub use load::{LoadError, LoadOptions, Source, load, load_bytes};
pub use request::{External, SaveError, SaveOptions, Saved};
pub use resolve::{filled_kinds, plain_attribute};
pub use save::{require_folder, save, save_with, to_bytes, write_file};
