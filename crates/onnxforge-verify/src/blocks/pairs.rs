//! Which values of two models are the same.

use std::collections::HashMap;

use crate::report::VerifyError;
use crate::{is_twin, paired_outputs};
use onnxforge_ir::{Model, ValueId};
use onnxforge_ops::infer::Inference;

/// Which values of two models are the same.
pub struct Pairs {
    /// By values of the first model.
    pub(super) second: HashMap<ValueId, ValueId>,
    /// By values of the second model.
    pub(super) first: HashMap<ValueId, ValueId>,
    /// Whether one model was made from the other, so that what has one id is one thing.
    pub(super) one_origin: bool,
}

impl Pairs {
    /// What has one id is one value: one of the models was made from the other.
    pub fn by_id(first: &Model, second: &Model) -> Self {
        let inputs = first.scope(first.main()).inputs().iter().map(|port| port.value);
        // What a graph gives is compared also where it has become a constant.
        let constant = |value| {
            second.has_value(value) && first.value(value).is_exposed() && second.constant(value).is_some()
        };
        let shared = results(first).filter(|&value| is_twin(first, second, value) || constant(value));
        Self::of(inputs.chain(shared).map(|value| (value, value)), true)
    }

    /// What has one name, and one element type and rank as far as these are known, is one value.
    pub fn by_name(first: &Model, second: &Model) -> Result<Self, VerifyError> {
        let facts = [first, second].map(Inference::of);
        let named: HashMap<&str, ValueId> = results(second)
            .chain(second.scope(second.main()).inputs().iter().map(|port| port.value))
            .chain(second.scope(second.main()).outputs().iter().map(|port| port.value))
            .map(|value| (&**second.value(value).name(), value))
            .collect();
        let inputs = first.scope(first.main()).inputs().iter().map(|port| port.value);
        let fits = |&(a, b): &(ValueId, ValueId)| {
            let rank = |side: usize, value| facts[side].shape(value).map(<[_]>::len);
            let dtype = |side: usize, value| facts[side].tensor(value).and_then(|fact| fact.dtype);
            rank(0, a) == rank(1, b) && dtype(0, a) == dtype(1, b)
        };
        let same_name = |value| Some((value, *named.get(&**first.value(value).name())?));
        let mut pairs: Vec<_> = results(first).chain(inputs).filter_map(same_name).filter(fits).collect();
        // Outputs belong together by place where names do not say it.
        let own: HashMap<&str, ValueId> =
            results(first).map(|value| (&**first.value(value).name(), value)).collect();
        let ends = paired_outputs(first, second)?;
        pairs.extend(ends.iter().filter_map(|(a, b)| Some((*own.get(&**a)?, *named.get(&**b)?))));
        Ok(Self::of(pairs.into_iter(), false))
    }

    fn of(pairs: impl Iterator<Item = (ValueId, ValueId)>, one_origin: bool) -> Self {
        let second: HashMap<ValueId, ValueId> = pairs.collect();
        let first = second.iter().map(|(&a, &b)| (b, a)).collect();
        Self { second, first, one_origin }
    }

    /// What a value of one of the models is in the first.
    pub(super) fn in_first(&self, side: usize, value: ValueId) -> Option<ValueId> {
        if side == 0 { Some(value) } else { self.first.get(&value).copied() }
    }
}

/// What nodes of the graph compute, in order.
pub(super) fn results(model: &Model) -> impl Iterator<Item = ValueId> {
    model.nodes_in(model.main()).flat_map(|(_, node)| node.outputs().iter().flatten().copied())
}
