//! Element types of tensors.

use std::fmt;

macro_rules! dtypes {
    ($( $(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $bits:literal, $kind:ident; )*) => {
        /// The type of a tensor's elements, with the numbers that ONNX gives them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType {
            $( $(#[$doc])* $variant = $code, )*
        }

        impl DType {
            /// Every type, by code.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// The type that ONNX numbers `code`.
            pub fn from_code(code: i32) -> Option<Self> {
                match code {
                    $( $code => Some(Self::$variant), )*
                    _ => None,
                }
            }

            /// The name that the ONNX notation uses.
            pub fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )*
                }
            }

            /// Bits per element in a packed buffer; 0 for strings.
            pub fn bits(self) -> u32 {
                match self {
                    $( Self::$variant => $bits, )*
                }
            }

            /// What kind of number it is.
            pub fn kind(self) -> Kind {
                match self {
                    $( Self::$variant => Kind::$kind, )*
                }
            }
        }
    };
}

/// The kinds of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A floating-point number.
    Float,
    /// An integer that may be negative.
    Signed,
    /// An integer that is never negative.
    Unsigned,
    /// A truth value, one byte each.
    Bool,
    /// A pair of floating-point numbers.
    Complex,
    /// A byte string.
    String,
}

dtypes! {
    /// 32-bit float.
    F32 = 1, "float", 32, Float;
    /// 8-bit unsigned integer.
    U8 = 2, "uint8", 8, Unsigned;
    /// 8-bit integer.
    I8 = 3, "int8", 8, Signed;
    /// 16-bit unsigned integer.
    U16 = 4, "uint16", 16, Unsigned;
    /// 16-bit integer.
    I16 = 5, "int16", 16, Signed;
    /// 32-bit integer.
    I32 = 6, "int32", 32, Signed;
    /// 64-bit integer.
    I64 = 7, "int64", 64, Signed;
    /// Byte strings, UTF-8 by convention.
    String = 8, "string", 0, String;
    /// Truth value.
    Bool = 9, "bool", 8, Bool;
    /// 16-bit float.
    F16 = 10, "float16", 16, Float;
    /// 64-bit float.
    F64 = 11, "double", 64, Float;
    /// 32-bit unsigned integer.
    U32 = 12, "uint32", 32, Unsigned;
    /// 64-bit unsigned integer.
    U64 = 13, "uint64", 64, Unsigned;
    /// Two 32-bit floats.
    C64 = 14, "complex64", 64, Complex;
    /// Two 64-bit floats.
    C128 = 15, "complex128", 128, Complex;
    /// The upper half of a 32-bit float.
    BF16 = 16, "bfloat16", 16, Float;
    /// 8-bit float without infinities.
    F8E4M3FN = 17, "float8e4m3fn", 8, Float;
    /// 8-bit float without infinities and negative zero.
    F8E4M3FNUZ = 18, "float8e4m3fnuz", 8, Float;
    /// 8-bit float after IEEE 754.
    F8E5M2 = 19, "float8e5m2", 8, Float;
    /// 8-bit float without infinities and negative zero.
    F8E5M2FNUZ = 20, "float8e5m2fnuz", 8, Float;
    /// 4-bit unsigned integer.
    U4 = 21, "uint4", 4, Unsigned;
    /// 4-bit integer.
    I4 = 22, "int4", 4, Signed;
    /// 4-bit float.
    F4E2M1 = 23, "float4e2m1", 4, Float;
    /// Power of two, for scales.
    F8E8M0 = 24, "float8e8m0", 8, Float;
    /// 2-bit unsigned integer.
    U2 = 25, "uint2", 2, Unsigned;
    /// 2-bit integer.
    I2 = 26, "int2", 2, Signed;
    /// 6-bit float.
    F6E2M3 = 27, "float6e2m3", 6, Float;
    /// 6-bit float.
    F6E3M2 = 28, "float6e3m2", 6, Float;
}

impl DType {
    /// The distance of 1 and the next number, of floats of 16 bits and more.
    pub fn epsilon(self) -> Option<f64> {
        match self {
            Self::F64 => Some(f64::EPSILON),
            Self::F32 => Some(f64::from(f32::EPSILON)),
            Self::F16 => Some(f64::from(half::f16::EPSILON)),
            Self::BF16 => Some(f64::from(half::bf16::EPSILON)),
            _ => None,
        }
    }

    /// The number that ONNX gives this type.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// The type that the ONNX notation calls `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }

