//! Tests of the model, its edits, loading, saving and the text notation, in one binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::result_large_err)]

mod common;
mod messages;

mod dim;
mod edit;
mod hostile;
mod lossless;
mod mend;
mod save;
mod text;

/// Counts for each thread apart, so tests that measure may run beside others.
#[global_allocator]
static ALLOCATOR: onnxforge_testing::memory::Counting = onnxforge_testing::memory::Counting;
