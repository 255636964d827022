//! Which matrices of two stacks are multiplied with each other.

use super::shape::{broadcast, broadcast_strides, for_each_offset};
use crate::error::{OpError, invalid};
use crate::eval_call::Memory;
use onnxforge_ir::tensor::element_count;

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
    /// The product of tensors of these shapes. The list of pairs stays within the memory budget.
    pub fn new(a: &[usize], b: &[usize], memory: &Memory) -> Result<Self, OpError> {
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
            Some(count) => {
                let pairs_len = (count / (rows * columns)) as u64;
                memory.check(pairs_len.saturating_mul(size_of::<[usize; 2]>() as u64))?;
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

    fn stacks(a: &[usize], b: &[usize]) -> Result<Stacks, OpError> {
        Stacks::new(a, b, &Memory::new(1 << 20))
    }

    #[test]
    fn shapes_and_pairs() {
        let found = stacks(&[2, 1, 3, 4], &[2, 4, 5]).unwrap();
        assert_eq!(found.shape, [2, 2, 3, 5]);
        assert_eq!(found.pairs, [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(stacks(&[4], &[4]).unwrap().shape, [0usize; 0]);
        assert_eq!(stacks(&[3, 4], &[4]).unwrap().shape, [3]);
        assert!(stacks(&[1 << 60, 0, 4], &[4, 5]).unwrap().pairs.is_empty());
        assert!(stacks(&[3, 4], &[3, 4]).is_err());
        assert!(matches!(stacks(&[1 << 20, 1, 1, 1], &[1 << 20, 1, 1]), Err(OpError::TooLarge { .. })));
    }
}
