//! Files to models and back.

pub mod external;
pub mod tensor;
