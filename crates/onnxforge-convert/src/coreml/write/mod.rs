//! Models to ML Programs: every node becomes one operation, or a few.

mod arithmetic;
mod attention;
mod casts;
mod constants;
mod interface;
mod layers;
mod moves;
mod names;
mod normal;
mod quant;
mod select;
mod shapes;
mod spread;
mod table;
mod windows;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, Model, NodeId, ValueId};
use onnxforge_proto::Str;

use super::Settings;
use super::schema::{
    Argument, ArgumentEntry, Binding, Block, ConstantSize, Dimension, Elem, Feature, NamedType, Operation,
    TensorType, UnknownSize, ValueType,
};
use super::weights::Weights;
use crate::refusal::{Refusal, Refusals};
use crate::view::{View, Why};
pub use interface::PortNote;
use names::Names;

/// The axes that a tensor may have.
const MOST_AXES: usize = 5;

/// A value of a program.
#[derive(Clone, Debug)]
pub struct Var {
    /// Its name, which no other has.
    pub name: Str,
    /// Its element type.
    pub elem: Elem,
    /// Its sizes, as far as they are known.
    pub shape: Vec<Dim>,
}

/// What a program is made of.
#[derive(Debug)]
pub struct Written {
    /// What the function takes.
    pub inputs: Vec<NamedType>,
    /// Its operations.
    pub block: Block,
    /// The constants beside them.
    pub weights: Weights,
    /// Inputs and outputs, as users see them.
    pub features: [Vec<Feature>; 2],
    /// How the interface of the model is that of the program.
    pub ports: Vec<PortNote>,
    /// Nodes that compute in 32 bits although 16 were asked for.
    pub kept: usize,
    /// What else there is to know.
    pub notes: Vec<String>,
}

/// A program under construction.
pub struct Writer<'m> {
    view: View<'m>,
    settings: &'m Settings,
    operations: Vec<Operation>,
    weights: Weights,
    names: Names,
    /// What values have become.
    known: HashMap<ValueId, Var>,
    /// Constants of the model in an element type.
    stored: HashMap<(ValueId, Elem), Var>,
    /// Values in another element type.
    casts: HashMap<(Str, Elem), Var>,
    /// Constants that operators need, by what they are.
    shared: BTreeMap<constants::Key, Var>,
    /// The element type in which the node at hand computes floats of 32 bits.
    floats: Elem,
    /// Values too large for 16 bits.
    large: BTreeSet<ValueId>,
    notes: BTreeSet<String>,
}

impl<'m> Deref for Writer<'m> {
    type Target = View<'m>;

    fn deref(&self) -> &View<'m> {
        &self.view
    }
}

/// What a parameter gets.
pub enum Arg<'a> {
    /// A value.
    One(&'a Var),
    /// Several.
    Many(&'a [Var]),
}

impl<'a> From<&'a Var> for Arg<'a> {
    fn from(var: &'a Var) -> Self {
        Self::One(var)
    }
}

impl<'a> From<&'a [Var]> for Arg<'a> {
    fn from(vars: &'a [Var]) -> Self {
        Self::Many(vars)
    }
}

impl<'a> From<&'a Vec<Var>> for Arg<'a> {
    fn from(vars: &'a Vec<Var>) -> Self {
        Self::Many(vars)
    }
}

