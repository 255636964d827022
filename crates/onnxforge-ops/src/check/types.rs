//! Declared types: whether they are complete, whether they agree, and whether operators accept them.

use std::collections::HashMap;
use std::fmt;

use super::Checker;
use super::problem::{Here, Rule};
use crate::signature::{Form, Param, Presence, Signature};
use onnxforge_ir::dtype::DType;
use onnxforge_proto::schema::{NodeProto, TensorShapeProto, TensorType, TypeProto};

/// Types nested deeper than this are not followed. What was read from a file never is.
const DEEPEST: usize = 100;

/// A type as signatures speak of it: what it is built of, and its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    form: Form,
    elements: DType,
}

impl Kind {
    pub(super) fn tensor(elements: DType) -> Self {
        Self { form: Form::Tensor, elements }
    }

    /// `None`: the type is not complete, or no signature can speak of it.
    pub(super) fn of(ty: &TypeProto) -> Option<Self> {
        let dense = |ty: &TypeProto| ty.tensor_type.as_ref()?.elem_type.and_then(DType::from_code);
        let map = |ty: &TypeProto, from_int: Form, from_string: Form| {
            let map = ty.map_type.as_deref()?;
            let form = match DType::from_code(map.key_type?)? {
                DType::I64 => from_int,
                DType::String => from_string,
                _ => return None,
            };
            Some((form, dense(map.value_type.as_deref()?)?))
        };
        let (form, elements) = if ty.tensor_type.is_some() {
            (Form::Tensor, dense(ty)?)
        } else if let Some(sparse) = &ty.sparse_tensor_type {
            (Form::Sparse, DType::from_code(sparse.elem_type?)?)
        } else if let Some(sequence) = &ty.sequence_type {
            let element = sequence.elem_type.as_deref()?;
            match dense(element) {
                Some(elements) => (Form::Seq, elements),
                None => map(element, Form::SeqOfMapFromInt64, Form::SeqOfMapFromString)?,
            }
        } else if let Some(optional) = &ty.optional_type {
            let element = optional.elem_type.as_deref()?;
            match (dense(element), &element.sequence_type) {
                (Some(elements), _) => (Form::Optional, elements),
                (None, Some(sequence)) => (Form::OptionalSeq, dense(sequence.elem_type.as_deref()?)?),
                (None, None) => return None,
            }
        } else {
            map(ty, Form::MapFromInt64, Form::MapFromString)?
        };
        Some(Self { form, elements })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = match self.form {
            Form::Tensor => ("", ""),
            Form::Sparse => ("sparse(", ")"),
            Form::Seq => ("seq(", ")"),
            Form::Optional => ("optional(", ")"),
            Form::OptionalSeq => ("optional(seq(", "))"),
            Form::MapFromInt64 => ("map(int64,", ")"),
            Form::MapFromString => ("map(string,", ")"),
            Form::SeqOfMapFromInt64 => ("seq(map(int64,", "))"),
            Form::SeqOfMapFromString => ("seq(map(string,", "))"),
        };
        write!(f, "{open}{}{close}", self.elements)
    }
}

/// Where a declaration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Input,
    Output,
    Initializer,
    ValueInfo,
}

impl Source {
    pub(super) fn article(self) -> &'static str {
        match self {
            Self::Input => "an input",
            Self::Output => "an output",
            Self::Initializer => "an initializer",
            Self::ValueInfo => "a value_info entry",
        }
    }

    pub(super) fn is_interface(self) -> bool {
        self == Self::Input
    }

    pub(super) fn is_constant(self) -> bool {
        self == Self::Initializer
    }
}

/// The shape of a declaration, where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'m> {
    Unknown,
    Declared(&'m TensorShapeProto),
    Stored(&'m [i64]),
}

impl Shape<'_> {
    fn rank(&self) -> Option<usize> {
        match self {
            Self::Unknown => None,
            Self::Declared(shape) => Some(shape.dim.len()),
            Self::Stored(dims) => Some(dims.len()),
        }
    }

    /// The size along an axis, where it is a number.
    fn size(&self, axis: usize) -> Option<i64> {
        match self {
            Self::Unknown => None,
            Self::Declared(shape) => shape.dim.get(axis)?.dim_value.filter(|&size| size >= 0),
            Self::Stored(dims) => dims.get(axis).copied(),
        }
    }

    /// Why no tensor can have both shapes.
    pub(super) fn conflict(&self, other: &Self) -> Option<String> {
        let (before, here) = (self.rank()?, other.rank()?);
        if before != here {
            return Some(format!("{before} dimensions there, {here} here"));
        }
        (0..before).find_map(|axis| {
            let (before, here) = (self.size(axis)?, other.size(axis)?);
            (before != here).then(|| format!("dimension {axis} is {before} there, {here} here"))
        })
    }
}

