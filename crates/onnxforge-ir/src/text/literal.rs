//! How names, strings and numbers are written.

use std::fmt::{self, Display, Formatter, Write as _};

use half::{bf16, f16};

use super::lex::{is_identifier, is_special_float};
use crate::dtype::{DType, Kind};

/// The words that start a type other than a tensor's.
pub(super) const TYPE_WORDS: [&str; 5] = ["seq", "map", "optional", "sparse_tensor", "opaque"];

/// Whether `word` starts a type.
pub(super) fn is_type_word(word: &str) -> bool {
    TYPE_WORDS.contains(&word) || DType::from_name(word).is_some()
}

/// A name: bare where it can only be read as a name, else quoted.
pub(super) struct Name<'a>(pub &'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_identifier(self.0) && !is_type_word(self.0) && !is_special_float(self.0) {
            f.write_str(self.0)
        } else {
            Quoted(self.0).fmt(f)
        }
    }
}

/// A name where nothing else can stand: bare if it is an identifier, else quoted.
pub(super) struct Word<'a>(pub &'a str);

impl Display for Word<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_identifier(self.0) { f.write_str(self.0) } else { Quoted(self.0).fmt(f) }
    }
}

/// Names with dots between them: bare where every one is an identifier, else quoted as a whole.
pub(super) struct Qualified<'a>(pub &'a str);

impl Display for Qualified<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.split('.').all(is_identifier) { f.write_str(self.0) } else { Quoted(self.0).fmt(f) }
    }
}

/// A string. Control characters, which a terminal might obey, turn it into a byte string.
pub(super) struct Quoted<'a>(pub &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        quote(self.0, &['\n', '\t'], f)
    }
}

/// A string that stays within its line.
pub(super) struct InLine<'a>(pub &'a str);

impl Display for InLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        quote(self.0, &['\t'], f)
    }
}

fn quote(text: &str, allowed: &[char], f: &mut Formatter<'_>) -> fmt::Result {
    if text.contains(|c: char| c.is_control() && !allowed.contains(&c)) {
        return escape(text.as_bytes(), f);
    }
    f.write_char('"')?;
    for part in text.split_inclusive(['"', '\\']) {
        match part.strip_suffix(['"', '\\']) {
            Some(before) => write!(f, "{before}\\{}", part.get(before.len()..).unwrap_or_default())?,
            None => f.write_str(part)?,
        }
    }
    f.write_char('"')
}

fn escape(bytes: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str("b\"")?;
    for &byte in bytes {
        match byte {
            b'\'' => f.write_char('\'')?,
            _ => write!(f, "{}", std::ascii::escape_default(byte))?,
        }
    }
    f.write_char('"')
}

/// Bytes that are meant as text: a string if they are valid UTF-8, else a byte string.
pub(super) struct Bytes<'a>(pub &'a [u8]);

impl Display for Bytes<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) => Quoted(text).fmt(f),
            Err(_) => escape(self.0, f),
        }
    }
}

/// A float: the shortest decimal that reads back as the same bits, or the bits of a NaN that no decimal
/// stands for.
pub(super) struct Float<T>(pub T);

macro_rules! float_literal {
    ($($float:ty),*) => {$(
        impl Float<$float> {
            /// What `nan` means: the quiet NaN without a sign or payload.
            fn nan() -> $float {
                <$float>::from_bits(<$float>::INFINITY.to_bits() | 1 << (<$float>::MANTISSA_DIGITS - 2))
            }

            /// Whether it is written as bits.
            pub(super) fn is_bits(&self) -> bool {
                self.0.is_nan() && self.0.abs().to_bits() != Self::nan().to_bits()
            }

            /// The float that a number or a word of the notation means; `None` when it is finite but too
            /// large.
            pub(super) fn read(literal: &str) -> Option<$float> {
                let magnitude = literal.strip_prefix('-').unwrap_or(literal);
                let value = if magnitude.eq_ignore_ascii_case("nan") {
                    Self::nan()
                } else {
                    let value = magnitude.parse::<$float>().ok()?;
                    Some(value).filter(|value| value.is_finite() || is_special_float(magnitude))?
                };
                Some(if magnitude.len() < literal.len() { -value } else { value })
            }
        }

        impl Display for Float<$float> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                if self.is_bits() {
                    write!(f, "{:#x}", self.0.to_bits())
                } else if self.0.is_nan() {
                    f.write_str(if self.0.is_sign_negative() { "-nan" } else { "nan" })
                } else {
                    write!(f, "{:?}", self.0)
                }
            }
        }
    )*};
}
float_literal!(f32, f64);

/// The bits of a 16- or 8-bit float type that lie nearest to `value`; `None` where nothing does or the type
/// is another.
pub(super) fn small_float_bits(dtype: DType, value: f64) -> Option<u16> {
    let fits = |infinite: bool| infinite == value.is_infinite();
    match dtype {
        DType::F16 => Some(f16::from_f64(value)).filter(|v| fits(v.is_infinite())).map(f16::to_bits),
        DType::BF16 => Some(bf16::from_f64(value)).filter(|v| fits(v.is_infinite())).map(bf16::to_bits),
        _ if dtype.kind() == Kind::Float && dtype.bits() == 8 => nearest_code(dtype, value).map(u16::from),
        _ => None,
    }
}

