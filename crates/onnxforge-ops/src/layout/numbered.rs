//! Symbolic elements through operators that only move elements.
//!
//! The operator is evaluated on the *numbers* of the elements in place of the elements themselves; the elements then follow
//! their numbers. What is inferred can therefore not disagree with what is evaluated.

use crate::apply::NoBodies;
use crate::array::Array;
use crate::eval_call::{Eval, Memory};
use crate::fact::{Fact, Known, MAX_SYMBOLIC_ELEMENTS, TensorFact};
use crate::infer_call::Infer;
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::{Dim, Symbols};

/// Memory for one evaluation on numbers: a few times the longest result that is followed.
const BUDGET: u64 = 16 * 8 * MAX_SYMBOLIC_ELEMENTS as u64;

/// Sets shape and elements of every output, when the elements of the inputs `carriers` are known as expressions and all
/// other inputs are constants; answers whether that is so. The operator may move elements of the carriers anywhere, repeat
/// them, leave them out and put zeros of its own between them, but compute nothing from them.
pub fn follow(cx: &mut Infer<'_>, carriers: &[usize]) -> bool {
    let mut elements = vec![Dim::ZERO];
    let Some(outputs) = evaluate_numbers(cx, carriers, &mut elements) else { return false };
    for (index, output) in outputs.iter().enumerate() {
        let dtype =
            cx.output(index).tensor().and_then(|fact| fact.dtype).or_else(|| carried_type(cx, carriers));
        let fact = named(output, dtype, &elements, cx.symbols);
        cx.set(index, fact);
    }
    true
}

/// What is known of a value that holds numbers of elements.
fn named(value: &Value, dtype: Option<DType>, elements: &[Dim], symbols: &mut Symbols) -> Fact {
    match value {
        Value::Tensor(numbers) => {
            let shape = numbers.shape().iter().map(|&dim| Dim::from(dim as i64)).collect();
            let element =
                |&number: &i64| usize::try_from(number).ok().and_then(|at| elements.get(at)).cloned();
            let dims = numbers.slice::<i64>().ok().and_then(|numbers| numbers.iter().map(element).collect());
            let known = dims.filter(|dims: &Vec<Dim>| dims.len() <= MAX_SYMBOLIC_ELEMENTS);
            TensorFact { dtype, shape: Some(shape), value: known.map(|dims| Known::Dims(dims.into())) }.into()
        }
        Value::Sequence(values) => {
            let items = values.iter().map(|value| named(value, dtype, elements, symbols)).collect();
            Fact::sequence(items, symbols)
        }
        Value::Optional(_) | Value::Map(_) => Fact::Unknown,
    }
}

/// The element type of the first carrier, or of the elements of the sequence that it is.
fn carried_type(cx: &Infer<'_>, carriers: &[usize]) -> Option<DType> {
    match cx.fact(*carriers.first()?) {
        Fact::Tensor(fact) => fact.dtype,
        Fact::Sequence { element, .. } => element.tensor()?.dtype,
        _ => None,
    }
}

/// The outputs when every element of a carrier is its own number in `elements`, to which it is added. Number 0 is a zero.
fn evaluate_numbers(cx: &Infer<'_>, carriers: &[usize], elements: &mut Vec<Dim>) -> Option<Vec<Value>> {
    let mut inputs = Vec::with_capacity(cx.input_count());
    for index in 0..cx.input_count() {
        inputs.push(match cx.has(index) {
            false => None,
            true if carriers.contains(&index) => Some(number(cx.fact(index), elements)?),
            true => Some(cx.constant(index)?.clone().into()),
        });
    }
    let memory = Memory::new(BUDGET);
    let evaluate = cx.call.def.eval.ok()?;
    evaluate(&mut Eval::new(cx.call, inputs, &memory, &NoBodies)).ok()
}

/// The value with the numbers of its elements in place of the elements.
fn number(fact: &Fact, elements: &mut Vec<Dim>) -> Option<Value> {
    match fact {
        Fact::Tensor(fact) => number_tensor(fact, elements).map(Value::from),
        Fact::Sequence { items: Some(items), .. } => {
            let values = items.iter().map(|item| number(item, elements)).collect::<Option<Vec<_>>>()?;
            Some(Value::Sequence(values.into()))
        }
        _ => None,
    }
}

fn number_tensor(fact: &TensorFact, elements: &mut Vec<Dim>) -> Option<Array> {
    let dims = fact.dims()?;
    let shape = match fact.shape.as_ref()?.len() {
        1 => vec![dims.len()],
        _ => fact.static_shape()?,
    };
    let first = elements.len();
    elements.extend(dims);
    Array::new(shape, (first as i64..elements.len() as i64).collect()).ok()
}
