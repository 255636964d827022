//! The graph with every value in the widths in which it is read.

use std::collections::{HashMap, HashSet};

use onnxforge_ir::io::LinkPolicy;
use onnxforge_ir::io::external::ExternalFiles;
use onnxforge_ir::io::tensor::from_proto;
use onnxforge_ir::tensor::TensorError;
use onnxforge_ir::value::{Constant, Def, Use};
use onnxforge_ir::{Tensor, ValueId};
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{AttributeProto, GraphProto, NodeProto, TensorProto, TensorType};

use super::Float16Error;
use super::plan::Plan;

const FLOAT: i32 = 1;
pub const FLOAT16: i32 = 10;

/// Names of a value in its two widths, as far as they are needed.
#[derive(Default)]
struct Widths {
    wide: Option<Str>,
    narrow: Option<Str>,
    /// The node that makes it makes it narrow.
    is_made_narrow: bool,
}

/// Writes a graph with both widths.
pub struct Writer<'p, 'm> {
    plan: &'p Plan<'m>,
    values: HashMap<ValueId, Widths>,
    taken: HashSet<Str>,
    pub casts: usize,
}

impl<'p, 'm> Writer<'p, 'm> {
    pub fn new(plan: &'p Plan<'m>, graph: &GraphProto) -> Self {
        let mut taken: HashSet<Str> = plan.model.values().map(|(_, value)| value.name().clone()).collect();
        taken.extend(graph.node.iter().filter_map(|node| node.name.clone()));
        Self { plan, values: HashMap::new(), taken, casts: 0 }
    }

    fn fresh(&mut self, hint: &str) -> Str {
        let mut name: Str = hint.into();
        for number in 1.. {
            if self.taken.insert(name.clone()) {
                break;
            }
            name = format!("{hint}_{number}").into();
        }
        name
    }

    /// Finds out in which widths each value is needed, and what it is called in them.
    fn names(&mut self) {
        let (plan, model) = (self.plan, self.plan.model);
        let main = model.main();
        let mut floats: Vec<ValueId> = plan.floats.iter().copied().collect();
        floats.sort_unstable();
        for id in floats {
            let value = model.value(id);
            let maker = value.node().filter(|&node| model.node(node).scope() == main);
            let is_input = matches!(value.def(), Def::Input { default: None, .. });
            let is_captured = plan.captured.contains(&id);
            let is_output =
                value.uses().iter().any(|used| matches!(used, Use::Output { scope, .. } if *scope == main));
            let changes_port =
                plan.options.interface && !is_captured && (maker.is_some() || (is_input && !is_output));
            let narrow_output = is_output && plan.options.interface && !is_captured && maker.is_some();
            let (mut wide, mut narrow) = (is_captured || (is_output && !narrow_output), narrow_output);
            for used in value.uses() {
                if let Use::Input { node, index } = *used
                    && model.node(node).scope() == main
                {
                    match plan.is_half(node) && plan.follows(node, index as usize) {
                        true => narrow = true,
                        false => wide = true,
                    }
                }
            }
            let is_made_narrow = match maker {
                Some(node) => plan.is_half(node) && plan.makes(node, id),
                None => is_input && changes_port,
            };
            let is_pinned_wide = is_captured || (is_output && !narrow_output);
            let own = value.name().clone();
            // A value keeps its name in the width in which others know it: outside, or where it is made.
            let keeps_narrow = match (is_pinned_wide, narrow_output) {
                (true, _) => false,
                (_, true) => true,
                _ => is_made_narrow || (value.constant().is_some() && maker.is_none() && !is_input && !wide),
            };
            let mut widths = Widths { is_made_narrow, ..Widths::default() };
            if keeps_narrow {
                widths.narrow = Some(own.clone());
                widths.wide = (wide || !is_made_narrow && maker.is_some())
                    .then(|| self.fresh(&format!("{own}_float32")));
            } else {
                widths.wide = Some(own.clone());
                widths.narrow = (narrow || is_made_narrow).then(|| self.fresh(&format!("{own}_float16")));
            }
            self.values.insert(id, widths);
        }
    }

