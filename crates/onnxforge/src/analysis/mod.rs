//! What a model is made of, and what becomes of it.

pub mod bench;
pub mod census;
pub mod cost;
pub mod inspect;
pub mod topology;
