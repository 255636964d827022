//! Models to graphs: every node becomes one operator, or a few.

mod activations;
mod arithmetic;
mod halves;
mod layers;
mod layout;
mod ports;
mod quantized;
mod select;
mod shapes;
mod table;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, Model, NodeId, Tensor as Constant, Type, ValueId};
use onnxforge_proto::blob::Blob;

use super::graph::{Graph, Named, Operator, Quantization, Setting, Tensor};
use super::schema::{self, Builtin};
use crate::artifact::ChannelsLast;
use crate::format::{Layout, Weights};
use crate::refusal::{Refusal, Refusals};
use crate::view::{View, Why};

/// A graph under construction.
pub struct Writer<'m> {
    view: View<'m>,
    graph: Graph,
    /// The tensors that values have become.
    known: HashMap<ValueId, i32>,
    /// The tensors of integers that stand for values.
    held: HashMap<ValueId, i32>,
    /// Values that are no tensor of their own: what only an activation reads, which the operator that computes it applies, is the
    /// activation's result; an image that only goes into another layout is what it becomes there.
    becomes: HashMap<ValueId, ValueId>,
    /// The same for the operands of a Concat that stood for something else than its result.
    joined: HashMap<ValueId, i32>,
    /// What is applied to the result of a node, by its number in the format, and the nodes that this saves.
    activations: HashMap<NodeId, u8>,
    saved: HashSet<NodeId>,
    /// The node at work, and whether it computes in integers.
    at: Option<NodeId>,
    in_integers: bool,
    /// How weights are stored.
    weights: Weights,
    /// Nodes between quantized tensors that compute in floats, and why.
    floats: Vec<Refusal>,
    /// Constants that the format needs, by type, shape and bytes.
    shared: BTreeMap<(u8, Vec<i32>, Vec<u8>), i32>,
}

impl<'m> Deref for Writer<'m> {
    type Target = View<'m>;

    fn deref(&self) -> &View<'m> {
        &self.view
    }
}

/// A graph, and what else there is to say of it.
#[derive(Debug)]
pub struct Written {
    /// The graph.
    pub graph: Graph,
    /// Nodes between quantized tensors that compute in floats, and why.
    pub floats: Vec<Refusal>,
    /// Inputs and outputs that have another layout than in the model.
    pub channels_last: ChannelsLast,
}

/// The graph of a model, once the passes of the target ran.
pub fn write(model: &Model, weights: Weights, layout: Layout) -> Result<Written, Refusals> {
    let mut writer = Writer {
        view: View::of(model),
        graph: Graph::default(),
        known: HashMap::new(),
        held: HashMap::new(),
        becomes: HashMap::new(),
        joined: HashMap::new(),
        activations: HashMap::new(),
        saved: HashSet::new(),
        at: None,
        in_integers: false,
        weights,
        floats: Vec::new(),
        shared: BTreeMap::new(),
    };
    writer.find_activations();
    let channels_last = match layout {
        Layout::Keep => ChannelsLast::default(),
        Layout::Nhwc => writer.turn_ports(),
    };
    let mut refusals = Vec::new();
    let main = model.scope(model.main());
    for port in main.inputs() {
        match writer.port(port.value, &port.declared()) {
            Ok(named) => writer.graph.inputs.push(named),
            Err(why) => refusals.push(refused("input", model.value(port.value).name(), why)),
        }
    }
    for (id, _) in model.nodes_in(model.main()) {
        if let Err(why) = writer.lower(id) {
            let refusal = Refusal::of(model, id, why.reason);
            refusals.push(Refusal { hint: why.hint, ..refusal });
        }
    }
    for port in main.outputs() {
        match writer.port(port.value, &port.declared()) {
            Ok(named) => writer.graph.outputs.push(named),
            Err(why) => refusals.push(refused("output", model.value(port.value).name(), why)),
        }
    }
    if !refusals.is_empty() {
        return Err(Refusals(refusals));
    }
    writer.forget_unread();
    Ok(Written { graph: writer.graph, floats: writer.floats, channels_last })
}

fn refused(kind: &str, name: &str, why: Why) -> Refusal {
    Refusal { hint: why.hint, ..Refusal::about(kind, name, why.reason) }
}

