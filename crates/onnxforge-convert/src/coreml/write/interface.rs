//! Inputs and outputs: what users hand over is an array of floats or of integers of 32 bits, or an image.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, Type, ValueId};
use onnxforge_proto::Str;
use serde::{Deserialize, Serialize};

use super::{Var, Writer, named};
use crate::coreml::schema::{
    ARRAY_TYPES, ArrayType, Elem, Feature, FeatureType, GRAYSCALE, Image, NamedType, RGB, ShapeOf,
    ShapeRange, Shapes, SizeRange,
};
use crate::coreml::{Pixels, Settings};
use crate::refusal::Refusal;
use crate::view::Why;
use onnxforge_proto::wire::Packed;

/// The sizes of an axis whose size is not known, unless the user says others.
pub const SIZES: (usize, usize) = (1, 1024);

/// How an input or output of the model is that of the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortNote {
    /// What the program calls it.
    pub name: String,
    /// What the model calls it.
    pub model: String,
    /// Its element type in the model.
    pub dtype: String,
    /// Whether it has no axes there, and one of size 1 here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scalar: bool,
    /// How its numbers follow from those of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<Pixels>,
}

/// The interface under construction.
#[derive(Debug, Default)]
pub struct Interface {
    pub types: Vec<NamedType>,
    pub features: [Vec<Feature>; 2],
    pub notes: Vec<PortNote>,
    inputs: Vec<Str>,
    outputs: Vec<Str>,
}

/// The element type in which users hand something over.
fn outside(dtype: DType, settings: &Settings) -> Result<Elem, Why> {
    Ok(match dtype {
        DType::F32 => Elem::F32,
        DType::F16 if settings.ios >= 16 => Elem::F16,
        DType::F16 => Elem::F32,
        DType::I64 | DType::I32 | DType::I16 | DType::U16 | DType::I8 | DType::U8 | DType::Bool => Elem::I32,
        other => return Err(format!("there are no arrays of {}", other.name()).into()),
    })
}

/// The same inside of a program.
fn inside(dtype: DType) -> Elem {
    match dtype {
        DType::F32 => Elem::F32,
        DType::F16 => Elem::F16,
        DType::Bool => Elem::Bool,
        _ => Elem::I32,
    }
}

impl Interface {
    /// Gives inputs and outputs their names before anything else has one.
    pub fn reserve(w: &mut Writer<'_>) -> Self {
        let mut interface = Self::default();
        let main = w.model.scope(w.model.main());
        let mut taken = Vec::new();
        for port in main.inputs() {
            let name = w.names.fresh(w.view.model.value(port.value).name());
            interface.inputs.push(name);
            taken.push(port.value);
        }
        for port in main.outputs() {
            let name = w.names.fresh(w.view.model.value(port.value).name());
            interface.outputs.push(name.clone());
            // What is no result of a node of its own gets its name by an operation of its own.
            if taken.contains(&port.value) || w.model.constant(port.value).is_some() {
                continue;
            }
            taken.push(port.value);
            let known = w.dtype(port.value).and_then(|dtype| outside(dtype, w.settings));
            if let (Ok(elem), Ok(1..)) = (known, w.rank(port.value)) {
                w.names.keep(port.value, name, elem);
            }
        }
        interface
    }

    /// The names of the outputs.
    pub fn output_names(&self) -> Vec<Str> {
        self.outputs.clone()
    }

    /// What becomes of inputs.
    pub fn inputs(&mut self, w: &mut Writer<'_>, refusals: &mut Vec<Refusal>) {
        let ports = w.model.scope(w.model.main()).inputs();
        for (port, name) in ports.iter().zip(self.inputs.clone()) {
            if let Err(why) = self.input(w, port.value, &port.declared(), &name) {
                let refusal = Refusal::about("input", w.model.value(port.value).name(), why.reason);
                refusals.push(Refusal { hint: why.hint, ..refusal });
            }
        }
    }

    /// What outputs are made of.
    pub fn outputs(&mut self, w: &mut Writer<'_>, refusals: &mut Vec<Refusal>) {
        let ports = w.model.scope(w.model.main()).outputs();
        for (port, name) in ports.iter().zip(self.outputs.clone()) {
            // Where a node is refused, so is everything after it.
            let is_there = w.known.contains_key(&port.value) || w.model.constant(port.value).is_some();
            if !is_there && !refusals.is_empty() {
                continue;
            }
            if let Err(why) = self.output(w, port.value, &name) {
                let refusal = Refusal::about("output", w.model.value(port.value).name(), why.reason);
                refusals.push(Refusal { hint: why.hint, ..refusal });
            }
        }
    }

