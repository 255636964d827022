//! Whole models through inference, evaluation, passes and conversion, each held against another engine or itself, in one
//! binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::iter_over_hash_type
)]

mod backend;
mod fooled;
mod random_graphs;
mod verdicts;
