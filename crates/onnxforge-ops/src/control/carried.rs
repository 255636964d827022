//! What holds in every turn of a loop.
//!
//! The facts about carried values start as what is known before the first turn. The body is inferred with them; what a turn
//! changes is given up, and the body inferred again, until a turn keeps everything: then all of it holds in every turn, by
//! induction. Dimensions that change from turn to turn are symbols that were made since the loop was entered; they stand for
//! the number in the turn at hand.

use std::sync::Arc;

use crate::error::{OpError, invalid};
use crate::fact::{Fact, TensorFact};
use crate::infer_call::Infer;
use onnxforge_ir::ScopeId;
use onnxforge_ir::dim::{Dim, Symbols};

/// Most times that a body is inferred before nothing is claimed about the values that are carried.
const MAX_ROUNDS: usize = 8;

/// From so many symbols on, every body is inferred just once: loops in loops in loops would take too long.
const MAX_SYMBOLS: usize = 1 << 20;

/// A loop whose inference is under way.
pub struct Turns {
    /// The first symbol that was made inside.
    inside: u32,
}

/// What holds in every turn.
pub struct Settled {
    /// The values that are carried, at the beginning of a turn.
    pub carried: Vec<Fact>,
    /// The outputs of the body.
    pub outputs: Vec<Fact>,
}

impl Turns {
    /// The loop is entered: everything that is known so far is about the outside.
    pub fn enter(cx: &mut Infer<'_>) -> Self {
        Self { inside: cx.symbols.fresh().id() }
    }

    /// Whether bodies should be inferred just once from now on.
    pub fn is_too_long(cx: &Infer<'_>) -> bool {
        cx.symbols.len() > MAX_SYMBOLS
    }

    /// Infers a body whose inputs are `before`, then what is carried, then `after`; its outputs from number `first` on are
    /// what is carried on.
    pub fn settle(
        &self,
        cx: &mut Infer<'_>,
        body: ScopeId,
        before: &[Fact],
        initial: Vec<Fact>,
        after: &[Fact],
        first: usize,
    ) -> Result<Settled, OpError> {
        let mut carried = initial;
        let mut rounds = 0;
        loop {
            if rounds == MAX_ROUNDS || Self::is_too_long(cx) {
                carried.fill(Fact::Unknown);
            }
            rounds += 1;
            let inputs = before.iter().chain(&carried).chain(after).cloned().collect();
            let outputs = cx.body(body, inputs)?;
            let Some(next) = outputs.get(first..first + carried.len()) else {
                return invalid(format!("the body gives {} outputs, too few to carry on", outputs.len()));
            };
            let mut kept = true;
            for (fact, next) in carried.iter_mut().zip(next) {
                if let Some(weaker) = self.weakened(fact, next, cx.symbols) {
                    *fact = weaker;
                    kept = false;
                }
            }
            if kept {
                return Ok(Settled { carried, outputs });
            }
        }
    }

    /// What holds before and after a turn, when that is less than `fact`, which held before it.
    fn weakened(&self, fact: &Fact, next: &Fact, symbols: &mut Symbols) -> Option<Fact> {
        match (fact, next) {
            (Fact::Unknown, _) | (Fact::Map, Fact::Map) => None,
            (Fact::Tensor(fact), Fact::Tensor(next)) => {
                self.weakened_tensor(fact, next, symbols).map(Fact::from)
            }
            (
                Fact::Sequence { element, items },
                Fact::Sequence { element: next_element, items: next_items },
            ) => {
                let is_empty = items.as_ref().is_some_and(|items| items.is_empty());
                let same = match (items, next_items) {
                    (None, _) => true,
                    (Some(a), Some(b)) => {
                        let same = |(a, b)| self.weakened(a, b, symbols).is_none();
                        a.len() == b.len() && a.iter().zip(b.iter()).all(same)
                    }
                    (Some(_), None) => false,
                };
                // What is said about the elements of an empty sequence says nothing.
                let weaker = match is_empty && !same {
                    true => Some(self.outward(next_element, symbols)),
                    false => self.weakened(element, next_element, symbols),
                };
                if same && weaker.is_none() {
                    return None;
                }
                let element = weaker.map_or_else(|| element.clone(), Box::new);
                Some(Fact::Sequence { element, items: items.clone().filter(|_| same) })
            }
            (
                Fact::Optional { element, present },
                Fact::Optional { element: next_element, present: next_present },
            ) => {
                let same = present.is_none() || present == next_present;
                let weaker = match *present == Some(false) && !same {
                    true => Some(self.outward(next_element, symbols)),
                    false => self.weakened(element, next_element, symbols),
                };
                if same && weaker.is_none() {
                    return None;
                }
                let element = weaker.map_or_else(|| element.clone(), Box::new);
                Some(Fact::Optional { element, present: present.filter(|_| same) })
            }
            _ => Some(Fact::Unknown),
        }
    }

