//! Masks that are added to the scores of attention.

use super::constant_math::cast;
use crate::{Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{AttrValue, DType, ValueId};
use onnxforge_ops::{Array, OpError};

/// How scores are masked.
#[derive(Clone, Copy)]
pub enum Masking {
    /// This is added to them.
    Sum(ValueId),
    /// A low number takes their place, where a condition holds or, for those that are seen, where not.
    Choice {
        /// The condition.
        condition: ValueId,
        /// It holds for scores that stay.
        seen: bool,
        /// The number.
        low: f64,
    },
}

/// A mask for the operator.
pub struct Mask {
    kind: Kind,
    value: ValueId,
    /// It may have one row for all queries.
    one_row: bool,
    /// It may have one column for all keys.
    one_column: bool,
    /// The type in which it was added.
    dtype: DType,
    constant: bool,
}

/// What the value of a mask is.
#[derive(Clone, Copy)]
enum Kind {
    /// Numbers to add.
    Bias,
    /// True where a key is seen.
    Seen,
    /// True where a key is hidden.
    Hidden,
    /// A condition, and what is added where it holds and where not; see [`RAISED`].
    Raised([Added; 2]),
    /// A condition that says in float16 to which scores the lowest number is added, which hides them, unless it is all of a row: true where it
    /// holds (`ReduceMin`) or where not (`ReduceMax`).
    Lowest(&'static str),
}

/// What is added where a condition holds, or where it does not.
#[derive(Clone, Copy)]
enum Added {
    Number(f64),
    /// Numbers that differ, all far above the lowest one.
    Numbers(ValueId),
}

/// The lowest number of a type, which runtimes take for −∞ in a mask.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65504.0,
        DType::BF16 => -f64::from(0xFF_u8) * 2f64.powi(120),
        _ => f64::from(f32::MIN),
    }
}

/// Stands for the lowest number of 32 bits and of bfloat16. Scores that are added to either vanish, as long as they are below
/// 10³⁰, so that a row of nothing else is the mean of all values in both cases.
const RAISED: f64 = -3e38;

/// Numbers up to this hide keys where they are chosen instead of scores.
const HIDES: f64 = -1e9;

/// In 16 bits, rows of a constant that have nothing above this leave little of the scores when they are added.
const LARGE: f64 = -100.0;

impl Mask {
    /// The mask of an Attention of these queries and values in the type `dtype`, with a row for each query and a column for each key, as runtimes want it.
    pub fn operand(self, change: &mut Change, [q, v]: [ValueId; 2], dtype: DType) -> Result<Operand, Skip> {
        let narrows = self.dtype == DType::F32 && dtype != DType::F32;
        if narrows && matches!(self.kind, Kind::Bias | Kind::Raised(_)) {
            return Err(Skip::at(Reason::Rule("a mask of 32 bits would be rounded to 16"), self.value));
        }
        let mut mask: Operand = self.value.into();
        match self.kind {
            Kind::Bias if self.dtype != dtype => {
                mask = change.op("Cast", [mask], [("to", i64::from(dtype.code())).into()]);
            }
            // Where a low number is added to a whole row, which changes nothing, it takes the last places of the scores: it goes.
            Kind::Bias if dtype != DType::F32 && !self.constant => {
                let last = change.ints("axes", &[-1]);
                let highest = change.op("ReduceMax", [mask, last], [("keepdims", 1).into()]);
                mask = change.op("Sub", [mask, highest], []);
            }
            Kind::Bias | Kind::Seen => {}
            // A row that is all the same is seen.
            Kind::Lowest(reduce) => {
                let last = change.ints("axes", &[-1]);
                let extreme = change.op(reduce, [mask, last], [("keepdims", 1).into()]);
                mask = change.op("Equal", [mask, extreme], []);
            }
            Kind::Hidden => mask = change.op("Not", [mask], []),
            Kind::Raised([yes, no]) => {
                let [yes, no] = [self.added(change, yes, dtype)?, self.added(change, no, dtype)?];
                mask = change.op("Where", [mask, yes, no], []);
            }
        }
        if self.one_row || self.one_column {
            let size = |change: &mut Change, of: ValueId, stretched: bool| match stretched {
                true => change.op("Shape", [of.into()], [("start", 2).into(), ("end", 3).into()]),
                false => change.ints("one", &[1]),
            };
            let rows = size(change, q, self.one_row);
            let columns = size(change, v, self.one_column);
            let shape = change.op("Concat", [rows, columns], [("axis", 0).into()]);
            mask = change.op("Expand", [mask, shape], []);
        }
        Ok(mask)
    }

