//! Packages to messages: every operation becomes one node, or a few.
//!
//! Nothing in a package is believed: names, types, offsets and sizes are checked, and what is made of a package is no larger than that.

mod elements;
mod emit;
mod layers;
mod operation;
mod places;
mod values;

use std::collections::HashMap;

use onnxforge_ir::DType;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{
    Dimension, GraphProto, ModelProto, OperatorSetIdProto, TensorShapeProto, TensorType, TypeProto,
    ValueInfoProto,
};
use onnxforge_proto::wire::{self, WireError};

use self::emit::Emit;
use self::operation::Call;
use self::values::{Known, of_type, of_value};
use super::PORTS;
use super::package::Package;
use super::schema::{Elem, Function, NamedType, Operation, Spec, Value};
use super::write::PortNote;
use crate::message::Attr;

/// The standard operators that nodes call.
const OPSET: i64 = 21;
/// The version of the format of messages that has them.
const IR_VERSION: i64 = 10;

/// Why a package is no model that can be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Its model is no message.
    #[error("it is a Core ML package whose model is damaged: {0}")]
    Wire(#[from] WireError),
    /// It has something that has no counterpart here, or that contradicts itself.
    #[error("it is a Core ML package with {what} at operation {at}, which is not read")]
    Operation {
        /// What.
        what: String,
        /// Which operation it is.
        at: usize,
    },
    /// The same beside the operations.
    #[error("it is a Core ML package with {0}, which is not read")]
    Other(String),
}

/// What an operation cannot be read for.
pub type Trouble = String;

/// A program on its way to a message.
pub struct Reader<'p> {
    package: &'p Package,
    emit: Emit,
    values: HashMap<Str, Known>,
    /// Names that values get in the message because they are outputs.
    wanted: HashMap<Str, Str>,
    /// Files of weights that are open.
    files: HashMap<Str, Blob>,
}

/// The message that a package stands for.
pub fn read(package: &Package) -> Result<ModelProto, ReadError> {
    let spec: Spec = wire::decode(&package.model)?;
    let other = |what: &str| ReadError::Other(what.to_owned());
    let program = spec.program.as_deref().ok_or_else(|| other("something else than an ML Program"))?;
    let [function] = &program.functions[..] else {
        return Err(ReadError::Other(format!("{} functions", program.functions.len())));
    };
    let function = function.value.as_deref().ok_or_else(|| other("a function without a body"))?;
    let notes = ports_of(&spec);
    let mut reader = Reader {
        package,
        emit: Emit::default(),
        values: HashMap::new(),
        wanted: HashMap::new(),
        files: HashMap::new(),
    };
    let graph = reader.function(function, &notes)?;
    let import =
        OperatorSetIdProto { domain: Some("".into()), version: Some(OPSET), ..OperatorSetIdProto::default() };
    Ok(ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: Some("Core ML".into()),
        graph: Some(Box::new(graph)),
        opset_import: vec![import],
        ..ModelProto::default()
    })
}

/// How the interface of the model was, as far as the package says so.
fn ports_of(spec: &Spec) -> HashMap<String, PortNote> {
    let metadata = spec.description.as_ref().and_then(|it| it.metadata.as_ref());
    let entries = metadata.map(|it| &it.custom[..]).unwrap_or_default();
    let text =
        entries.iter().find(|entry| entry.key.as_deref() == Some(PORTS)).and_then(|it| it.value.as_deref());
    let notes: Vec<PortNote> = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    notes.into_iter().map(|note| (note.name.clone(), note)).collect()
}

/// The element type that a note says.
fn noted(note: Option<&PortNote>, elem: Elem) -> DType {
    let found = note.and_then(|note| DType::from_name(&note.dtype));
    found.or(elem.dtype()).unwrap_or(DType::F32)
}

