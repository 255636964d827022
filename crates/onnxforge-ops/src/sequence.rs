//! Sequences and optional values.

mod optional;
mod parts;

use std::sync::Arc;

use super::call;
use super::def::Category::Manipulation;
use super::def::OpDef;
use super::error::{OpError, invalid};
use super::eval_call::{Eval, one};
use super::fact::{Fact, Known, TensorFact};
use super::infer_call::Infer;
use super::value::Value;
use crate::array::Array;
use onnxforge_ir::DType;
use onnxforge_ir::dim::{Dim, Symbols};

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("ConcatFromSequence", Manipulation, parts::infer_concat, parts::concat),
    OpDef::new("Optional", Manipulation, optional::infer_optional, optional::optional),
    OpDef::new("OptionalGetElement", Manipulation, optional::infer_get, optional::get),
    OpDef::new("OptionalHasElement", Manipulation, optional::infer_has, optional::has),
    OpDef::new("SequenceAt", Manipulation, infer_at, at),
    OpDef::new("SequenceConstruct", Manipulation, infer_construct, construct),
    OpDef::new("SequenceEmpty", Manipulation, infer_empty, empty),
    OpDef::new("SequenceErase", Manipulation, infer_erase, erase),
    OpDef::new("SequenceInsert", Manipulation, infer_insert, insert),
    OpDef::new("SequenceLength", Manipulation, infer_length, length),
    OpDef::new("SplitToSequence", Manipulation, parts::infer_split, parts::split),
];

/// About what an array takes in memory apart from its elements.
pub(super) type Overhead = [u64; 32];

/// What is known of one element of a sequence of whose elements `fact` holds. A symbol without a name may stand for
/// another number in each of them, and becomes a fresh one.
pub(super) fn one_of(fact: &Fact, symbols: &mut Symbols) -> Fact {
    let varies =
        |dim: &Dim, symbols: &Symbols| dim.symbols().into_iter().any(|symbol| symbols.is_anonymous(symbol));
    match fact {
        Fact::Tensor(tensor) => {
            let shape = tensor.shape.as_ref().map(|shape| {
                let dim = |dim: &Dim| if varies(dim, symbols) { symbols.fresh().into() } else { dim.clone() };
                shape.iter().map(dim).collect()
            });
            let value = match &tensor.value {
                Some(Known::Dims(dims)) if dims.iter().any(|dim| varies(dim, symbols)) => None,
                value => value.clone(),
            };
            TensorFact { dtype: tensor.dtype, shape, value }.into()
        }
        Fact::Sequence { element, items } => {
            let items = items.as_ref().map(|items| items.iter().map(|item| one_of(item, symbols)).collect());
            Fact::Sequence { element: Box::new(one_of(element, symbols)), items: items.map(Arc::new) }
        }
        Fact::Optional { element, present } => {
            Fact::Optional { element: Box::new(one_of(element, symbols)), present: *present }
        }
        Fact::Map | Fact::Unknown => fact.clone(),
    }
}

/// Takes the sequence at input 0 out, to change it: in place when nobody else holds it.
fn take_sequence(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    match cx.take_value(0) {
        Some(Value::Sequence(values)) => {
            Ok(Arc::try_unwrap(values).unwrap_or_else(|shared| (*shared).clone()))
        }
        Some(other) => invalid(format!("a sequence is needed, not {}", other.form())),
        None => invalid("input 0 is missing"),
    }
}

fn sequence(values: Vec<Value>) -> Result<Vec<Value>, OpError> {
    Ok(vec![Value::Sequence(values.into())])
}

/// What inference knows of the sequence at input 0: what holds for all elements, and each of them.
fn known_sequence<'a>(cx: &Infer<'a>) -> (&'a Fact, Option<&'a [Fact]>) {
    static UNKNOWN: Fact = Fact::Unknown;
    match cx.fact(0) {
        Fact::Sequence { element, items } => (element, items.as_ref().map(|items| &items[..])),
        _ => (&UNKNOWN, None),
    }
}

/// The number at input `index`, if it is known.
fn known_position(cx: &Infer<'_>, index: usize) -> Option<i64> {
    match cx.ints(index)?[..] {
        [position] => Some(position),
        _ => None,
    }
}

