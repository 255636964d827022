//! How values of options are written.

use std::time::Duration;

use onnxforge::Opset;
use onnxforge::upgrade::{NEWEST, OLDEST};

/// A time in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "write a number of seconds from 0 on".to_owned())
}

/// Bytes, given in GB.
pub fn gigabytes(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(gigabytes) if (0.0..=1e9).contains(&gigabytes) => Ok((gigabytes * 1e9) as u64),
        _ => Err("write a number of GB from 0 on".to_owned()),
    }
}

/// `NAME=N`.
pub fn named_size(text: &str) -> Result<(String, usize), String> {
    let (name, text) = text.rsplit_once('=').ok_or("write NAME=N")?;
    Ok((name.to_owned(), size(text)?))
}

/// `NAME=N,N,…`, or `NAME=NxN`.
pub fn named_shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let (name, sizes) = text.rsplit_once('=').ok_or("write NAME=N,N,…")?;
    let shape = sizes.split([',', 'x']).map(size).collect::<Result<_, _>>()?;
    Ok((name.to_owned(), shape))
}

/// A version of the standard operators, as users say it.
pub fn version(text: &str) -> Result<Opset, String> {
    match (text, text.parse()) {
        ("latest", _) => Ok(Opset::Latest),
        (_, Ok(version)) if (OLDEST..=NEWEST).contains(&version) => Ok(Opset::Version(version)),
        _ => Err(format!("a number from {OLDEST} to {NEWEST} is needed, or `latest`")),
    }
}

/// The same, where the version may also stay.
pub fn version_or_keep(text: &str) -> Result<Opset, String> {
    match text {
        "keep" => Ok(Opset::Keep),
        _ => version(text).map_err(|error| format!("{error} or `keep`")),
    }
}

pub fn size(text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| format!("{text:?} is not a size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(named_shape("a=2,3"), Ok(("a".to_owned(), vec![2, 3])));
        assert_eq!(named_shape("a=2x3"), Ok(("a".to_owned(), vec![2, 3])));
        assert_eq!(named_shape("a=b=2"), Ok(("a=b".to_owned(), vec![2])));
        for text in ["a=2,x", "a=", "a=2,", "a", "a=-1", "a=2,,3"] {
            assert!(named_shape(text).is_err(), "{text}");
        }
        for text in ["-1", "nan", "inf", "", "1e30", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for text in ["-1", "nan", "inf", "-0.5", ""] {
            assert!(gigabytes(text).is_err(), "{text}");
        }
        assert_eq!(gigabytes("0.5"), Ok(500_000_000));
    }
}
