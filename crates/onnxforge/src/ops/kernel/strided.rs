//! Copies that read with any strides: transposes, slices, repetitions.

use crate::ir::tensor::element_count;
use crate::ops::array::{Array, Elem, each_elem};
use crate::ops::error::{OpError, invalid};
use crate::ops::eval::Memory;

/// How elements are read: from `offset` on, `strides[axis]` apart (0 repeats, negative goes backwards).
#[derive(Clone, Debug)]
pub struct View {
    /// The shape of the result.
    pub shape: Vec<usize>,
    /// The step along each axis of the result.
    pub strides: Vec<isize>,
    /// Where the first element is.
    pub offset: usize,
}

impl View {
    /// The array that the view shows. Every element that the view reaches must lie in `array`.
    pub fn copy(&self, array: &Array, memory: &Memory) -> Result<Array, OpError> {
        let Some(count) = element_count(&self.shape) else {
            return Err(OpError::TooLarge { needed: u64::MAX, left: 0 });
        };
        if !self.is_inside(array.len()) {
            return invalid(format!("a view of {:?} reaches past the tensor", self.shape));
        }
        each_elem!(array, T => {
            memory.check((count as u64).saturating_mul(size_of::<T>() as u64))?;
            Array::with_dtype(array.dtype(), &self.shape[..], self.read::<T>(array.slice()?, count))
        })
    }

    fn is_inside(&self, len: usize) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let (mut low, mut high) = (self.offset as i128, self.offset as i128);
        for (&dim, &stride) in self.shape.iter().zip(&self.strides) {
            let reach = stride as i128 * (dim as i128 - 1);
            if reach < 0 { low += reach } else { high += reach }
        }
        low >= 0 && high < len as i128
    }

    fn read<T: Elem>(&self, from: &[T], count: usize) -> Vec<T> {
        let mut out = Vec::with_capacity(count);
        if count == 0 {
            return out;
        }
        let (shape, strides) = self.merged();
        let rank = shape.len();
        let (run, step) = match rank {
            0 => (1, 1),
            _ => (shape[rank - 1], strides[rank - 1]),
        };
        let outer = rank.saturating_sub(1);
        let mut index = vec![0usize; outer];
        let mut at = self.offset as isize;
        loop {
            match step {
                1 => out.extend_from_slice(&from[at as usize..at as usize + run]),
                0 => out.extend(std::iter::repeat_n(&from[at as usize], run).cloned()),
                2.. => out.extend(from[at as usize..].iter().step_by(step as usize).take(run).cloned()),
                _ => out.extend((0..run as isize).map(|i| from[(at + i * step) as usize].clone())),
            }
            let mut axis = outer;
            loop {
                if axis == 0 {
                    return out;
                }
                axis -= 1;
                index[axis] += 1;
                at += strides[axis];
                if index[axis] < shape[axis] {
                    break;
                }
                at -= strides[axis] * index[axis] as isize;
                index[axis] = 0;
            }
        }
    }

    /// The same view with axes of size 1 left out and neighbours that lie end to end merged.
    fn merged(&self) -> (Vec<usize>, Vec<isize>) {
        let (mut shape, mut strides) = (Vec::<usize>::new(), Vec::<isize>::new());
        for (&dim, &stride) in self.shape.iter().zip(&self.strides) {
            if dim == 1 {
                continue;
            }
            match (shape.last_mut(), strides.last_mut()) {
                (Some(last), Some(step)) if *step == stride * dim as isize => {
                    *last *= dim;
                    *step = stride;
                }
                _ => {
                    shape.push(dim);
                    strides.push(stride);
                }
            }
        }
        (shape, strides)
    }
}

/// The array with its axes in the order `perm`, which must name each axis once.
pub fn transpose(array: &Array, perm: &[usize], memory: &Memory) -> Result<Array, OpError> {
    let own = super::shape::strides(array.shape());
    let view = View {
        shape: perm.iter().map(|&axis| array.shape()[axis]).collect(),
        strides: perm.iter().map(|&axis| own[axis] as isize).collect(),
        offset: 0,
    };
    view.copy(array, memory)
}

/// The array repeated to `shape`, to which it must broadcast.
pub fn expand(array: &Array, shape: &[usize], memory: &Memory) -> Result<Array, OpError> {
    let strides = super::shape::broadcast_strides(array.shape(), shape);
    let strides = strides.into_iter().map(|stride| stride as isize).collect();
    View { shape: shape.to_vec(), strides, offset: 0 }.copy(array, memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iota(shape: &[usize]) -> Array {
        let count: usize = shape.iter().product();
        Array::new(shape, (0..count as i64).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn transposes_and_expands() {
        let memory = Memory::new(1 << 20);
        let t = transpose(&iota(&[2, 3]), &[1, 0], &memory).unwrap();
        assert_eq!((t.shape(), t.slice::<i64>().unwrap()), (&[3, 2][..], &[0, 3, 1, 4, 2, 5][..]));
        let t = transpose(&iota(&[2, 3, 4]), &[1, 0, 2], &memory).unwrap();
        assert_eq!(t.slice::<i64>().unwrap()[..8], [0, 1, 2, 3, 12, 13, 14, 15]);
        let t = expand(&iota(&[2, 1]), &[2, 2, 3], &memory).unwrap();
        assert_eq!(t.slice::<i64>().unwrap(), [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
        assert_eq!(transpose(&iota(&[]), &[], &memory).unwrap().slice::<i64>().unwrap(), [0]);
        assert!(expand(&iota(&[1]), &[1 << 40], &memory).is_err());
    }

    #[test]
    fn reads_backwards_and_refuses_to_leave_the_tensor() {
        let memory = Memory::new(1 << 20);
        let view = View { shape: vec![3], strides: vec![-2], offset: 5 };
        assert_eq!(view.copy(&iota(&[6]), &memory).unwrap().slice::<i64>().unwrap(), [5, 3, 1]);
        let view = View { shape: vec![4], strides: vec![-2], offset: 5 };
        assert!(view.copy(&iota(&[6]), &memory).is_err());
        let view = View { shape: vec![2, 0], strides: vec![9, 9], offset: 50 };
        assert_eq!(view.copy(&iota(&[6]), &memory).unwrap().len(), 0);
    }
}
