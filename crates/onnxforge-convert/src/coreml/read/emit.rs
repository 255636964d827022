//! Nodes of a message under construction.

use std::collections::{HashMap, HashSet};

use onnxforge_ir::DType;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{NodeProto, TensorProto};

use super::values::Known;
use crate::message::{Attr, constant, node};

/// What becomes of a program.
#[derive(Default)]
pub struct Emit {
    pub nodes: Vec<NodeProto>,
    pub initializers: Vec<TensorProto>,
    names: HashSet<Str>,
    wanted: HashMap<String, usize>,
    stored: HashSet<Str>,
}

impl Emit {
    /// A name like this that nothing has.
    pub fn fresh(&mut self, name: &str) -> Str {
        let base = if name.is_empty() { "value" } else { name };
        let count = self.wanted.entry(base.to_owned()).or_insert(0);
        let mut candidate: Str = base.into();
        while !self.names.insert(candidate.clone()) {
            candidate = format!("{base}/{count}").as_str().into();
            *count += 1;
        }
        candidate
    }

    /// The name of a value that is read.
    pub fn read(&mut self, known: &Known) -> Str {
        if let Some(data) = &known.data
            && self.stored.insert(known.name.clone())
        {
            let dims = known.shape.iter().map(|size| size.unwrap_or(0)).collect();
            self.initializers.push(constant(&known.name, known.dtype(), dims, data.clone().into()));
        }
        known.name.clone()
    }

    /// A new constant of integers.
    pub fn ints(&mut self, values: &[i64]) -> Str {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(DType::I64, vec![values.len() as i64], bytes)
    }

    /// A new constant of other elements.
    pub fn constant(&mut self, dtype: DType, dims: Vec<i64>, bytes: Vec<u8>) -> Str {
        let name = self.fresh("constant");
        self.initializers.push(constant(&name, dtype, dims, Blob::from(bytes).into()));
        name
    }

    /// A number of the type of another value.
    pub fn number(&mut self, dtype: DType, value: f64) -> Str {
        self.numbers(dtype, Vec::new(), &[value])
    }

    /// Numbers of the type of another value.
    pub fn numbers(&mut self, dtype: DType, dims: Vec<i64>, values: &[f64]) -> Str {
        let bytes = values.iter().flat_map(|&value| match dtype {
            DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            _ => (value as i32).to_le_bytes().to_vec(),
        });
        self.constant(dtype, dims, bytes.collect())
    }

    /// A value as integers of 64 bits, which shapes and axes have.
    pub fn wide(&mut self, known: &Known) -> Str {
        let x = self.read(known);
        self.cast(x, DType::I64)
    }

    /// A value in another element type.
    pub fn cast(&mut self, x: Str, to: DType) -> Str {
        self.call("Cast", vec![x], vec![Attr::Int("to", to.code().into())])
    }

    /// A node with one result of a new name, which is the answer.
    pub fn call(&mut self, op: &str, inputs: Vec<Str>, attrs: Vec<Attr<'_>>) -> Str {
        let name = self.fresh(op);
        self.node(op, inputs, vec![name.clone()], attrs);
        name
    }

    /// A node.
    pub fn node(&mut self, op: &str, inputs: Vec<Str>, outputs: Vec<Str>, attrs: Vec<Attr<'_>>) {
        self.nodes.push(node("", op, inputs, outputs, attrs));
    }
}