    /// Bytes that `count` elements fill, packed; `None` when that overflows or for strings.
    pub fn byte_len(self, count: usize) -> Option<usize> {
        match self.bits() {
            0 => None,
            bits => count.checked_mul(bits as usize).map(|total| total.div_ceil(8)).or_else(|| {
                // The product in bits may overflow where the one in bytes does not.
                count.checked_mul(bits as usize / 8).filter(|_| bits % 8 == 0)
            }),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The layout of a small float: one sign bit, then exponent, then mantissa.
struct Layout {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

/// Which codes of a small float are not finite numbers.
enum Special {
    /// None.
    Never,
    /// The largest exponent, as in IEEE 754.
    Ieee,
    /// All ones but the sign is NaN.
    AllOnes,
    /// The code of negative zero is NaN.
    NegativeZero,
}

impl DType {
    fn layout(self) -> Option<Layout> {
        let (exponent, mantissa, bias, special) = match self {
            Self::F8E4M3FN => (4, 3, 7, Special::AllOnes),
            Self::F8E4M3FNUZ => (4, 3, 8, Special::NegativeZero),
            Self::F8E5M2 => (5, 2, 15, Special::Ieee),
            Self::F8E5M2FNUZ => (5, 2, 16, Special::NegativeZero),
            Self::F4E2M1 => (2, 1, 1, Special::Never),
            Self::F6E2M3 => (2, 3, 1, Special::Never),
            Self::F6E3M2 => (3, 2, 3, Special::Never),
            _ => return None,
        };
        Some(Layout { exponent, mantissa, bias, special })
    }

    /// The number that a code of a 4-, 6- or 8-bit float stands for; every such number is exact in 32 bits.
    pub fn small_float(self, code: u8) -> Option<f32> {
        if self == Self::F8E8M0 {
            return Some(if code == 0xff { f32::NAN } else { (i32::from(code) - 127).exp2_f32() });
        }
        let Layout { exponent, mantissa, bias, special } = self.layout()?;
        let sign_bit = 1u32 << (exponent + mantissa);
        let code = u32::from(code);
        let negative = code & sign_bit != 0;
        let magnitude = code & (sign_bit - 1);
        let e = magnitude >> mantissa;
        let m = magnitude & ((1 << mantissa) - 1);
        let top = (1 << exponent) - 1;
        let value = match special {
            Special::Ieee if e == top => {
                if m == 0 {
                    f32::INFINITY
                } else {
                    f32::NAN
                }
            }
            Special::AllOnes if magnitude == sign_bit - 1 => f32::NAN,
            Special::NegativeZero if negative && magnitude == 0 => return Some(f32::NAN),
            _ => {
                let fraction = if e == 0 { m as f32 } else { (m + (1 << mantissa)) as f32 };
                let power = e.max(1) as i32 - bias - mantissa as i32;
                fraction * power.exp2_f32()
            }
        };
        Some(if negative { -value } else { value })
    }
}

trait Exp2 {
    /// Two to this power, exact also where the result is subnormal.
    fn exp2_f32(self) -> f32;
}

impl Exp2 for i32 {
    fn exp2_f32(self) -> f32 {
        match self {
            -126..=127 => f32::from_bits(((self + 127) as u32) << 23),
            -149..=-127 => f32::from_bits(1 << (self + 149)),
            ..=-150 => 0.0,
            128.. => f32::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_unique_and_found_again() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::from_code(0), None);
        assert_eq!(DType::from_code(29), None);
    }

    #[test]
    fn byte_lengths_round_up_and_do_not_overflow() {
        assert_eq!(DType::I4.byte_len(3), Some(2));
        assert_eq!(DType::U2.byte_len(5), Some(2));
        assert_eq!(DType::F6E2M3.byte_len(4), Some(3));
        assert_eq!(DType::F6E2M3.byte_len(5), Some(4));
        assert_eq!(DType::F32.byte_len(usize::MAX / 8), Some(usize::MAX / 8 * 4));
        assert_eq!(DType::F64.byte_len(usize::MAX / 4), None);
        assert_eq!(DType::String.byte_len(1), None);
    }

    #[test]
    fn small_floats_have_their_published_extremes() {
        let max = |dtype: DType, code| dtype.small_float(code).unwrap();
        assert_eq!(max(DType::F8E4M3FN, 0x7e), 448.0);
        assert!(max(DType::F8E4M3FN, 0x7f).is_nan());
        assert_eq!(max(DType::F8E4M3FN, 0x01), 2f32.powi(-9));
        assert_eq!(max(DType::F8E4M3FNUZ, 0x7f), 240.0);
        assert!(max(DType::F8E4M3FNUZ, 0x80).is_nan());
        assert_eq!(max(DType::F8E5M2, 0x7b), 57344.0);
        assert_eq!(max(DType::F8E5M2, 0xfc), f32::NEG_INFINITY);
        assert_eq!(max(DType::F8E5M2FNUZ, 0x7f), 57344.0);
        assert_eq!(max(DType::F4E2M1, 0x7), 6.0);
        assert_eq!(max(DType::F4E2M1, 0x9), -0.5);
        assert_eq!(max(DType::F6E2M3, 0x1f), 7.5);
        assert_eq!(max(DType::F6E3M2, 0x1f), 28.0);
        assert_eq!(max(DType::F8E8M0, 0), 2f32.powi(-127));
        assert_eq!(max(DType::F8E8M0, 0xfe), 2f32.powi(127));
        assert_eq!(DType::F32.small_float(0), None);
    }
}
