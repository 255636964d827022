//! Elements multiplied by factors along an axis.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use half::{bf16, f16};

use super::{CHUNK, Lazy, packed};
use crate::dtype::DType;
use crate::tensor::{Data, Tensor, TensorError};
use onnxforge_proto::parallel::for_each;

impl Tensor {
    /// Whether [`Tensor::scaled`] loses no more than the last place, at the scale of the result: its largest number is a normal
    /// one of the element type, or all are zero.
    pub fn scales_well(&self, axis: usize, factors: &[f64]) -> Result<bool, TensorError> {
        if let Data::Lazy(lazy) = self.data()
            && let Lazy::Transpose { source, perm } = &**lazy
            && let Some(&axis) = perm.get(axis)
        {
            return source.scales_well(axis, factors);
        }
        self.check_factors(axis, factors)?;
        if self.is_empty() {
            return Ok(true);
        }
        if let Data::Bytes(blob) = self.data() {
            blob.will_read();
        }
        let bytes = self.bytes()?;
        let factors = Factors { values: factors, repeat: self.shape().iter().skip(axis + 1).product() };
        let (largest, range) = match self.dtype() {
            DType::F32 => (
                factors.largest(&bytes, |bits| f64::from(f32::from_le_bytes(bits))),
                [f32::MIN_POSITIVE, f32::MAX].map(f64::from),
            ),
            DType::F64 => (factors.largest(&bytes, f64::from_le_bytes), [f64::MIN_POSITIVE, f64::MAX]),
            DType::F16 => (
                factors.largest(&bytes, |bits| f64::from(f16::from_le_bytes(bits))),
                [f16::MIN_POSITIVE, f16::MAX].map(f64::from),
            ),
            DType::BF16 => (
                factors.largest(&bytes, |bits| f64::from(bf16::from_le_bytes(bits))),
                [bf16::MIN_POSITIVE, bf16::MAX].map(f64::from),
            ),
            found => return Err(TensorError::Type { wanted: "a float of 16 bits or more", found }),
        };
        Ok(largest == 0.0 || (range[0]..=range[1]).contains(&largest))
    }
}

/// Writes the tensor with every slice along `axis` multiplied by its factor.
pub(super) fn scale(source: &Tensor, axis: usize, factors: &[f64], out: &mut dyn Write) -> io::Result<()> {
    if source.is_empty() {
        return Ok(());
    }
    let bytes = packed(source)?;
    let factors = Factors { values: factors, repeat: source.shape().iter().skip(axis + 1).product() };
    match source.dtype() {
        DType::F32 => factors.apply(&bytes, out, |element, factor| {
            ((f64::from(f32::from_le_bytes(element)) * factor) as f32).to_le_bytes()
        }),
        DType::F64 => {
            factors.apply(&bytes, out, |element, factor| (f64::from_le_bytes(element) * factor).to_le_bytes())
        }
        DType::F16 => factors.apply(&bytes, out, |element, factor| {
            f16::from_f64(f64::from(f16::from_le_bytes(element)) * factor).to_le_bytes()
        }),
        DType::BF16 => factors.apply(&bytes, out, |element, factor| {
            bf16::from_f64(f64::from(bf16::from_le_bytes(element)) * factor).to_le_bytes()
        }),
        _ => Err(io::Error::other("not a float of 16 bits or more")),
    }
}

/// Factors of consecutive elements: each value `repeat` times, and then all over again.
struct Factors<'a> {
    values: &'a [f64],
    repeat: usize,
}