fn construct(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    sequence(cx.arrays_from(0)?.into_iter().map(|array| array.clone().into()).collect())
}

fn infer_construct(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let items = (0..cx.input_count()).map(|index| cx.fact(index).clone()).collect();
    let fact = Fact::sequence(items, cx.symbols);
    cx.set(0, fact);
    Ok(())
}

fn empty(_: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    sequence(Vec::new())
}

fn infer_empty(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let dtype = cx.call.dtype("dtype")?.unwrap_or(DType::F32);
    let element = TensorFact { dtype: Some(dtype), ..TensorFact::default() };
    cx.set(0, Fact::Sequence { element: Box::new(element.into()), items: Some(Arc::default()) });
    Ok(())
}

fn at(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let position = cx.array(1)?.to_i64()?;
    let values = cx.value(0).map_or_else(|| invalid("input 0 is missing"), Value::sequence)?;
    Ok(vec![values[call::axis(position, values.len())?].clone()])
}

fn infer_at(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (element, items) = known_sequence(cx);
    let fact = match (items, known_position(cx, 1)) {
        (Some(items), Some(position)) => items[call::axis(position, items.len())?].clone(),
        (Some([]), None) => return invalid("an element of an empty sequence"),
        _ => one_of(element, cx.symbols),
    };
    if !matches!(fact, Fact::Unknown) {
        cx.set(0, fact);
    }
    Ok(())
}

fn insert(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let position = cx.opt_array(2)?.map(Array::to_i64).transpose()?;
    let array = cx.take(1)?;
    let mut values = take_sequence(cx)?;
    let place = position.map_or(Ok(values.len()), |position| insert_place(position, values.len()))?;
    cx.reserve::<Overhead>(values.len() + 1)?;
    values.insert(place, array.into());
    sequence(values)
}

/// The place of a new element among `len`: from `-len` to `len`.
fn insert_place(position: i64, len: usize) -> Result<usize, OpError> {
    if position == len as i64 { Ok(len) } else { call::axis(position, len) }
}

fn infer_insert(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (element, items) = known_sequence(cx);
    let position = match (items, cx.has(2)) {
        (Some(items), false) => Some(items.len() as i64),
        (_, true) => known_position(cx, 2),
        (None, false) => None,
    };
    let fact = match (items, position) {
        (Some(items), Some(position)) => {
            let mut items = items.to_vec();
            items.insert(insert_place(position, items.len())?, cx.fact(1).clone());
            Fact::sequence(items, cx.symbols)
        }
        _ => {
            // All elements have the same type.
            let typed = || TensorFact { dtype: cx.dtype(1), ..TensorFact::default() }.into();
            let common = match (element, items) {
                (Fact::Unknown, _) => typed(),
                (_, Some([])) => cx.fact(1).clone(),
                _ => element.join(cx.fact(1), cx.symbols),
            };
            Fact::Sequence { element: Box::new(common), items: None }
        }
    };
    cx.set(0, fact);
    Ok(())
}

fn erase(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let position = cx.opt_array(1)?.map_or(Ok(-1), Array::to_i64)?;
    let mut values = take_sequence(cx)?;
    values.remove(call::axis(position, values.len())?);
    sequence(values)
}

fn infer_erase(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (element, items) = known_sequence(cx);
    let position = if cx.has(1) { known_position(cx, 1) } else { Some(-1) };
    let fact = match (items, position) {
        (Some(items), Some(position)) => {
            let mut items = items.to_vec();
            items.remove(call::axis(position, items.len())?);
            if items.is_empty() {
                Fact::Sequence { element: Box::new(element.clone()), items: Some(Arc::default()) }
            } else {
                Fact::sequence(items, cx.symbols)
            }
        }
        _ => Fact::Sequence { element: Box::new(element.clone()), items: None },
    };
    cx.set(0, fact);
    Ok(())
}

fn length(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let values = cx.value(0).map_or_else(|| invalid("input 0 is missing"), Value::sequence)?;
    one(Array::scalar(values.len() as i64))
}

fn infer_length(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (_, items) = known_sequence(cx);
    let length = items.map_or_else(|| cx.fresh(), |items| Dim::from(items.len() as i64));
    cx.set_dtype(0, DType::I64);
    cx.set_shape(0, Vec::new());
    cx.set_dims(0, vec![length]);
    Ok(())
}
