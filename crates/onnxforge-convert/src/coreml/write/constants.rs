//! Constants: those of the model, and those that parameters of operations get.

use std::io::{self, Write};
use std::sync::Arc;

use half::f16;
use onnxforge_ir::tensor::TensorError;
use onnxforge_ir::{DType, Tensor, ValueId};
use onnxforge_proto::Str;
use onnxforge_proto::blob::{Blob, Payload, Stream};
use onnxforge_proto::wire::Packed;

use super::{Var, Writer, dims, kind, named};
use crate::coreml::schema::{
    Bools, Bytes, Elem, Elements, FileValue, Floats, Immediate, Ints, Operation, Texts, Value, ValueEntry,
};
use crate::coreml::weights::NAME;
use crate::view::Why;

/// Constants of fewer elements lie in the program itself.
const FROM_FILE: usize = 10;

/// What a constant is: element type, sizes, bytes.
pub type Key = (Elem, Vec<i64>, Vec<u8>);

/// What an operation is called.
pub fn label(name: &Str) -> ValueEntry {
    let texts = Texts { values: vec![name.clone()], ..Texts::default() };
    let elements = Elements { texts: Some(Box::new(texts)), ..Elements::default() };
    ValueEntry {
        key: Some("name".into()),
        value: Some(Box::new(immediate(Elem::Text, &[], elements))),
        ..ValueEntry::default()
    }
}

fn immediate(elem: Elem, sizes: &[i64], elements: Elements) -> Value {
    Value {
        kind: Some(Box::new(kind(elem, &dims(sizes)))),
        immediate: Some(Box::new(Immediate { tensor: Some(Box::new(elements)), ..Immediate::default() })),
        ..Value::default()
    }
}

/// Elements in the field of their kind.
fn elements(elem: Elem, bytes: &[u8]) -> Elements {
    let mut all = Elements::default();
    let ints = || bytes.as_chunks().0.iter().map(|&it| i32::from_le_bytes(it)).collect();
    match elem {
        Elem::F32 => {
            let values = bytes.as_chunks().0.iter().map(|&it| f32::from_le_bytes(it)).collect();
            all.floats = Some(Box::new(Floats { values: Packed(values), ..Floats::default() }));
        }
        Elem::I32 => all.ints = Some(Box::new(Ints { values: Packed(ints()), ..Ints::default() })),
        Elem::Bool => {
            let values = bytes.iter().map(|&it| i32::from(it != 0)).collect();
            all.bools = Some(Box::new(Bools { values: Packed(values), ..Bools::default() }));
        }
        Elem::Text => {
            let text = String::from_utf8_lossy(bytes).as_ref().into();
            all.texts = Some(Box::new(Texts { values: vec![text], ..Texts::default() }));
        }
        _ => all.bytes = Some(Box::new(Bytes { values: Some(Blob::from(bytes)), ..Bytes::default() })),
    }
    all
}

/// Floats of 32 bits that become ones of 16 on their way to a file.
#[derive(Debug)]
struct Narrowed(Payload);

impl Stream for Narrowed {
    fn byte_len(&self) -> u64 {
        self.0.byte_len() / 2
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut narrow = Narrowing { out, rest: Vec::new(), buffer: Vec::new() };
        self.0.write_to(&mut narrow)
    }
}

struct Narrowing<'a> {
    out: &'a mut dyn Write,
    /// Bytes of a number that is not whole yet.
    rest: Vec<u8>,
    buffer: Vec<u8>,
}

/// Bytes that are narrowed at once.
const CHUNK: usize = 1 << 16;

impl Write for Narrowing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut bytes = bytes.get(..CHUNK).unwrap_or(bytes);
        let length = bytes.len();
        self.buffer.clear();
        while !self.rest.is_empty() && !bytes.is_empty() {
            let (first, others) = bytes.split_at(1);
            self.rest.extend(first);
            bytes = others;
            if let Ok(whole) = <[u8; 4]>::try_from(&self.rest[..]) {
                self.buffer.extend(f16::from_f32(f32::from_le_bytes(whole)).to_le_bytes());
                self.rest.clear();
            }
        }
        let (whole, others) = bytes.as_chunks::<4>();
        self.buffer.extend(whole.iter().flat_map(|&it| f16::from_f32(f32::from_le_bytes(it)).to_le_bytes()));
        self.rest.extend(others);
        self.out.write_all(&self.buffer)?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Bytes as those of another element type.
fn converted(constant: &Tensor, elem: Elem) -> Result<Vec<u8>, Why> {
    let trouble = |error: TensorError| Why::from(error.to_string());
    if elem == Elem::I32 {
        let narrow =
            |value: i64| i32::try_from(value).map_err(|_| Why::from("a number does not fit into 32 bits"));
        let narrow =
            constant.to_i64s().map_err(trouble)?.into_iter().map(narrow).collect::<Result<Vec<_>, _>>()?;
        return Ok(narrow.iter().flat_map(|value| value.to_le_bytes()).collect());
    }
    let bytes = constant.bytes().map_err(trouble)?;
    Ok(match (constant.dtype(), elem) {
        (DType::F32, Elem::F16) => {
            let wide = bytes.as_chunks().0.iter().map(|&it| f32::from_le_bytes(it));
            wide.flat_map(|it| f16::from_f32(it).to_le_bytes()).collect()
        }
        _ => bytes.into_owned(),
    })
}

