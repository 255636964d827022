//! Numbers rounded to floats of 4, 6 and 8 bits.

use crate::array::Code;
use crate::error::{OpError, invalid};
use onnxforge_ir::DType;

/// How numbers between two powers of two become one of them (`float8e8m0`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PowerRounding {
    Up,
    Down,
    /// Ties go up.
    Nearest,
}

impl PowerRounding {
    /// The mode that the attribute `round_mode` names.
    pub fn named(name: &str) -> Result<Self, OpError> {
        match name {
            "up" => Ok(Self::Up),
            "down" => Ok(Self::Down),
            "nearest" => Ok(Self::Nearest),
            other => invalid(format!("the rounding mode {other}")),
        }
    }
}

/// Rounds numbers to codes of one small float type.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    format: Format,
    saturate: bool,
    rounding: PowerRounding,
}

/// A small float type, as far as rounding needs it.
#[derive(Clone, Copy, Debug)]
enum Format {
    /// Powers of two without a sign; the last code is not a number.
    Powers,
    Signed {
        mantissa: u32,
        bias: i32,
        sign: u8,
        /// The code of the largest number.
        largest: u8,
        /// The code of what is too large for it; the largest number where nothing else can be said.
        overflow: u8,
        /// The code of what is not a number.
        nan: u8,
        /// There is only one zero; the code of the other is not a number.
        one_zero: bool,
    },
}

impl Encoder {
    /// The encoder for `dtype`: what is too large becomes the largest number when `saturate`, else infinite or not a
    /// number, as far as the type has either. `None` for other types.
    pub fn new(dtype: DType, saturate: bool, rounding: PowerRounding) -> Option<Self> {
        let signed = |mantissa, bias, sign, largest, overflow, nan, one_zero| Format::Signed {
            mantissa,
            bias,
            sign,
            largest,
            overflow,
            nan,
            one_zero,
        };
        let format = match dtype {
            DType::F8E4M3FN => signed(3, 7, 0x80, 0x7e, 0x7f, 0x7f, false),
            DType::F8E4M3FNUZ => signed(3, 8, 0x80, 0x7f, 0x80, 0x80, true),
            DType::F8E5M2 => signed(2, 15, 0x80, 0x7b, 0x7c, 0x7e, false),
            DType::F8E5M2FNUZ => signed(2, 16, 0x80, 0x7f, 0x80, 0x80, true),
            // Types without anything special: what is not a number becomes the other zero.
            DType::F4E2M1 => signed(1, 1, 0x8, 0x7, 0x7, 0x8, false),
            DType::F6E2M3 => signed(3, 1, 0x20, 0x1f, 0x1f, 0x20, false),
            DType::F6E3M2 => signed(2, 3, 0x20, 0x1f, 0x1f, 0x20, false),
            DType::F8E8M0 => Format::Powers,
            _ => return None,
        };
        Some(Self { format, saturate, rounding })
    }

    /// The code of the nearest number, of two the one with the even code.
    pub fn encode(self, value: f64) -> Code {
        let Format::Signed { mantissa, bias, sign, largest, overflow, nan, one_zero } = self.format else {
            return self.encode_power(value);
        };
        let signed = |code: u8| {
            let keeps = value.is_sign_negative() && !(one_zero && (code == 0 || code == nan));
            // Where the code of a NaN is that of negative zero, its negation is positive zero.
            Code(if keeps { code ^ sign } else { code })
        };
        if value.is_nan() {
            return signed(nan);
        }
        // The numbers around the value are 2^(exponent - mantissa) apart; below the normal range that stays the same.
        let exponent = binary_exponent(value).max(1 - bias);
        let steps = (value.abs() * 2f64.powi(mantissa as i32 - exponent)).round_ties_even();
        let code = f64::from((exponent + bias - 1) << mantissa) + steps;
        if code <= f64::from(largest) {
            signed(code as u8)
        } else if self.saturate {
            signed(largest)
        } else {
            signed(overflow)
        }
    }

    /// Code `c` is `2^(c - 127)`. What lies beyond the codes is the nearest of them when saturating, else not a number;
    /// a sign is passed over.
    fn encode_power(self, value: f64) -> Code {
        const NAN: u8 = 0xff;
        if value.is_nan() {
            return Code(NAN);
        }
        let size = value.abs();
        if size < 2f64.powi(-127) {
            return Code(if self.saturate { 0 } else { NAN });
        }
        let below = binary_exponent(size);
        let fraction = size * 2f64.powi(-below);
        let up = match self.rounding {
            PowerRounding::Up => fraction > 1.0,
            PowerRounding::Down => false,
            PowerRounding::Nearest => fraction >= 1.5,
        };
        let last = if self.saturate { NAN - 1 } else { NAN };
        let code = u8::try_from(below + 127 + i32::from(up)).unwrap_or(last);
        Code(code.min(last))
    }
}

