//! What a model is made of, and what becomes of it.

pub mod attribution;
pub mod audit;
pub mod census;
pub mod cost;
pub mod effort;
pub mod fingerprint;
pub mod inspect;
pub mod profile;
pub mod scene;
pub mod topology;
