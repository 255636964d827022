//! Reshape.

use super::numbered::follow;
use super::parameter::{Given, Parameter};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::value::Value;
use onnxforge_ir::dim::{Dim, Requirement, Symbols};
use onnxforge_ir::tensor::element_count;

static SHAPE: Parameter = Parameter { name: "shape", input: 1, since: 5 };

/// The most axes that inference makes up for a tensor of which only the number of axes is known.
pub(super) const MAX_RANK: usize = 64;

pub fn reshape(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let Some(target) = SHAPE.evaluate(cx)? else { return invalid("the shape is missing") };
    let zero_is_size = cx.call.flag("allowzero")?;
    let data = cx.take(0)?;
    let shape = target_shape(data.shape(), &target, zero_is_size)?;
    one(data.reshaped(shape)?)
}

/// The shape that `target` means for a tensor of shape `from`.
fn target_shape(from: &[usize], target: &[i64], zero_is_size: bool) -> Result<Vec<usize>, OpError> {
    let impossible =
        || OpError::Invalid(format!("a tensor of shape {from:?} cannot be reshaped to {target:?}"));
    let size = |(axis, &entry): (usize, &i64)| match entry {
        0 if !zero_is_size => from.get(axis).copied().map(Some).ok_or_else(impossible),
        -1 => Ok(None),
        _ => usize::try_from(entry).map(Some).map_err(|_| impossible()),
    };
    let sizes = target.iter().enumerate().map(size).collect::<Result<Vec<_>, _>>()?;
    let known: Vec<usize> = sizes.iter().copied().flatten().collect();
    if sizes.len() > known.len() + 1 {
        return Err(impossible());
    }
    let (total, product) = match (element_count(from), element_count(&known)) {
        (Some(total), Some(product)) => (total, product),
        _ => return Err(impossible()),
    };
    let rest = total.checked_div(product).filter(|rest| rest * product == total);
    sizes.into_iter().map(|size| size.or(rest).ok_or_else(impossible)).collect()
}

/// An entry of the target shape, as far as it is known.
enum Entry {
    /// This size.
    Size(Dim),
    /// This size, or if it is 0, the size that the input has there.
    SizeOrCopy(Dim),
    /// What the other entries leave.
    Rest,
    /// Any of these.
    Unknown,
}

/// Facts about the result of Reshape.
///
/// A 0 in the target copies a dimension of the input (unless `allowzero`), so an entry `e` that may be 0 is not simply a
/// size. It is taken for one when it is provably positive, when the input's dimension is provably 0 wherever `e` is, or
/// when the product of all entries is the number of elements by algebra and all others are provably positive. In the last
/// case, a run in which the entry is 0 has no elements, the entries around it are positive, and so the dimension that is
/// copied must be 0, too: the size is right.
pub fn infer_reshape(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if follow(cx, &[0]) {
        return Ok(());
    }
    let Given::Known(target) = SHAPE.dims(cx)? else {
        if let Some(rank) = SHAPE.count(cx)?.filter(|rank| *rank <= MAX_RANK) {
            let shape = cx.fresh_shape(rank);
            cx.set_shape(0, shape);
        }
        return Ok(());
    };
    let zero_is_size = cx.call.flag("allowzero")?;
    let from = cx.shape(0);
    let entries = target.iter().enumerate().map(|(axis, entry)| {
        let copied = from.map(|from| from.get(axis));
        classify(entry, copied, zero_is_size, cx.symbols)
    });
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    let total = from.and_then(Dim::product);
    settle_copies(&mut entries, total.as_ref(), cx.symbols);
    let shape = complete(cx, entries, total)?;
    cx.set_shape(0, shape);
    Ok(())
}