/// The program of a model, once the passes of the target ran.
pub fn write(model: &Model, settings: &Settings) -> Result<Written, Refusals> {
    let view = View::of(model);
    let large = match settings.half {
        true => casts::large(&view),
        false => BTreeSet::new(),
    };
    let mut writer = Writer {
        names: Names::default(),
        view,
        settings,
        operations: Vec::new(),
        weights: Weights::default(),
        known: HashMap::new(),
        stored: HashMap::new(),
        casts: HashMap::new(),
        shared: BTreeMap::new(),
        floats: Elem::F32,
        large,
        notes: BTreeSet::new(),
    };
    let mut refusals = Vec::new();
    let mut interface = interface::Interface::reserve(&mut writer);
    interface.inputs(&mut writer, &mut refusals);
    let mut kept = 0;
    for (id, _) in model.nodes_in(model.main()) {
        let is_single = settings.half && writer.needs_single(id);
        writer.floats = if settings.half && !is_single { Elem::F16 } else { Elem::F32 };
        kept += usize::from(is_single);
        if let Err(why) = writer.lower(id) {
            refusals.push(Refusal { hint: why.hint, ..Refusal::of(model, id, why.reason) });
            writer.stand_in(id);
        }
    }
    interface.outputs(&mut writer, &mut refusals);
    if !refusals.is_empty() {
        return Err(Refusals(refusals));
    }
    let outputs = interface.output_names();
    Ok(Written {
        inputs: interface.types,
        block: Block { outputs, operations: writer.operations, ..Block::default() },
        weights: writer.weights,
        features: interface.features,
        ports: interface.notes,
        kept,
        notes: writer.notes.into_iter().collect(),
    })
}

impl<'m> Writer<'m> {
    fn lower(&mut self, id: NodeId) -> Result<(), Why> {
        if self.functions.get(self.node(id).op()).is_some() {
            let why = Why::from("it calls a function of the model");
            return Err(why.hinting("onnxforge optimize --passes inline_functions"));
        }
        if self.node(id).outputs().iter().flatten().all(|value| self.known.contains_key(value)) {
            return Ok(());
        }
        let lower = table::find(&self.node(id).op().to_string());
        let lower =
            lower.ok_or_else(|| Why::from("there is no such operator, and no pass says it in others"))?;
        lower(self, id)
    }

    /// Gives the results of a node that is refused something to stand for, so that what reads them is judged for itself.
    fn stand_in(&mut self, id: NodeId) {
        for &value in self.node(id).outputs().iter().flatten() {
            let elem = self.dtype(value).and_then(|dtype| self.elem(dtype));
            let var = Var {
                name: self.names.fresh("missing"),
                elem: elem.unwrap_or(self.floats),
                shape: self.shape(value).unwrap_or_default(),
            };
            self.known.entry(value).or_insert(var);
        }
    }

    /// The element type that tensors of a type have here.
    fn elem(&self, dtype: DType) -> Result<Elem, Why> {
        Ok(match dtype {
            DType::F32 => self.floats,
            DType::F16 => Elem::F16,
            // All integers are of 32 bits here.
            DType::I64 | DType::I32 | DType::I16 | DType::U16 | DType::I8 | DType::U8 => Elem::I32,
            DType::Bool => Elem::Bool,
            other => return Err(format!("there are no tensors of {}", other.name()).into()),
        })
    }

    /// What a value has become, as the node at hand reads it.
    fn read(&mut self, value: ValueId) -> Result<Var, Why> {
        let elem = self.elem(self.dtype(value)?)?;
        if let Some(known) = self.known.get(&value).cloned() {
            return Ok(self.cast(&known, elem));
        }
        match self.model.constant(value) {
            Some(constant) => self.stored(value, constant, elem),
            None => Err(format!("{} is not computed", self.model.value(value).name()).into()),
        }
    }

    /// The same of an input of a node.
    fn input(&mut self, id: NodeId, index: usize) -> Result<Var, Why> {
        let value = self.arg(id, index)?;
        self.read(value)
    }

    /// A value in another element type.
    fn cast(&mut self, var: &Var, elem: Elem) -> Var {
        if var.elem == elem {
            return var.clone();
        }
        let key = (var.name.clone(), elem);
        if let Some(known) = self.casts.get(&key) {
            return known.clone();
        }
        let to = self.fresh(&format!("{}_to_{}", var.name, elem.name()), elem, var.shape.clone());
        let dtype = self.text(elem.name());
        self.emit("cast", &[("x", var.into()), ("dtype", (&dtype).into())], &[&to]);
        self.casts.insert(key, to.clone());
        to
    }

