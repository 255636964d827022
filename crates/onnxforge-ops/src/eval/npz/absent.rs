//! In place of archives, in a build without them.

use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};

use super::NpzError;
use crate::array::Array;

/// Says that archives are missing.
pub fn read(_file: impl Read + Seek, _limit: u64) -> Result<BTreeMap<String, Array>, NpzError> {
    Err(NpzError::NotBuilt)
}

/// Says that archives are missing.
pub fn write(_out: impl Write, _arrays: &[(&str, &Array)]) -> Result<(), NpzError> {
    Err(NpzError::NotBuilt)
}