/// The `e` with `2^e ≤ |value| < 2^(e + 1)`; 0 and infinity lie at the ends.
fn binary_exponent(value: f64) -> i32 {
    let biased = (value.to_bits() >> 52 & 0x7ff) as i32;
    // Subnormal numbers are far below every small float.
    biased.max(1) - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: [DType; 8] = [
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E5M2,
        DType::F8E5M2FNUZ,
        DType::F4E2M1,
        DType::F6E2M3,
        DType::F6E3M2,
        DType::F8E8M0,
    ];

    fn encoder(dtype: DType, saturate: bool) -> Encoder {
        Encoder::new(dtype, saturate, PowerRounding::Nearest).unwrap()
    }

    #[test]
    fn every_number_of_a_type_is_its_own_code() {
        for dtype in SMALL {
            for code in 0..1u32 << dtype.bits() {
                let value = f64::from(dtype.small_float(code as u8).unwrap());
                for saturate in [true, false] {
                    let found = encoder(dtype, saturate).encode(value);
                    if value.is_finite() {
                        assert_eq!(found, Code(code as u8), "{dtype} {value}");
                    } else if value.is_nan() {
                        assert!(dtype.small_float(found.0).unwrap().is_nan(), "{dtype} {value}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_between_two_go_to_the_nearest_and_ties_to_the_even_code() {
        for dtype in SMALL.into_iter().filter(|&dtype| dtype != DType::F8E8M0) {
            let codes = 1u32 << (dtype.bits() - 1);
            for low in 0..codes - 1 {
                let [a, b] = [low, low + 1].map(|code| f64::from(dtype.small_float(code as u8).unwrap()));
                if !b.is_finite() || !a.is_finite() {
                    continue;
                }
                let encode = |value| u32::from(encoder(dtype, true).encode(value).0);
                assert_eq!(encode(a + (b - a) * 0.499), low, "{dtype}");
                assert_eq!(encode(a + (b - a) * 0.501), low + 1, "{dtype}");
                assert_eq!(encode((a + b) / 2.0), low + low % 2, "{dtype}");
            }
        }
    }

    #[test]
    fn what_is_too_large_saturates_or_not() {
        let codes = |dtype, saturate| {
            [f64::INFINITY, -1e300, 464.0, 465.0, 61440.0].map(|x| encoder(dtype, saturate).encode(x).0)
        };
        assert_eq!(codes(DType::F8E4M3FN, true), [0x7e, 0xfe, 0x7e, 0x7e, 0x7e]);
        assert_eq!(codes(DType::F8E4M3FN, false), [0x7f, 0xff, 0x7e, 0x7f, 0x7f]);
        assert_eq!(codes(DType::F8E4M3FNUZ, false), [0x80; 5]);
        assert_eq!(codes(DType::F8E5M2, true), [0x7b, 0xfb, 0x5f, 0x5f, 0x7b]);
        assert_eq!(codes(DType::F8E5M2, false), [0x7c, 0xfc, 0x5f, 0x5f, 0x7c]);
        assert_eq!(codes(DType::F8E5M2FNUZ, true), [0x7f, 0xff, 0x63, 0x63, 0x7f]);
        assert_eq!(codes(DType::F4E2M1, false), [0x7, 0xf, 0x7, 0x7, 0x7]);
        assert_eq!(encoder(DType::F8E4M3FNUZ, true).encode(-1e-9), Code(0));
        assert_eq!(encoder(DType::F8E4M3FN, true).encode(-1e-9), Code(0x80));
        assert_eq!(encoder(DType::F8E4M3FN, true).encode(-f64::NAN.abs()), Code(0xff));
    }

    #[test]
    fn powers_of_two() {
        let code =
            |value, saturate, mode| Encoder::new(DType::F8E8M0, saturate, mode).unwrap().encode(value).0;
        let (up, down, nearest) = (PowerRounding::Up, PowerRounding::Down, PowerRounding::Nearest);
        assert_eq!([up, down, nearest].map(|mode| code(1.1, true, mode)), [128, 127, 127]);
        assert_eq!([up, down, nearest].map(|mode| code(1.5, true, mode)), [128, 127, 128]);
        assert_eq!([up, down].map(|mode| code(0.0, true, mode)), [0, 0]);
        assert_eq!((code(0.0, false, nearest), code(f64::INFINITY, false, nearest)), (0xff, 0xff));
        assert_eq!((code(f64::INFINITY, true, up), code(f64::NAN, true, up)), (0xfe, 0xff));
        assert_eq!((code(3.4e38, true, up), code(3.4e38, false, up)), (0xfe, 0xff));
    }
}