impl Reader<'_> {
    fn function(
        &mut self,
        function: &Function,
        notes: &HashMap<String, PortNote>,
    ) -> Result<GraphProto, ReadError> {
        let opset = function.opset.as_deref().unwrap_or_default();
        let block = function.blocks.iter().find(|entry| entry.key.as_deref() == Some(opset));
        let block = block.and_then(|entry| entry.value.as_deref());
        let block = block.ok_or_else(|| ReadError::Other("a function without a body".to_owned()))?;
        let name_of =
            |name: &Str| notes.get(&**name).map_or_else(|| name.to_string(), |note| note.model.clone());
        // Names that users know go first.
        let mut inputs = Vec::new();
        for input in &function.inputs {
            let name = input.name.clone().unwrap_or_default();
            inputs.push(self.emit.fresh(&name_of(&name)));
        }
        let outputs: Vec<Str> = block.outputs.iter().map(|name| self.emit.fresh(&name_of(name))).collect();
        let mut declared = Vec::new();
        for (input, name) in function.inputs.iter().zip(inputs) {
            declared.push(self.input(input, &name, notes).map_err(ReadError::Other)?);
        }
        for (name, output) in block.outputs.iter().zip(&outputs) {
            let plain = notes.get(&**name).is_none_or(|note| !note.scalar);
            if plain && !self.values.contains_key(name) {
                self.wanted.insert(name.clone(), output.clone());
            }
        }
        for (at, operation) in block.operations.iter().enumerate() {
            self.operation(operation, notes).map_err(|what| ReadError::Operation { what, at })?;
        }
        let mut results = Vec::new();
        for (name, output) in block.outputs.iter().zip(&outputs) {
            results.push(self.output(name, output, notes.get(&**name)).map_err(ReadError::Other)?);
        }
        Ok(GraphProto {
            node: std::mem::take(&mut self.emit.nodes),
            name: Some("main".into()),
            initializer: std::mem::take(&mut self.emit.initializers),
            input: declared,
            output: results,
            ..GraphProto::default()
        })
    }

    fn input(
        &mut self,
        input: &NamedType,
        name: &Str,
        notes: &HashMap<String, PortNote>,
    ) -> Result<ValueInfoProto, Trouble> {
        let own = input.name.clone().unwrap_or_default();
        let (elem, shape) = of_type(input.kind.as_deref())?;
        let note = notes.get(&*own);
        let dtype = noted(note, elem);
        let mut value = name.clone();
        let is_scalar = note.is_some_and(|note| note.scalar) && shape == [Some(1)];
        if is_scalar {
            let sizes = self.emit.ints(&[1]);
            value = self.emit.call("Reshape", vec![value, sizes], vec![]);
        }
        if Some(dtype) != elem.dtype() {
            value = self.emit.cast(value, elem.dtype().unwrap_or(DType::F32));
        }
        // What users hand over in the model is what follows from an image.
        if let Some(pixels) = note.and_then(|note| note.pixels.as_ref())
            && pixels.bias.len() <= 4
            && dtype == DType::F32
        {
            let bias: Vec<f64> = pixels.bias.iter().map(|&it| it.into()).collect();
            let bias = self.emit.numbers(dtype, vec![1, bias.len() as i64, 1, 1], &bias);
            let scale = self.emit.number(dtype, pixels.scale.into());
            let moved = self.emit.call("Sub", vec![value, bias], vec![]);
            value = self.emit.call("Div", vec![moved, scale], vec![]);
        }
        let outer = if is_scalar { Vec::new() } else { shape.clone() };
        self.define(own, Known { name: value, elem, shape, data: None, text: None })?;
        Ok(declaration(name, dtype, Some(&outer)))
    }

    fn output(&mut self, own: &Str, name: &Str, note: Option<&PortNote>) -> Result<ValueInfoProto, Trouble> {
        let known =
            self.values.get(own).cloned().ok_or_else(|| format!("an output {own} that nothing computes"))?;
        let dtype = noted(note, known.elem);
        if known.name != *name {
            let mut value = self.emit.read(&known);
            if note.is_some_and(|note| note.scalar) {
                let none = self.emit.ints(&[]);
                value = self.emit.call("Reshape", vec![value, none], vec![]);
            }
            self.emit.node(
                "Cast",
                vec![value],
                vec![name.clone()],
                vec![Attr::Int("to", dtype.code().into())],
            );
        }
        Ok(declaration(name, dtype, None))
    }

    /// A value that is known from here on.
    fn define(&mut self, own: Str, known: Known) -> Result<(), Trouble> {
        match self.values.insert(own.clone(), known) {
            None => Ok(()),
            Some(_) => Err(format!("two values called {own}")),
        }
    }

    /// A value that is written down.
    fn value(&mut self, value: &Value, name: Str) -> Result<Known, Trouble> {
        let Self { package, files, .. } = self;
        let mut weights = |name: &Str| match files.get(name) {
            Some(file) => Ok(file.clone()),
            None => {
                let file = package.weights(name)?;
                files.insert(name.clone(), file.clone());
                Ok(file)
            }
        };
        of_value(value, name, &mut weights)
    }

    fn operation(&mut self, operation: &Operation, notes: &HashMap<String, PortNote>) -> Result<(), Trouble> {
        let kind = operation.kind.as_deref().unwrap_or_default();
        if kind == "const" {
            let [output] = &operation.outputs[..] else { return Err("a constant without a name".to_owned()) };
            let own = output.name.clone().unwrap_or_default();
            let value = operation.attributes.iter().find(|entry| entry.key.as_deref() == Some("val"));
            let value = value.and_then(|entry| entry.value.as_deref()).ok_or("a constant without a value")?;
            let name = self.emit.fresh(&own);
            let known = self.value(value, name)?;
            return self.define(own, known);
        }
        let mut outputs = Vec::new();
        for output in &operation.outputs {
            let own = output.name.clone().unwrap_or_default();
            let (elem, shape) = of_type(output.kind.as_deref())?;
            // An output in the element type of the model has its name at once.
            let kept = self.wanted.get(&own).filter(|_| Some(noted(notes.get(&*own), elem)) == elem.dtype());
            let name = match kept.cloned() {
                Some(name) => name,
                None => self.emit.fresh(&own),
            };
            outputs.push((own, Known { name, elem, shape, data: None, text: None }));
        }
        let call = Call::of(self, kind, operation, outputs.iter().map(|output| output.1.clone()).collect())?;
        operation::read(self, &call)?;
        outputs.into_iter().try_for_each(|(own, known)| self.define(own, known))
    }
}

fn declaration(name: &Str, dtype: DType, shape: Option<&[Option<i64>]>) -> ValueInfoProto {
    let dims = |sizes: &[Option<i64>]| TensorShapeProto {
        dim: sizes
            .iter()
            .enumerate()
            .map(|(axis, size)| Dimension {
                dim_value: *size,
                dim_param: size.is_none().then(|| format!("{name}_{axis}").as_str().into()),
                ..Dimension::default()
            })
            .collect(),
        ..TensorShapeProto::default()
    };
    let tensor = TensorType {
        elem_type: Some(dtype.code()),
        shape: shape.map(|shape| Box::new(dims(shape))),
        ..TensorType::default()
    };
    let kind = TypeProto { tensor_type: Some(Box::new(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.clone()), r#type: Some(Box::new(kind)), ..ValueInfoProto::default() }
}
