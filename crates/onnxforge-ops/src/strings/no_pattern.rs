//! In place of regular expressions, in a build without them.

use crate::Value;
use crate::error::{OpError, unsupported};
use crate::eval_call::Eval;

pub(super) fn full_match(_cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    unsupported("RegexFullMatch in a build without the Cargo feature `strings`")
}