    fn weakened_tensor(
        &self,
        fact: &TensorFact,
        next: &TensorFact,
        symbols: &mut Symbols,
    ) -> Option<TensorFact> {
        let mut changed = false;
        let dtype = fact.dtype.filter(|_| fact.dtype == next.dtype);
        let shape = match (&fact.shape, &next.shape) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                let dim = |(a, b): (&Dim, &Dim)| {
                    if a == b || self.is_inside(a) {
                        return a.clone();
                    }
                    changed = true;
                    symbols.fresh().into()
                };
                Some(a.iter().zip(b).map(dim).collect::<Vec<Dim>>())
            }
            _ => None,
        };
        let same_value = fact.value.is_none() || (!changed && same_elements(fact, next));
        changed |= dtype != fact.dtype || shape.is_some() != fact.shape.is_some() || !same_value;
        let value = fact.value.clone().filter(|_| same_value);
        changed.then_some(TensorFact { dtype, shape, value })
    }

    fn is_inside(&self, dim: &Dim) -> bool {
        dim.symbols().into_iter().any(|symbol| symbol.id() >= self.inside)
    }

    /// The fact seen from outside of the loop, where symbols that were made inside have no meaning.
    pub fn outward(&self, fact: &Fact, symbols: &mut Symbols) -> Fact {
        match fact {
            Fact::Tensor(tensor) => self.outward_tensor(tensor, symbols).into(),
            Fact::Sequence { element, items } => {
                let items = items
                    .as_ref()
                    .map(|items| items.iter().map(|item| self.outward(item, symbols)).collect());
                Fact::Sequence {
                    element: Box::new(self.outward(element, symbols)),
                    items: items.map(Arc::new),
                }
            }
            Fact::Optional { element, present } => {
                Fact::Optional { element: Box::new(self.outward(element, symbols)), present: *present }
            }
            Fact::Map | Fact::Unknown => fact.clone(),
        }
    }

    fn outward_tensor(&self, tensor: &TensorFact, symbols: &mut Symbols) -> TensorFact {
        let dim = |dim: &Dim| if self.is_inside(dim) { symbols.fresh().into() } else { dim.clone() };
        let shape = tensor.shape.as_ref().map(|shape| shape.iter().map(dim).collect());
        let has_meaning = tensor.array().is_some()
            || tensor.dims().is_some_and(|dims| !dims.iter().any(|dim| self.is_inside(dim)));
        let value = tensor.value.clone().filter(|_| has_meaning);
        TensorFact { dtype: tensor.dtype, shape, value }
    }

    /// What is known of a scan output of which each turn gives `turn`, when the turns are put together along a new axis of
    /// size `count`; `axis` answers that axis for a number of axes.
    pub fn stacked(
        &self,
        cx: &mut Infer<'_>,
        turn: &Fact,
        count: Dim,
        axis: impl FnOnce(usize) -> Result<usize, OpError>,
    ) -> Result<Fact, OpError> {
        let Fact::Tensor(turn) = turn else { return Ok(TensorFact::default().into()) };
        let TensorFact { dtype, mut shape, .. } = self.outward_tensor(turn, cx.symbols);
        if let Some(shape) = &mut shape {
            let axis = axis(shape.len() + 1)?;
            shape.insert(axis.min(shape.len()), count);
        }
        Ok(TensorFact { dtype, shape, value: None }.into())
    }
}

/// Whether both are known to hold the same elements.
fn same_elements(a: &TensorFact, b: &TensorFact) -> bool {
    matches!((a.dims(), b.dims()), (Some(a), Some(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use onnxforge_ir::DType;

    fn shaped(shape: &[Dim]) -> Fact {
        TensorFact::new(DType::F32, shape.to_vec()).into()
    }

    #[test]
    fn what_a_turn_changes_is_given_up() {
        let mut symbols = Symbols::default();
        let outer = Dim::from(symbols.named("n"));
        let turns = Turns { inside: symbols.fresh().id() };
        let grown = |dim: &Dim| dim.add(&Dim::ONE).unwrap();
        let initial = shaped(&[outer.clone(), Dim::ONE]);
        assert!(turns.weakened(&initial, &initial, &mut symbols).is_none());

        // The second dimension grows; once it is a symbol of the turn, it may.
        let next = shaped(&[outer.clone(), grown(&Dim::ONE)]);
        let weaker = turns.weakened(&initial, &next, &mut symbols).unwrap();
        let shape = weaker.tensor().unwrap().shape.clone().unwrap();
        assert_eq!(shape[0], outer);
        assert!(turns.is_inside(&shape[1]));
        let next = shaped(&[outer.clone(), grown(&shape[1])]);
        assert!(turns.weakened(&weaker, &next, &mut symbols).is_none());

        // Outside, the symbol of the turn has no meaning.
        let outside = turns.outward(&weaker, &mut symbols);
        let seen = outside.tensor().unwrap().shape.clone().unwrap();
        assert_eq!(seen[0], outer);
        assert_ne!(seen[1], shape[1]);
    }

    #[test]
    fn elements_are_kept_only_while_they_stay_the_same() {
        let mut symbols = Symbols::default();
        let turns = Turns { inside: symbols.fresh().id() };
        let constant = |value: i64| Fact::from(TensorFact::constant(Array::scalar(value)));
        assert!(turns.weakened(&constant(1), &constant(1), &mut symbols).is_none());
        let weaker = turns.weakened(&constant(1), &constant(2), &mut symbols).unwrap();
        let tensor = weaker.tensor().unwrap();
        assert_eq!((tensor.dtype, tensor.value.is_none()), (Some(DType::I64), true));
        assert_eq!(tensor.shape.as_deref(), Some(&[][..]));
    }

    #[test]
    fn a_sequence_that_starts_empty_takes_the_elements_of_the_first_turn() {
        let mut symbols = Symbols::default();
        let turns = Turns { inside: symbols.fresh().id() };
        let element = TensorFact { dtype: Some(DType::F32), ..TensorFact::default() };
        let empty = Fact::Sequence { element: Box::new(element.into()), items: Some(Arc::default()) };
        let next = Fact::sequence(vec![shaped(&[Dim::from(2)])], &mut symbols);
        let weaker = turns.weakened(&empty, &next, &mut symbols).unwrap();
        let Fact::Sequence { element, items: None } = &weaker else { panic!("{weaker:?}") };
        assert_eq!(element.tensor().unwrap().static_shape(), Some(vec![2]));
        assert!(turns.weakened(&weaker, &weaker, &mut symbols).is_none());
    }
}
