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
    let mut sizes = Sizes::default();
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
            Some(value) => sizes.fit_value(name, &declared, value)?,
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

/// The sizes of named dimensions, as the shapes of inputs show them: a name is one size throughout a graph.
#[derive(Debug, Default)]
pub struct Sizes {
    /// Each with the input that showed it; none for a size that was set.
    known: HashMap<Str, (usize, Option<Str>)>,
}

impl Sizes {
    /// A dimension of this name has this size.
    pub fn set(&mut self, name: &str, size: usize) {
        self.known.insert(name.into(), (size, None));
    }

    /// The size of the dimension of this name.
    pub fn get(&self, name: &str) -> Option<usize> {
        self.known.get(name).map(|(size, _)| *size)
    }

    /// Compares a value with the declared shape of an input and learns the sizes of names. The elements of a sequence may
    /// differ in shape, so that nothing is asked of them.
    pub fn fit_value(&mut self, input: &Str, declared: &Type, value: &Value) -> Result<(), String> {
        match (declared, value) {
            (Type::Tensor(_, Some(dims)), Value::Tensor(array)) => self.fit(input, dims, array.shape()),
            (Type::Optional(element), Value::Optional(Some(value))) => self.fit_value(input, element, value),
            (Type::Optional(element), value @ Value::Tensor(_)) => self.fit_value(input, element, value),
            _ => Ok(()),
        }
    }

    /// Compares a shape with the declared one of an input and learns the sizes of names.
    pub fn fit(&mut self, input: &Str, declared: &[DeclaredDim], shape: &[usize]) -> Result<(), String> {
        let differ = || format!("the input {input} is {}, declared {}", list(shape), list(declared));
        if declared.len() != shape.len() {
            return Err(differ());
        }
        for (dim, &size) in declared.iter().zip(shape) {
            match dim {
                DeclaredDim::Unknown => {}
                DeclaredDim::Size(declared) if *declared == size as u64 => {}
                DeclaredDim::Size(_) => return Err(differ()),
                DeclaredDim::Named(name) => {
                    match self.known.entry(name.clone()).or_insert_with(|| (size, Some(input.clone()))) {
                        (known, _) if *known == size => {}
                        (known, Some(other)) if other == input => {
                            return Err(format!("{}: {name} is {known} and {size}", differ()));
                        }
                        (known, Some(other)) => {
                            return Err(format!("{}, and {name} is {known} in the input {other}", differ()));
                        }
                        (known, None) => return Err(format!("{}, and {name} is set to {known}", differ())),
                    }
                }
            }
        }
        Ok(())
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
    fn rank_sizes_and_names_are_compared() {
        let (a, b) = (Str::from("a"), Str::from("b"));
        let named = |name: &str| DeclaredDim::Named(name.into());
        let mut sizes = Sizes::default();
        let declared = [DeclaredDim::Size(2), DeclaredDim::Size(3)];
        assert_eq!(sizes.fit(&a, &declared, &[7]), Err("the input a is [7], declared [2,3]".to_owned()));
        assert!(sizes.fit(&a, &declared, &[2, 4]).is_err());
        assert!(sizes.fit(&a, &declared, &[2, 3]).is_ok());
        assert!(sizes.fit(&a, &[named("n"), named("n"), DeclaredDim::Unknown], &[4, 4, 9]).is_ok());
        assert_eq!(
            sizes.fit(&b, &[named("n")], &[5]),
            Err("the input b is [5], declared [n], and n is 4 in the input a".to_owned())
        );
        sizes.set("m", 1);
        assert_eq!(
            sizes.fit(&b, &[named("m")], &[5]),
            Err("the input b is [5], declared [m], and m is set to 1".to_owned())
        );
        assert_eq!(
            sizes.fit(&b, &[named("k"), named("k")], &[5, 6]),
            Err("the input b is [5,6], declared [k,k]: k is 5 and 6".to_owned())
        );
    }
}
