//! Tests of the wire layer and the schema, in one binary.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod oracle;

mod against_prost;
