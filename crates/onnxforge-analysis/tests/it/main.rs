//! Tests of analyses that need no cases of passes, in one binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod cost;
mod topology;
