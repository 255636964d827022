//! Nodes, the operators they call, and their attributes.

use std::fmt;
use std::sync::Arc;

use super::id::{Id, NodeId, OriginId, ScopeId, ValueId};
use super::tensor::Tensor;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{NodeDeviceConfigurationProto, StringStringEntryProto, TypeProto};
use onnxforge_proto::wire::Unknown;

/// An operator or local function: what a node calls. Custom domains are as good as the standard one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op {
    /// The domain; the standard one is empty, however the file spells it.
    pub domain: Str,
    /// The operator's name.
    pub name: Str,
    /// Which of several functions of that name; empty for operators.
    pub overload: Str,
}

impl Op {
    /// An operator of the standard domain.
    pub fn standard(name: &str) -> Self {
        Self { domain: "".into(), name: name.into(), overload: "".into() }
    }

    /// An operator of `domain`, where `ai.onnx` is another spelling of the standard domain.
    pub fn new(domain: &str, name: &str) -> Self {
        Self { domain: normal_domain(domain).into(), name: name.into(), overload: "".into() }
    }

    /// Whether this is the operator of that name: `Name` of the standard domain, or `domain.Name` of another.
    pub fn is(&self, name: &str) -> bool {
        if self.domain.is_empty() {
            return &*self.name == name;
        }
        let domain = name.strip_suffix(&*self.name).and_then(|rest| rest.strip_suffix('.'));
        domain == Some(&*self.domain)
    }
}

/// The standard domain has two spellings; this is the one that the IR uses.
#[inline]
pub fn normal_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.domain.is_empty() {
            write!(f, "{}.", self.domain)?;
        }
        f.write_str(&self.name)?;
        if self.overload.is_empty() { Ok(()) } else { write!(f, ":{}", self.overload) }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A constant that is zero but for the listed elements.
#[derive(Clone, Debug)]
pub struct SparseTensor {
    /// The elements that are listed.
    pub values: Tensor,
    /// Where they stand.
    pub indices: Tensor,
    /// Dimensions of the whole.
    pub dims: Vec<i64>,
    /// Fields of a later version.
    pub unknown: Unknown,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum AttrValue {
    Float(f32),
    Int(i64),
    String(Blob),
    Tensor(Tensor),
    Graph(ScopeId),
    Sparse(Arc<SparseTensor>),
    Type(Arc<TypeProto>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Vec<Blob>),
    Tensors(Vec<Tensor>),
    Graphs(Vec<ScopeId>),
    Sparses(Vec<SparseTensor>),
    Types(Vec<TypeProto>),
    /// In a function body: the argument of the caller's attribute `name`, of this `AttributeType`.
    Reference {
        name: Str,
        kind: i32,
    },
}

impl AttrValue {
    /// Its kind and content as bytes, which are the same for the same; `None` for kinds that are rarely equal.
    pub fn encode(&self, bytes: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Int(value) => bytes.extend(value.to_le_bytes()),
            Self::Float(value) => bytes.extend(value.to_bits().to_le_bytes()),
            Self::String(value) => {
                bytes.extend(value.len().to_le_bytes());
                bytes.extend(&**value);
            }
            Self::Ints(values) => {
                bytes.extend(values.len().to_le_bytes());
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            Self::Floats(values) => {
                bytes.extend(values.len().to_le_bytes());
                bytes.extend(values.iter().flat_map(|value| value.to_bits().to_le_bytes()));
            }
            Self::Tensor(tensor) if tensor.byte_len() <= 4096 => {
                bytes.extend(format!("{} {:?} ", tensor.dtype(), tensor.shape()).into_bytes());
                bytes.extend(&*tensor.bytes().ok()?);
            }
            Self::Reference { name, kind } => {
                bytes.push(b'@');
                bytes.extend(name.as_bytes());
                bytes.extend(kind.to_le_bytes());
            }
            _ => return None,
        }
        bytes.push(0);
        Some(())
    }
}

/// The rarely used rest of an attribute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttrNotes {
    /// Documentation.
    pub doc_string: Option<Str>,
    /// The number that stands for the type, where it is not the right one: absent, as in files of the first IR
    /// versions, or 0.
    pub written_kind: Option<Option<i32>>,
    /// The value was left out because it is the default of its type.
    pub implicit: bool,
    /// Fields of a later version.
    pub unknown: Unknown,
}

/// A named argument of a node.
#[derive(Clone, Debug)]
pub struct Attr {
    /// Name.
    pub name: Str,
    /// Value.
    pub value: AttrValue,
    /// The rarely used rest.
    pub notes: Option<Box<AttrNotes>>,
}

impl Attr {
    /// An attribute without notes.
    pub fn new(name: impl Into<Str>, value: AttrValue) -> Self {
        Self { name: name.into(), value, notes: None }
    }

    /// The scopes that this attribute holds.
    pub fn scopes(&self) -> &[ScopeId] {
        match &self.value {
            AttrValue::Graph(scope) => std::slice::from_ref(scope),
            AttrValue::Graphs(scopes) => scopes,
            _ => &[],
        }
    }
}

