//! Analyses and options held against the passes and their cases, in one binary.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../onnxforge-rewrite/tests/it/golden.rs"]
mod golden;

mod audit;
mod effort;
mod exact;
mod explain;
mod fingerprint;
mod kind;
