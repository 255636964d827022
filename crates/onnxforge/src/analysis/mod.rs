//! What a model is made of.

pub mod inspect;