/// What an entry of the target says. `copied` is the input's dimension at its place: `None` when the input's rank is
/// unknown, `Some(None)` when it has no such axis.
fn classify(
    entry: &Dim,
    copied: Option<Option<&Dim>>,
    zero_is_size: bool,
    symbols: &Symbols,
) -> Result<Entry, OpError> {
    Ok(match (entry.as_const(), copied) {
        (Some(0), Some(Some(dim))) if !zero_is_size => Entry::Size(dim.clone()),
        (Some(0), Some(None)) if !zero_is_size => {
            return invalid("a 0 in the shape copies an axis that is not there");
        }
        (Some(0), None) if !zero_is_size => Entry::Unknown,
        (Some(-1), _) => Entry::Rest,
        (Some(size), _) if size < 0 => return invalid(format!("the size {size} in a shape")),
        (Some(_), _) => Entry::Size(entry.clone()),
        (None, _) if entry.provably_positive(symbols) => Entry::Size(entry.clone()),
        (None, _) if entry.provably_negative(symbols) => Entry::Rest,
        (None, _) if !entry.provably_nonneg(symbols) => Entry::Unknown,
        (None, _) if zero_is_size => Entry::Size(entry.clone()),
        (None, Some(Some(dim))) if vanishes_with(dim, entry, symbols) => Entry::Size(entry.clone()),
        (None, Some(_)) => Entry::SizeOrCopy(entry.clone()),
        (None, None) => Entry::Unknown,
    })
}

/// Whether `dim` is provably 0 wherever `entry` is.
fn vanishes_with(dim: &Dim, entry: &Dim, symbols: &Symbols) -> bool {
    if dim.divide_exact(entry).is_some() {
        return true;
    }
    // A product of symbols with something that is never 0 is 0 only where one of the symbols is.
    let mut rest = entry.clone();
    for symbol in entry.symbols() {
        let factor = Dim::from(symbol);
        let Some(mut quotient) = rest.divide_exact(&factor) else { continue };
        while let Some(further) = quotient.divide_exact(&factor) {
            quotient = further;
        }
        rest = quotient;
        let zero = |other| (other == symbol).then_some(Dim::ZERO);
        if dim.substitute(&zero, symbols) != Some(Dim::ZERO) {
            return false;
        }
    }
    rest.provably_different(&Dim::ZERO, symbols)
}

/// Takes the entry that may be 0 for a size when the product of all is the number of elements; entries for unknown when it
/// is not, or when several may be 0.
fn settle_copies(entries: &mut [Entry], total: Option<&Dim>, symbols: &Symbols) {
    let size = |entry: &Entry| match entry {
        Entry::Size(dim) | Entry::SizeOrCopy(dim) => Some(dim.clone()),
        Entry::Rest | Entry::Unknown => None,
    };
    let sizes: Option<Vec<Dim>> = entries.iter().map(size).collect();
    let may_vanish = |dim: &&Dim| !dim.provably_positive(symbols);
    let alone = sizes.as_ref().is_some_and(|sizes| sizes.iter().filter(may_vanish).count() <= 1);
    let product = sizes.and_then(|sizes| Dim::product(&sizes));
    let accounts_for_all = alone && product.is_some() && product.as_ref() == total;
    for entry in entries {
        if let Entry::SizeOrCopy(dim) = entry {
            *entry = if accounts_for_all { Entry::Size(dim.clone()) } else { Entry::Unknown };
        }
    }
}

/// The shape, when one entry that is not known follows from the number of elements.
fn complete(cx: &mut Infer<'_>, entries: Vec<Entry>, total: Option<Dim>) -> Result<Vec<Dim>, OpError> {
    let sizes: Vec<Dim> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Size(dim) => Some(dim.clone()),
            _ => None,
        })
        .collect();
    let rests = entries.iter().filter(|entry| matches!(entry, Entry::Rest)).count();
    if rests > 1 {
        return invalid("a shape with -1 twice");
    }
    let numbers = |dims: &[Dim]| dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
    if let (Some(sizes), Some(total)) = (numbers(&sizes), total.as_ref().and_then(Dim::as_const)) {
        let product = sizes.iter().try_fold(1i64, |product, &size| product.checked_mul(size));
        let fits = match (entries.len() - sizes.len(), rests) {
            (0, _) => product == Some(total),
            (1, 1) => product.and_then(|product| total.checked_rem(product)) == Some(0),
            _ => true,
        };
        if !fits {
            return invalid(format!("{total} elements cannot have the sizes {sizes:?}"));
        }
    }
    if let (Some(total), Some(product)) = (&total, Dim::product(&sizes)) {
        match (entries.len() - sizes.len(), rests) {
            (0, _) => cx.symbols.require(Requirement::Equal(total.clone(), product)),
            (1, 1) => cx.symbols.require(Requirement::Multiple(total.clone(), product)),
            _ => {}
        }
    }
    // What -1 stands for fails when the other sizes are 0; any other entry has to be proved.
    let follows = entries.len() == sizes.len() + 1
        && (rests == 1 || Dim::product(&sizes).is_some_and(|product| product.provably_positive(cx.symbols)));
    let mut rest = total.filter(|_| follows).and_then(|total| quotient(&total, &sizes, cx.symbols));
    let dim = |entry: Entry| match entry {
        Entry::Size(dim) => dim,
        _ => rest.take().unwrap_or_else(|| cx.fresh()),
    };
    Ok(entries.into_iter().map(dim).collect())
}

