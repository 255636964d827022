//! The first version of Scan: every tensor has a batch axis, and each sequence of the batch its own length.

use super::carried::{Settled, Turns};
use super::scanned::{carried_count, entry, fewer_axes, layer, read_at};
use super::{Rows, split_outputs};
use crate::array::{Array, each_elem};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::Eval;
use crate::fact::Fact;
use crate::infer_call::Infer;
use crate::sequence::Overhead;
use crate::value::Value;

/// Input 0 is the lengths of the sequences.
const FIRST: usize = 1;

pub fn run_scan(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let count = carried_count(&cx.call, cx.input_count().saturating_sub(FIRST))?;
    let arrays: Vec<Array> = cx.arrays_from(FIRST)?.into_iter().cloned().collect();
    let (initial, scanned) = arrays.split_at(count);
    let &[batches, most, ..] = scanned.first().map_or(&[][..], Array::shape) else {
        return invalid("a batch axis and a sequence axis are needed");
    };
    let fits = scanned.iter().all(|array| array.shape().starts_with(&[batches, most]))
        && initial.iter().all(|array| array.shape().starts_with(&[batches]));
    let lengths = match cx.ints(0)? {
        Some(lengths) => {
            lengths.iter().filter_map(|&n| usize::try_from(n).ok()).filter(|n| *n <= most).collect()
        }
        None => {
            cx.reserve::<usize>(batches)?;
            vec![most; batches]
        }
    };
    if !fits || lengths.len() != batches {
        return invalid(format!("{arrays:?} are scanned in {batches} sequences"));
    }
    let mut batch_rows = Rows::new(cx.call.output_count());
    for (batch, length) in lengths.into_iter().enumerate() {
        let values = scan_one(cx, initial, scanned, (batch, length, most))?;
        batch_rows.push(cx, values)?;
    }
    batch_rows.stack(cx, |_, _| Ok((0, false)))
}

/// Scans one sequence of the batch; scan outputs are filled up with zeros.
fn scan_one(
    cx: &Eval<'_>,
    initial: &[Array],
    scanned: &[Array],
    (batch, length, most): (usize, usize, usize),
) -> Result<Vec<Value>, OpError> {
    let body = cx.call.graph("body")?;
    let of_batch = |arrays: &[Array]| -> Result<Vec<Array>, OpError> {
        arrays.iter().map(|array| layer(cx, array, 0, batch)).collect()
    };
    let mut carried: Vec<Value> = of_batch(initial)?.into_iter().map(Value::from).collect();
    let scanned = of_batch(scanned)?;
    let mut rows = Rows::new(cx.call.output_count().saturating_sub(initial.len()));
    for turn in 0..length {
        cx.check_time()?;
        let mut inputs = std::mem::take(&mut carried);
        for (index, array) in scanned.iter().enumerate() {
            let reversed = entry(&cx.call, "directions", index)? != 0;
            inputs.push(layer(cx, array, 0, read_at(turn, length, reversed))?.into());
        }
        let (next, outputs) = split_outputs(cx.body(body, inputs)?, initial.len())?;
        carried = next;
        rows.push(cx, outputs)?;
    }
    for column in &mut rows.columns {
        let Some(last) = column.last().cloned() else { return unsupported("a sequence without elements") };
        let zeros = each_elem!(last, T => {
            Array::with_dtype(last.dtype(), last.shape(), cx.zeros::<T>(last.shape())?)?
        });
        cx.reserve::<Overhead>(most)?;
        column.resize(most, zeros);
    }
    carried.extend(rows.stack(cx, |_, _| Ok((0, false)))?);
    Ok(carried)
}

pub fn infer_scan(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let body = cx.call.graph("body")?;
    let turns = Turns::enter(cx);
    let count = carried_count(&cx.call, cx.input_count().saturating_sub(FIRST))?;
    let initial = (0..count).map(|index| fewer_axes(cx.tensor(FIRST + index), &[0])).collect();
    let scanned = FIRST + count..cx.input_count();
    let layers: Vec<Fact> = scanned.clone().map(|index| fewer_axes(cx.tensor(index), &[0, 1])).collect();
    let known = scanned.filter_map(|index| cx.shape(index)?.first_chunk::<2>()).next().cloned();
    let [batches, number] = known.unwrap_or_else(|| [cx.fresh(), cx.fresh()]);
    let Settled { carried, outputs } = turns.settle(cx, body, &[], initial, &layers, 0)?;
    for (index, fact) in outputs.iter().enumerate() {
        let fact = match carried.get(index) {
            Some(fact) => fact.clone(),
            None => turns.stacked(cx, fact, number.clone(), |_| Ok(0))?,
        };
        let fact = turns.stacked(cx, &fact, batches.clone(), |_| Ok(0))?;
        cx.set(index, fact);
    }
    Ok(())
}
