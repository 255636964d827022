//! A call of an operator: which version holds and what its attributes are.

use std::collections::BTreeMap;

use super::def::OpDef;
use super::error::{OpError, invalid, unsupported};
use super::signature::{DefaultValue, Lookup, Signature, signature};
use onnxforge_ir::node::SparseTensor;
use onnxforge_ir::{Attr, AttrValue, DType, Node, ScopeId, Tensor};
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::TypeProto;

/// The attributes that the caller of a function gives, and the defaults of the function.
pub type Bindings = BTreeMap<Str, AttrValue>;

/// A call of an operator.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The operator.
    pub def: &'static OpDef,
    /// The version of the operator's domain that the model imports.
    pub opset: i64,
    /// The version of the operator that holds; contrib operators have none.
    pub signature: Option<&'static Signature>,
    /// The node.
    pub node: &'a Node,
    /// What references to a caller's attributes stand for, inside a function.
    pub bindings: Option<&'a Bindings>,
}

macro_rules! getters {
    ($( $(#[$doc:meta])* $get:ident, $or:ident, $opt:ident: $variant:ident -> $type:ty, $convert:expr, $default:expr; )*) => {$(
        $(#[$doc])*
        pub fn $get(&self, name: &str) -> Result<$type, OpError> {
            match self.$opt(name)? {
                Some(value) => Ok(value),
                None => match self.default(name).and_then($default) {
                    Some(value) => Ok(value),
                    None => invalid(format!("the attribute {name} is missing")),
                },
            }
        }

        /// The same, or `default` where it is not given. For attributes without a default in the standard.
        pub fn $or(&self, name: &str, default: $type) -> Result<$type, OpError> {
            Ok(self.$opt(name)?.unwrap_or(default))
        }

        /// The same where it is given; defaults do not count.
        pub fn $opt(&self, name: &str) -> Result<Option<$type>, OpError> {
            match self.attr(name) {
                None => Ok(None),
                Some(AttrValue::$variant(value)) => Ok(Some($convert(value))),
                Some(_) => invalid(format!("the attribute {name} is of another kind")),
            }
        }
    )*};
}

impl<'a> Call<'a> {
    /// The same node as a call of a standard operator whose attributes it has: what an operator that fuses or renames a
    /// standard one hands on.
    pub fn standard(&self, name: &str, opset: i64) -> Result<Self, OpError> {
        let found = super::find("", name).map(|def| (def, signature("", name, opset)));
        match found {
            Some((def, Lookup::Found(signature) | Lookup::Deprecated(signature))) => {
                Ok(Self { def, opset, signature: Some(signature), ..*self })
            }
            _ => unsupported(format!("{name} of opset {opset}")),
        }
    }

    /// The same node as a call of an operator that the standard does not have, without attributes.
    pub fn custom(&self, domain: &str, name: &str) -> Result<Self, OpError> {
        match super::find(domain, name) {
            Some(def) => Ok(Self { def, opset: 1, signature: None, ..*self }),
            None => unsupported(format!("{name} of the domain {domain}")),
        }
    }

    /// The first opset of the version that holds; 1 for contrib operators.
    pub fn since(&self) -> u32 {
        self.signature.map_or(1, |signature| signature.since)
    }

    /// How many outputs the node lists.
    pub fn output_count(&self) -> usize {
        self.node.outputs().len()
    }

    /// Whether somebody may read output `index`.
    pub fn wants(&self, index: usize) -> bool {
        self.node.output(index).is_some()
    }

    /// The attribute, with references to the caller's resolved. Where the caller is not known, a reference stays one: it
    /// is of no kind that an operator asks for, and certainly not the default.
    pub fn attr(&self, name: &str) -> Option<&'a AttrValue> {
        match (self.node.attr(name)?, self.bindings) {
            (AttrValue::Reference { name, .. }, Some(bindings)) => bindings.get(name),
            (value, _) => Some(value),
        }
    }

    /// The default of an attribute, where the standard has one.
    pub fn default(&self, name: &str) -> Option<&'static DefaultValue> {
        self.signature?.attribute(name)?.default.as_ref()
    }

    /// Whether an attribute of the node has the value that its absence would mean.
    pub fn is_default(&self, attr: &Attr) -> bool {
        match (&attr.value, self.default(&attr.name)) {
            (AttrValue::Int(value), Some(DefaultValue::Int(default))) => value == default,
            (AttrValue::Float(value), Some(DefaultValue::Float(default))) => value == default,
            (AttrValue::Ints(value), Some(DefaultValue::Ints(default))) => value == default,
            (AttrValue::Floats(value), Some(DefaultValue::Floats(default))) => value == default,
            (AttrValue::String(value), Some(DefaultValue::String(default))) => **value == *default.as_bytes(),
            _ => false,
        }
    }

    getters! {
        /// An integer attribute or its default; without either it is an error.
        int, int_or, opt_int: Int -> i64, |value: &i64| *value,
            |default| match default { DefaultValue::Int(value) => Some(*value), _ => None };
        /// A float attribute or its default; without either it is an error.
        float, float_or, opt_float: Float -> f32, |value: &f32| *value,
            |default| match default { DefaultValue::Float(value) => Some(*value), _ => None };
        /// A list of integers or its default; without either it is an error.
        ints, ints_or, opt_ints: Ints -> Vec<i64>, Clone::clone,
            |default| match default { DefaultValue::Ints(values) => Some(values.clone()), _ => None };
        /// A list of floats or its default; without either it is an error.
        floats, floats_or, opt_floats: Floats -> Vec<f32>, Clone::clone,
            |default| match default { DefaultValue::Floats(values) => Some(values.clone()), _ => None };
        /// A byte string or its default; without either it is an error.
        bytes, bytes_or, opt_bytes: String -> Blob, Clone::clone,
            |default| match default { DefaultValue::String(text) => Some(text.as_bytes().into()), _ => None };
        /// A list of byte strings or its default; without either it is an error.
        byte_strings, byte_strings_or, opt_byte_strings: Strings -> Vec<Blob>, Clone::clone,
            |default| match default {
                DefaultValue::Strings(texts) => Some(texts.iter().map(|text| text.as_bytes().into()).collect()),
                _ => None,
            };
        /// A tensor attribute; without it it is an error.
        tensor, tensor_or, opt_tensor: Tensor -> Tensor, Clone::clone, |_| None;
        /// The body that an attribute holds.
        graph, graph_or, opt_graph: Graph -> ScopeId, |scope: &ScopeId| *scope, |_| None;
        /// A sparse tensor attribute; without it it is an error.
        sparse, sparse_or, opt_sparse: Sparse -> std::sync::Arc<SparseTensor>, Clone::clone, |_| None;
        /// A type attribute; without it it is an error.
        ty, ty_or, opt_ty: Type -> std::sync::Arc<TypeProto>, Clone::clone, |_| None;
    }

    /// An integer attribute that is 0 or 1, or its default, or false.
    pub fn flag(&self, name: &str) -> Result<bool, OpError> {
        if self.attr(name).is_none() && self.default(name).is_none() {
            return Ok(false);
        }
        Ok(self.int(name)? != 0)
    }

    /// A string attribute as text, or its default; without either it is an error.
    pub fn text(&self, name: &str) -> Result<String, OpError> {
        String::from_utf8(self.bytes(name)?.to_vec())
            .map_err(|_| OpError::Invalid(format!("the attribute {name} is not UTF-8")))
    }

    /// A string attribute as text, or `default` where it is not given.
    pub fn text_or(&self, name: &str, default: &str) -> Result<String, OpError> {
        if self.attr(name).is_none() && self.default(name).is_none() {
            return Ok(default.to_owned());
        }
        self.text(name)
    }

    /// A list of strings as text, where it is given or has a default.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, OpError> {
        let text = |bytes: Blob| {
            String::from_utf8(bytes.to_vec())
                .map_err(|_| OpError::Invalid(format!("the attribute {name} is not UTF-8")))
        };
        self.byte_strings(name)?.into_iter().map(text).collect()
    }

    /// An attribute that names an element type by its number.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>, OpError> {
        let code = match (self.opt_int(name)?, self.default(name)) {
            (Some(code), _) => code,
            (None, Some(DefaultValue::Int(code))) => *code,
            (None, _) => return Ok(None),
        };
        match i32::try_from(code).ok().and_then(DType::from_code) {
            Some(dtype) => Ok(Some(dtype)),
            None => invalid(format!("the attribute {name} is {code}, which is no element type")),
        }
    }
}

/// The axis that `axis` means for `rank` axes: negative ones count from the end.
pub fn axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    let shifted = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    match shifted.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank) {
        Some(axis) => Ok(axis),
        None => invalid(format!("the axis {axis} of a tensor with {rank} axes")),
    }
}

/// Each of `axes` for `rank` axes, in the given order; none may appear twice.
pub fn axes(axes: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
    let found = axes.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = found.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() == found.len() { Ok(found) } else { invalid(format!("the axes {axes:?} repeat one")) }
}
