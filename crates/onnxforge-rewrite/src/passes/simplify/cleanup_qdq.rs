//! cleanup_qdq: quantizing what was just dequantized in the same way gives back what it was.
//!
//! **Matches** QuantizeLinear of DequantizeLinear with the same constant scales, the same zero points and the same axis, where
//! the type is the same again: integers of at most 16 bits, and scales of 32 bits; integers of at most 8 bits, and scales of float16. Of two such pairs
//! in a row one is left.
//! **Accuracy** `BitExact`.
//! **Proof** Let d = q − zero, |d| ≤ 65535. Both d · scale and the quotient by scale are rounded by at most 2⁻²⁴ of themselves, also
//! where the runtime multiplies by the inverse: the result is off by less than 65535 · 3 · 2⁻²⁴ < 0.02 from d and is rounded to
//! d, so that d + zero = q comes back and nothing saturates. In float16 roundings are up to 2⁻¹¹, and |d| ≤ 255: less than 0.38. Scales are such that nothing overflows or loses places.
//! **Never** floats of 8 or 4 bits; integers of 16 bits with scales of 16, and scales of bfloat16, whose rounding may exceed a half; scales that are computed, zero, negative,
//! tiny or huge. A dequantized weight stays as it is.

use crate::passes::pass;
use crate::{At, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, DType, NodeId, ValueId};

pass!(cleanup_qdq { stage: Canonicalize, needs: ["QuantizeLinear", "DequantizeLinear"], rules: [BACK] });

const EXACT: [DType; 8] =
    [DType::I8, DType::U8, DType::I16, DType::U16, DType::I4, DType::U4, DType::I2, DType::U2];
/// Between these, products with numbers up to 2¹⁶ and inverses are neither infinite nor short of places.
const SCALES: std::ops::RangeInclusive<f64> = 1e-32..=1e32;
/// The same in float16, for numbers up to 2⁸.
const SMALL_SCALES: std::ops::RangeInclusive<f64> = 1e-4..=250.0;

static BACK: At = At {
    name: "back",
    accuracy: Accuracy::BitExact,
    ops: &["QuantizeLinear"],
    apply: |cx, id| {
        let x = cx.input(id, 0)?;
        let from = cx.producer(x, "DequantizeLinear", id).ok_or(Skip::NOT_HERE)?;
        let (q, scale) = (cx.input(from, 0)?, cx.input(id, 1)?);
        let (dtype, integers) = (cx.dtype(x)?, cx.dtype(q)?);
        let scales = match dtype {
            DType::F32 => SCALES,
            DType::F16 if integers.bits() <= 8 => SMALL_SCALES,
            _ => return Err(Skip::at(Reason::Type, q)),
        };
        if cx.dtype(scale)? != dtype || !EXACT.contains(&integers) {
            return Err(Skip::at(Reason::Type, q));
        }
        let precision = cx.call(id)?.int_or("precision", 0)?;
        if ![0, i64::from(DType::F32.code()), i64::from(dtype.code())].contains(&precision) {
            return Err(Reason::Attribute("precision").into());
        }
        let same = same_elements(cx, cx.input(from, 1)?, scale)? && same_zero(cx, from, id)?;
        if !same || !same_axis(cx, from, id, scale)? {
            return Err(Skip::because("the pair quantizes in another way"));
        }
        if !cx.floats(scale)?.iter().all(|scale| scales.contains(scale)) {
            return Err(Skip::at(Reason::Rule("a scale is too small, too large or no number"), scale));
        }
        cx.forward(id, q)
    },
};

/// Whether both hold the same elements in the same shape.
fn same_elements(cx: &Cx<'_>, a: ValueId, b: ValueId) -> Result<bool, Skip> {
    Ok(a == b || cx.constant(a)?.same_bits(cx.constant(b)?))
}

/// A zero point that is left out is zero.
fn same_zero(cx: &Cx<'_>, from: NodeId, to: NodeId) -> Result<bool, Skip> {
    let is_zero = |value: ValueId| cx.ints(value).map(|zeros| zeros.iter().all(|&zero| zero == 0));
    match (cx.node(from).input(2), cx.node(to).input(2)) {
        (Some(a), Some(b)) => same_elements(cx, a, b),
        (Some(zero), None) | (None, Some(zero)) => is_zero(zero),
        (None, None) => Ok(true),
    }
}

/// Where there are several scales, they belong to the same elements.
fn same_axis(cx: &Cx<'_>, from: NodeId, to: NodeId, scale: ValueId) -> Result<bool, Skip> {
    let rank = cx.rank(scale)?;
    let (from, to) = (cx.call(from)?, cx.call(to)?);
    let attribute =
        |name: &str, default: i64| Ok::<_, Skip>(from.int_or(name, default)? == to.int_or(name, default)?);
    Ok(rank == 0 || attribute("axis", 1)? && attribute("block_size", 0)?)
}