impl Factors<'_> {
    /// Writes the elements, each multiplied by its factor.
    fn apply<const W: usize>(
        &self,
        bytes: &[u8],
        out: &mut dyn Write,
        times: impl Fn([u8; W], f64) -> [u8; W],
    ) -> io::Result<()> {
        let (elements, _) = bytes.as_chunks::<W>();
        let piece = CHUNK / W;
        let mut buffer = vec![[0; W]; piece.min(elements.len())];
        for (index, from) in elements.chunks(piece).enumerate() {
            let to = &mut buffer[..from.len()];
            self.multiply(index * piece, from, to, &times);
            out.write_all(to.as_flattened())?;
        }
        Ok(())
    }

    /// Multiplies elements that start at the place `first` of the tensor.
    fn multiply<const W: usize>(
        &self,
        first: usize,
        from: &[[u8; W]],
        to: &mut [[u8; W]],
        times: &impl Fn([u8; W], f64) -> [u8; W],
    ) {
        for (run, factors) in self.runs(first, from.len()) {
            let pairs = to[run.clone()].iter_mut().zip(&from[run]);
            match factors {
                Run::One(factor) => pairs.for_each(|(to, from)| *to = times(*from, factor)),
                Run::Each(factors) => {
                    pairs.zip(factors).for_each(|((to, from), factor)| *to = times(*from, *factor));
                }
            }
        }
    }

    /// The largest magnitude of a product.
    fn largest<const W: usize>(&self, bytes: &[u8], read: impl Fn([u8; W]) -> f64 + Sync) -> f64 {
        let piece = CHUNK / W;
        let (elements, _) = bytes.as_chunks::<W>();
        let of_piece = |(index, elements): (usize, &[[u8; W]])| {
            let of_run = |(run, factors): (Range<usize>, Run<'_>)| {
                let numbers = elements[run].iter().map(|&bits| read(bits).abs());
                match factors {
                    Run::One(factor) => numbers.fold(0.0, f64::max) * factor.abs(),
                    Run::Each(factors) => numbers
                        .zip(factors)
                        .fold(0.0, |largest, (number, factor)| f64::max(largest, number * factor.abs())),
                }
            };
            self.runs(index * piece, elements.len()).map(of_run).fold(0.0, f64::max)
        };
        let largest = Mutex::new(0.0);
        for_each(elements.chunks(piece).enumerate(), 1, |elements| {
            let here = of_piece(elements);
            let mut largest = largest.lock().unwrap_or_else(PoisonError::into_inner);
            *largest = f64::max(*largest, here);
        });
        largest.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The factors of `count` elements that start at the place `first` of the tensor, in stretches.
    fn runs(&self, first: usize, count: usize) -> impl Iterator<Item = (Range<usize>, Run<'_>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let (start, place) = (done, first + done);
            let value = place / self.repeat % self.values.len();
            if start == count {
                return None;
            }
            if self.repeat == 1 {
                // Up to the last of the values.
                done = (start + self.values.len() - value).min(count);
                return Some((start..done, Run::Each(&self.values[value..])));
            }
            done = (start + self.repeat - place % self.repeat).min(count);
            Some((start..done, Run::One(self.values[value])))
        })
    }
}

/// Factors of a stretch of elements.
enum Run<'a> {
    One(f64),
    Each(&'a [f64]),
}

#[cfg(test)]
mod tests {
    use super::super::tests::{floats, iota};
    use super::*;

    #[test]
    fn scales_along_an_axis() {
        let t = iota(&[2, 3]);
        assert_eq!(floats(&t.scaled(0, &[1.0, 10.0]).unwrap()), [0.0, 1.0, 2.0, 30.0, 40.0, 50.0]);
        assert_eq!(floats(&t.scaled(1, &[1.0, 10.0, 100.0]).unwrap()), [0.0, 10.0, 200.0, 3.0, 40.0, 500.0]);
        let large = iota(&[3, 100_000]).scaled(0, &[1.0, 2.0, 4.0]).unwrap();
        assert_eq!(floats(&large)[250_000], 1_000_000.0);
        assert!(t.scales_well(1, &[1e38, 1e37, 0.0]).unwrap() && t.scales_well(1, &[1.0, 0.0, 0.0]).unwrap());
        assert!(!t.scales_well(1, &[1e38, 1e38, 1e38]).unwrap());
        assert!(!t.scales_well(0, &[1e-40, 1e-40]).unwrap());
        assert!(!t.transposed(&[1, 0]).unwrap().scales_well(0, &[1.0, 1e38, 1e38]).unwrap());
        assert!(t.scaled(0, &[1.0]).is_err());
        assert!(Tensor::from_i64s(&[1]).scaled(0, &[1.0]).is_err());
    }
}
