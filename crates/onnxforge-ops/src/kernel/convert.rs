//! Elements of one type as elements of another.

use half::{bf16, f16};

use super::map::{in_parts, map_to};
use super::numeral;
use super::parallel::PARALLEL;
use super::small_float::{Encoder, PowerRounding};
use super::widen::{narrow, widen};
use crate::array::{Array, Buffer, Code, Elem, Typed, code_to_int, each_number};
use crate::error::OpError;
use crate::eval_call::Memory;
use crate::kernel::number::{Float, Number};
use onnxforge_ir::DType;
use onnxforge_ir::dtype::Kind;
use onnxforge_proto::blob::Blob;

/// How numbers become floats of at most 8 bits.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// What is too large becomes the largest number.
    pub saturate: bool,
    /// How powers of two are chosen.
    pub powers: PowerRounding,
}

impl Default for Rounding {
    fn default() -> Self {
        Self { saturate: true, powers: PowerRounding::Up }
    }
}

/// The elements converted to `to` as the operator Cast does. Floats too large for an integer type, for which the
/// standard leaves the result open, give what common processors do: the least integer of 32 or 64 bits, cut to the type.
pub fn convert(array: &Array, to: DType, rounding: Rounding, memory: &Memory) -> Result<Array, OpError> {
    if array.dtype() == to {
        return Ok(array.clone());
    }
    memory.check((array.len() as u64).saturating_mul(16))?;
    match (array.dtype(), to) {
        (DType::F16 | DType::BF16, DType::F32) => widen(array),
        (DType::F32, DType::F16 | DType::BF16) => narrow(array, to),
        _ => from_number(&number(array, to)?, to, rounding),
    }
}

/// The array with its elements rounded to `T`; itself when it holds `T` already.
pub fn to_float<T: Float>(array: &Array) -> Result<Array, OpError> {
    if array.dtype() == T::DTYPE {
        return Ok(array.clone());
    }
    let elements = array.to_f64s()?.into_iter().map(T::from_f64);
    Array::new(array.shape(), elements.collect::<Vec<T>>())
}

/// The same elements in a type of numbers that Rust has: truth values, codes and strings become numbers. `to` is where
/// the conversion goes, which decides how strings are read.
fn number(array: &Array, to: DType) -> Result<Array, OpError> {
    let dtype = array.dtype();
    match array.buffer() {
        Buffer::Bool(_) => map_to(array, |&x: &bool| u8::from(x)),
        Buffer::Code(_) if dtype.kind() == Kind::Float => {
            map_to(array, |code: &Code| dtype.small_float(code.0).unwrap_or(f32::NAN))
        }
        Buffer::Code(_) => map_to(array, |&code: &Code| code_to_int(dtype, code) as i8),
        Buffer::Str(texts) => numeral::parse(texts, array.shape(), to),
        _ => Ok(array.clone()),
    }
}

fn from_number(array: &Array, to: DType, rounding: Rounding) -> Result<Array, OpError> {
    match to {
        DType::F32 => numeric::<f32>(array),
        DType::F64 => numeric::<f64>(array),
        DType::F16 => numeric::<f16>(array),
        DType::BF16 => numeric::<bf16>(array),
        DType::I8 => numeric::<i8>(array),
        DType::I16 => numeric::<i16>(array),
        DType::I32 => numeric::<i32>(array),
        DType::I64 => numeric::<i64>(array),
        DType::U8 => numeric::<u8>(array),
        DType::U16 => numeric::<u16>(array),
        DType::U32 => numeric::<u32>(array),
        DType::U64 => numeric::<u64>(array),
        DType::Bool => {
            each_number!(array, S => filled(array, to, |x: S| x != <S as Number>::ZERO))
        }
        DType::String => {
            let texts: Vec<Blob> = numeral::format(array)?;
            Array::strings(array.shape(), texts)
        }
        DType::C64 | DType::C128 => Err(OpError::Unsupported(format!("a conversion to {to}"))),
        _ => codes(array, to, rounding),
    }
}

fn codes(array: &Array, to: DType, rounding: Rounding) -> Result<Array, OpError> {
    match Encoder::new(to, rounding.saturate, rounding.powers) {
        Some(encoder) => each_number!(array, S => filled(array, to, |x: S| encoder.encode(x.to_f64()))),
        None => {
            let mask = ((1u16 << to.bits()) - 1) as u8;
            each_number!(array, S => filled(array, to, |x: S| Code(x.convert::<u8>() & mask)))
        }
    }
}

fn numeric<T: Target>(array: &Array) -> Result<Array, OpError> {
    each_number!(array, S => filled(array, T::DTYPE, |x: S| x.convert::<T>()))
}

/// An array of `dtype`, which is held as `T`, of what `convert` makes of each element.
fn filled<S: Typed, T: Elem>(
    array: &Array,
    dtype: DType,
    convert: impl Fn(S) -> T + Sync,
) -> Result<Array, OpError> {
    let from = array.slice::<S>()?;
    let mut out = vec![T::default(); from.len()];
    in_parts(&mut out, PARALLEL, &|at, part| {
        part.iter_mut().zip(&from[at..]).for_each(|(out, &x)| *out = convert(x));
    });
    Array::with_dtype(dtype, array.shape(), out)
}

/// A number that is converted, by the widest type of its kind.
trait Source: Number {
    fn convert<T: Target>(self) -> T;
}