    fn added(&self, change: &mut Change, added: Added, dtype: DType) -> Result<Operand, Skip> {
        Ok(match added {
            Added::Number(number) => {
                let number = Array::scalar(number).to_tensor().map_err(OpError::from)?;
                change.constant("bias", cast(&number, dtype)?)
            }
            Added::Numbers(numbers) if self.dtype != dtype => {
                change.op("Cast", [numbers.into()], [("to", i64::from(dtype.code())).into()])
            }
            Added::Numbers(numbers) => numbers.into(),
        })
    }
}

/// The mask of scores of so many rows and columns, if it does not hide all keys of a row, or if that is what the exporter's guard is for. Where it is known that it `fits`
/// the scores, it has one row or column where it has not as many as they.
pub fn keep(
    cx: &Cx<'_>,
    masking: Masking,
    scores: [&Dim; 2],
    fits: bool,
    guarded: bool,
) -> Result<Mask, Skip> {
    let (kind, value, dtype, whole) = match masking {
        Masking::Sum(bias) => {
            let dtype = cx.dtype(bias)?;
            let (kind, value) = seen(cx, bias, dtype, guarded)?;
            (kind, value, dtype, bias)
        }
        Masking::Choice { condition, seen, low } => {
            (chosen(condition, seen, low, guarded)?, condition, DType::F32, condition)
        }
    };
    // Numbers that differ may stretch the condition.
    let stretched =
        matches!(kind, Kind::Raised(added) if added.iter().any(|of| matches!(of, Added::Numbers(_))));
    let shaped = if stretched { whole } else { value };
    let [.., rows, columns] = cx.shape(shaped)? else { return Err(Skip::at(Reason::Broadcast, value)) };
    let may_stretch = |size: &Dim| fits || size.as_const() == Some(1);
    let (one_row, one_column) = (!cx.same_dim(rows, scores[0]), !cx.same_dim(columns, scores[1]));
    if one_row && !may_stretch(rows) || one_column && !fits {
        return Err(Skip::at(Reason::Broadcast, value));
    }
    Ok(Mask { kind, value, one_row, one_column, dtype, constant: cx.model.constant(value).is_some() })
}

/// What it means that a low number takes the place of scores.
fn chosen(condition: ValueId, seen: bool, low: f64, guarded: bool) -> Result<Kind, Skip> {
    match low {
        f64::NEG_INFINITY if guarded => Ok(if seen { Kind::Seen } else { Kind::Hidden }),
        f64::NEG_INFINITY => Err(Skip::at(Reason::Rule("a row of the mask may hide all keys"), condition)),
        _ if low <= HIDES => {
            let numbers = if seen { [0.0, RAISED] } else { [RAISED, 0.0] };
            Ok(Kind::Raised(numbers.map(Added::Number)))
        }
        _ => Err(Skip::at(
            Reason::Rule("the number that takes the place of scores is not low enough"),
            condition,
        )),
    }
}

