//! Nodes of a message under construction.

use std::collections::{HashMap, HashSet};

use onnxforge_ir::DType;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{NodeProto, TensorProto};

use super::Trouble;
use super::tensors::Tensors;
use crate::message::{Attr, constant, node};
use crate::tflite::graph::Quantization;

/// Bytes of a list of sizes or places.
const LONGEST: usize = 2048;

/// What becomes of a file.
pub struct Emit {
    pub tensors: Tensors,
    pub nodes: Vec<NodeProto>,
    pub initializers: Vec<TensorProto>,
    /// Constants that are there already, and inputs.
    given: HashSet<usize>,
    /// The real numbers that tensors of integers stand for, where something reads them.
    real: HashMap<usize, Str>,
    /// Results of the operator at work that are still to be quantized.
    raw: Vec<(usize, Str)>,
}

impl Emit {
    pub fn new(tensors: Tensors) -> Self {
        Self {
            tensors,
            nodes: Vec::new(),
            initializers: Vec::new(),
            given: HashSet::new(),
            real: HashMap::new(),
            raw: Vec::new(),
        }
    }

    /// Whether a tensor is there without any operator.
    pub fn is_given(&self, index: usize) -> bool {
        self.given.contains(&index) || self.tensors.get(index).data.is_some()
    }

    /// Says that a tensor is an input.
    pub fn give(&mut self, index: usize) {
        self.given.insert(index);
    }

    /// The numbers of a tensor that is read: those that its integers stand for, where they do.
    pub fn read(&mut self, index: usize) -> Str {
        let stored = self.stored(index);
        let tensor = self.tensors.get(index).clone();
        let Some(quantization) = tensor.quantization else { return stored };
        if let Some(real) = self.real.get(&index) {
            return real.clone();
        }
        let real = self.tensors.fresh(&format!("{stored}/real"));
        self.linear("DequantizeLinear", stored, &quantization, tensor.dtype, real.clone());
        self.real.insert(index, real.clone());
        real
    }

    /// The value that an operator gives to a tensor; [`Emit::quantize`] makes integers of it where it has some.
    pub fn output(&mut self, index: usize) -> Str {
        let tensor = self.tensors.get(index);
        if tensor.quantization.is_none() {
            return tensor.name.clone();
        }
        let name = tensor.name.clone();
        let raw = self.tensors.fresh(&format!("{name}/raw"));
        self.raw.push((index, raw.clone()));
        raw
    }

    /// Makes integers of the results of an operator.
    pub fn quantize(&mut self) {
        for (index, raw) in std::mem::take(&mut self.raw) {
            let tensor = self.tensors.get(index).clone();
            if let Some(quantization) = &tensor.quantization {
                self.linear("QuantizeLinear", raw, quantization, tensor.dtype, tensor.name);
            }
        }
    }

    /// QuantizeLinear or DequantizeLinear.
    fn linear(&mut self, op: &str, x: Str, quantization: &Quantization, dtype: DType, y: Str) {
        let Quantization { scales, zeros, axis } = quantization;
        let dims = if scales.len() == 1 { Vec::new() } else { vec![scales.len() as i64] };
        let bytes = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let mut inputs = vec![x, self.constant(DType::F32, dims.clone(), bytes)];
        // Integers of 32 bits have no zero point in the standard.
        if dtype != DType::I32 {
            let bytes = match dtype {
                DType::I16 => zeros.iter().flat_map(|&zero| (zero as i16).to_le_bytes()).collect(),
                _ => zeros.iter().map(|&zero| zero as u8).collect(),
            };
            inputs.push(self.constant(dtype, dims, bytes));
        }
        self.node("", op, inputs, vec![y], vec![Attr::Int("axis", (*axis).into())]);
    }

    /// The value of a tensor as it is stored.
    pub fn stored(&mut self, index: usize) -> Str {
        let tensor = self.tensors.get(index).clone();
        if let Some(data) = tensor.data
            && self.given.insert(index)
        {
            let dims = tensor.signature.iter().map(|&size| size.into()).collect();
            self.initializers.push(constant(&tensor.name, tensor.dtype, dims, data.into()));
        }
        tensor.name
    }

    /// A new constant of integers.
    pub fn ints(&mut self, values: &[i64]) -> Str {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(DType::I64, vec![values.len() as i64], bytes)
    }

    /// A new constant number.
    pub fn float(&mut self, value: f32) -> Str {
        self.constant(DType::F32, Vec::new(), value.to_le_bytes().to_vec())
    }

    fn constant(&mut self, dtype: DType, dims: Vec<i64>, bytes: Vec<u8>) -> Str {
        let name = self.tensors.fresh("constant");
        self.initializers.push(constant(&name, dtype, dims, Blob::from(bytes).into()));
        name
    }

    /// The integers of a constant that is a list of sizes or places. Longer ones are data, which no operator is to be made of again and again.
    pub fn fixed(&self, index: usize) -> Option<Vec<i64>> {
        let tensor = self.tensors.get(index);
        let data = tensor.data.as_ref().filter(|data| data.len() <= LONGEST)?;
        match tensor.dtype {
            DType::I32 => Some(data.as_chunks().0.iter().map(|&it| i32::from_le_bytes(it).into()).collect()),
            DType::I64 => Some(data.as_chunks().0.iter().map(|&it| i64::from_le_bytes(it)).collect()),
            _ => None,
        }
    }

    /// The integers of a tensor that has to be a constant.
    pub fn demand(&self, index: usize) -> Result<Vec<i64>, Trouble> {
        self.fixed(index).ok_or_else(|| "a list that is computed".into())
    }

    /// A tensor as integers of 64 bits.
    pub fn wide(&mut self, index: usize) -> Str {
        if let (Some(ints), 1) = (self.fixed(index), self.tensors.get(index).signature.len()) {
            return self.ints(&ints);
        }
        let x = self.read(index);
        match self.tensors.get(index).dtype {
            DType::I64 => x,
            _ => self.call("Cast", vec![x], vec![Attr::Int("to", DType::I64.code().into())]),
        }
    }

    /// A node with one result of a new name, which is the answer.
    pub fn call(&mut self, op: &str, inputs: Vec<Str>, attrs: Vec<Attr<'_>>) -> Str {
        let name = self.tensors.fresh(op);
        self.node("", op, inputs, vec![name.clone()], attrs);
        name
    }

    /// A copy of a value under a new name.
    pub fn copy(&mut self, value: &Str) -> Str {
        let name = self.tensors.fresh(value);
        self.node("", "Identity", vec![value.clone()], vec![name.clone()], Vec::new());
        name
    }

    /// A node.
    pub fn node(
        &mut self,
        domain: &str,
        op: &str,
        inputs: Vec<Str>,
        outputs: Vec<Str>,
        attrs: Vec<Attr<'_>>,
    ) {
        self.nodes.push(node(domain, op, inputs, outputs, attrs));
    }
}