/// The code of an 8-bit float nearest to `value`; of two, the one with the same sign, then the even one.
fn nearest_code(dtype: DType, value: f64) -> Option<u8> {
    let same_class =
        |other: f64| other.is_nan() == value.is_nan() && other.is_infinite() == value.is_infinite();
    let same_sign = |other: f64| other.is_sign_negative() == value.is_sign_negative();
    let distance = |other: f64| if value.is_finite() { (other - value).abs() } else { 0.0 };
    let codes = || {
        (0..=u8::MAX)
            .filter_map(|code| Some((code, f64::from(dtype.small_float(code)?))))
            .filter(|&(_, other)| same_class(other) && (same_sign(other) || other == 0.0))
    };
    // Beyond the largest number there is none to round to.
    let in_range = !value.is_finite() || codes().any(|(_, other)| other.abs() >= value.abs());
    codes()
        .filter(|_| in_range)
        .min_by(|&(a, x), &(b, y)| {
            let order = distance(x).total_cmp(&distance(y));
            order.then(same_sign(y).cmp(&same_sign(x))).then((a & 1).cmp(&(b & 1)))
        })
        .map(|(code, _)| code)
}

/// The shortest decimal that [`small_float_bits`] turns back into `bits`, if there is one.
pub(super) fn small_float_decimal(dtype: DType, bits: u16) -> Option<String> {
    let value: f64 = match dtype {
        DType::F16 => f16::from_bits(bits).into(),
        DType::BF16 => bf16::from_bits(bits).into(),
        _ => dtype.small_float(u8::try_from(bits).ok()?)?.into(),
    };
    let reads_back = |value: f64| small_float_bits(dtype, value) == Some(bits);
    if !value.is_finite() {
        let canonical = if value.is_nan() { Float::<f64>::nan().copysign(value) } else { value };
        return reads_back(canonical).then(|| Float(canonical).to_string());
    }
    (0..9)
        .filter_map(|digits| format!("{value:.digits$e}").parse().ok())
        .find(|&rounded| reads_back(rounded))
        .map(|rounded| Float(rounded).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_back_as_the_same_bits() {
        for bits in
            (0..=u32::MAX).step_by(65_521).chain([0x7f80_0000, 0xffc0_0000, 0x7fc0_0000, 0x8000_0000, 1])
        {
            let value = f32::from_bits(bits);
            let text = Float(value).to_string();
            match text.strip_prefix("0x") {
                Some(hex) => assert_eq!(u32::from_str_radix(hex, 16).unwrap(), bits),
                None => assert_eq!(Float::<f32>::read(&text).unwrap().to_bits(), bits, "{text}"),
            }
        }
        assert_eq!(Float(1.0f32).to_string(), "1.0");
        assert_eq!(Float(1e30f64).to_string(), "1e30");
        assert_eq!(Float(f64::NEG_INFINITY).to_string(), "-inf");
        assert_eq!(Float::<f32>::read("1e39"), None);
        assert_eq!(Float::<f32>::read("-Infinity"), Some(f32::NEG_INFINITY));
    }

    #[test]
    fn small_floats_are_short_and_read_back() {
        for dtype in [DType::F16, DType::BF16] {
            for bits in 0..=u16::MAX {
                if let Some(text) = small_float_decimal(dtype, bits) {
                    assert_eq!(
                        small_float_bits(dtype, Float::<f64>::read(&text).unwrap()),
                        Some(bits),
                        "{text}"
                    );
                }
            }
        }
        for &dtype in DType::ALL.iter().filter(|d| d.kind() == Kind::Float && d.bits() == 8) {
            let written = (0..=255).filter_map(|bits| small_float_decimal(dtype, bits)).count();
            assert!(written >= 250, "{dtype}: {written}");
        }
        assert_eq!(small_float_decimal(DType::F16, 0x2e66).as_deref(), Some("0.1"));
        assert_eq!(small_float_decimal(DType::F16, 0x8000).as_deref(), Some("-0.0"));
        assert_eq!(small_float_decimal(DType::F8E4M3FN, 0x7e).as_deref(), Some("448.0"));
        assert_eq!(small_float_bits(DType::F16, 65_519.0), Some(0x7bff));
        assert_eq!(small_float_bits(DType::F16, 1e6), None);
        assert_eq!(small_float_bits(DType::F8E4M3FN, 1e6), None);
        assert_eq!(small_float_bits(DType::F8E4M3FN, f64::INFINITY), None);
        assert_eq!(small_float_bits(DType::F8E8M0, -1.0), None);
    }

    #[test]
    fn names_are_quoted_where_they_could_be_something_else() {
        for (name, written) in [
            ("x_1", "x_1"),
            ("1x", "\"1x\""),
            ("", "\"\""),
            ("a\"b\\", "\"a\\\"b\\\\\""),
            ("float", "\"float\""),
            ("NaN", "\"NaN\""),
            ("a\u{1b}", "b\"a\\x1b\""),
            ("é\n", "\"é\n\""),
        ] {
            assert_eq!(Name(name).to_string(), written);
        }
        assert_eq!(InLine("é\n").to_string(), "b\"\\xc3\\xa9\\n\"");
    }
}
