//! Arrays from constants and back.

use std::io::{self, Write};
use std::sync::Arc;

use half::{bf16, f16};
use num_complex::Complex;

use super::{Array, Buf, Buffer, Code, Elem};
use crate::error::OpError;
use onnxforge_ir::DType;
use onnxforge_ir::tensor::{Data, Tensor, TensorError};

/// Elements that are made of bytes as these come, so that the bytes are never all in memory.
struct Elements<T> {
    made: Vec<T>,
    /// The first bytes of the next element.
    begun: Vec<u8>,
}

impl<T: Packed> Elements<T> {
    /// The elements of a tensor of this type.
    fn of(tensor: &Tensor) -> Result<Vec<T>, OpError> {
        let mut elements = Self { made: Vec::new(), begun: Vec::new() };
        elements
            .made
            .try_reserve_exact(tensor.len())
            .map_err(|_| TensorError::TooLarge(tensor.shape().to_vec()))?;
        let payload = tensor.payload()?;
        payload
            .write_to(&mut elements)
            .map_err(|error| TensorError::Unavailable(error.to_string().into()))?;
        Ok(elements.made)
    }
}

impl<T: Packed> Write for Elements<T> {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        let (all, size) = (bytes.len(), size_of::<T>());
        if !self.begun.is_empty() {
            let missing = bytes.len().min(size - self.begun.len());
            self.begun.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.begun.len() == size {
                self.made.push(T::read(&self.begun));
                self.begun.clear();
            }
        }
        let whole = bytes.chunks_exact(size);
        self.begun.extend_from_slice(whole.remainder());
        self.made.extend(whole.map(T::read));
        Ok(all)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Array {
    /// The elements of a constant; in place where the file's bytes are aligned.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self, OpError> {
        let (dtype, shape): (_, Arc<[usize]>) = (tensor.dtype(), tensor.shape().into());
        if let Data::Strings(strings) = tensor.data() {
            return Self::strings(shape, strings.to_vec());
        }
        macro_rules! decode {
            ($($dtype:ident $type:ty),*) => {
                match dtype {
                    $( DType::$dtype => {
                        if let Data::Bytes(blob) = tensor.data()
                            && <$type as Elem>::view(blob).is_some()
                        {
                            let data = <$type as Elem>::wrap(Buf::Mapped(blob.clone()));
                            return Ok(Self { dtype, shape, data });
                        }
                        return Self::with_dtype(dtype, shape, Elements::<$type>::of(tensor)?);
                    } )*
                    DType::Bool => {
                        let data = tensor.bytes()?.iter().map(|&byte| byte != 0).collect::<Vec<bool>>();
                        return Self::with_dtype(dtype, shape, data);
                    }
                    _ => {}
                }
            };
        }
        decode!(F32 f32, F64 f64, F16 f16, BF16 bf16, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32,
                U64 u64, C64 Complex<f32>, C128 Complex<f64>);
        Self::with_dtype(dtype, shape, unpack(&tensor.bytes()?, tensor.len(), dtype.bits()))
    }

    /// The array as a constant.
    pub fn to_tensor(&self) -> Result<Tensor, TensorError> {
        fn pack<T: Packed>(data: &[T]) -> Vec<u8> {
            let mut bytes = Vec::with_capacity(size_of_val(data));
            data.iter().for_each(|element| element.write(&mut bytes));
            bytes
        }
        let bytes = match &self.data {
            Buffer::F32(data) => pack(data),
            Buffer::F64(data) => pack(data),
            Buffer::F16(data) => pack(data),
            Buffer::BF16(data) => pack(data),
            Buffer::I8(data) => pack(data),
            Buffer::I16(data) => pack(data),
            Buffer::I32(data) => pack(data),
            Buffer::I64(data) => pack(data),
            Buffer::U8(data) => data.to_vec(),
            Buffer::U16(data) => pack(data),
            Buffer::U32(data) => pack(data),
            Buffer::U64(data) => pack(data),
            Buffer::Bool(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::C64(data) => pack(data),
            Buffer::C128(data) => pack(data),
            Buffer::Code(data) => pack_codes(data, self.dtype.bits()),
            Buffer::Str(data) => {
                return Tensor::new(
                    DType::String,
                    self.shape.clone(),
                    Data::Strings(data.iter().cloned().collect()),
                );
            }
        };
        Tensor::from_bytes(self.dtype, self.shape.clone(), bytes)
    }
}

fn unpack(bytes: &[u8], count: usize, bits: u32) -> Vec<Code> {
    let mask = ((1u16 << bits) - 1) as u8;
    let code = |index: usize| {
        let first = index * bits as usize;
        let low = u16::from(bytes.get(first / 8).copied().unwrap_or(0));
        let high = u16::from(bytes.get(first / 8 + 1).copied().unwrap_or(0));
        Code(((low | high << 8) >> (first % 8)) as u8 & mask)
    };
    (0..count).map(code).collect()
}

fn pack_codes(codes: &[Code], bits: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; (codes.len() * bits as usize).div_ceil(8)];
    for (index, &Code(code)) in codes.iter().enumerate() {
        let first = index * bits as usize;
        let shifted = u16::from(code) << (first % 8);
        bytes[first / 8] |= shifted as u8;
        if shifted > 0xff {
            bytes[first / 8 + 1] |= (shifted >> 8) as u8;
        }
    }
    bytes
}

/// A type with a little-endian form of its own size.
trait Packed: Sized {
    fn read(bytes: &[u8]) -> Self;
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! packed {
    ($($type:ty),*) => {$(
        impl Packed for $type {
            fn read(bytes: &[u8]) -> Self {
                bytes.try_into().map(<$type>::from_le_bytes).unwrap_or_default()
            }
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

packed!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64);

impl<T: Packed> Packed for Complex<T> {
    fn read(bytes: &[u8]) -> Self {
        let (re, im) = bytes.split_at(bytes.len() / 2);
        Self::new(T::read(re), T::read(im))
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.re.write(out);
        self.im.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_comes_back_from_a_tensor() {
        for &dtype in DType::ALL.iter().filter(|&&dtype| dtype != DType::String) {
            let count = 7;
            let length = dtype.byte_len(count).unwrap();
            let mut bytes: Vec<u8> = (0..length).map(|i| (i * 37 % 251) as u8).collect();
            if dtype == DType::Bool {
                bytes.iter_mut().for_each(|byte| *byte &= 1);
            }
            let used = count * dtype.bits() as usize % 8;
            if used != 0 {
                *bytes.last_mut().unwrap() &= (1 << used) - 1;
            }
            let tensor = Tensor::from_bytes(dtype, [7], bytes).unwrap();
            let array = Array::from_tensor(&tensor).unwrap();
            assert_eq!((array.dtype(), array.shape(), array.len()), (dtype, &[7][..], 7));
            assert!(array.to_tensor().unwrap().same_bits(&tensor), "{dtype}");
        }
    }

    #[test]
    fn elements_are_made_of_bytes_in_any_pieces() {
        let wanted = [1.5f32, -2.0, 3.25, f32::MAX];
        let bytes: Vec<u8> = wanted.iter().flat_map(|element| element.to_le_bytes()).collect();
        for step in 1..=bytes.len() {
            let mut elements = Elements::<f32> { made: Vec::new(), begun: Vec::new() };
            bytes.chunks(step).for_each(|piece| elements.write_all(piece).unwrap());
            assert_eq!(elements.made, wanted);
        }
    }
}
