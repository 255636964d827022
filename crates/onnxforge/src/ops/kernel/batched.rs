//! Which matrices of two stacks are multiplied with each other.

use super::shape::{broadcast, broadcast_strides, for_each_offset};
use crate::ir::tensor::element_count;
use crate::ops::error::{OpError, invalid};

/// The product of two stacks of matrices, after the rules of `numpy.matmul`.
#[derive(Debug, PartialEq, Eq)]
pub struct Stacks {
    /// The shape of the result.
    pub shape: Vec<usize>,
    /// Rows of the first matrix.
    pub rows: usize,
    /// Columns of the first and rows of the second matrix.
    pub depth: usize,
    /// Columns of the second matrix.
    pub columns: usize,
    /// For each matrix of the result the number of its first and of its second factor; empty for an empty result.
    pub pairs: Vec<[usize; 2]>,
}

impl Stacks {
    /// The product of tensors of these shapes.
    pub fn new(a: &[usize], b: &[usize]) -> Result<Self, OpError> {
        let (first, rows, depth) = match a {
            [] => return invalid("a product of matrices with a scalar"),
            [depth] => (&[][..], 1, *depth),
            [stack @ .., rows, depth] => (stack, *rows, *depth),
        };
        let (second, inner, columns) = match b {
            [] => return invalid("a product of matrices with a scalar"),
            [depth] => (&[][..], *depth, 1),
            [stack @ .., depth, columns] => (stack, *depth, *columns),
        };
        if inner != depth {
            return invalid(format!("a product of matrices of shapes {a:?} and {b:?}"));
        }
        let stack = broadcast(&[first, second])?;
        let mut shape = stack.clone();
        shape.extend((a.len() > 1).then_some(rows));
        shape.extend((b.len() > 1).then_some(columns));
        let mut pairs = Vec::new();
        match element_count(&shape) {
            None => return Err(OpError::TooLarge { needed: u64::MAX, left: 0 }),
            Some(0) => {}
            Some(_) => {
                let strides = (broadcast_strides(first, &stack), broadcast_strides(second, &stack));
                for_each_offset(&stack, [&strides.0, &strides.1], |pair| pairs.push(pair));
            }
        }
        Ok(Self { shape, rows, depth, columns, pairs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_pairs() {
        let stacks = Stacks::new(&[2, 1, 3, 4], &[2, 4, 5]).unwrap();
        assert_eq!(stacks.shape, [2, 2, 3, 5]);
        assert_eq!(stacks.pairs, [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(Stacks::new(&[4], &[4]).unwrap().shape, [0usize; 0]);
        assert_eq!(Stacks::new(&[3, 4], &[4]).unwrap().shape, [3]);
        assert!(Stacks::new(&[1 << 60, 0, 4], &[4, 5]).unwrap().pairs.is_empty());
        assert!(Stacks::new(&[3, 4], &[3, 4]).is_err());
    }
}
