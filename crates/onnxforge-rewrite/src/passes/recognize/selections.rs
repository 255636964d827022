//! Elements of one tensor or of another, as a condition says.

use crate::{Cx, Trail};
use onnxforge_ir::{DType, NodeId, ValueId};

/// What a condition chooses from.
pub struct Selection {
    /// The condition.
    pub condition: ValueId,
    /// What is chosen where it holds.
    pub yes: ValueId,
    /// What is chosen elsewhere.
    pub no: ValueId,
    /// The products of both with the condition and with its negation.
    pub products: [ValueId; 2],
}

impl Selection {
    /// The choice that the call `sum` of Add computes: Cast(c) · a + Cast(Not(c)) · b.
    pub fn of(cx: &Cx<'_>, sum: NodeId) -> Option<Self> {
        let &[Some(a), Some(b)] = cx.node(sum).inputs() else { return None };
        if cx.call(sum).ok()?.since() < 7 {
            return None;
        }
        [[a, b], [b, a]].into_iter().find_map(|products| {
            let mut trail = Trail::new(cx, sum);
            let (condition, yes) = numbered(cx, &mut trail, products[0], None)?;
            let (_, no) = numbered(cx, &mut trail, products[1], Some(condition))?;
            Some(Self { condition, yes, no, products })
        })
    }
}

/// The condition, or the negation of `of` where that is given, that stands as a number in a product, and the other factor.
fn numbered(
    cx: &Cx<'_>,
    trail: &mut Trail<'_>,
    product: ValueId,
    of: Option<ValueId>,
) -> Option<(ValueId, ValueId)> {
    let [a, b] = trail.pair(product, "Mul")?;
    [(a, b), (b, a)].into_iter().find_map(|(number, factor)| {
        let condition = trail.through(number, "Cast")?;
        if cx.dtype(condition).ok()? != DType::Bool {
            return None;
        }
        match of {
            None => Some((condition, factor)),
            Some(of) => (trail.through(condition, "Not")? == of).then_some((of, factor)),
        }
    })
}