    fn input(&mut self, w: &mut Writer<'_>, value: ValueId, declared: &Type, name: &Str) -> Result<(), Why> {
        if !matches!(declared, Type::Tensor(..) | Type::Unknown) {
            return Err("it is no tensor".into());
        }
        let (dtype, shape) = (w.dtype(value)?, w.shape(value)?);
        let is_scalar = shape.is_empty();
        let outer = if is_scalar { vec![Dim::ONE] } else { shape.clone() };
        check(&outer)?;
        let elem = outside(dtype, w.settings)?;
        let model_name = w.model.value(value).name().to_string();
        let pixels = w.settings.images.get(&model_name).cloned();
        let kind = match &pixels {
            Some(pixels) => image(dtype, &outer, pixels)?,
            None => self.array(w, &model_name, elem, &outer)?,
        };
        self.types.push(named(name, elem, &outer));
        self.note(0, name, &model_name, dtype, is_scalar, kind);
        if let Some(note) = self.notes.last_mut() {
            note.pixels.clone_from(&pixels);
        }
        let mut var = Var { name: name.clone(), elem, shape: outer };
        if is_scalar {
            let to = w.fresh(&format!("{name}_scalar"), elem, shape);
            let axes = w.list(&[0])?;
            w.emit("squeeze", &[("x", (&var).into()), ("axes", (&axes).into())], &[&to]);
            var = to;
        }
        if let Some(pixels) = pixels {
            var = normalized(w, &var, &pixels);
        }
        let var = w.cast(&var, inside(dtype));
        w.known.insert(value, var);
        Ok(())
    }

    fn output(&mut self, w: &mut Writer<'_>, value: ValueId, name: &Str) -> Result<(), Why> {
        let (dtype, shape) = (w.dtype(value)?, w.shape(value)?);
        let elem = outside(dtype, w.settings)?;
        let is_scalar = shape.is_empty();
        let outer = if is_scalar { vec![Dim::ONE] } else { shape };
        check(&outer)?;
        w.floats = Elem::F32;
        let found = match w.known.get(&value) {
            Some(known) => known.clone(),
            None => w.read(value)?,
        };
        if found.name != *name {
            let to = Var { name: name.clone(), elem, shape: outer.clone() };
            if is_scalar {
                let found = w.cast(&found, elem);
                let axes = w.list(&[0])?;
                w.emit("expand_dims", &[("x", (&found).into()), ("axes", (&axes).into())], &[&to]);
            } else if found.elem == elem {
                w.emit("identity", &[("x", (&found).into())], &[&to]);
            } else {
                let dtype = w.text(elem.name());
                w.emit("cast", &[("x", (&found).into()), ("dtype", (&dtype).into())], &[&to]);
            }
        }
        let model_name = w.model.value(value).name().to_string();
        let array = ArrayType {
            shape: sizes(&outer).map(Packed).unwrap_or_default(),
            dtype: Some(array_code(elem)),
            ..ArrayType::default()
        };
        let kind = FeatureType { array: Some(Box::new(array)), ..FeatureType::default() };
        self.note(1, name, &model_name, dtype, is_scalar, kind);
        Ok(())
    }

    fn note(&mut self, side: usize, name: &Str, model: &str, dtype: DType, scalar: bool, kind: FeatureType) {
        self.notes.push(PortNote {
            name: name.to_string(),
            model: model.to_owned(),
            dtype: dtype.name().to_owned(),
            scalar,
            pixels: None,
        });
        self.features[side].push(Feature {
            name: Some(name.clone()),
            kind: Some(Box::new(kind)),
            ..Feature::default()
        });
    }

