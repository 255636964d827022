//! SequenceMap.

use std::sync::Arc;

use super::Kept;
use super::carried::Turns;
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::fact::Fact;
use crate::infer_call::Infer;
use crate::sequence::one_of;
use crate::value::Value;

/// Longest sequence whose elements are inferred one by one.
const MAX_ITEMS: usize = 64;

pub fn run_map(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let body = cx.call.graph("body")?;
    let inputs: Vec<Value> = (0..cx.input_count()).filter_map(|index| cx.value(index).cloned()).collect();
    let Some(Value::Sequence(first)) = inputs.first() else {
        return invalid("the first input must be a sequence");
    };
    let mut results = vec![Vec::with_capacity(first.len()); cx.call.output_count()];
    let mut kept = Kept::default();
    for turn in 0..first.len() {
        cx.check_time()?;
        let element = |input: &Value| match input {
            Value::Sequence(values) => match values.get(turn) {
                Some(value) => Ok(value.clone()),
                None => invalid(format!("a sequence of {} beside one of {}", values.len(), first.len())),
            },
            other => Ok(other.clone()),
        };
        let elements = inputs.iter().map(element).collect::<Result<Vec<_>, _>>()?;
        let outputs = cx.body(body, elements)?;
        for (result, output) in results.iter_mut().zip(outputs) {
            kept.keep(cx, &output)?;
            result.push(output);
        }
    }
    Ok(results.into_iter().map(|values| Value::Sequence(values.into())).collect())
}

pub fn infer_map(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let body = cx.call.graph("body")?;
    let turns = Turns::enter(cx);
    let inputs: Vec<&Fact> = (0..cx.input_count()).map(|index| cx.fact(index)).collect();
    let length = match inputs.first() {
        Some(Fact::Sequence { items: Some(items), .. }) => Some(items.len()).filter(|len| *len <= MAX_ITEMS),
        _ => None,
    };
    let length = length.filter(|_| !Turns::is_too_long(cx));
    let mut items = vec![Vec::new(); cx.call.output_count()];
    for turn in 0..length.unwrap_or(0) {
        let element = |input: &&Fact| match input {
            Fact::Sequence { items: Some(items), .. } if turn < items.len() => items[turn].clone(),
            input => element_of(cx, input),
        };
        let elements = inputs.iter().map(element).collect();
        for (results, fact) in items.iter_mut().zip(cx.body(body, elements)?) {
            results.push(fact);
        }
    }
    // At the end with what holds for every element: that is what stays known of the values inside.
    let elements = inputs.iter().map(|input| element_of(cx, input)).collect();
    let common = cx.body(body, elements)?;
    for (index, (fact, items)) in common.iter().zip(items).enumerate() {
        let fact = match length {
            Some(length) if length > 0 => Fact::sequence(items, cx.symbols),
            _ => {
                let element = Box::new(turns.outward(fact, cx.symbols));
                Fact::Sequence { element, items: length.map(|_| Arc::default()) }
            }
        };
        cx.set(index, fact);
    }
    Ok(())
}

/// What is known of any one element of a sequence; of anything else, everything that is known of it.
fn element_of(cx: &mut Infer<'_>, input: &Fact) -> Fact {
    match input {
        Fact::Sequence { element, .. } => one_of(element, cx.symbols),
        other => other.clone(),
    }
}
