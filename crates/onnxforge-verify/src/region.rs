//! The place of a change: what was there, what is there now, and values to try both on.

use std::collections::{BTreeMap, HashMap, HashSet};

use onnxforge_ir::cut::Cut;
use onnxforge_ir::dim::{Dim, Symbol, Symbols};
use onnxforge_ir::value::Port;
use onnxforge_ir::{Constant, Model, NodeId, ScopeId, ValueId};
use onnxforge_ops::eval::sample::{self, Flavour};
use onnxforge_ops::eval::shapes::{self, Search};
use onnxforge_ops::eval::{Options, RunError, Session};
use onnxforge_ops::eval_call::Memory;
use onnxforge_ops::fact::{Known, TensorFact};
use onnxforge_ops::infer::Inference;
use onnxforge_ops::kernel::convert::{Rounding, convert};
use onnxforge_ops::{Array, Fact, Value};
use onnxforge_proto::clock::Instant;
use onnxforge_proto::schema::{Dimension, TensorShapeProto, TensorType, TypeProto, ValueInfoProto};

/// Elements that values to try may have together.
const MOST_ELEMENTS: usize = 1 << 20;
/// Bytes that constants of a region may have together.
const MOST_CONSTANTS: u64 = 128 << 20;
/// Constants of up to this many bytes count with their content where regions are compared.
const COUNTS: u64 = 256;

/// Values of the whole model that a region takes.
pub type Given = HashMap<ValueId, Value>;