    fn cast(&mut self, from: &Str, to: &Str, kind: i32, like: Option<&NodeProto>) -> NodeProto {
        self.casts += 1;
        NodeProto {
            input: vec![from.clone()],
            output: vec![to.clone()],
            name: Some(self.fresh(&format!("Cast_{to}"))),
            op_type: Some("Cast".into()),
            attribute: vec![integer("to", kind.into())],
            metadata_props: like.map(|node| node.metadata_props.clone()).unwrap_or_default(),
            ..NodeProto::default()
        }
    }

    pub fn work(&mut self, graph: &mut GraphProto) -> Result<(), Float16Error> {
        self.names();
        let (plan, model) = (self.plan, self.plan.model);
        let broken = |why: &dyn std::fmt::Display| Float16Error::Broken { why: why.to_string() };
        let mut nodes = Vec::new();
        for port in model.scope(model.main()).inputs() {
            self.both(port.value, None, &mut nodes);
        }
        self.constants(graph, &mut nodes).map_err(|error| broken(&error))?;
        let written = std::mem::take(&mut graph.node);
        if written.len() != plan.nodes.len() {
            return Err(broken(&"nodes are missing"));
        }
        for (mut proto, &id) in written.into_iter().zip(&plan.nodes) {
            let node = model.node(id);
            let is_half = plan.is_half(id);
            for (place, value) in node.inputs().iter().enumerate() {
                let Some(widths) = value.and_then(|value| self.values.get(&value)) else { continue };
                let name = if is_half && plan.follows(id, place) { &widths.narrow } else { &widths.wide };
                if let (Some(name), Some(slot)) = (name, proto.input.get_mut(place)) {
                    *slot = name.clone();
                }
            }
            let mut made = Vec::new();
            for (place, value) in node.outputs().iter().enumerate() {
                let Some((value, widths)) = value.and_then(|value| Some((value, self.values.get(&value)?)))
                else {
                    continue;
                };
                let name = if widths.is_made_narrow { &widths.narrow } else { &widths.wide };
                if let (Some(name), Some(slot)) = (name, proto.output.get_mut(place)) {
                    *slot = name.clone();
                }
                made.push(value);
            }
            if is_half {
                narrow_attributes(
                    &mut proto,
                    node.outputs()
                        .iter()
                        .flatten()
                        .any(|&value| plan.floats.contains(&value) && plan.makes(id, value)),
                )?;
            }
            nodes.push(proto);
            let like = nodes.last().cloned();
            for value in made {
                self.both(value, like.as_ref(), &mut nodes);
            }
        }
        graph.node = nodes;
        self.declare(graph);
        Ok(())
    }

    /// Makes a value in the width in which it is not made, where both are needed.
    fn both(&mut self, value: ValueId, like: Option<&NodeProto>, nodes: &mut Vec<NodeProto>) {
        let Some(Widths { wide: Some(wide), narrow: Some(narrow), is_made_narrow }) = self.values.get(&value)
        else {
            return;
        };
        let (wide, narrow) = (wide.clone(), narrow.clone());
        let cast = match is_made_narrow {
            true => self.cast(&narrow, &wide, FLOAT, like),
            false => self.cast(&wide, &narrow, FLOAT16, like),
        };
        nodes.push(cast);
    }