    /// A new value of a name like this.
    fn fresh(&mut self, name: &str, elem: Elem, shape: Vec<Dim>) -> Var {
        Var { name: self.names.fresh(name), elem, shape }
    }

    /// What the result of a node becomes.
    fn result(&mut self, id: NodeId, index: usize) -> Result<Var, Why> {
        let value = self.out(id, index)?;
        let elem = self.elem(self.dtype(value)?)?;
        let shape = self.shape(value)?;
        if shape.len() > MOST_AXES {
            return Err(format!("tensors have up to {MOST_AXES} axes, not {}", shape.len()).into());
        }
        if shape.iter().any(|size| size.as_const() == Some(0)) {
            return Err("there are no tensors without elements".into());
        }
        let name = self.names.of(value, self.model.value(value).name(), elem);
        let var = Var { name, elem, shape };
        self.known.insert(value, var.clone());
        Ok(var)
    }

    /// A value that is computed on the way to the results of a node.
    fn scratch(&mut self, id: NodeId, elem: Elem, shape: Vec<Dim>) -> Var {
        let output = self.node(id).outputs().iter().flatten().next();
        let name = output.map_or_else(String::new, |&output| self.model.value(output).name().to_string());
        self.fresh(&format!("{name}_part"), elem, shape)
    }

    /// An operation whose result is on the way to those of a node.
    fn step(
        &mut self,
        id: NodeId,
        kind: &'static str,
        inputs: &[(&'static str, Arg<'_>)],
        elem: Elem,
        shape: Vec<Dim>,
    ) -> Var {
        let to = self.scratch(id, elem, shape);
        self.emit(kind, inputs, &[&to]);
        to
    }

    /// One more operation.
    fn emit(&mut self, kind: &'static str, inputs: &[(&'static str, Arg<'_>)], outputs: &[&Var]) {
        let label = outputs.first().map_or_else(Str::default, |var| var.name.clone());
        let binding = |var: &Var| Binding { name: Some(var.name.clone()), ..Binding::default() };
        let argument = |(key, arg): &(&'static str, Arg<'_>)| {
            let bindings = match arg {
                Arg::One(var) => vec![binding(var)],
                Arg::Many(vars) => vars.iter().map(binding).collect(),
            };
            let argument = Argument { bindings, ..Argument::default() };
            ArgumentEntry { key: Some((*key).into()), value: Some(Box::new(argument)), ..Default::default() }
        };
        let operation = Operation {
            kind: Some(kind.into()),
            inputs: inputs.iter().map(argument).collect(),
            outputs: outputs.iter().map(|var| named(&var.name, var.elem, &var.shape)).collect(),
            attributes: vec![constants::label(&label)],
            ..Operation::default()
        };
        self.operations.push(operation);
    }

    /// Whether the operators of an iOS version are there.
    fn since(&self, ios: u32) -> bool {
        self.settings.ios >= ios
    }
}

/// A value and its type.
pub fn named(name: &Str, elem: Elem, shape: &[Dim]) -> NamedType {
    NamedType { name: Some(name.clone()), kind: Some(Box::new(kind(elem, shape))), ..NamedType::default() }
}

/// The type of tensors of this shape.
pub fn kind(elem: Elem, shape: &[Dim]) -> ValueType {
    let dims = shape.iter().map(|size| match size.as_const() {
        Some(size) => {
            let constant = ConstantSize { size: Some(size), ..Default::default() };
            Dimension { constant: Some(Box::new(constant)), ..Dimension::default() }
        }
        None => Dimension { unknown_size: Some(Box::new(UnknownSize::default())), ..Dimension::default() },
    });
    let tensor = TensorType {
        dtype: Some(elem.code()),
        rank: Some(shape.len() as i64),
        dims: dims.collect(),
        ..TensorType::default()
    };
    ValueType { tensor: Some(Box::new(tensor)), ..ValueType::default() }
}

/// Sizes as a shape.
pub fn dims(sizes: &[i64]) -> Vec<Dim> {
    sizes.iter().map(|&size| Dim::from(size)).collect()
}
