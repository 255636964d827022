//! The rewriting engine, the passes and the conversion to newer operator sets, tried on small graphs.
//!
//! `tests/rules` and `tests/upgrade` hold golden cases, which [`golden`] reads; [`rules`] and [`upgrade`] say what they mean.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod exact;
mod fold_constants;
mod golden;
mod planted;
mod rewrite;
mod rules;
mod upgrade;

#[global_allocator]
static ALLOCATOR: onnxforge_testing::memory::Counting = onnxforge_testing::memory::Counting;
