//! Arrays: tensors in the form in which operators compute, one typed buffer per array.
//!
//! Types of less than a byte and 8-bit floats are held as one [`Code`] per element; the array's [`DType`] says what a
//! code means. Elements of a mapped file are used where they are when their alignment allows it.

pub(crate) mod each;
pub(crate) mod spare;
mod tensor;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::AnyBitPattern;
use half::{bf16, f16};
use num_complex::Complex;

use self::spare::Held;
use super::error::{OpError, invalid};
use onnxforge_ir::DType;
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::tensor::element_count;
use onnxforge_proto::blob::Blob;

/// An element of a type that has no Rust type: its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u8);

/// Shared elements: owned, or a range of bytes that has the right length and alignment.
#[derive(Clone)]
pub enum Buf<T: 'static> {
    /// On the heap.
    Owned(Arc<Held<T>>),
    /// Where the file is mapped.
    Mapped(Blob),
}

impl<T: Elem> Deref for Buf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Owned(held) => held.elements(),
            Self::Mapped(blob) => T::view(blob).unwrap_or_default(),
        }
    }
}

impl<T: Elem> Buf<T> {
    fn owned(elements: Vec<T>) -> Self {
        Self::Owned(Arc::new(Held::new(elements)))
    }

    /// The elements to change: without a copy when nobody else holds them.
    pub fn into_vec(self) -> Vec<T> {
        match self {
            Self::Owned(held) => match Arc::try_unwrap(held) {
                Ok(held) => held.into_elements(),
                Err(shared) => shared.elements().clone(),
            },
            Self::Mapped(_) => self.to_vec(),
        }
    }
}

/// A Rust type that elements are held in.
pub trait Elem: Clone + Default + PartialEq + Send + Sync + fmt::Debug + 'static {
    /// The buffer of these elements.
    fn wrap(data: Buf<Self>) -> Buffer;
    /// The elements, when the buffer holds this type.
    fn of(buffer: &Buffer) -> Option<&Buf<Self>>;
    /// The elements, when the buffer holds this type.
    fn unwrap(buffer: Buffer) -> Option<Buf<Self>>;
    /// Packed little-endian bytes as elements, where they can be used in place.
    fn view(bytes: &[u8]) -> Option<&[Self]>;
}

/// A Rust type that stands for exactly one element type.
pub trait Typed: Elem + Copy {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! buffers {
    ($( $variant:ident $type:ty, $view:expr; )*) => {
        /// The elements of an array by the Rust type that holds them.
        #[derive(Clone)]
        #[allow(missing_docs)]
        pub enum Buffer {
            $( $variant(Buf<$type>), )*
        }

        impl Buffer {
            /// Number of elements.
            pub fn len(&self) -> usize {
                match self { $( Self::$variant(data) => data.len(), )* }
            }

            /// Whether there is no element.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        $(
            impl Elem for $type {
                fn wrap(data: Buf<Self>) -> Buffer {
                    Buffer::$variant(data)
                }
                fn of(buffer: &Buffer) -> Option<&Buf<Self>> {
                    match buffer { Buffer::$variant(data) => Some(data), _ => None }
                }
                fn unwrap(buffer: Buffer) -> Option<Buf<Self>> {
                    match buffer { Buffer::$variant(data) => Some(data), _ => None }
                }
                fn view(bytes: &[u8]) -> Option<&[Self]> {
                    $view(bytes)
                }
            }
        )*
    };
}

fn in_place<T: AnyBitPattern>(bytes: &[u8]) -> Option<&[T]> {
    if cfg!(target_endian = "little") { bytemuck::try_cast_slice(bytes).ok() } else { None }
}

fn never<T>(_: &[u8]) -> Option<&[T]> {
    None
}

buffers! {
    F32 f32, in_place;
    F64 f64, in_place;
    F16 f16, in_place;
    BF16 bf16, in_place;
    I8 i8, in_place;
    I16 i16, in_place;
    I32 i32, in_place;
    I64 i64, in_place;
    U8 u8, in_place;
    U16 u16, in_place;
    U32 u32, in_place;
    U64 u64, in_place;
    Bool bool, never;
    C64 Complex<f32>, in_place;
    C128 Complex<f64>, in_place;
    Code Code, never;
    Str Blob, never;
}

macro_rules! typed {
    ($( $type:ty = $variant:ident, )*) => {$(
        impl Typed for $type {
            const DTYPE: DType = DType::$variant;
        }
    )*};
}

typed! {
    f32 = F32, f64 = F64, f16 = F16, bf16 = BF16, i8 = I8, i16 = I16, i32 = I32, i64 = I64,
    u8 = U8, u16 = U16, u32 = U32, u64 = U64, bool = Bool, Complex<f32> = C64, Complex<f64> = C128,
}

#[allow(unused_imports)]
pub(crate) use each::{each_elem, each_float, each_integer, each_number, each_wide};

/// A tensor to compute with: row-major, clone O(1).
#[derive(Clone)]
pub struct Array {
    dtype: DType,
    shape: Arc<[usize]>,
    data: Buffer,
}

impl Array {
    /// An array of a type that has a Rust type.
    pub fn new<T: Typed>(shape: impl Into<Arc<[usize]>>, data: Vec<T>) -> Result<Self, OpError> {
        Self::with_dtype(T::DTYPE, shape, data)
    }

