//! Texts: joining, splitting, cleaning, matching and counting them.

mod ngrams;
#[cfg_attr(not(feature = "strings"), path = "strings/no_pattern.rs")]
mod pattern;

use std::collections::HashSet;
use std::ops::Range;

use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::{Eval, one};
use super::infer_call::Infer;
use super::kernel::shape::{broadcast, broadcast_strides, for_each_offset};
use super::{Array, Value};
use onnxforge_ir::dim::Dim;
use onnxforge_proto::blob::Blob;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("StringConcat", Category::Manipulation, crate::infer_call::broadcast, concat).elementwise(),
    OpDef::new("StringSplit", Category::Manipulation, infer_split, split),
    OpDef::new("StringNormalizer", Category::Manipulation, infer_normalizer, normalizer),
    OpDef::new("RegexFullMatch", Category::Logic, infer_match, pattern::full_match).elementwise(),
    OpDef::new("TfIdfVectorizer", Category::Conversion, ngrams::infer, ngrams::vectorizer),
];

/// The text that a byte string must be.
fn text(bytes: &Blob) -> Result<&str, OpError> {
    std::str::from_utf8(bytes).or_else(|_| invalid("a string that is not UTF-8"))
}

fn concat(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, y) = (cx.array(0)?, cx.array(1)?);
    let shape = broadcast(&[x.shape(), y.shape()])?;
    let count = cx.count(&shape)?;
    let strides = (broadcast_strides(x.shape(), &shape), broadcast_strides(y.shape(), &shape));
    let (x, y) = (x.slice::<Blob>()?, y.slice::<Blob>()?);
    let mut bytes = 0usize;
    for_each_offset(&shape, [&strides.0, &strides.1], |[i, j]| {
        bytes = bytes.saturating_add(x[i].len()).saturating_add(y[j].len());
    });
    cx.reserve::<u8>(bytes.saturating_add(count.saturating_mul(size_of::<Blob>())))?;
    let mut joined = Vec::with_capacity(count);
    for_each_offset(&shape, [&strides.0, &strides.1], |[i, j]| {
        joined.push(Blob::from([&x[i][..], &y[j][..]].concat()));
    });
    one(Array::strings(shape, joined)?)
}

fn infer_split(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(1, shape.to_vec());
        let mut parts = shape.to_vec();
        parts.push(cx.fresh());
        cx.set_shape(0, parts);
    }
    Ok(())
}

fn split(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let delimiter = cx.call.text_or("delimiter", "")?;
    // A negative limit is no limit.
    let most = cx.call.opt_int("maxsplit")?.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let bytes = x.slice::<Blob>()?.iter().fold(0usize, |sum, whole| sum.saturating_add(whole.len() + 1));
    cx.reserve::<Range<usize>>(bytes)?;
    let cut = |whole: &Blob| -> Result<Vec<Blob>, OpError> {
        let text = text(whole)?;
        let ranges = if delimiter.is_empty() { words(text, most) } else { between(text, &delimiter, most) };
        Ok(ranges.into_iter().map(|range| whole.slice(range).unwrap_or_default()).collect())
    };
    let parts = x.slice::<Blob>()?.iter().map(cut).collect::<Result<Vec<_>, _>>()?;
    let counts: Vec<i64> = parts.iter().map(|parts| parts.len() as i64).collect();
    let width = parts.iter().map(Vec::len).max().unwrap_or(0);
    let mut shape = x.shape().to_vec();
    shape.push(width);
    let mut out = cx.zeros::<Blob>(&shape)?;
    if width > 0 {
        for (row, parts) in out.chunks_exact_mut(width).zip(parts) {
            row.iter_mut().zip(parts).for_each(|(place, part)| *place = part);
        }
    }
    Ok(vec![Array::strings(shape, out)?.into(), Array::new(x.shape(), counts)?.into()])
}

/// Where the parts of a text between delimiters are. After `most` cuts the rest is one part.
fn between(text: &str, delimiter: &str, most: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, found) in text.match_indices(delimiter).take(most) {
        parts.push(start..at);
        start = at + found.len();
    }
    parts.push(start..text.len());
    parts
}

/// Where the words of a text, which whitespace separates, are. After `most` cuts the rest is one word.
fn words(text: &str, most: usize) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let end = text.trim_end().len();
    let skip = |from: usize| end - text[from..end].trim_start().len();
    let mut start = skip(0);
    while start < end {
        let rest = &text[start..end];
        let length = rest.find(char::is_whitespace).filter(|_| words.len() < most).unwrap_or(rest.len());
        words.push(start..start + length);
        start = skip(start + length);
    }
    words
}

fn infer_normalizer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let stops = cx.call.opt_byte_strings("stopwords")?.is_some_and(|words| !words.is_empty());
    match cx.shape(0) {
        Some(shape) if !stops => cx.set_shape(0, shape.to_vec()),
        Some([_]) => {
            let left = cx.fresh();
            cx.set_shape(0, vec![left]);
        }
        Some([_, _]) => {
            let left = cx.fresh();
            cx.set_shape(0, vec![Dim::ONE, left]);
        }
        Some(shape) => return invalid(format!("texts with {} axes", shape.len())),
        None => {}
    }
    Ok(())
}

fn normalizer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    if !matches!(x.shape(), [_] | [1, _]) || x.is_empty() {
        return invalid(format!("texts of shape {:?}, where [C] or [1, C] is needed", x.shape()));
    }
    let action = cx.call.text_or("case_change_action", "NONE")?;
    let change: fn(&str) -> String = match action.as_str() {
        "LOWER" => str::to_lowercase,
        "UPPER" => str::to_uppercase,
        "NONE" => str::to_owned,
        other => return invalid(format!("the case change {other}")),
    };
    let compared: fn(&str) -> String = match cx.call.flag("is_case_sensitive")? {
        true => str::to_owned,
        false => str::to_lowercase,
    };
    let stops = match cx.call.attr("stopwords") {
        Some(_) => cx.call.texts("stopwords")?,
        None => Vec::new(),
    };
    let stops: HashSet<String> = stops.iter().map(|word| compared(word)).collect();
    let bytes = x.slice::<Blob>()?.iter().fold(0usize, |sum, word| sum.saturating_add(word.len()));
    cx.reserve::<u8>(bytes.saturating_mul(3).saturating_add(x.len().saturating_mul(size_of::<Blob>())))?;
    let mut kept = Vec::new();
    for word in x.slice::<Blob>()? {
        let word = text(word)?;
        if stops.is_empty() || !stops.contains(&compared(word)) {
            kept.push(Blob::from(change(word).into_bytes()));
        }
    }
    if kept.is_empty() {
        kept.push(Blob::default());
    }
    let mut shape = vec![1; x.rank() - 1];
    shape.push(kept.len());
    one(Array::strings(shape, kept)?)
}

fn infer_match(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_the_rest_is_kept_whole() {
        let words = |text: &'static str, most| -> Vec<&str> {
            super::words(text, most).into_iter().map(|range| &text[range]).collect()
        };
        assert_eq!(words("  a \t b  ç ", usize::MAX), ["a", "b", "ç"]);
        assert_eq!(words(" a b  c ", 1), ["a", "b  c"]);
        assert_eq!(words(" a b", 0), ["a b"]);
        assert!(words("  ", 9).is_empty());
        assert_eq!(between("a,,b", ",", usize::MAX), [0..1, 2..2, 3..4]);
        assert_eq!(between("a,,b", ",", 1), [0..1, 2..4]);
        assert_eq!(between("", ",", 9).len(), 1);
    }
}
