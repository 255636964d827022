//! What numbers look like, and whether they go together: for the study of many models, and for the benchmarks of this repository.

pub mod plots;
pub mod statistics;

/// Text that is nothing but text in HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
