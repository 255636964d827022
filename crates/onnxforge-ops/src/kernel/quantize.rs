//! Linear quantization: which scale and zero point an element has, and how numbers become integers.

use num_traits::AsPrimitive;

use super::number::{Float, Number};
use super::parallel::PARALLEL;
use super::shape::around;
use crate::array::Code;
use crate::call;
use crate::error::{OpError, invalid};
use onnxforge_ir::DType;
use onnxforge_proto::parallel::for_each;

/// A float that becomes integers.
pub trait Quantizable:
    Float + AsPrimitive<u8> + AsPrimitive<i8> + AsPrimitive<u16> + AsPrimitive<i16> + AsPrimitive<i32>
{
    /// The nearest whole number; the even one of two.
    fn round_even(self) -> Self;
}

impl Quantizable for f32 {
    fn round_even(self) -> Self {
        self.round_ties_even()
    }
}

impl Quantizable for f64 {
    fn round_even(self) -> Self {
        self.round_ties_even()
    }
}

/// An integer type of 8 or 16 bits that numbers are quantized to.
pub trait Quantized: Number + Into<i32> {
    /// A whole number brought into the range of the type; NaN becomes the lowest.
    fn saturating<T: Quantizable>(value: T) -> Self;
}

macro_rules! quantized {
    ($($type:ty),*) => {$(
        impl Quantized for $type {
            fn saturating<T: Quantizable>(value: T) -> Self {
                // The cast saturates; only NaN needs a choice.
                num_traits::Float::max(value, T::from_f64(<$type>::MIN.into())).as_()
            }
        }
    )*};
}

quantized!(u8, i8, u16, i16);

/// A whole number brought into the range of an integer type of 2 or 4 bits; NaN becomes the lowest.
pub fn saturating_code<T: Quantizable>(dtype: DType, value: T) -> Code {
    let (low, high) = match dtype {
        DType::I4 => (-8.0, 7.0),
        DType::U2 => (0.0, 3.0),
        DType::I2 => (-2.0, 1.0),
        _ => (0.0, 15.0),
    };
    let inside = num_traits::Float::min(num_traits::Float::max(value, T::from_f64(low)), T::from_f64(high));
    let whole: i8 = inside.as_();
    Code(whole as u8 & ((1 << dtype.bits()) - 1))
}

/// `value / scale + zero`, rounded to nearest even and saturated.
pub fn quantize_one<T: Quantizable, Q: Quantized>(value: T, scale: T, zero: T) -> Q {
    Q::saturating((value / scale).round_even() + zero)
}

/// Which scale and zero point each element of a tensor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Elements in a row that share a parameter or have consecutive ones.
    run: usize,
    rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// One for all.
    Tensor,
    /// One for each index along the axis, of which there are this many.
    Axis(usize),
    /// One for each element of a run, the same in every run.
    Columns,
    /// Runs along the axis, of which there are `dim`, share parameters in groups of `block`.
    Blocks { dim: usize, block: usize, blocks: usize },
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The one at this index.
    One(usize),
    /// As many as elements, from this index on.
    Each(usize),
}

impl Spread {
    /// One parameter for all elements.
    pub fn whole() -> Self {
        Self { run: PARALLEL, rule: Rule::Tensor }
    }

    /// A parameter for each of `count` elements.
    pub fn each(count: usize) -> Self {
        Self { run: count.max(1), rule: Rule::Columns }
    }

    /// How parameters of shape `params` belong to a tensor of shape `shape`: one for all, one for each index along
    /// `axis`, or one for each `block` (not 0) neighbours along it.
    pub fn new(shape: &[usize], params: &[usize], axis: i64, block: usize) -> Result<Self, OpError> {
        let count = params.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
        if block == 0 && count == Some(1) && params.len() <= 1 {
            return Ok(Self::whole());
        }
        let axis = call::axis(axis, shape.len())?;
        let (_, dim, inner) = around(shape, axis);
        if block == 0 {
            if params != [dim] {
                return invalid(format!("scales of shape {params:?} for axis {axis} of {shape:?}"));
            }
            return Ok(match inner {
                1 => Self { run: dim.max(1), rule: Rule::Columns },
                _ => Self { run: inner.max(1), rule: Rule::Axis(dim) },
            });
        }
        let blocks = dim.div_ceil(block);
        let mut expected = shape.to_vec();
        expected[axis] = blocks;
        if params != expected {
            return invalid(format!(
                "scales of shape {params:?} for blocks of {block} along axis {axis} of {shape:?}"
            ));
        }
        Ok(Self { run: inner.max(1), rule: Rule::Blocks { dim, block, blocks } })
    }

