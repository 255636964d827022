//! What a model is made of, and what becomes of it.

pub mod census;
pub mod inspect;