/// The nodes, as a model that takes tensors of any size.
pub fn cut(model: &Model, facts: &Inference, nodes: &[NodeId], outputs: &[ValueId]) -> Cut {
    let declare = |value: ValueId| {
        let Some(TensorFact { dtype: Some(dtype), shape: Some(shape), .. }) = facts.tensor(value) else {
            return ValueInfoProto::default();
        };
        let shape =
            TensorShapeProto { dim: vec![Dimension::default(); shape.len()], ..TensorShapeProto::default() };
        let tensor = TensorType {
            elem_type: Some(dtype.code()),
            shape: Some(Box::new(shape)),
            ..TensorType::default()
        };
        let r#type = TypeProto { tensor_type: Some(Box::new(tensor)), ..TypeProto::default() };
        ValueInfoProto { r#type: Some(Box::new(r#type)), ..ValueInfoProto::default() }
    };
    model.cut(nodes, outputs, &declare)
}

/// What a part takes at smaller sizes than those of the model, where all of its sizes are free: for parts that take long. Smaller and larger ones.
pub fn reduced(part: &Cut) -> Vec<BTreeMap<ValueId, Wanted>> {
    /// How many sizes there are.
    const SIZES: usize = 2;
    // Large weights take their time at any size.
    let (ones_first, count) = if is_heavy(part) { (true, 1) } else { (false, SIZES) };
    let search = Search::new(&part.model, shapes::Wanted { ones_first, ..shapes::Wanted::default() });
    let ports = part.model.scope(part.model.main()).inputs();
    search
        .take(count)
        .map(|shapes| {
            let wanted = |port: &Port| Wanted::of(&part.model, &shapes.inference, port.value);
            part.inputs.iter().copied().zip(ports.iter().map(wanted)).collect()
        })
        .collect()
}

/// Runs a part of a model. Answers its outputs.
pub fn run(part: &Cut, given: &Given, wide: bool, deadline: Instant) -> Result<Vec<Value>, RunError> {
    let options = Options {
        memory: 1 << 30,
        deadline: Some(deadline),
        wide,
        keep_constants: false,
        ..Options::default()
    };
    let name = |value: &ValueId, port: usize| {
        let port = part.model.scope(part.model.main()).inputs().get(port)?;
        Some((part.model.value(port.value).name().to_string(), given.get(value)?.clone()))
    };
    let inputs = part.inputs.iter().enumerate().filter_map(|(port, value)| name(value, port)).collect();
    let outputs = Session::new(&part.model, options).run(&inputs)?;
    Ok(outputs.into_iter().map(|(_, value)| value).collect())
}

/// How many elements the values have together.
pub fn elements(given: &Given) -> usize {
    given.values().filter_map(|value| value.array().ok()).map(Array::len).sum()
}

/// Whether a part is too large to be tried.
pub fn is_large(part: &Cut) -> bool {
    part.model.stored_bytes() > MOST_CONSTANTS
}

/// Whether a part has large weights, which take their time.
pub fn is_heavy(part: &Cut) -> bool {
    part.model.stored_bytes() > 1 << 20
}

/// What a part is, as bytes: the same for parts that differ in names and in large constants only. `None` where that cannot be said.
pub fn describe(part: &Cut, bytes: &mut Vec<u8>) -> Option<()> {
    let model = &part.model;
    for (id, constant) in model.initializers() {
        bytes.extend(format!("{id:?} ").into_bytes());
        match constant {
            Constant::Dense(tensor) => {
                bytes.extend(format!("{} {:?} ", tensor.dtype(), tensor.shape()).into_bytes());
                if tensor.byte_len() <= COUNTS {
                    bytes.extend(&*tensor.bytes().ok()?);
                }
            }
            Constant::Sparse(_) => return None,
        }
    }
    for (_, node) in model.nodes() {
        bytes.extend(
            format!("{:?} {:?} {:?} {:?} ", node.scope(), node.op(), node.inputs(), node.outputs())
                .into_bytes(),
        );
        for attr in node.attrs() {
            bytes.extend(attr.name.as_bytes());
            bytes.push(b'=');
            if attr.scopes().is_empty() {
                attr.value.encode(bytes)?;
            }
        }
    }
    for (_, scope) in model.scopes() {
        let ports = scope.inputs().iter().chain(scope.outputs());
        bytes.extend(format!("{:?};", ports.map(|port| port.value).collect::<Vec<_>>()).into_bytes());
    }
    Some(())
}

/// The nodes up to so many steps before the values, in the scope of a change and in those around it.
pub fn surroundings(model: &Model, scope: ScopeId, values: &[ValueId], steps: usize) -> Vec<NodeId> {
    let around: Vec<ScopeId> =
        std::iter::successors(Some(scope), |&scope| model.scope(scope).parent()).collect();
    let mut found: HashSet<NodeId> = HashSet::new();
    let mut edge: Vec<ValueId> = values.to_vec();
    for _ in 0..steps {
        let mut next = Vec::new();
        for value in edge {
            let producer =
                model.value(value).node().filter(|&node| around.contains(&model.node(node).scope()));
            let Some(node) = producer else { continue };
            if found.insert(node) {
                next.extend(model.reads(node));
            }
        }
        edge = next;
    }
    found.into_iter().collect()
}

/// Sizes for the symbols of a region, in the order in which they are met.
#[derive(Debug)]
pub struct Sizes {
    attempt: usize,
    known: BTreeMap<Symbol, i64>,
}

impl Sizes {
    /// How many assignments there are to try.
    pub const ATTEMPTS: usize = 5;

    /// The assignment of this number.
    pub fn new(attempt: usize) -> Self {
        Self { attempt, known: BTreeMap::new() }
    }

    /// Whether there was no symbol to assign a size to: other assignments are the same.
    pub fn is_fixed(&self) -> bool {
        self.known.is_empty()
    }

    /// What an expression is under this assignment.
    pub fn of(&mut self, dim: &Dim, symbols: &Symbols) -> Option<i64> {
        for symbol in dim.symbols() {
            let place = self.known.len();
            let size = match self.attempt {
                0 => [2, 3, 5, 7, 4, 6][place % 6],
                1 => 4,
                2 => 1,
                3 => [16, 8, 12][place % 3],
                _ => 64,
            };
            let lower = symbols.lower(symbol).unwrap_or(0);
            self.known.entry(symbol).or_insert_with(|| size.max(lower));
        }
        dim.evaluate(&|symbol| self.known.get(&symbol).copied())
    }

    fn shape(&mut self, dims: &[Dim], symbols: &Symbols) -> Option<Vec<usize>> {
        dims.iter().map(|dim| usize::try_from(self.of(dim, symbols)?).ok()).collect()
    }
}

/// What is to be generated for a value that a region takes.
#[derive(Clone, Debug)]
pub struct Wanted {
    fact: Fact,
    /// What it selects from.
    tables: Vec<Dim>,
}

impl Wanted {
    /// What a value of the model needs to be.
    pub fn of(model: &Model, facts: &Inference, value: ValueId) -> Self {
        let fact = facts.fact(value).clone();
        // Floats select nothing.
        let selects =
            fact.tensor().is_some_and(|fact| fact.dtype.is_none_or(|dtype| dtype.epsilon().is_none()));
        let tables = if selects { sample::tables(model, facts, value) } else { Vec::new() };
        Self { fact, tables }
    }

    /// How many elements the value has where all of its sizes are fixed.
    pub fn elements(&self) -> Option<u64> {
        let shape = self.fact.tensor()?.shape.as_ref()?;
        shape
            .iter()
            .try_fold(1u64, |product, dim| Some(product.saturating_mul(u64::try_from(dim.as_const()?).ok()?)))
    }

    /// Whether elements are known, which other sizes would contradict.
    pub fn is_known(&self) -> bool {
        self.fact.tensor().is_none_or(|fact| fact.value.is_some())
    }

    /// Type, shape and known elements under an assignment of sizes.
    pub fn describe(&self, symbols: &Symbols, sizes: &mut Sizes) -> Option<String> {
        let Fact::Tensor(fact) = &self.fact else { return None };
        let shape = sizes.shape(fact.shape.as_ref()?, symbols)?;
        let known = match &fact.value {
            None => String::new(),
            Some(Known::Dims(dims)) => {
                format!("{:?}", dims.iter().map(|dim| sizes.of(dim, symbols)).collect::<Vec<_>>())
            }
            Some(Known::Array(array)) => {
                let tensor = array.to_tensor().ok().filter(|tensor| tensor.byte_len() <= COUNTS)?;
                format!("{:?}", tensor.bytes().ok()?)
            }
        };
        Some(format!("{}{shape:?}{known}", fact.dtype?))
    }
}

/// Values of this flavour under an assignment of sizes. `None` where they cannot be generated.
pub fn made_up(
    wanted: &BTreeMap<ValueId, Wanted>,
    symbols: &Symbols,
    sizes: &mut Sizes,
    flavour: Flavour,
) -> Option<Given> {
    let mut elements = 0;
    let mut given = Given::new();
    for (place, (&value, Wanted { fact, tables })) in wanted.iter().enumerate() {
        let Fact::Tensor(fact) = fact else { return None };
        let (dtype, dims) = (fact.dtype?, fact.shape.as_ref()?);
        let shape = sizes.shape(dims, symbols)?;
        elements += onnxforge_ir::tensor::element_count(&shape)?;
        if elements > MOST_ELEMENTS {
            return None;
        }
        let array = match &fact.value {
            Some(Known::Array(array)) => array.clone(),
            Some(Known::Dims(dims)) => {
                let numbers: Option<Vec<i64>> = dims.iter().map(|dim| sizes.of(dim, symbols)).collect();
                let numbers = Array::new(shape, numbers?).ok()?;
                convert(&numbers, dtype, Rounding::default(), &Memory::new(1 << 20)).ok()?
            }
            None => {
                let range = tables.iter().filter_map(|dim| sizes.of(dim, symbols)).min();
                sample::array(dtype, &shape, range, flavour, place as u64 + flavour as u64).ok()?
            }
        };
        given.insert(value, array.into());
    }
    Some(given)
}