/// `total` divided by the product of `parts`, which divides it and is not 0 in every run that succeeds.
fn quotient(total: &Dim, parts: &[Dim], symbols: &Symbols) -> Option<Dim> {
    let (mut rest, mut divisor) = (total.clone(), Dim::ONE);
    for part in parts {
        match rest.divide_exact(part) {
            Some(quotient) => rest = quotient,
            None => divisor = divisor.mul(part)?,
        }
    }
    if divisor == Dim::ONE { Some(rest) } else { rest.floor_div(&divisor, symbols) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!(target_shape(&[2, 3, 4], &[0, -1], false).unwrap(), [2, 12]);
        assert_eq!(target_shape(&[0, 3], &[3, 0], true).unwrap(), [3, 0]);
        assert_eq!(target_shape(&[5, 0], &[0, -1], false).unwrap(), [5, 0]);
        assert!(target_shape(&[1], &[], false).unwrap().is_empty());
        for (from, target) in [
            (&[0, 3][..], &[0, -1][..]),
            (&[6], &[-1, -1]),
            (&[6], &[4, -1]),
            (&[6], &[-2, 3]),
            (&[6], &[6, 0]),
            (&[6], &[i64::MAX, i64::MAX, -1]),
        ] {
            let shape = target_shape(from, target, false);
            let count = shape.as_ref().map(|shape| element_count(shape));
            assert!(count.is_err() || count != Ok(element_count(from)), "{from:?} {target:?} {shape:?}");
        }
    }

    #[test]
    fn entries_that_are_zero_only_with_the_dimension() {
        let mut symbols = Symbols::default();
        let dim = |name: &str, symbols: &mut Symbols| Dim::from(symbols.named(name));
        let (b, s) = (dim("b", &mut symbols), dim("s", &mut symbols));
        let bs = b.mul(&s).unwrap();
        let twelve_b = b.mul(&12.into()).unwrap();
        assert!(vanishes_with(&b, &b, &symbols));
        assert!(vanishes_with(&bs, &b, &symbols));
        assert!(vanishes_with(&b, &twelve_b, &symbols));
        assert!(vanishes_with(&b, &b.mul(&s.add(&Dim::ONE).unwrap()).unwrap(), &symbols));
        assert!(!vanishes_with(&b, &bs, &symbols));
        assert!(!vanishes_with(&b, &s, &symbols));
        assert!(!vanishes_with(&Dim::from(768), &s, &symbols));
    }

    #[test]
    fn quotients() {
        let mut symbols = Symbols::default();
        let (b, s) = (Dim::from(symbols.named("b")), Dim::from(symbols.named("s")));
        let total = b.mul(&s).unwrap().mul(&768.into()).unwrap();
        assert_eq!(quotient(&total, &[b.clone(), 12.into(), 64.into()], &symbols), Some(s.clone()));
        assert_eq!(quotient(&total, &[b.mul(&s).unwrap()], &symbols), Some(768.into()));
        let half = s.mul(&6.into()).unwrap();
        assert_eq!(quotient(&half, &[4.into(), 3.into()], &symbols), s.floor_div(&2.into(), &symbols));
    }
}
