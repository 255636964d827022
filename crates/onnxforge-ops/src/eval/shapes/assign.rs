//! Sizes for dimensions that nothing fixes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Problem, Slot, tensors};
use crate::infer::growth::growing;
use onnxforge_ir::dim::{Dim, Requirement, Symbol};
use onnxforge_ir::value::Use;
use onnxforge_ir::{Def, ValueId};

/// Sizes of free dimensions.
#[derive(Clone, Copy, Debug)]
pub enum Assignment {
    /// These, one after the other.
    Sizes(&'static [usize]),
    /// 0 for caches, these for what is left; 1 where there are no caches.
    Empty(&'static [usize]),
}

/// Sizes in the order in which they are tried. With a cache the first four are several steps at once, a prompt, single steps and a first step.
pub const ASSIGNMENTS: [Assignment; 16] = [
    Assignment::Sizes(&[1]),
    Assignment::Sizes(&[2, 3, 5, 7, 4, 6]),
    Assignment::Empty(&[1, 3, 2]),
    Assignment::Sizes(&[3, 1, 4, 2]),
    Assignment::Empty(&[1]),
    Assignment::Sizes(&[1, 2, 3]),
    Assignment::Sizes(&[4, 2, 7, 3]),
    Assignment::Sizes(&[2]),
    Assignment::Sizes(&[4]),
    Assignment::Sizes(&[8]),
    Assignment::Sizes(&[16]),
    Assignment::Sizes(&[32]),
    Assignment::Sizes(&[64]),
    Assignment::Sizes(&[128]),
    Assignment::Sizes(&[224]),
    Assignment::Sizes(&[512]),
];
/// Larger sizes: further than small windows, blocks of kernels and tables of positions reach, odd ones, equal ones and multiples of powers of two.
pub const LARGER: [Assignment; 7] = [
    Assignment::Sizes(&[5, 19, 33, 40, 23]),
    Assignment::Sizes(&[64, 32, 16, 48, 8]),
    Assignment::Sizes(&[9, 130, 17, 6, 11]),
    Assignment::Sizes(&[4, 256, 64, 64, 12]),
    Assignment::Sizes(&[1, 515, 70, 5, 3]),
    Assignment::Sizes(&[2, 64, 9, 12, 65]),
    Assignment::Empty(&[2, 37, 6]),
];
/// The largest size that is tried where requirements leave only large ones.
const LARGEST: usize = 2048;

impl Problem<'_> {
    /// Sizes of free symbols. With a cache the first size is for a batch: where that is fixed, sizes begin with the next.
    pub(super) fn assigned(&self, free: &[Symbol], assignment: Assignment) -> BTreeMap<Symbol, i64> {
        let caches = self.caches(free);
        let is_batch = |slot: &Slot| slot.axis == 0 && free.contains(&slot.symbol);
        let start = usize::from(!caches.is_empty() && !self.slots.iter().any(is_batch));
        let (empty, sizes): (&[Symbol], &[usize]) = match assignment {
            Assignment::Sizes(sizes) => (&[], sizes),
            Assignment::Empty(_) if caches.is_empty() => (&[], &[1]),
            Assignment::Empty(sizes) => (&caches, sizes),
        };
        let others = free.iter().filter(|symbol| !empty.contains(symbol)).zip(start..);
        let others = others.map(|(&symbol, place)| (symbol, sizes[place % sizes.len()] as i64));
        others.chain(empty.iter().map(|&symbol| (symbol, 0))).collect()
    }

    /// The symbols that may be 0 because an input is put together with something along them, as caches are: those that are called so, those that something
    /// new is put together with, or the first.
    pub(super) fn caches(&self, free: &[Symbol]) -> Vec<Symbol> {
        const CALLED: [&str; 3] = ["past", "cache", "prev"];
        let may_be_empty = |symbol: &&Symbol| self.inference.symbols().lower(**symbol).unwrap_or(0) <= 0;
        let is_called_so = |symbol: &Symbol| {
            let slot = self.slots.iter().find(|slot| slot.symbol == *symbol);
            let name = slot.and_then(|slot| slot.name.as_deref()).unwrap_or_default().to_lowercase();
            CALLED.iter().any(|word| name.contains(word))
        };
        let may: Vec<Symbol> = free.iter().filter(may_be_empty).copied().collect();
        let called: Vec<Symbol> = may.iter().copied().filter(is_called_so).collect();
        if !called.is_empty() {
            return called;
        }
        let grown: Vec<Symbol> = may.iter().copied().filter(|symbol| self.grows(*symbol)).collect();
        if grown.is_empty() { may.into_iter().take(1).collect() } else { grown }
    }

    /// Whether something that is no input is put together with an input along a dimension.
    fn grows(&self, symbol: Symbol) -> bool {
        let is_input = |value: ValueId| matches!(self.model.value(value).def(), Def::Input { .. });
        tensors(self.model).any(|port| {
            let shape = self.inference.shape(port.value).unwrap_or_default();
            self.model.value(port.value).uses().iter().any(|used| {
                let Use::Input { node, index } = *used else { return false };
                let node = self.model.node(node);
                let along = |axis: i64| {
                    let axis = crate::call::axis(axis, shape.len()).ok();
                    axis.and_then(|axis| shape[axis].as_symbol()) == Some(symbol)
                };
                growing(node).any(|(input, axis)| input == index as usize && along(axis))
                    && node.inputs().iter().flatten().any(|&other| !is_input(other))
            })
        })
    }
}

/// Sizes that meet the requirements, if small changes do; otherwise the sizes as they are.
pub fn repaired(mut sizes: BTreeMap<Symbol, i64>, requirements: &[Requirement]) -> BTreeMap<Symbol, i64> {
    /// How many changes are made.
    const CHANGES: usize = 12;
    let holds = |requirement: &Requirement, sizes: &BTreeMap<Symbol, i64>| {
        let value = |dim: &Dim| dim.evaluate(&|symbol| sizes.get(&symbol).copied());
        requirement.holds(&value) != Some(false)
    };
    let broken = |sizes: &BTreeMap<Symbol, i64>| requirements.iter().filter(|r| !holds(r, sizes)).count();
    for _ in 0..CHANGES {
        let Some(first) = requirements.iter().find(|requirement| !holds(requirement, &sizes)) else { break };
        let now = broken(&sizes);
        let involved: BTreeSet<Symbol> = first.dims().flat_map(Dim::symbols).collect();
        let involved: Vec<Symbol> =
            involved.into_iter().filter(|symbol| sizes.contains_key(symbol)).collect();
        // One size at a time, then all of them at once.
        let alone = involved.iter().map(|&symbol| vec![symbol]);
        let groups = alone.chain((involved.len() > 1).then(|| involved.clone()));
        let change = groups.into_iter().find_map(|group| {
            let candidates = (1..=LARGEST as i64).filter_map(|size| {
                let mut changed = sizes.clone();
                changed.extend(group.iter().map(|&symbol| (symbol, size)));
                holds(first, &changed).then_some(changed)
            });
            candidates.take(16).find(|changed| broken(changed) < now)
        });
        match change {
            Some(changed) => sizes = changed,
            None => break,
        }
    }
    sizes
}
