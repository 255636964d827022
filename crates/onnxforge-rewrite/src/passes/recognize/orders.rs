//! Orders of axes, as Transpose has them.

use crate::{Cx, Skip};
use onnxforge_ir::NodeId;

/// An order of axes as Transpose has it: axis i of the result is axis `order[i]` of the operand.
pub type Order = Vec<usize>;

/// Whether every axis stays where it is.
pub fn is_identity(order: &[usize]) -> bool {
    order.is_sorted()
}

/// Whether the last two axes change places, and no other moves.
pub fn swaps_last(order: &[usize]) -> bool {
    let Some((rest, [a, b])) = order.split_last_chunk::<2>() else { return false };
    rest.is_sorted() && *b == rest.len() && *a == rest.len() + 1
}

/// The order that takes back what `order` does.
pub fn inverse(order: &[usize]) -> Order {
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
    back
}

/// The order of a Transpose by `first` and then by `second`, which are of one length.
pub fn then(first: &[usize], second: &[usize]) -> Order {
    second.iter().map(|&axis| first[axis]).collect()
}

/// An order as an attribute.
pub fn as_ints(order: &[usize]) -> Vec<i64> {
    order.iter().map(|&axis| axis as i64).collect()
}

/// The order of axes that a Transpose gives; by default the reverse.
pub fn permutation(cx: &Cx<'_>, node: NodeId) -> Result<Vec<usize>, Skip> {
    let call = cx.call(node)?;
    let rank = cx.rank(cx.input(node, 0)?)?;
    let perm = match call.opt_ints("perm")? {
        Some(perm) => onnxforge_ops::call::axes(&perm, rank)?,
        None => (0..rank).rev().collect(),
    };
    if perm.len() == rank { Ok(perm) } else { Err(Skip::NOT_HERE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_follow_each_other() {
        let (to_last, to_first) = ([0, 2, 3, 1], [0, 3, 1, 2]);
        assert_eq!(inverse(&to_last), to_first);
        assert!(is_identity(&then(&to_last, &to_first)));
        // "abc" becomes "cab", and that "abc" once more or "bca".
        assert_eq!(then(&[2, 0, 1], &[1, 2, 0]), [0, 1, 2]);
        assert_eq!(then(&[2, 0, 1], &[2, 0, 1]), [1, 2, 0]);
    }
}