/// The rarely used rest of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeNotes {
    /// Documentation.
    pub doc_string: Option<Str>,
    /// The overload is written although it is empty.
    pub empty_overload: bool,
    /// The domain as the file spells it, where that is not the usual spelling.
    pub domain_spelling: Option<Str>,
    /// How the node runs on several devices.
    pub devices: Vec<NodeDeviceConfigurationProto>,
    /// Fields of a later version.
    pub unknown: Unknown,
}

/// A call of an operator.
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) op: Op,
    pub(super) scope: ScopeId,
    pub(super) name: Option<Str>,
    pub(super) inputs: Vec<Option<ValueId>>,
    /// Where each input stands in the list of uses of what it reads.
    pub(super) slots: Vec<u32>,
    pub(super) outputs: Vec<Option<ValueId>>,
    pub(super) attrs: Vec<Attr>,
    pub(super) metadata: Vec<StringStringEntryProto>,
    pub(super) notes: Option<Box<NodeNotes>>,
    pub(super) origin: OriginId,
    /// Place in the scope: neighbours, and a number that grows along the scope.
    pub(super) previous: Option<NodeId>,
    pub(super) next: Option<NodeId>,
    pub(super) order: u64,
    pub(super) live: bool,
}

impl Node {
    /// A node that is no part of a model: a call to ask questions about. `outputs` says which outputs are there; they mean
    /// nothing.
    pub(super) fn detached(op: Op, scope: ScopeId, outputs: &[bool], attrs: &[Attr]) -> Self {
        let meaningless = ValueId::from_index(u32::MAX);
        Self {
            op,
            scope,
            name: None,
            inputs: Vec::new(),
            slots: Vec::new(),
            outputs: outputs.iter().map(|&there| there.then_some(meaningless)).collect(),
            attrs: attrs.to_vec(),
            metadata: Vec::new(),
            notes: None,
            origin: OriginId::from_index(u32::MAX),
            previous: None,
            next: None,
            order: 0,
            live: false,
        }
    }

    /// What it calls.
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// The scope that it stands in.
    pub fn scope(&self) -> ScopeId {
        self.scope
    }

    /// Its name; many nodes have none.
    pub fn name(&self) -> Option<&Str> {
        self.name.as_ref()
    }

    /// What it reads; `None` where an optional input is left out.
    pub fn inputs(&self) -> &[Option<ValueId>] {
        &self.inputs
    }

    /// Input `index`, if it is there.
    pub fn input(&self, index: usize) -> Option<ValueId> {
        self.inputs.get(index).copied().flatten()
    }

    /// What it computes; `None` where an optional output is left out.
    pub fn outputs(&self) -> &[Option<ValueId>] {
        &self.outputs
    }

    /// Output `index`, if it is there.
    pub fn output(&self, index: usize) -> Option<ValueId> {
        self.outputs.get(index).copied().flatten()
    }

    /// All attributes in file order.
    pub fn attrs(&self) -> &[Attr] {
        &self.attrs
    }

    /// The attribute of this name.
    pub fn attr(&self, name: &str) -> Option<&AttrValue> {
        self.attrs.iter().find(|attr| &*attr.name == name).map(|attr| &attr.value)
    }

    /// An integer attribute. `None` does not mean that the default holds: it may be of another kind, or refer to an
    /// argument of the function's caller ([`AttrValue::Reference`]).
    pub fn attr_int(&self, name: &str) -> Option<i64> {
        match self.attr(name)? {
            AttrValue::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A list of integers; `None` as for [`Node::attr_int`].
    pub fn attr_ints(&self, name: &str) -> Option<&[i64]> {
        match self.attr(name)? {
            AttrValue::Ints(values) => Some(values),
            _ => None,
        }
    }

    /// Metadata entries in file order.
    pub fn metadata(&self) -> &[StringStringEntryProto] {
        &self.metadata
    }

    /// The rarely used rest, if there is any.
    pub fn notes(&self) -> Option<&NodeNotes> {
        self.notes.as_deref()
    }

    /// Where it comes from.
    pub fn origin(&self) -> OriginId {
        self.origin
    }

    /// Whether it is still part of the model.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// The bodies that it holds.
    pub fn bodies(&self) -> impl Iterator<Item = ScopeId> {
        self.attrs.iter().flat_map(|attr| attr.scopes().iter().copied())
    }
}

impl From<(&str, &str)> for Attr {
    fn from((name, value): (&str, &str)) -> Self {
        Self::new(name, AttrValue::String(value.into()))
    }
}

impl From<(&str, i64)> for Attr {
    fn from((name, value): (&str, i64)) -> Self {
        Self::new(name, AttrValue::Int(value))
    }
}

impl From<(&str, f32)> for Attr {
    fn from((name, value): (&str, f32)) -> Self {
        Self::new(name, AttrValue::Float(value))
    }
}

impl From<(&str, Vec<i64>)> for Attr {
    fn from((name, value): (&str, Vec<i64>)) -> Self {
        Self::new(name, AttrValue::Ints(value))
    }
}

impl From<(&str, Vec<f32>)> for Attr {
    fn from((name, values): (&str, Vec<f32>)) -> Self {
        Self::new(name, AttrValue::Floats(values))
    }
}
