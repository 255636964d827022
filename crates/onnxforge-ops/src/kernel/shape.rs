//! Row-major arithmetic on shapes.

use crate::error::{OpError, invalid};

/// How far apart neighbours along each axis are.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

/// The shape that results when tensors of these shapes are broadcast together.
pub fn broadcast(shapes: &[&[usize]]) -> Result<Vec<usize>, OpError> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![1usize; rank];
    for shape in shapes {
        for (&dim, out) in shape.iter().rev().zip(result.iter_mut().rev()) {
            match (*out, dim) {
                (a, b) if a == b => {}
                (1, _) => *out = dim,
                (_, 1) => {}
                _ => return invalid(format!("the shapes {shapes:?} do not broadcast")),
            }
        }
    }
    Ok(result)
}

/// The strides with which a tensor of shape `from` is read as one of shape `to`: 0 along axes that are repeated.
/// `from` must broadcast to `to`.
pub fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<usize> {
    let missing = to.len().saturating_sub(from.len());
    let own = strides(from);
    let stride = |axis: usize| match axis.checked_sub(missing) {
        Some(axis) if from[axis] != 1 => own[axis],
        _ => 0,
    };
    (0..to.len()).map(stride).collect()
}

/// The product of the dimensions before `axis`, the dimension itself, and the product of those after it.
pub fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    // Only a tensor without elements has dimensions whose product is too large.
    let product = |dims: &[usize]| dims.iter().fold(1usize, |product, &dim| product.saturating_mul(dim));
    let outer = product(&shape[..axis.min(shape.len())]);
    let inner = product(shape.get(axis + 1..).unwrap_or_default());
    (outer, shape.get(axis).copied().unwrap_or(1), inner)
}

/// Every index of a shape in row-major order, with the offsets that it has in tensors of the given strides.
/// `visit` gets the offsets, one per set of strides.
pub fn for_each_offset<const N: usize>(
    shape: &[usize],
    strides: [&[usize]; N],
    mut visit: impl FnMut([usize; N]),
) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0usize; shape.len()];
    let mut offsets = [0usize; N];
    loop {
        visit(offsets);
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            for (offset, strides) in offsets.iter_mut().zip(strides) {
                *offset += strides[axis];
            }
            if index[axis] < shape[axis] {
                break;
            }
            for (offset, strides) in offsets.iter_mut().zip(strides) {
                *offset -= strides[axis] * index[axis];
            }
            index[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting() {
        assert_eq!(broadcast(&[&[2, 1, 3], &[4, 1]]).unwrap(), [2, 4, 3]);
        assert_eq!(broadcast(&[&[0, 1], &[3]]).unwrap(), [0, 3]);
        assert!(broadcast(&[&[2], &[3]]).is_err());
        assert_eq!(broadcast_strides(&[4, 1], &[2, 4, 3]), [0, 1, 0]);
        assert_eq!(broadcast_strides(&[], &[2]), [0]);
    }

    #[test]
    fn offsets_follow_the_strides() {
        let mut seen = Vec::new();
        for_each_offset(&[2, 3], [&[1, 2], &[0, 1]], |offsets| seen.push(offsets));
        assert_eq!(seen, [[0, 0], [2, 1], [4, 2], [1, 0], [3, 1], [5, 2]]);
        seen.clear();
        for_each_offset(&[2, 0], [&[0, 1], &[0, 1]], |offsets| seen.push(offsets));
        assert!(seen.is_empty());
        for_each_offset(&[], [&[], &[]], |offsets| seen.push(offsets));
        assert_eq!(seen, [[0, 0]]);
    }
}