    /// An array of `dtype` held as `T`, which is what another array of `dtype` holds its elements in.
    pub fn with_dtype<T: Elem>(
        dtype: DType,
        shape: impl Into<Arc<[usize]>>,
        data: Vec<T>,
    ) -> Result<Self, OpError> {
        let shape = shape.into();
        if element_count(&shape) != Some(data.len()) {
            return invalid(format!("{} elements for the shape {shape:?}", data.len()));
        }
        Ok(Self { dtype, shape, data: T::wrap(Buf::owned(data)) })
    }

    /// An array without axes.
    pub fn scalar<T: Typed>(value: T) -> Self {
        Self { dtype: T::DTYPE, shape: [].into(), data: T::wrap(Buf::owned(vec![value])) }
    }

    /// An array with one axis.
    pub fn vector<T: Typed>(values: Vec<T>) -> Self {
        Self { dtype: T::DTYPE, shape: [values.len()].into(), data: T::wrap(Buf::owned(values)) }
    }

    /// An array of byte strings.
    pub fn strings(shape: impl Into<Arc<[usize]>>, data: Vec<Blob>) -> Result<Self, OpError> {
        Self::with_dtype(DType::String, shape, data)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the elements take in memory.
    pub fn byte_len(&self) -> u64 {
        let each = each_elem!(self, T => size_of::<T>());
        (self.len() as u64).saturating_mul(each as u64)
    }

    /// The elements by the type that holds them.
    pub fn buffer(&self) -> &Buffer {
        &self.data
    }

    /// The elements, which must be held as `T`.
    pub fn slice<T: Elem>(&self) -> Result<&[T], OpError> {
        match T::of(&self.data) {
            Some(data) => Ok(data),
            None => Err(self.not_held_as::<T>()),
        }
    }

    /// The elements to change, which must be held as `T`. Copies only when somebody else holds them too.
    pub fn into_vec<T: Elem>(self) -> Result<Vec<T>, OpError> {
        let error = self.not_held_as::<T>();
        T::unwrap(self.data).map(Buf::into_vec).ok_or(error)
    }

    fn not_held_as<T>(&self) -> OpError {
        OpError::Invalid(format!("elements are {}, not {}", self.dtype, std::any::type_name::<T>()))
    }

    /// The same elements in another shape.
    pub fn reshaped(&self, shape: impl Into<Arc<[usize]>>) -> Result<Self, OpError> {
        let shape = shape.into();
        if element_count(&shape) != Some(self.len()) {
            return invalid(format!("{:?} does not have the shape {shape:?}", self.shape));
        }
        Ok(Self { shape, ..self.clone() })
    }

    /// Whether both have the same type, shape and bits.
    pub fn same_bits(&self, other: &Self) -> bool {
        macro_rules! same {
            ([$($pod:ident)*] [$($other:ident)*]) => {
                match (&self.data, &other.data) {
                    $( (Buffer::$pod(a), Buffer::$pod(b)) => {
                        bytemuck::cast_slice::<_, u8>(a) == bytemuck::cast_slice::<_, u8>(b)
                    } )*
                    $( (Buffer::$other(a), Buffer::$other(b)) => **a == **b, )*
                    _ => false,
                }
            };
        }
        self.dtype == other.dtype
            && self.shape == other.shape
            && same!([F32 F64 F16 BF16 I8 I16 I32 I64 U8 U16 U32 U64 C64 C128] [Bool Code Str])
    }

    /// Every element of an integer or boolean array.
    pub fn to_i64s(&self) -> Result<Vec<i64>, OpError> {
        Ok(match &self.data {
            Buffer::I64(data) => data.to_vec(),
            Buffer::I32(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::I16(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::I8(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::U8(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::U16(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::U32(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::U64(data) => {
                let small = data.iter().map(|&x| i64::try_from(x)).collect::<Result<_, _>>();
                small.map_err(|_| OpError::Invalid("an integer of 2^63 or more".into()))?
            }
            Buffer::Bool(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::Code(data) if matches!(self.dtype.kind(), Kind::Signed | Kind::Unsigned) => {
                data.iter().map(|&code| code_to_int(self.dtype, code)).collect()
            }
            _ => return invalid(format!("integers are needed, not {}", self.dtype)),
        })
    }

    /// Every element of an array of real numbers or booleans; integers past 2^53 are rounded.
    pub fn to_f64s(&self) -> Result<Vec<f64>, OpError> {
        Ok(match &self.data {
            Buffer::F32(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::F64(data) => data.to_vec(),
            Buffer::F16(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::BF16(data) => data.iter().map(|&x| x.into()).collect(),
            Buffer::U64(data) => data.iter().map(|&x| x as f64).collect(),
            Buffer::Code(data) if self.dtype.kind() == Kind::Float => {
                let decode = |&Code(code): &Code| f64::from(self.dtype.small_float(code).unwrap_or(f32::NAN));
                data.iter().map(decode).collect()
            }
            _ => self.to_i64s()?.into_iter().map(|x| x as f64).collect(),
        })
    }

    /// The single element of an integer or boolean array.
    pub fn to_i64(&self) -> Result<i64, OpError> {
        match self.to_i64s()?[..] {
            [value] => Ok(value),
            _ => invalid(format!("one element is needed, not the shape {:?}", self.shape)),
        }
    }

    /// The single element of an array of real numbers.
    pub fn to_f64(&self) -> Result<f64, OpError> {
        match self.to_f64s()?[..] {
            [value] => Ok(value),
            _ => invalid(format!("one element is needed, not the shape {:?}", self.shape)),
        }
    }
}

/// The integer that a code of a 2- or 4-bit integer type stands for.
pub fn code_to_int(dtype: DType, Code(code): Code) -> i64 {
    match dtype.kind() {
        Kind::Signed => {
            let unused = 8 - dtype.bits();
            i64::from(((code << unused) as i8) >> unused)
        }
        _ => code.into(),
    }
}

/// Type and shape, and the elements of a small array.
impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.len() > 16 {
            return Ok(());
        }
        each_elem!(self, T => match self.slice::<T>() {
            Ok(elements) => write!(f, " {elements:?}"),
            Err(_) => Ok(()),
        })
    }
}

/// The error for an array of a type that an operator does not compute with.
pub fn unsupported_type(array: &Array) -> OpError {
    OpError::Unsupported(format!("the element type {}", array.dtype()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_length_or_type_is_an_error() {
        assert!(Array::new([2, 2], vec![1f32]).is_err());
        assert!(Array::new([usize::MAX, 4], vec![1f32]).is_err());
        let array = Array::vector(vec![1i64, 2]);
        assert!(array.slice::<f32>().is_err());
        assert!(array.reshaped([3]).is_err());
        assert_eq!(array.to_f64s().unwrap(), [1.0, 2.0]);
        assert!(array.to_i64().is_err());
    }
}