/// The bias itself, or the condition that it spells out.
fn seen(cx: &Cx<'_>, bias: ValueId, dtype: DType, guarded: bool) -> Result<(Kind, ValueId), Skip> {
    let (lowest, is_half) = (lowest(dtype), dtype != DType::F32);
    let hides_all = || Skip::at(Reason::Rule("a row of the mask may hide all keys"), bias);
    if let Some(constant) = cx.model.constant(bias) {
        let columns =
            constant.shape().last().copied().filter(|&columns| columns > 0).ok_or_else(hides_all)?;
        let numbers = cx.floats(bias)?;
        let sees = |row: &[f64]| row.iter().any(|&number| number > if is_half { LARGE } else { lowest });
        return if numbers.chunks(columns).all(sees) { Ok((Kind::Bias, bias)) } else { Err(hides_all()) };
    }
    if is_above(cx, bias, if is_half { LARGE } else { lowest }) {
        return Ok((Kind::Bias, bias));
    }
    let node =
        cx.model.value(bias).node().filter(|&node| cx.node(node).op().is("Where")).ok_or_else(hides_all)?;
    let &[Some(condition), Some(yes), Some(no)] = cx.node(node).inputs() else { return Err(hides_all()) };
    let (yes, no) = match (cx.uniform(yes), cx.uniform(no)) {
        (Some(yes), Some(no)) => (yes, no),
        (Some(low), None) if low == lowest && dtype != DType::F16 && is_above(cx, no, RAISED / 2.0) => {
            return Ok((Kind::Raised([Added::Number(RAISED), Added::Numbers(no)]), condition));
        }
        (None, Some(low)) if low == lowest && dtype != DType::F16 && is_above(cx, yes, RAISED / 2.0) => {
            return Ok((Kind::Raised([Added::Numbers(yes), Added::Number(RAISED)]), condition));
        }
        _ => return Err(hides_all()),
    };
    let (low, high) = (yes.min(no), yes.max(no));
    let raised = |number: f64| Added::Number(if number == low { RAISED } else { number });
    match low {
        _ if low > lowest => Ok((Kind::Bias, bias)),
        _ if low == lowest && dtype == DType::F16 => match (yes == 0.0, no == 0.0) {
            (true, false) => Ok((Kind::Lowest("ReduceMax"), condition)),
            (false, true) => Ok((Kind::Lowest("ReduceMin"), condition)),
            _ => Err(hides_all()),
        },
        _ if low == lowest && high > RAISED / 2.0 => Ok((Kind::Raised([raised(yes), raised(no)]), condition)),
        f64::NEG_INFINITY if guarded && yes == 0.0 => Ok((Kind::Seen, condition)),
        f64::NEG_INFINITY if guarded && no == 0.0 => Ok((Kind::Hidden, condition)),
        _ => Err(hides_all()),
    }
}

/// Operators whose elements are elements of their first input.
const MOVES: [&str; 8] =
    ["Gather", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Slice", "Identity"];

/// Bytes of constants that are looked at, at most.
const MOST_BYTES: u64 = 1 << 22;

/// Whether `value` has elements of a constant, all of which are above a number.
fn is_above(cx: &Cx<'_>, mut value: ValueId, bound: f64) -> bool {
    while cx.model.constant(value).is_none() {
        let Some(node) = cx.model.value(value).node().filter(|&node| cx.call(node).is_ok()) else {
            return false;
        };
        if cx.node(node).op().is("ConstantOfShape") {
            return match cx.node(node).attr("value") {
                None => bound < 0.0,
                Some(AttrValue::Tensor(filler)) => {
                    let number = Array::from_tensor(filler).and_then(|array| array.to_f64s());
                    number.is_ok_and(|numbers| numbers.iter().all(|&number| number > bound))
                }
                Some(_) => false,
            };
        }
        let is_move = MOVES.iter().any(|op| cx.node(node).op().is(op));
        let Some(source) = cx.node(node).input(0).filter(|_| is_move) else { return false };
        value = source;
    }
    let is_small = cx.model.constant(value).is_some_and(|constant| constant.byte_len() <= MOST_BYTES);
    is_small && cx.floats(value).is_ok_and(|numbers| numbers.iter().all(|&number| number > bound))
}
