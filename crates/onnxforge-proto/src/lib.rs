//! Protobuf: bytes to messages and back. Weights stay where they are, unknown fields survive byte for byte.

pub mod blob;
pub mod cancel;
pub mod clock;
mod messages;
pub mod mmap;
pub mod parallel;
pub mod progress;
pub mod random;
pub mod schema;
pub mod walk;
pub mod wire;

/// A shared text.
pub type Str = std::sync::Arc<str>;