/// What a model says about a value.
pub(super) struct Declared<'m> {
    pub(super) kind: Kind,
    pub(super) shape: Shape<'m>,
    pub(super) source: Source,
}

impl<'m> Declared<'m> {
    /// `None` when the type says nothing that could be compared.
    pub(super) fn new(ty: Option<&'m TypeProto>, source: Source) -> Option<Self> {
        let ty = ty?;
        let tensor = ty.tensor_type.as_deref().or(ty.sparse_tensor_type.as_deref());
        let shape = tensor.and_then(|tensor| tensor.shape.as_deref()).map_or(Shape::Unknown, Shape::Declared);
        Some(Self { kind: Kind::of(ty)?, shape, source })
    }
}

impl<'m> Checker<'m> {
    /// The type of an input or output of the main graph, which must be complete; `missing` is the rule that asks for it.
    pub(super) fn interface_type(&mut self, ty: Option<&TypeProto>, missing: Rule, here: &Here<'_>) {
        let Some(ty) = ty else {
            return self.error(missing, here, "the type is missing; the main graph declares one");
        };
        if let Some(tensor) = ty.tensor_type.as_deref()
            && tensor.elem_type.unwrap_or(0) == 0
        {
            self.error(missing, here, "the element type is missing");
            // What else there is may be open.
            return self.type_form(ty, false, 0, here);
        }
        if let Some(tensor) = ty.tensor_type.as_deref().or(ty.sparse_tensor_type.as_deref())
            && tensor.shape.is_none()
        {
            let message = "the shape is missing; without sizes, list as many unknown dimensions as the rank";
            self.error(Rule::MissingShape, here, message);
        }
        self.type_form(ty, true, 0, here);
    }

    /// A type anywhere else; it may leave things open.
    pub(super) fn note_type(&mut self, ty: &TypeProto, here: &Here<'_>) {
        self.type_form(ty, false, 0, here);
    }

    fn type_form(&mut self, ty: &TypeProto, complete: bool, depth: usize, here: &Here<'_>) {
        if depth > DEEPEST {
            return self.error(Rule::Nesting, here, format!("the type is nested more than {DEEPEST} deep"));
        }
        let open = |checker: &mut Self, message: &str| {
            if complete {
                checker.error(Rule::TypeForm, here, message);
            } else {
                checker.warning(Rule::TypeForm, here, message);
            }
        };
        let element = |checker: &mut Self, ty: &Option<Box<TypeProto>>, what: &str| match ty {
            Some(ty) => checker.type_form(ty, complete, depth + 1, here),
            None => open(checker, &format!("the type of {what} is missing")),
        };
        if let Some(tensor) = &ty.tensor_type {
            self.tensor_type(tensor, complete, here);
        } else if let Some(tensor) = &ty.sparse_tensor_type {
            self.needs_ir(8, "types of sparse tensors", here);
            self.tensor_type(tensor, complete, here);
        } else if let Some(sequence) = &ty.sequence_type {
            element(self, &sequence.elem_type, "the sequence's elements");
        } else if let Some(optional) = &ty.optional_type {
            self.needs_ir(8, "optional types", here);
            element(self, &optional.elem_type, "the optional's element");
        } else if let Some(map) = &ty.map_type {
            match map.key_type.map(DType::from_code) {
                None => open(self, "the type of the map's keys is missing"),
                Some(Some(key)) if is_key(key) => {}
                Some(_) => {
                    let message = "the map's keys are neither integers of 8 to 64 bits nor strings";
                    self.error(Rule::TypeForm, here, message);
                }
            }
            element(self, &map.value_type, "the map's values");
        } else if let Some(opaque) = &ty.opaque_type {
            if opaque.name.as_deref().unwrap_or_default().is_empty() {
                open(self, "the opaque type has no name");
            }
        } else {
            open(self, "the type is empty: it is no tensor, sequence, optional, map or opaque type");
        }
    }

    fn tensor_type(&mut self, ty: &TensorType, complete: bool, here: &Here<'_>) {
        match (ty.elem_type, ty.elem_type.and_then(DType::from_code)) {
            (_, Some(dtype)) => self.needs_type(dtype, here),
            (None | Some(0), None) if complete => {
                self.error(Rule::TypeForm, here, "the element type is missing");
            }
            (None | Some(0), None) => {
                self.warning(Rule::TypeForm, here, "the element type is missing");
            }
            (Some(code), None) => {
                self.error(Rule::TypeForm, here, format!("element type {code} does not exist"));
            }
        }
        for (axis, dim) in ty.shape.iter().flat_map(|shape| shape.dim.iter().enumerate()) {
            match dim.dim_value {
                Some(-1) => {
                    let message = format!("dimension {axis} is -1; leave it out to say that it is unknown");
                    self.warning(Rule::Dimension, here, message);
                }
                Some(size) if size < 0 => {
                    self.error(Rule::Dimension, here, format!("dimension {axis} is {size}"));
                }
                _ => {}
            }
        }
    }

