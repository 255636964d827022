//! What both kinds of Scan have in common.

use crate::array::Array;
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::fact::{Fact, TensorFact};
use crate::kernel::shape::strides;
use crate::kernel::strided::View;
use crate::layout::axes::without;

/// How many of `count` inputs are carried; those after them are scanned.
pub(super) fn carried_count(call: &Call<'_>, count: usize) -> Result<usize, OpError> {
    let scanned = call.int("num_scan_inputs")?;
    match usize::try_from(scanned).ok().filter(|scanned| *scanned > 0).and_then(|n| count.checked_sub(n)) {
        Some(carried) => Ok(carried),
        None => invalid(format!("{scanned} of {count} inputs are scanned")),
    }
}

/// Entry `index` of a list attribute that may be left out, or 0.
pub(super) fn entry(call: &Call<'_>, name: &str, index: usize) -> Result<i64, OpError> {
    Ok(call.opt_ints(name)?.and_then(|list| list.get(index).copied()).unwrap_or(0))
}

/// What is at `place` along `axis`, without the axis.
pub(super) fn layer(cx: &Eval<'_>, array: &Array, axis: usize, place: usize) -> Result<Array, OpError> {
    let own = strides(array.shape());
    let view = View {
        shape: without(array.shape(), &[axis]),
        strides: without(&own, &[axis]).into_iter().map(|stride| stride as isize).collect(),
        offset: place.saturating_mul(own[axis]),
    };
    view.copy(array, cx.memory())
}

/// The place that is read in a turn.
pub(super) fn read_at(turn: usize, turns: usize, reversed: bool) -> usize {
    if reversed { turns - 1 - turn } else { turn }
}

/// What is known of a tensor without `axes`.
pub(super) fn fewer_axes(fact: &TensorFact, axes: &[usize]) -> Fact {
    let shape = fact.shape.as_ref().map(|shape| without(shape, axes));
    TensorFact { dtype: fact.dtype, shape, value: None }.into()
}