impl Writer<'_> {
    /// A constant of the model, whose elements stay where they are as far as possible.
    pub fn stored(&mut self, value: ValueId, constant: &Tensor, elem: Elem) -> Result<Var, Why> {
        if let Some(known) = self.stored.get(&(value, elem)) {
            return Ok(known.clone());
        }
        if constant.is_empty() {
            return Err("there are no tensors without elements".into());
        }
        if constant.shape().len() > super::MOST_AXES {
            return Err(format!("tensors have up to {} axes", super::MOST_AXES).into());
        }
        let sizes: Vec<i64> = constant.shape().iter().map(|&size| size as i64).collect();
        let name = self.model.value(value).name().to_string();
        let var = self.data(&name, constant, elem, &sizes)?;
        self.stored.insert((value, elem), var.clone());
        Ok(var)
    }

    /// The elements of a tensor as a constant of these sizes.
    pub fn data(&mut self, name: &str, constant: &Tensor, elem: Elem, sizes: &[i64]) -> Result<Var, Why> {
        if constant.len() < FROM_FILE || !elem.is_float() {
            let bytes = converted(constant, elem)?;
            return Ok(self.constant_of(name, elem, sizes, bytes));
        }
        let payload = constant.payload().map_err(|error| Why::from(error.to_string()))?;
        let payload = match (constant.dtype(), elem) {
            (DType::F32, Elem::F16) => Payload::Stream(Arc::new(Narrowed(payload))),
            _ => payload,
        };
        Ok(self.filed(name, elem, sizes, payload))
    }

    /// A constant whose bytes lie in the file of weights.
    pub fn filed(&mut self, name: &str, elem: Elem, sizes: &[i64], payload: Payload) -> Var {
        let value = self.file_value(elem, sizes, payload);
        let var = self.fresh(name, elem, dims(sizes));
        self.constant_operation(&var, value);
        var
    }

    /// A value in the file of weights.
    pub fn file_value(&mut self, elem: Elem, sizes: &[i64], payload: Payload) -> Value {
        let offset = self.weights.push(elem, payload) as i64;
        let file = FileValue { name: Some(NAME.into()), offset: Some(offset), ..FileValue::default() };
        Value {
            kind: Some(Box::new(kind(elem, &dims(sizes)))),
            file: Some(Box::new(file)),
            ..Value::default()
        }
    }

    /// A value in the program itself.
    pub fn immediate_value(&self, elem: Elem, sizes: &[i64], bytes: &[u8]) -> Value {
        immediate(elem, sizes, elements(elem, bytes))
    }

    /// A constant of these bytes.
    fn constant_of(&mut self, name: &str, elem: Elem, sizes: &[i64], bytes: Vec<u8>) -> Var {
        let count: i64 = sizes.iter().product();
        if count as usize >= FROM_FILE && elem.stored() != 0 {
            return self.filed(name, elem, sizes, Blob::from(bytes).into());
        }
        let var = self.fresh(name, elem, dims(sizes));
        let value = self.immediate_value(elem, sizes, &bytes);
        self.constant_operation(&var, value);
        var
    }

    fn constant_operation(&mut self, var: &Var, value: Value) {
        let value =
            ValueEntry { key: Some("val".into()), value: Some(Box::new(value)), ..ValueEntry::default() };
        self.operations.push(Operation {
            kind: Some("const".into()),
            outputs: vec![named(&var.name, var.elem, &var.shape)],
            attributes: vec![label(&var.name), value],
            ..Operation::default()
        });
    }

    /// A constant that operations need; equal ones are one.
    pub fn needed(&mut self, elem: Elem, sizes: &[i64], bytes: Vec<u8>) -> Var {
        let key = (elem, sizes.to_vec(), bytes);
        if let Some(known) = self.shared.get(&key) {
            return known.clone();
        }
        let var = self.constant_of("const", elem, sizes, key.2.clone());
        self.shared.insert(key, var.clone());
        var
    }

    /// A list of integers.
    pub fn list(&mut self, values: &[i64]) -> Result<Var, Why> {
        let bytes = narrow(values)?.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(self.needed(Elem::I32, &[values.len() as i64], bytes))
    }

    /// An integer.
    pub fn int(&mut self, value: i64) -> Result<Var, Why> {
        let bytes = narrow(&[value])?.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(self.needed(Elem::I32, &[], bytes))
    }

    /// A number of the element type of another value.
    pub fn number_like(&mut self, value: f64, elem: Elem) -> Var {
        let bytes = match elem {
            Elem::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Elem::F32 => (value as f32).to_le_bytes().to_vec(),
            _ => (value as i32).to_le_bytes().to_vec(),
        };
        self.needed(elem, &[], bytes)
    }

    /// A truth value.
    pub fn flag(&mut self, value: bool) -> Var {
        self.needed(Elem::Bool, &[], vec![value.into()])
    }

    /// Truth values.
    pub fn flags(&mut self, values: &[bool]) -> Var {
        self.needed(Elem::Bool, &[values.len() as i64], values.iter().map(|&it| it.into()).collect())
    }

    /// A text.
    pub fn text(&mut self, value: &str) -> Var {
        self.needed(Elem::Text, &[], value.as_bytes().to_vec())
    }
}

/// Integers of 32 bits.
pub fn narrow(values: &[i64]) -> Result<Vec<i32>, Why> {
    let narrow =
        |&value: &i64| i32::try_from(value).map_err(|_| Why::from("a number does not fit into 32 bits"));
    values.iter().map(narrow).collect()
}
