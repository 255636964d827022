//! Tests of operators, inference, runs and checks of models, in one binary.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod check;
mod infer;
mod ops;
mod run;
mod shapes;

/// Counts for each thread apart, so tests that measure may run beside others.
#[global_allocator]
static ALLOCATOR: onnxforge_testing::memory::Counting = onnxforge_testing::memory::Counting;