    /// The parameters of run number `run`.
    fn place(&self, run: usize) -> Place {
        match self.rule {
            Rule::Tensor => Place::One(0),
            Rule::Axis(dim) => Place::One(run % dim.max(1)),
            Rule::Columns => Place::Each(0),
            Rule::Blocks { dim, block, blocks } => {
                let (outer, index) = (run / dim.max(1), run % dim.max(1));
                Place::Each((outer * blocks + index / block) * self.run)
            }
        }
    }

    /// `y = f(x, scale, zero)` for every element. Both slices have the tensor's elements.
    pub fn apply<X: Sync, Y: Send, T: Float>(
        &self,
        x: &[X],
        y: &mut [Y],
        scales: &[T],
        zeros: Option<&[T]>,
        f: impl Fn(&X, T, T) -> Y + Sync,
    ) {
        let zero = |index: usize| zeros.map_or(T::ZERO, |zeros| zeros[index]);
        let fill = |run: usize, x: &[X], y: &mut [Y]| match self.place(run) {
            Place::One(at) => {
                let (scale, zero) = (scales[at], zero(at));
                y.iter_mut().zip(x).for_each(|(y, x)| *y = f(x, scale, zero));
            }
            Place::Each(at) => {
                let pairs = y.iter_mut().zip(x).zip(&scales[at..]);
                pairs.enumerate().for_each(|(i, ((y, x), scale))| *y = f(x, *scale, zero(at + i)));
            }
        };
        let runs = y.chunks_mut(self.run).zip(x.chunks(self.run)).enumerate();
        for_each(runs, PARALLEL / self.run, |(run, (y, x))| fill(run, x, y));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scales_of(shape: &[usize], params: &[usize], axis: i64, block: usize) -> Vec<f32> {
        let spread = Spread::new(shape, params, axis, block).unwrap();
        let scales: Vec<f32> = (0..params.iter().product::<usize>()).map(|i| i as f32).collect();
        let count = shape.iter().product();
        let mut out = vec![0f32; count];
        spread.apply(&vec![(); count], &mut out, &scales, None, |_, scale, _| scale);
        out
    }

    #[test]
    fn each_element_finds_its_scale() {
        assert_eq!(scales_of(&[2, 2], &[1], 7, 0), [0.0; 4]);
        assert_eq!(scales_of(&[2, 3], &[3], -1, 0), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
        assert_eq!(scales_of(&[2, 3], &[2], 0, 0), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        assert_eq!(scales_of(&[3, 2], &[2, 2], 0, 2), [0.0, 1.0, 0.0, 1.0, 2.0, 3.0]);
        assert_eq!(scales_of(&[2, 3], &[2, 2], 1, 2), [0.0, 0.0, 1.0, 2.0, 2.0, 3.0]);
        assert!(scales_of(&[2, 0], &[0], 1, 0).is_empty());
        assert!(Spread::new(&[2, 3], &[3], 0, 0).is_err());
        assert!(Spread::new(&[2, 3], &[2, 3], 1, 2).is_err());
        assert!(Spread::new(&[2], &[2], 1, 0).is_err());
    }

    #[test]
    fn saturation() {
        assert_eq!(i8::saturating(f32::NAN), -128);
        assert_eq!(u16::saturating(1e20f64), 65535);
        assert_eq!(saturating_code(DType::I4, -3f32), Code(0xd));
        assert_eq!(saturating_code(DType::I2, 9f32), Code(1));
        assert_eq!(saturating_code(DType::U4, f32::NAN), Code(0));
        assert_eq!(quantize_one::<f32, u8>(2.5, 1.0, 3.0), 5);
    }
}