    /// An element type that came with a later version of the format.
    pub(super) fn needs_type(&mut self, dtype: DType, here: &Here<'_>) {
        let since = match dtype {
            DType::BF16 => 4,
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => 9,
            DType::U4 | DType::I4 => 10,
            DType::F4E2M1 => 11,
            DType::F8E8M0 => 12,
            DType::U2 | DType::I2 => 13,
            DType::F6E2M3 | DType::F6E3M2 => 14,
            _ => return,
        };
        self.needs_ir(since, dtype.name(), here);
    }

    /// Whether the operator accepts the types that are declared for the values of a node.
    pub(super) fn node_types(
        &mut self,
        node: &'m NodeProto,
        signature: &'static Signature,
        inputs: &[Option<Kind>],
        here: &Here<'_>,
    ) {
        let mut bound: HashMap<&str, (Kind, String)> = HashMap::new();
        for (index, &kind) in inputs.iter().enumerate() {
            if let Some((param, kind)) = signature.input(index).zip(kind) {
                self.argument(
                    signature,
                    param,
                    kind,
                    || format!("input {index} ({})", param.name),
                    &mut bound,
                    here,
                );
            }
        }
        for (index, name) in node.output.iter().enumerate() {
            let Some(param) = signature.output(index).filter(|_| !name.is_empty()) else { continue };
            let follows = given_by_attribute(node, signature)
                .or_else(|| bound.get(param.ty).filter(|_| shares(param)).map(|bound| bound.0))
                .or_else(|| param.types.only_tensor().map(Kind::tensor));
            if let Some(kind) = follows {
                self.derive(name, kind);
            }
            if let Some(kind) = self.declared_kind(name) {
                if let Some(given) = given_by_attribute(node, signature).filter(|&given| given != kind) {
                    let message = format!(
                        "output {index} ({}) is declared as {kind}; the attributes of {} make it {given}",
                        param.name, signature.name
                    );
                    self.error(Rule::TypeMismatch, here, message);
                }
                self.argument(
                    signature,
                    param,
                    kind,
                    || format!("output {index} ({})", param.name),
                    &mut bound,
                    here,
                );
            }
        }
    }

    fn argument(
        &mut self,
        signature: &'static Signature,
        param: &'static Param,
        kind: Kind,
        what: impl Fn() -> String,
        bound: &mut HashMap<&'static str, (Kind, String)>,
        here: &Here<'_>,
    ) {
        if !param.types.contains(kind.form, kind.elements.code()) {
            let message = format!("{} is {kind}; {} takes {}", what(), signature.name, param.types);
            return self.error(Rule::TypeMismatch, here, message);
        }
        if !shares(param) || !signature.constraints.iter().any(|variable| variable.0 == param.ty) {
            return;
        }
        match bound.get(param.ty) {
            None => {
                bound.insert(param.ty, (kind, what()));
            }
            Some((first, _)) if *first == kind => {}
            Some((first, where_)) => {
                let message = format!(
                    "{} is {kind} and {where_} is {first}; {} needs one type",
                    what(),
                    signature.name
                );
                self.error(Rule::TypeMismatch, here, message);
            }
        }
    }
}

/// Whether all values of a parameter have one type.
fn shares(param: &Param) -> bool {
    !matches!(param.presence, Presence::Variadic { homogeneous: false, .. })
}

/// The type of the only output of a node whose attributes say it.
fn given_by_attribute(node: &NodeProto, signature: &Signature) -> Option<Kind> {
    if !signature.domain.is_empty() {
        return None;
    }
    let attribute = |name: &str| node.attribute.iter().find(|attr| attr.name.as_deref() == Some(name));
    let code = |name: &str| {
        let code = attribute(name).filter(|attr| attr.ref_attr_name.is_none())?.i?;
        DType::from_code(i32::try_from(code).ok()?)
    };
    let dtype = match signature.name {
        "Cast" => code("to"),
        "ConstantOfShape" => match attribute("value") {
            Some(value) => value.t.as_deref()?.data_type.and_then(DType::from_code),
            None => Some(DType::F32),
        },
        "Constant" => match node.attribute.as_slice() {
            [one] if one.ref_attr_name.is_none() => match one.name.as_deref()? {
                "value" => one.t.as_deref()?.data_type.and_then(DType::from_code),
                "value_float" | "value_floats" => Some(DType::F32),
                "value_int" | "value_ints" => Some(DType::I64),
                "value_string" | "value_strings" => Some(DType::String),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    dtype.map(Kind::tensor)
}

fn is_key(dtype: DType) -> bool {
    use DType::{I8, I16, I32, I64, String, U8, U16, U32, U64};
    matches!(dtype, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64 | String)
}
