//! Nodes that compute with their axes in another order.
//!
//! An operator that treats axes alike gives the same numbers at other places when its operands have their axes in another order.
//! [`operators`] says which do, and how the axes of their operands and results belong together; [`spelling`] works out the orders of
//! all from that of one, [`moved`] what the node becomes. [`region`] decides where it saves [Transposes](views), by a
//! [`min_cut`], and [`rebuilt`] makes the change.

pub mod min_cut;
pub mod moved;
pub mod operators;
pub mod rebuilt;
pub mod region;
pub mod reshaped;
pub mod spelling;
pub mod views;

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
