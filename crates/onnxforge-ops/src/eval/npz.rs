//! Tensors in `.npz` archives, as numpy reads and writes them.
//!
//! numpy has no 16-bit brain floats and no floats of 8 bits and less; they are written as 32-bit floats, and integers of
//! less than a byte as bytes. Pickled objects are refused: they are programs.
//!
//! Archives need the feature `npz`; without it reading and writing report [`NpzError::NotBuilt`].

#[cfg_attr(not(feature = "npz"), path = "npz/absent.rs")]
mod archive;
#[cfg(feature = "npz")]
mod npy;

use std::io;

use half::f16;
use num_complex::Complex;

pub use self::archive::{read, write};
use crate::array::Array;
use crate::eval_call::Memory;
use crate::kernel::convert::{Rounding, convert};
use onnxforge_ir::DType;
use onnxforge_ir::dtype::Kind;

/// Why an archive cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NpzError {
    /// This build has no archives.
    #[error(".npz archives are not supported by this build: build it with the Cargo feature `npz`")]
    NotBuilt,
    /// The file is no archive, or it is broken.
    #[error("not an .npz archive: {0}")]
    Archive(String),
    /// An entry is no array, or of a type that tensors cannot have.
    #[error("{entry}: {why}")]
    Entry {
        /// Name of the array.
        entry: String,
        /// What is wrong.
        why: String,
    },
    /// An array cannot be written.
    #[error("the array {entry} cannot be written: {why}")]
    Write {
        /// Name of the array.
        entry: String,
        /// What is wrong.
        why: String,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The array in the element type that a model wants, where that loses nothing that numpy could have said: floats and
/// integers of one kind. `None` when it cannot.
pub fn fit(array: &Array, wanted: DType) -> Option<Array> {
    if array.dtype() == wanted {
        return Some(array.clone());
    }
    let shape = array.shape();
    match (wanted, wanted.kind(), array.dtype().kind()) {
        (DType::F16, _, Kind::Float) => {
            let values = array.to_f64s().ok()?;
            Array::new(shape, values.into_iter().map(f16::from_f64).collect::<Vec<_>>()).ok()
        }
        (DType::BF16, _, Kind::Float) => {
            let values = array.to_f64s().ok()?;
            Array::new(shape, values.into_iter().map(half::bf16::from_f64).collect::<Vec<_>>()).ok()
        }
        (DType::F32, _, Kind::Float) => {
            let values = array.to_f64s().ok()?;
            Array::new(shape, values.into_iter().map(|value| value as f32).collect::<Vec<_>>()).ok()
        }
        (DType::F64, _, Kind::Float) => Array::new(shape, array.to_f64s().ok()?).ok(),
        (DType::C128, _, Kind::Complex) => {
            let values = array.slice::<Complex<f32>>().ok()?;
            let wide =
                values.iter().map(|z| Complex::new(z.re.into(), z.im.into())).collect::<Vec<Complex<f64>>>();
            Array::new(shape, wide).ok()
        }
        (DType::I64, Kind::Signed, Kind::Signed | Kind::Unsigned) => {
            Array::new(shape, array.to_i64s().ok()?).ok()
        }
        (DType::I32, Kind::Signed, Kind::Signed | Kind::Unsigned) => {
            let values = array.to_i64s().ok()?;
            let small = values.into_iter().map(i32::try_from).collect::<Result<Vec<_>, _>>().ok()?;
            Array::new(shape, small).ok()
        }
        // Floats that numpy lacks come as wider ones.
        (_, Kind::Float, Kind::Float) => converted(array, wanted),
        // Integers of a few bits come as larger ones, which have to be the same.
        (_, Kind::Signed | Kind::Unsigned, Kind::Signed | Kind::Unsigned) if wanted.bits() < 8 => {
            let small = converted(array, wanted)?;
            (small.to_i64s().ok()? == array.to_i64s().ok()?).then_some(small)
        }
        _ => None,
    }
}

/// The array in another type of numbers, as Cast converts it.
fn converted(array: &Array, wanted: DType) -> Option<Array> {
    convert(array, wanted, Rounding::default(), &Memory::new(u64::MAX)).ok()
}