    /// Constants of the graph in the widths in which they are read.
    fn constants(&mut self, graph: &mut GraphProto, nodes: &mut Vec<NodeProto>) -> Result<(), TensorError> {
        let model = self.plan.model;
        let dense = model.initializers_in(model.main()).filter_map(|(id, constant)| match constant {
            Constant::Dense(tensor) => Some((id, tensor)),
            Constant::Sparse(_) => None,
        });
        let mut narrow: HashMap<Str, TensorProto> = HashMap::new();
        for (id, tensor) in dense {
            let Some(widths) = self.values.get(&id) else { continue };
            // What callers may override is made narrow when the model runs.
            let (Some(name), false) = (&widths.narrow, matches!(model.value(id).def(), Def::Input { .. }))
            else {
                continue;
            };
            let mut proto = halved(tensor)?;
            proto.name = Some(name.clone());
            narrow.insert(model.value(id).name().clone(), proto);
        }
        let mut kept = Vec::new();
        for tensor in std::mem::take(&mut graph.initializer) {
            let own = tensor.name.clone().unwrap_or_default();
            match narrow.remove(&own) {
                Some(half) if half.name.as_ref() == Some(&own) => kept.push(half),
                Some(half) => kept.extend([tensor, half]),
                None => kept.push(tensor),
            }
        }
        graph.initializer = kept;
        let sparse = model
            .initializers_in(model.main())
            .filter(|(_, constant)| matches!(constant, Constant::Sparse(_)));
        for id in sparse.map(|(id, _)| id).collect::<Vec<_>>() {
            self.both(id, None, nodes);
        }
        Ok(())
    }

    /// Declarations in the widths that values have now.
    fn declare(&self, graph: &mut GraphProto) {
        let narrow: HashSet<&Str> =
            self.values.values().filter_map(|widths| widths.narrow.as_ref()).collect();
        let infos = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
        for info in infos {
            if let (Some(name), Some(ty)) = (&info.name, info.r#type.as_mut())
                && narrow.contains(name)
                && let Some(tensor) = ty.tensor_type.as_mut()
            {
                let tensor: &mut TensorType = tensor;
                tensor.elem_type = Some(FLOAT16);
            }
        }
    }
}

fn integer(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: Some(name.into()), i: Some(value), r#type: Some(2), ..AttributeProto::default() }
}

/// The element type that a node states in an attribute.
fn narrow_attributes(proto: &mut NodeProto, makes_narrow: bool) -> Result<(), Float16Error> {
    if !makes_narrow {
        return Ok(());
    }
    match proto.op_type.as_deref() {
        Some("Cast") => {
            for attribute in &mut proto.attribute {
                if attribute.name.as_deref() == Some("to") {
                    attribute.i = Some(FLOAT16.into());
                }
            }
        }
        Some("ConstantOfShape") => {
            let stored = proto.attribute.iter().find(|attribute| attribute.name.as_deref() == Some("value"));
            let number = match stored.and_then(|attribute| attribute.t.as_deref()) {
                Some(tensor) => first_float(tensor).ok_or_else(|| Float16Error::Broken {
                    why: "the value of ConstantOfShape cannot be read".to_owned(),
                })?,
                None => 0.0,
            };
            let bytes = half::f16::from_f32(number).to_le_bytes().to_vec();
            let tensor = TensorProto {
                dims: vec![1],
                data_type: Some(FLOAT16),
                raw_data: Some(Blob::from(bytes).into()),
                ..TensorProto::default()
            };
            let value = AttributeProto {
                name: Some("value".into()),
                t: Some(Box::new(tensor)),
                r#type: Some(4),
                ..AttributeProto::default()
            };
            proto.attribute.retain(|attribute| attribute.name.as_deref() != Some("value"));
            proto.attribute.push(value);
        }
        _ => {}
    }
    Ok(())
}

/// The only element of a tensor of floats.
fn first_float(tensor: &TensorProto) -> Option<f32> {
    let mut files = ExternalFiles::new(None, LinkPolicy::default());
    let tensor = from_proto(tensor.clone(), &mut files).ok()?;
    let bytes = tensor.bytes().ok()?;
    Some(f32::from_le_bytes(*bytes.first_chunk()?))
}

/// A tensor of floats in 16 bits, rounded to the nearest.
fn halved(tensor: &Tensor) -> Result<TensorProto, TensorError> {
    let wide = tensor.bytes()?;
    let numbers = wide.as_chunks::<4>().0.iter().map(|bytes| half::f16::from_f32(f32::from_le_bytes(*bytes)));
    let bytes: Vec<u8> = numbers.flat_map(half::f16::to_le_bytes).collect();
    Ok(TensorProto {
        dims: tensor.shape().iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect(),
        data_type: Some(FLOAT16),
        raw_data: Some(Blob::from(bytes).into()),
        ..TensorProto::default()
    })
}
