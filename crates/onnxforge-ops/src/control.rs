//! Operators with bodies: If, Loop, Scan, SequenceMap.

mod branch;
mod carried;
mod each;
mod repeat;
mod scan;
mod scan_batch;
mod scanned;

use super::array::Array;
use super::concat::stack_arrays;
use super::def::Category::ControlFlow;
use super::def::OpDef;
use super::error::{OpError, invalid, unsupported};
use super::eval_call::Eval;
use super::sequence::Overhead;
use super::value::Value;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("If", ControlFlow, branch::infer_if, branch::run_if),
    OpDef::new("Loop", ControlFlow, repeat::infer_loop, repeat::run_loop),
    OpDef::new("Scan", ControlFlow, scan::infer_scan, scan::run_scan),
    OpDef::new("SequenceMap", ControlFlow, each::infer_map, each::run_map),
];

/// Memory that results of earlier turns take: nothing else counts them until the loop ends.
#[derive(Default)]
struct Kept {
    bytes: u64,
}

impl Kept {
    /// Counts a value, if it fits.
    fn keep(&mut self, cx: &Eval<'_>, value: &Value) -> Result<(), OpError> {
        self.bytes = self.bytes.saturating_add(value.byte_len()).saturating_add(size_of::<Overhead>() as u64);
        cx.memory().check(self.bytes)
    }
}

/// What one turn of a body gave for its scan outputs, turn after turn.
struct Rows {
    columns: Vec<Vec<Array>>,
    kept: Kept,
}

impl Rows {
    /// No turns, of `count` outputs each.
    fn new(count: usize) -> Self {
        Self { columns: vec![Vec::new(); count], kept: Kept::default() }
    }

    /// Adds a turn.
    fn push(&mut self, cx: &Eval<'_>, values: impl IntoIterator<Item = Value>) -> Result<(), OpError> {
        let mut values = values.into_iter();
        for column in &mut self.columns {
            let Some(value) = values.next() else { return invalid("the body gives too few outputs") };
            self.kept.keep(cx, &value)?;
            column.push(value.array()?.clone());
        }
        Ok(())
    }

    /// Each output with its turns along a new axis: `place` answers the axis for an output and the number of its axes
    /// then, and whether the turns stand in reverse.
    fn stack(
        self,
        cx: &Eval<'_>,
        place: impl Fn(usize, usize) -> Result<(usize, bool), OpError>,
    ) -> Result<Vec<Value>, OpError> {
        let stack = |(index, mut turns): (usize, Vec<Array>)| -> Result<Value, OpError> {
            let Some(first) = turns.first() else {
                return unsupported("a scan output of a loop without turns, whose shape nothing tells");
            };
            let (axis, reversed) = place(index, first.rank() + 1)?;
            if reversed {
                turns.reverse();
            }
            Ok(stack_arrays(cx, &turns, axis)?.into())
        };
        self.columns.into_iter().enumerate().map(stack).collect()
    }
}

/// Takes the inputs from `first` to before `end` out.
fn take_values(cx: &mut Eval<'_>, first: usize, end: usize) -> Result<Vec<Value>, OpError> {
    let take = |index: usize| match cx.take_value(index) {
        Some(value) => Ok(value),
        None => invalid(format!("input {index} is missing")),
    };
    (first..end).map(take).collect()
}

/// The first `count` outputs of a body, and those after them.
fn split_outputs(mut outputs: Vec<Value>, count: usize) -> Result<(Vec<Value>, Vec<Value>), OpError> {
    if outputs.len() < count {
        return invalid(format!("the body gives {} outputs and {count} are carried on", outputs.len()));
    }
    let rest = outputs.split_off(count);
    Ok((outputs, rest))
}
