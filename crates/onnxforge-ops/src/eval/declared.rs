//! Whether values fit what a graph declares of its inputs.

use std::collections::HashMap;
use std::fmt::Display;

use crate::Value;
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::{DType, Def, Model, Type};
use onnxforge_proto::Str;

/// Why `inputs` are not what the graph of a model declares: one is missing, unknown, or of another type or shape. A run in 64 bits
/// takes 64-bit floats for any others.
pub fn check(model: &Model, inputs: &HashMap<String, Value>, wide: bool) -> Result<(), String> {
    check_given(model, inputs, wide)?;
    let missing = model.scope(model.main()).inputs().iter().find(|port| {
        let value = model.value(port.value);
        let has_default = matches!(value.def(), Def::Input { default: Some(_), .. });
        !has_default && !inputs.contains_key(&**value.name())
    });
    match missing {
        Some(port) => {
            Err(format!("the input {} is missing ({})", model.value(port.value).name(), port.declared()))
        }
        None => Ok(()),
    }
}

/// The same, where inputs may be missing.
pub fn check_given(model: &Model, inputs: &HashMap<String, Value>, wide: bool) -> Result<(), String> {
    let ports = model.scope(model.main()).inputs();
    for port in ports {
        let (name, declared) = (model.value(port.value).name(), port.declared());
        match inputs.get(&**name) {
            Some(value) if !has_type(&declared, value, wide) => {
                let found = match value {
                    Value::Tensor(array) => array.dtype().name(),
                    other => other.form(),
                };
                return Err(format!("the input {name} is {found}, not {declared}"));
            }
            Some(value) => fit_value(name, &declared, value)?,
            None => {}
        }
    }
    let known = |name: &&String| ports.iter().any(|port| **model.value(port.value).name() == ***name);
    match inputs.keys().filter(|name| !known(name)).min() {
        Some(unknown) => Err(format!("the model has no input {unknown}")),
        None => Ok(()),
    }
}

/// Whether a value has the form and the element type that is declared. A run in 64 bits takes 64-bit floats for any others.
fn has_type(declared: &Type, value: &Value, wide: bool) -> bool {
    let same = |declared: Option<DType>, found: DType| {
        let widened =
            wide && found == DType::F64 && matches!(declared, Some(DType::F32 | DType::F16 | DType::BF16));
        declared.is_none() || declared == Some(found) || widened
    };
    match (declared, value) {
        (Type::Tensor(dtype, _), Value::Tensor(array)) => same(*dtype, array.dtype()),
        (Type::Sequence(element), Value::Sequence(values)) => {
            values.iter().all(|value| has_type(element, value, wide))
        }
        (Type::Optional(element), Value::Optional(value)) => {
            value.as_deref().is_none_or(|value| has_type(element, value, wide))
        }
        (Type::Optional(element), value) => has_type(element, value, wide),
        (Type::Map(..), Value::Map(_)) | (Type::Unknown, _) => true,
        _ => false,
    }
}

/// Compares a value with the declared shape of an input. The elements of a sequence may differ in shape, so that nothing is asked of them.
fn fit_value(input: &Str, declared: &Type, value: &Value) -> Result<(), String> {
    match (declared, value) {
        (Type::Tensor(_, Some(dims)), Value::Tensor(array)) => fit(input, dims, array.shape()),
        (Type::Optional(element), Value::Optional(Some(value))) => fit_value(input, element, value),
        (Type::Optional(element), value @ Value::Tensor(_)) => fit_value(input, element, value),
        _ => Ok(()),
    }
}

/// Compares a shape with the declared one of an input. A name stands for any size: exporters give one name to dimensions that differ, and
/// runtimes take that.
pub fn fit(input: &Str, declared: &[DeclaredDim], shape: &[usize]) -> Result<(), String> {
    let fits = |(dim, &size): (&DeclaredDim, &usize)| match dim {
        DeclaredDim::Size(declared) => *declared == size as u64,
        DeclaredDim::Named(_) | DeclaredDim::Unknown => true,
    };
    match declared.len() == shape.len() && declared.iter().zip(shape).all(fits) {
        true => Ok(()),
        false => Err(format!("the input {input} is {}, declared {}", list(shape), list(declared))),
    }
}

fn list<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("[{}]", items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_and_sizes_are_compared() {
        let a = Str::from("a");
        let named = DeclaredDim::Named("n".into());
        let declared = [DeclaredDim::Size(2), DeclaredDim::Size(3)];
        assert_eq!(fit(&a, &declared, &[7]), Err("the input a is [7], declared [2,3]".to_owned()));
        assert!(fit(&a, &declared, &[2, 4]).is_err());
        assert!(fit(&a, &declared, &[2, 3]).is_ok());
        assert!(fit(&a, &[named.clone(), named, DeclaredDim::Unknown], &[4, 5, 9]).is_ok());
    }
}
