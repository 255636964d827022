//! Optional, OptionalHasElement, OptionalGetElement.

use crate::array::Array;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::fact::{Fact, TensorFact};
use crate::infer_call::Infer;
use crate::value::Value;
use onnxforge_ir::{DType, Type};

pub fn optional(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    Ok(vec![Value::Optional(cx.take_value(0).map(Box::new))])
}

pub fn infer_optional(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let element = match cx.has(0) {
        true => cx.fact(0).clone(),
        false => cx.call.opt_ty("type")?.map_or(Fact::Unknown, |ty| typed(&Type::from(&*ty))),
    };
    cx.set(0, Fact::Optional { element: Box::new(element), present: Some(cx.has(0)) });
    Ok(())
}

/// What follows from a type alone.
fn typed(ty: &Type) -> Fact {
    match ty {
        Type::Tensor(dtype, _) => TensorFact { dtype: *dtype, ..TensorFact::default() }.into(),
        Type::Sequence(element) => Fact::Sequence { element: Box::new(typed(element)), items: None },
        Type::Optional(element) => Fact::Optional { element: Box::new(typed(element)), present: None },
        Type::Map(..) => Fact::Map,
        Type::Sparse(..) | Type::Opaque { .. } | Type::Unknown => Fact::Unknown,
    }
}

/// A tensor or a sequence is there as it is.
pub fn has(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    one(Array::scalar(!matches!(cx.value(0), None | Some(Value::Optional(None)))))
}

pub fn infer_has(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let present = match cx.fact(0) {
        _ if !cx.has(0) => Some(false),
        Fact::Optional { present, .. } => *present,
        Fact::Tensor(_) | Fact::Sequence { .. } | Fact::Map => Some(true),
        Fact::Unknown => None,
    };
    cx.set_dtype(0, DType::Bool);
    cx.set_shape(0, Vec::new());
    if let Some(present) = present {
        cx.set_dims(0, vec![i64::from(present).into()]);
    }
    Ok(())
}

pub fn get(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    match cx.take_value(0) {
        Some(Value::Optional(Some(value))) => Ok(vec![*value]),
        Some(Value::Optional(None)) | None => invalid("the element of an optional value that is empty"),
        Some(value) => Ok(vec![value]),
    }
}

pub fn infer_get(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let fact = match cx.fact(0) {
        Fact::Optional { present: Some(false), .. } => {
            return invalid("the element of an optional value that is empty");
        }
        Fact::Optional { element, .. } => (**element).clone(),
        other => other.clone(),
    };
    if !matches!(fact, Fact::Unknown) {
        cx.set(0, fact);
    }
    Ok(())
}
