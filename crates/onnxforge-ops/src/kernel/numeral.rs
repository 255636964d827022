//! Numbers as text and back.

use half::{bf16, f16};

use super::number::Number;
use crate::array::{Array, Buffer, unsupported_type};
use crate::error::{OpError, invalid};
use onnxforge_ir::DType;
use onnxforge_ir::dtype::Kind;
use onnxforge_proto::blob::Blob;

/// Each number of an array in decimal, floats as NumPy writes them: with the fewest digits that tell them apart.
pub fn format(array: &Array) -> Result<Vec<Blob>, OpError> {
    fn each<T: Copy>(data: &[T], text: impl Fn(T) -> String) -> Vec<Blob> {
        data.iter().map(|&x| Blob::from(text(x).into_bytes())).collect()
    }
    Ok(match array.buffer() {
        Buffer::F32(data) => each(data, |x| plain(x.into(), &format!("{x:e}"), 8)),
        Buffer::F64(data) => each(data, |x| plain(x, &format!("{x:e}"), 16)),
        Buffer::F16(data) => each(data, |x| plain(x.into(), &shortest(x.into(), f16::from_f64), 8)),
        Buffer::BF16(data) => each(data, |x| plain(x.into(), &shortest(x.into(), bf16::from_f64), 8)),
        Buffer::U64(data) => each(data, |x| x.to_string()),
        Buffer::I8(_) | Buffer::I16(_) | Buffer::I32(_) | Buffer::I64(_) => {
            each(&array.to_i64s()?, |x| x.to_string())
        }
        Buffer::U8(_) | Buffer::U16(_) | Buffer::U32(_) => each(&array.to_i64s()?, |x| x.to_string()),
        _ => return Err(unsupported_type(array)),
    })
}

/// In scientific notation, with the fewest digits from which `round` finds the number again.
fn shortest<T: Number>(value: f64, round: fn(f64) -> T) -> String {
    let text = |digits: usize| format!("{value:.digits$e}");
    let same = |text: &String| text.parse::<f64>().is_ok_and(|parsed| round(parsed) == round(value));
    (0..8).map(text).find(same).unwrap_or_else(|| format!("{value:e}"))
}

/// A float given in scientific notation, in plain notation unless it has more than `most` digits before the point or
/// three zeros after it.
fn plain(value: f64, scientific: &str, most: i32) -> String {
    if !value.is_finite() {
        return scientific.to_lowercase();
    }
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..most).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let digits: String = digits.chars().filter(|&c| c != '.').collect();
    match usize::try_from(exponent) {
        Ok(exponent) => {
            let whole = digits.len().min(exponent + 1);
            let (whole, fraction) = digits.split_at(whole);
            let fraction = if fraction.is_empty() { "0" } else { fraction };
            format!("{sign}{whole:0<width$}.{fraction}", width = exponent + 1)
        }
        Err(_) => {
            format!("{sign}0.{digits:0>width$}", width = digits.len() - 1 + exponent.unsigned_abs() as usize)
        }
    }
}

/// The numbers that texts stand for, as numbers from which a conversion to `to` goes on without loss. Integers may be
/// written with a fraction, which is left out.
pub fn parse(texts: &[Blob], shape: &[usize], to: DType) -> Result<Array, OpError> {
    let float = |text: &str| text.parse::<f64>().ok();
    match to.kind() {
        Kind::Float if to == DType::F32 => Array::new(shape, each::<f32>(texts, |text| text.parse().ok())?),
        Kind::Float => Array::new(shape, each::<f64>(texts, float)?),
        _ if to == DType::U64 => {
            let whole = |text: &str| float(text).filter(|x| (0.0..1.8e19).contains(x)).map(|x| x as u64);
            Array::new(shape, each::<u64>(texts, |text| text.parse().ok().or_else(|| whole(text)))?)
        }
        _ => {
            let whole = |text: &str| float(text).filter(|x| x.abs() < 9e18).map(|x| x as i64);
            Array::new(shape, each::<i64>(texts, |text| text.parse().ok().or_else(|| whole(text)))?)
        }
    }
}

fn each<T>(texts: &[Blob], number: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, OpError> {
    let one = |bytes: &Blob| {
        let text = std::str::from_utf8(bytes).unwrap_or_default().trim();
        match number(text) {
            Some(number) => Ok(number),
            None => invalid(format!("the text {text:?} is not a number")),
        }
    };
    texts.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(array: &Array) -> Vec<String> {
        format(array).unwrap().iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
    }

    #[test]
    fn floats_look_as_in_numpy() {
        let x = [
            0.1,
            1.0 / 3.0,
            1e16,
            123456789.125,
            1e-5,
            1e-4,
            100.0,
            -0.0,
            1e300,
            9e15,
            f64::NAN,
            -f64::INFINITY,
        ];
        let expected = [
            "0.1",
            "0.3333333333333333",
            "1e+16",
            "123456789.125",
            "1e-05",
            "0.0001",
            "100.0",
            "-0.0",
            "1e+300",
            "9000000000000000.0",
            "nan",
            "-inf",
        ];
        assert_eq!(texts(&Array::vector(x.to_vec())), expected);
        assert_eq!(
            texts(&Array::vector(vec![0.1f32, -314.15926, 1.2345679e8, 16777216.0])),
            ["0.1", "-314.15927", "1.2345679e+08", "16777216.0"]
        );
        assert_eq!(texts(&Array::vector(vec![f16::from_f32(0.1), f16::MAX])), ["0.1", "65500.0"]);
        assert_eq!(texts(&Array::vector(vec![u64::MAX])), ["18446744073709551615"]);
    }

    #[test]
    fn texts_are_read_as_the_standard_says() {
        let read = |texts: &[&str], to| {
            let texts: Vec<Blob> = texts.iter().map(|&text| text.into()).collect();
            parse(&texts, &[texts.len()], to)
        };
        let x = read(&["3.25", "1e-5", "1E8", "+INF", "inf", "-Inf", " 7 "], DType::F32).unwrap();
        let inf = f32::INFINITY;
        assert_eq!(x.slice::<f32>().unwrap(), [3.25, 1e-5, 1e8, inf, inf, -inf, 7.0]);
        assert!(read(&["NaN"], DType::F64).unwrap().slice::<f64>().unwrap()[0].is_nan());
        assert_eq!(read(&["100.5", "-3"], DType::I32).unwrap().slice::<i64>().unwrap(), [100, -3]);
        assert!(read(&["Hello World!"], DType::F32).is_err());
        assert!(read(&["1e300"], DType::I64).is_err());
    }
}
