//! Loop.

use super::carried::{Settled, Turns};
use super::{Rows, split_outputs, take_values};
use crate::array::Array;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::Eval;
use crate::fact::{Fact, Known, TensorFact};
use crate::infer_call::Infer;
use crate::value::Value;
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, ScopeId};

/// A loop of no more turns than this is followed turn by turn.
const MAX_TURNS: i64 = 16;
/// From so many symbols on, no loop is followed turn by turn: short loops in short loops would take too long.
const MAX_SYMBOLS: usize = 1 << 14;

/// Inputs of the node and of the body before the values that are carried: a number and a condition.
const BEFORE: usize = 2;

pub fn run_loop(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let body = cx.call.graph("body")?;
    let most = cx.opt_array(0)?.map(Array::to_i64).transpose()?;
    let condition = cx.opt_array(1)?.map(Array::to_i64).transpose()?;
    let mut carried = take_values(cx, BEFORE, cx.input_count())?;
    let mut rows = Rows::new(cx.call.output_count().saturating_sub(carried.len()));
    let mut goes_on = condition != Some(0);
    let mut turn = 0i64;
    while goes_on && most.is_none_or(|most| turn < most) {
        cx.check_time()?;
        let count = carried.len();
        let mut inputs = vec![Array::scalar(turn).into(), Array::scalar(true).into()];
        inputs.append(&mut carried);
        let (outputs, scanned) = split_outputs(cx.body(body, inputs)?, 1 + count)?;
        let mut outputs = outputs.into_iter();
        goes_on = outputs.next().map_or(Ok(0), |value| value.array()?.to_i64())? != 0;
        carried = outputs.collect();
        rows.push(cx, scanned)?;
        turn += 1;
        // The standard ignores it, runtimes do not.
        if !goes_on && condition.is_none() && most.is_none_or(|most| turn < most) {
            return unsupported("a loop that was given no condition and ends by one");
        }
    }
    carried.extend(rows.stack(cx, |_, _| Ok((0, false)))?);
    Ok(carried)
}

/// The condition is true in the body: without that, there would be no turn.
pub fn infer_loop(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let body = cx.call.graph("body")?;
    let followed = follow(cx, body)?;
    // What is known of values inside the body has to hold in every turn, whatever was found out turn by turn.
    let turns = Turns::enter(cx);
    let initial: Vec<Fact> = (BEFORE..cx.input_count()).map(|index| cx.fact(index).clone()).collect();
    let count = initial.len();
    let turn = Dim::from(cx.symbols.fresh_at_least(Some(0)));
    let before = [
        TensorFact { value: Some(Known::Dims([turn].into())), ..TensorFact::new(DType::I64, Vec::new()) }
            .into(),
        TensorFact::constant(Array::scalar(true)).into(),
    ];
    let Settled { carried, outputs } = turns.settle(cx, body, &before, initial, &[], 1)?;
    if let Some(Fact::Sequence { .. } | Fact::Optional { .. } | Fact::Map) = outputs.first() {
        return invalid("the first output of the body, its condition, is no tensor".to_owned());
    }
    for (index, output) in outputs.iter().skip(1).take(count).enumerate() {
        let dtype = |fact: &Fact| fact.tensor().and_then(|fact| fact.dtype);
        if let (Some(before), Some(after)) = (dtype(cx.fact(BEFORE + index)), dtype(output))
            && before != after
        {
            return invalid(format!("carried value {index} is {before} and becomes {after}"));
        }
    }
    let number = turn_count(cx, outputs.first());
    let number = cx.or_fresh(number);
    for (index, fact) in carried.iter().enumerate() {
        let fact = turns.outward(fact, cx.symbols);
        cx.set(index, fact);
    }
    for (index, fact) in outputs.iter().enumerate().skip(1 + count) {
        let fact = turns.stacked(cx, fact, number.clone(), |_| Ok(0))?;
        cx.set(index - 1, fact);
    }
    for (index, fact) in followed.into_iter().flatten().enumerate() {
        cx.set(index, fact);
    }
    Ok(())
}

/// Facts about the outputs of a loop whose few turns are known, found by inferring the body once for each.
fn follow(cx: &mut Infer<'_>, body: ScopeId) -> Result<Option<Vec<Fact>>, OpError> {
    let most = match cx.ints(0).as_deref() {
        Some(&[most @ 1..=MAX_TURNS]) if cx.symbols.len() < MAX_SYMBOLS => most,
        _ => return Ok(None),
    };
    if cx.has(1) && truth(cx.fact(1)) != Some(true) {
        return Ok(None);
    }
    let mut carried: Vec<Fact> = (BEFORE..cx.input_count()).map(|index| cx.fact(index).clone()).collect();
    let mut scanned: Vec<Fact> = Vec::new();
    let mut count = 0;
    for turn in 0..most {
        let mut inputs: Vec<Fact> = vec![
            TensorFact::constant(Array::scalar(turn)).into(),
            TensorFact::constant(Array::scalar(true)).into(),
        ];
        inputs.extend(carried.iter().cloned());
        let outputs = cx.body(body, inputs)?;
        let Some(goes_on) = outputs.first().and_then(truth) else { return Ok(None) };
        let rows = outputs.get(1 + carried.len()..).unwrap_or_default().to_vec();
        scanned = match turn {
            0 => rows,
            _ => scanned.iter().zip(&rows).map(|(all, row)| all.join(row, cx.symbols)).collect(),
        };
        carried = outputs.into_iter().skip(1).take(carried.len()).collect();
        count = turn + 1;
        if !goes_on {
            break;
        }
    }
    let stacked = scanned.into_iter().map(|row| match row {
        Fact::Tensor(TensorFact { dtype, shape: Some(shape), .. }) => {
            let shape = [vec![Dim::from(count)], shape].concat();
            TensorFact { dtype, shape: Some(shape), value: None }.into()
        }
        other => other.without_elements(),
    });
    Ok(Some(carried.into_iter().chain(stacked).collect()))
}

fn truth(fact: &Fact) -> Option<bool> {
    match fact.tensor()?.ints()?[..] {
        [truth] => Some(truth != 0),
        _ => None,
    }
}

/// How many turns there are, if only their number ends the loop and it is known.
fn turn_count(cx: &Infer<'_>, condition_after: Option<&Fact>) -> Option<Dim> {
    let before = if cx.has(1) { truth(cx.fact(1)) } else { Some(true) };
    if before == Some(false) {
        return Some(Dim::ZERO);
    }
    if before != Some(true) || condition_after.and_then(truth) != Some(true) {
        return None;
    }
    match cx.dims(0)?.as_slice() {
        [most] => most.maximum(&Dim::ZERO, cx.symbols),
        _ => None,
    }
}