    /// An array, with the sizes that it may have.
    fn array(&self, w: &mut Writer<'_>, input: &str, elem: Elem, shape: &[Dim]) -> Result<FeatureType, Why> {
        let mut array = ArrayType { dtype: Some(array_code(elem)), ..ArrayType::default() };
        if let Some(listed) = w.settings.shapes.get(input) {
            let fits = |given: &Vec<usize>| {
                let same = |(size, dim): (&usize, &Dim)| dim.as_const().is_none_or(|dim| dim == *size as i64);
                given.len() == shape.len() && given.iter().zip(shape).all(same) && !given.contains(&0)
            };
            if listed.is_empty() || !listed.iter().all(fits) {
                return Err("a listed shape does not fit what the model declares".into());
            }
            let of = |given: &Vec<usize>| ShapeOf {
                shape: Packed(given.iter().map(|&size| size as i64).collect()),
                ..ShapeOf::default()
            };
            array.shape = Packed(listed[0].iter().map(|&size| size as i64).collect());
            array.enumerated =
                Some(Box::new(Shapes { shapes: listed.iter().map(of).collect(), ..Shapes::default() }));
            return Ok(FeatureType { array: Some(Box::new(array)), ..FeatureType::default() });
        }
        let mut ranges = Vec::with_capacity(shape.len());
        for dim in shape {
            let (lower, upper) = match dim.as_const() {
                Some(size) => (size, size),
                None => {
                    let name = dim.as_symbol().map(|symbol| w.facts.symbols().name(symbol).into_owned());
                    let name = name.unwrap_or_default();
                    let given = w.settings.ranges.get(&name);
                    if given.is_none() {
                        let (low, high) = SIZES;
                        w.notes.insert(format!(
                            "{name} may be {low} to {high}; --range {name}=FROM..TO sets others"
                        ));
                    }
                    let (low, high) = given.copied().unwrap_or(SIZES);
                    (low as i64, high as i64)
                }
            };
            ranges.push(SizeRange { lower: Some(lower), upper: Some(upper), ..SizeRange::default() });
        }
        array.shape = Packed(ranges.iter().filter_map(|range| range.lower).collect());
        if shape.iter().any(|dim| dim.as_const().is_none()) {
            array.range = Some(Box::new(ShapeRange { sizes: ranges, ..ShapeRange::default() }));
        }
        Ok(FeatureType { array: Some(Box::new(array)), ..FeatureType::default() })
    }
}

/// An image of the first and only example of a batch.
fn image(dtype: DType, shape: &[Dim], pixels: &Pixels) -> Result<FeatureType, Why> {
    let sizes = sizes(shape).ok_or_else(|| Why::from("an image has a fixed size").hinting("--set-shape"))?;
    let (&[1, channels @ (1 | 3), height, width], DType::F32) = (&sizes[..], dtype) else {
        return Err(
            "an image is an input of floats of 32 bits of shape 1, 3, height, width (or 1 for grey)".into()
        );
    };
    if pixels.bias.len() > 1 && pixels.bias.len() as i64 != channels {
        return Err(format!("an image of {channels} channels has {} summands", pixels.bias.len()).into());
    }
    let color = if channels == 3 { RGB } else { GRAYSCALE };
    let image = Image { width: Some(width), height: Some(height), color: Some(color), ..Image::default() };
    Ok(FeatureType { image: Some(Box::new(image)), ..FeatureType::default() })
}

/// The numbers that a model wants of those of an image.
fn normalized(w: &mut Writer<'_>, image: &Var, pixels: &Pixels) -> Var {
    let (elem, shape) = (image.elem, image.shape.clone());
    let scale = w.number_like(f64::from(pixels.scale), elem);
    let scaled = w.fresh(&format!("{}_scaled", image.name), elem, shape.clone());
    w.emit("mul", &[("x", image.into()), ("y", (&scale).into())], &[&scaled]);
    let bytes = pixels.bias.iter().flat_map(|it| it.to_le_bytes()).collect();
    let sizes = [1, pixels.bias.len() as i64, 1, 1];
    let bias = w.needed(elem, &sizes, bytes);
    let moved = w.fresh(&format!("{}_normalized", image.name), elem, shape);
    w.emit("add", &[("x", (&scaled).into()), ("y", (&bias).into())], &[&moved]);
    moved
}

fn array_code(elem: Elem) -> i32 {
    ARRAY_TYPES.iter().find(|row| row.0 == elem).map_or(0, |row| row.1)
}

fn sizes(shape: &[Dim]) -> Option<Vec<i64>> {
    shape.iter().map(Dim::as_const).collect()
}

fn check(shape: &[Dim]) -> Result<(), Why> {
    if shape.iter().any(|size| size.as_const() == Some(0)) {
        return Err("there are no arrays without elements".into());
    }
    if shape.len() > super::MOST_AXES {
        return Err(format!("arrays have up to {} axes", super::MOST_AXES).into());
    }
    Ok(())
}
