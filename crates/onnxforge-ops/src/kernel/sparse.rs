//! Sparse constants written out.

use crate::array::{Array, each_elem};
use crate::error::{OpError, invalid};
use crate::eval_call::Memory;
use onnxforge_ir::node::SparseTensor;

/// The dense array: zeros but for the listed elements.
pub fn densify(sparse: &SparseTensor, memory: &Memory) -> Result<Array, OpError> {
    let shape = sparse.dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let Ok(shape) = shape else { return invalid("a sparse tensor with a negative dimension") };
    let count = onnxforge_ir::tensor::element_count(&shape);
    let Some(count) = count else { return Err(OpError::TooLarge { needed: u64::MAX, left: 0 }) };
    let values = Array::from_tensor(&sparse.values)?;
    let indices = sparse.indices.to_i64s()?;
    let width = match sparse.indices.shape() {
        [n] if *n == values.len() => 1,
        [n, width] if *n == values.len() && *width == shape.len() => *width,
        found => return invalid(format!("sparse indices of shape {found:?} for {} values", values.len())),
    };
    let strides = if sparse.indices.shape().len() == 1 { vec![1] } else { super::shape::strides(&shape) };
    let limits = if sparse.indices.shape().len() == 1 { vec![count] } else { shape.clone() };
    each_elem!(values, T => {
        memory.check((count as u64).saturating_mul(size_of::<T>() as u64))?;
        let mut dense = vec![T::default(); count];
        if width > 0 {
            for (value, index) in values.slice::<T>()?.iter().zip(indices.chunks_exact(width)) {
                let mut at = 0;
                for ((&i, &stride), &limit) in index.iter().zip(&strides).zip(&limits) {
                    match usize::try_from(i) {
                        Ok(i) if i < limit => at += i * stride,
                        _ => return invalid(format!("the sparse index {index:?} lies outside of {shape:?}")),
                    }
                }
                dense[at].clone_from(value);
            }
        }
        Array::with_dtype(values.dtype(), shape, dense)
    })
}
