//! Tensors one behind the other along an axis.

use std::io::{self, BufWriter, Write};

use super::{CHUNK, packed};
use crate::tensor::Tensor;

/// Writes the tensors, whose shapes differ along `axis` at most, row by row of the axes before it.
pub(super) fn concat(parts: &[Tensor], axis: usize, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = parts.first() else { return Ok(()) };
    let rows: usize = first.shape().iter().take(axis).product();
    let bytes = parts.iter().map(packed).collect::<io::Result<Vec<_>>>()?;
    let mut out = BufWriter::with_capacity(CHUNK, out);
    for row in 0..rows {
        for part in &bytes {
            let width = part.len() / rows;
            out.write_all(&part[row * width..(row + 1) * width])?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{floats, iota};
    use super::*;

    #[test]
    fn rows_follow_each_other() {
        let (a, b) = (iota(&[2, 2]), iota(&[2, 1]));
        let wide = Tensor::concatenated(&[a.clone(), b.clone(), a.clone()], 1).unwrap();
        assert_eq!(wide.shape(), [2, 5]);
        assert_eq!(floats(&wide), [0., 1., 0., 0., 1., 2., 3., 1., 2., 3.]);
        let long = Tensor::concatenated(&[a.clone(), a.clone()], 0).unwrap();
        assert_eq!((long.shape(), floats(&long)), (&[4, 2][..], vec![0., 1., 2., 3., 0., 1., 2., 3.]));
        let turned = Tensor::concatenated(&[a.transposed(&[1, 0]).unwrap(), b], 1).unwrap();
        assert_eq!(floats(&turned), [0., 2., 0., 1., 3., 1.]);
        let none = Tensor::concatenated(&[iota(&[0, 2]), iota(&[0, 1])], 1).unwrap();
        assert_eq!((none.shape(), floats(&none)), (&[0, 3][..], vec![]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let a = iota(&[2, 2]);
        for parts in [vec![], vec![a.clone(), iota(&[3, 2])], vec![a.clone(), iota(&[2])]] {
            assert!(Tensor::concatenated(&parts, 1).is_err());
        }
        assert!(Tensor::concatenated(&[a.clone(), a.clone()], 2).is_err());
        assert!(Tensor::concatenated(&[a, Tensor::from_i64s(&[1, 2])], 0).is_err());
    }
}
