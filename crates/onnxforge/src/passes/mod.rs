//! Changes that make models smaller or faster, one file each.

pub mod fold_constants;