impl Writer<'_> {
    /// Drops the elements of constants that nothing reads.
    fn forget_unread(&mut self) {
        let operators = self.graph.operators.iter().flat_map(|operator| &operator.inputs).copied();
        let read: HashSet<i32> =
            operators.chain(self.graph.outputs.iter().map(|output| output.tensor)).collect();
        for (index, tensor) in self.graph.tensors.iter_mut().enumerate() {
            if !read.contains(&(index as i32)) {
                tensor.data = None;
            }
        }
    }

    /// An input or output of the graph.
    fn port(&mut self, value: ValueId, declared: &Type) -> Result<Named, Why> {
        if !matches!(declared, Type::Tensor(..) | Type::Unknown) {
            return Err("it is no tensor".into());
        }
        if self.facts.shape(value).is_some_and(|shape| shape.iter().any(|size| size.as_const() == Some(0))) {
            return Err("runtimes hand over no tensors without elements".into());
        }
        let tensor = self.tensor(value)?;
        Ok(Named { name: self.model.value(value).name().to_string(), tensor })
    }

    fn lower(&mut self, id: NodeId) -> Result<(), Why> {
        if self.saved.contains(&id) {
            return Ok(());
        }
        self.at = Some(id);
        if self.functions.get(self.model.node(id).op()).is_some() {
            let why = Why::from("it calls a function of the model");
            return Err(why.hinting("onnxforge optimize --passes inline_functions"));
        }
        let lower = table::find(&self.model.node(id).op().to_string());
        let lower =
            lower.ok_or_else(|| Why::from("there is no such operator, and no pass says it in others"))?;
        match quantized::plan(self, id)? {
            quantized::Plan::Integers => {
                self.in_integers = true;
                let done = lower(self, id);
                self.in_integers = false;
                self.joined.clear();
                done
            }
            quantized::Plan::Floats(Some(reason)) => {
                self.floats.push(Refusal::of(self.model, id, reason));
                lower(self, id)
            }
            quantized::Plan::Floats(None) => lower(self, id),
        }
    }

    /// Whether the integers of a computed list are known as expressions.
    fn is_expressed(&self, value: ValueId) -> bool {
        let fact = self.facts.tensor(value);
        self.model.constant(value).is_none() && fact.is_some_and(|fact| fact.dims().is_some())
    }

    /// The tensor of a value.
    fn tensor(&mut self, value: ValueId) -> Result<i32, Why> {
        let value = self.resolved(value);
        let held = self.joined.get(&value).or(self.held.get(&value)).copied();
        if let Some(held) = held.filter(|_| self.in_integers) {
            return Ok(held);
        }
        if let Some(&known) = self.known.get(&value) {
            return Ok(known);
        }
        let name = self.model.value(value).name().to_string();
        let index = match (self.model.constant(value), held) {
            (_, Some(held)) => quantized::real(self, value, held)?,
            (Some(constant), _) if halves::suits(self.weights, constant) => self.halved(&name, constant)?,
            (Some(constant), _) => self.stored(&name, constant)?,
            (None, _) => {
                let (dtype, shape) = (self.dtype(value)?, self.shape(value)?);
                self.computed(&name, dtype, &shape)?
            }
        };
        self.known.insert(value, index);
        Ok(index)
    }

    /// The value whose tensor stands for a value.
    fn resolved(&self, value: ValueId) -> ValueId {
        std::iter::successors(Some(value), |value| self.becomes.get(value).copied()).last().unwrap_or(value)
    }

    fn push(&mut self, tensor: Tensor) -> i32 {
        self.graph.tensors.push(tensor);
        self.graph.tensors.len() as i32 - 1
    }

    /// A tensor that an operator computes.
    fn computed(&mut self, name: &str, dtype: DType, shape: &[Dim]) -> Result<i32, Why> {
        let size = |dim: &Dim| match dim.as_const() {
            Some(size) => {
                i32::try_from(size).map(Some).map_err(|_| Why::from("a size does not fit into 32 bits"))
            }
            None => Ok(None),
        };
        let shape = shape.iter().map(size).collect::<Result<_, _>>()?;
        let dtype = code(dtype)?;
        Ok(self.push(Tensor { name: name.to_owned(), dtype, shape, data: None, quantization: None }))
    }

    /// A tensor that is computed on the way to the results of a node.
    fn scratch(&mut self, id: NodeId, dtype: DType, shape: &[Dim]) -> Result<i32, Why> {
        let output = self.node(id).outputs().iter().flatten().next();
        let name = output.map_or_else(String::new, |&output| self.model.value(output).name().to_string());
        self.computed(&format!("{name}/{}", self.graph.tensors.len()), dtype, shape)
    }

    /// A constant, whose elements stay where they are.
    fn stored(&mut self, name: &str, constant: &Constant) -> Result<i32, Why> {
        let size = |&size: &usize| {
            i32::try_from(size).map(Some).map_err(|_| Why::from("a size does not fit into 32 bits"))
        };
        let shape = constant.shape().iter().map(size).collect::<Result<_, _>>()?;
        let data = constant.payload().map_err(|error| Why::from(error.to_string()))?;
        Ok(self.push(Tensor {
            name: name.to_owned(),
            dtype: code(constant.dtype())?,
            shape,
            data: Some(data),
            quantization: None,
        }))
    }

    /// A constant that the format needs; equal ones are one.
    fn needed(&mut self, dtype: DType, shape: &[i32], bytes: Vec<u8>) -> Result<i32, Why> {
        let key = (code(dtype)?, shape.to_vec(), bytes);
        if let Some(&known) = self.shared.get(&key) {
            return Ok(known);
        }
        let tensor = Tensor {
            name: format!("constant/{}", self.shared.len()),
            dtype: key.0,
            shape: shape.iter().copied().map(Some).collect(),
            data: Some(Blob::from(key.2.clone()).into()),
            quantization: None,
        };
        let index = self.push(tensor);
        self.shared.insert(key, index);
        Ok(index)
    }

    /// A list of integers of 32 bits.
    fn list(&mut self, values: &[i64]) -> Result<i32, Why> {
        let bytes = narrow(values)?.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.needed(DType::I32, &[values.len() as i32], bytes)
    }

    /// An integer of 32 bits.
    fn int(&mut self, value: i64) -> Result<i32, Why> {
        let bytes = narrow(&[value])?.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.needed(DType::I32, &[], bytes)
    }

    /// A float of 32 bits.
    fn float(&mut self, value: f32) -> Result<i32, Why> {
        self.needed(DType::F32, &[], value.to_le_bytes().to_vec())
    }

    /// A value as integers of 32 bits: sizes and places, which do not need more.
    fn narrowed(&mut self, id: NodeId, value: ValueId) -> Result<i32, Why> {
        if let Some(ints) = self.ints(value) {
            let clamped: Vec<i64> =
                ints.iter().map(|&int| int.clamp(i32::MIN.into(), i32::MAX.into())).collect();
            return match self.rank(value)? {
                0 => self.int(clamped.first().copied().unwrap_or_default()),
                _ => self.list(&clamped),
            };
        }
        self.narrowed_tensor(id, value)
    }

    /// The same of any number of axes.
    fn narrowed_tensor(&mut self, id: NodeId, value: ValueId) -> Result<i32, Why> {
        let (from, shape) = (self.tensor(value)?, self.shape(value)?);
        if self.dtype(value)? == DType::I32 {
            return Ok(from);
        }
        let to = self.scratch(id, DType::I32, &shape)?;
        self.cast(from, to);
        Ok(to)
    }

    fn cast(&mut self, from: i32, to: i32) {
        let [a, b] = [from, to].map(|tensor| self.type_of(tensor));
        self.emit(schema::CAST, 1, vec![(0, Setting::Byte(a)), (1, Setting::Byte(b))], &[from], &[to]);
    }

    fn type_of(&self, tensor: i32) -> u8 {
        self.made(tensor).map_or(0, |tensor| tensor.dtype)
    }

    /// A tensor by its number.
    fn made(&self, tensor: i32) -> Option<&Tensor> {
        usize::try_from(tensor).ok().and_then(|index| self.graph.tensors.get(index))
    }

    /// What the integers of a tensor stand for.
    fn quantization_of(&self, tensor: i32) -> Option<&Quantization> {
        self.made(tensor)?.quantization.as_ref()
    }

    /// One more operator.
    fn emit(
        &mut self,
        builtin: Builtin,
        version: i32,
        settings: Vec<(u16, Setting)>,
        inputs: &[i32],
        outputs: &[i32],
    ) {
        let version = if self.in_integers { quantized::version(builtin, version) } else { version };
        let (inputs, outputs, node) = (inputs.to_vec(), outputs.to_vec(), self.at);
        self.graph.operators.push(Operator { builtin, version, settings, inputs, outputs, node });
    }

    /// The tensor of the first result of a node.
    fn result(&mut self, id: NodeId) -> Result<i32, Why> {
        self.tensor(self.out(id, 0)?)
    }
}

fn code(dtype: DType) -> Result<u8, Why> {
    schema::type_code(dtype).ok_or_else(|| format!("there are no tensors of {}", dtype.name()).into())
}

fn narrow(values: &[i64]) -> Result<Vec<i32>, Why> {
    let narrow =
        |&value: &i64| i32::try_from(value).map_err(|_| Why::from("a number does not fit into 32 bits"));
    values.iter().map(narrow).collect()
}
