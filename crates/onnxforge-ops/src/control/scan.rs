//! Scan.

use super::carried::{Settled, Turns};
use super::scanned::{carried_count, entry, fewer_axes, layer, read_at};
use super::{Rows, scan_batch, split_outputs, take_values};
use crate::array::Array;
use crate::call;
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::fact::TensorFact;
use crate::infer_call::Infer;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn run_scan(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.call.since() < 9 {
        return scan_batch::run_scan(cx);
    }
    let body = cx.call.graph("body")?;
    let count = carried_count(&cx.call, cx.input_count())?;
    let scanned: Vec<Array> = cx.arrays_from(count)?.into_iter().cloned().collect();
    let mut axes = Vec::with_capacity(scanned.len());
    for (index, array) in scanned.iter().enumerate() {
        let axis = call::axis(entry(&cx.call, "scan_input_axes", index)?, array.rank())?;
        axes.push((axis, entry(&cx.call, "scan_input_directions", index)? != 0));
    }
    let turns = scanned.first().map_or(0, |array| array.shape()[axes[0].0]);
    if scanned.iter().zip(&axes).any(|(array, (axis, _))| array.shape()[*axis] != turns) {
        return invalid(format!("{scanned:?} are scanned along axes of different sizes"));
    }
    let mut carried = take_values(cx, 0, count)?;
    let mut rows = Rows::new(cx.call.output_count().saturating_sub(count));
    for turn in 0..turns {
        cx.check_time()?;
        let mut inputs = std::mem::take(&mut carried);
        for (array, &(axis, reversed)) in scanned.iter().zip(&axes) {
            inputs.push(layer(cx, array, axis, read_at(turn, turns, reversed))?.into());
        }
        let (next, outputs) = split_outputs(cx.body(body, inputs)?, count)?;
        carried = next;
        rows.push(cx, outputs)?;
    }
    let place = |index: usize, rank: usize| {
        let axis = call::axis(entry(&cx.call, "scan_output_axes", index)?, rank)?;
        Ok((axis, entry(&cx.call, "scan_output_directions", index)? != 0))
    };
    carried.extend(rows.stack(cx, place)?);
    Ok(carried)
}

pub fn infer_scan(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if cx.call.since() < 9 {
        return scan_batch::infer_scan(cx);
    }
    let body = cx.call.graph("body")?;
    let turns = Turns::enter(cx);
    let count = carried_count(&cx.call, cx.input_count())?;
    let mut number: Option<Dim> = None;
    let mut layers = Vec::new();
    for (index, input) in (count..cx.input_count()).enumerate() {
        let Some(shape) = cx.shape(input) else {
            layers.push(TensorFact { dtype: cx.dtype(input), ..TensorFact::default() }.into());
            continue;
        };
        let axis = call::axis(entry(&cx.call, "scan_input_axes", index)?, shape.len())?;
        layers.push(fewer_axes(cx.tensor(input), &[axis]));
        number = Some(match number {
            Some(number) => cx.unify(&number, &shape[axis])?,
            None => shape[axis].clone(),
        });
    }
    let number = cx.or_fresh(number);
    let initial = (0..count).map(|index| cx.fact(index).clone()).collect();
    let Settled { carried, outputs } = turns.settle(cx, body, &[], initial, &layers, 0)?;
    for (index, fact) in carried.iter().enumerate() {
        let fact = turns.outward(fact, cx.symbols);
        cx.set(index, fact);
    }
    for (index, fact) in outputs.iter().enumerate().skip(count) {
        let axis = entry(&cx.call, "scan_output_axes", index - count)?;
        let fact = turns.stacked(cx, fact, number.clone(), |rank| call::axis(axis, rank))?;
        cx.set(index, fact);
    }
    Ok(())
}