macro_rules! sources {
    ($($type:ty => $from:ident($wide:ty)),*) => {$(
        impl Source for $type {
            fn convert<T: Target>(self) -> T {
                T::$from(<$wide>::from(self))
            }
        }
    )*};
}

sources! {
    f32 => from_float(f64), f64 => from_float(f64), f16 => from_float(f64), bf16 => from_float(f64),
    i8 => from_signed(i64), i16 => from_signed(i64), i32 => from_signed(i64), i64 => from_signed(i64),
    u8 => from_signed(i64), u16 => from_signed(i64), u32 => from_signed(i64), u64 => from_unsigned(u64)
}

/// A number that something is converted to. Integers keep the low bits.
trait Target: Typed {
    fn from_float(value: f64) -> Self;
    fn from_signed(value: i64) -> Self;
    fn from_unsigned(value: u64) -> Self;
}

macro_rules! targets {
    ($($type:ty: $float:expr, $signed:expr, $unsigned:expr;)*) => {$(
        impl Target for $type {
            fn from_float(value: f64) -> Self { $float(value) }
            fn from_signed(value: i64) -> Self { $signed(value) }
            fn from_unsigned(value: u64) -> Self { $unsigned(value) }
        }
    )*};
}

targets! {
    f32: |x| x as f32, |x| x as f32, |x| x as f32;
    f64: |x| x, |x| x as f64, |x| x as f64;
    f16: f16::from_f64, |x| f16::from_f32(x as f32), |x| f16::from_f32(x as f32);
    bf16: bf16::from_f64, |x| bf16::from_f32(x as f32), |x| bf16::from_f32(x as f32);
    i8: |x| truncated_32(x) as i8, |x| x as i8, |x| x as i8;
    i16: |x| truncated_32(x) as i16, |x| x as i16, |x| x as i16;
    i32: truncated_32, |x| x as i32, |x| x as i32;
    i64: truncated_64, |x| x, |x| x as i64;
    u8: |x| truncated_32(x) as u8, |x| x as u8, |x| x as u8;
    u16: |x| truncated_32(x) as u16, |x| x as u16, |x| x as u16;
    u32: |x| truncated_64(x) as u32, |x| x as u32, |x| x as u32;
    u64: truncated_unsigned, |x| x as u64, |x| x;
}

/// Without its fraction, or the least integer when it does not fit.
fn truncated_32(x: f64) -> i32 {
    if x > -2_147_483_649.0 && x < 2_147_483_648.0 { x as i32 } else { i32::MIN }
}

/// Without its fraction, or the least integer when it does not fit.
fn truncated_64(x: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&x) { x as i64 } else { i64::MIN }
}

/// Without its fraction; negative numbers by their bits.
fn truncated_unsigned(x: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if x >= HALF { truncated_64(x - HALF) as u64 ^ 1 << 63 } else { truncated_64(x) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(array: &Array, to: DType) -> Array {
        convert(array, to, Rounding::default(), &Memory::new(1 << 20)).unwrap()
    }

    #[test]
    fn every_pair_of_real_types_converts_small_numbers() {
        let numbers = Array::vector(vec![0f32, 1.0]);
        for &a in DType::ALL.iter().filter(|dtype| !matches!(dtype.kind(), Kind::Complex)) {
            for &b in DType::ALL.iter().filter(|dtype| !matches!(dtype.kind(), Kind::Complex)) {
                let there = cast(&cast(&numbers, a), b);
                assert_eq!(there.dtype(), b);
                let back = cast(&there, DType::F32);
                // Powers of two have no zero.
                let zero = if a == DType::F8E8M0 || b == DType::F8E8M0 { 1 } else { 0 };
                assert_eq!(back.slice::<f32>().unwrap()[zero..], [0.0, 1.0][zero..], "{a} {b}");
            }
        }
    }

    #[test]
    fn floats_out_of_range() {
        let x = Array::vector(vec![300.0f32, -1.9, 1e10, f32::NAN, f32::INFINITY, 3e19]);
        assert_eq!(cast(&x, DType::U8).slice::<u8>().unwrap(), [44, 255, 0, 0, 0, 0]);
        let least = i32::MIN;
        assert_eq!(cast(&x, DType::I32).slice::<i32>().unwrap(), [300, -1, least, least, least, least]);
        let unsigned = [300, u64::MAX, 10_000_000_000, 1 << 63, 0, 0];
        assert_eq!(cast(&x, DType::U64).slice::<u64>().unwrap(), unsigned);
        assert_eq!(cast(&x, DType::I4).slice::<Code>().unwrap()[..2], [Code(12), Code(15)]);
        assert!(cast(&x, DType::Bool).slice::<bool>().unwrap().iter().all(|&x| x));
    }

    #[test]
    fn integers_keep_their_low_bits() {
        let x = Array::vector(vec![200i64, -200, u32::MAX.into(), i64::MIN]);
        assert_eq!(cast(&x, DType::I8).slice::<i8>().unwrap(), [-56, 56, -1, 0]);
        assert_eq!(cast(&x, DType::U64).slice::<u64>().unwrap()[1], 200u64.wrapping_neg());
        let x = Array::vector(vec![u64::MAX, 1 << 63]);
        assert_eq!(cast(&x, DType::F32).slice::<f32>().unwrap(), [1.8446744e19, 9.223372e18]);
        assert_eq!(cast(&x, DType::I64).slice::<i64>().unwrap(), [-1, i64::MIN]);
    }
}
