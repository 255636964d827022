//! Attributes: one clear value each, or a complaint.

use std::sync::Arc;

use super::{Loader, Result, named};
use crate::io::external::ExternalFiles;
use crate::io::model_error::{ModelError, ModelErrorKind};
use crate::io::tensor::{attached, from_proto};
use crate::node::{Attr, AttrNotes, AttrValue};
use crate::{NodeId, ScopeId};
use onnxforge_proto::Str;
use onnxforge_proto::schema::{AttributeProto, TensorProto};

/// `ref_attr_name` with an empty text, as it stands in a file.
const EMPTY_REFERENCE: [u8; 3] = [0xaa, 0x01, 0x00];

impl Loader<'_> {
    pub(super) fn attribute(&mut self, scope: ScopeId, node: NodeId, proto: AttributeProto) -> Result<()> {
        let name = named(&proto.name, "an attribute")?;
        let name = self.shared(name);
        let attr = self
            .attribute_value(scope, node, name.clone(), proto)
            .map_err(|e| e.within(|| format!("attribute {name:?}")))?;
        self.builder.attr(node, attr);
        Ok(())
    }

    fn attribute_value(
        &mut self,
        scope: ScopeId,
        node: NodeId,
        name: Str,
        mut proto: AttributeProto,
    ) -> Result<Attr> {
        let wrong = |why: String| ModelError::from(ModelErrorKind::Attribute { name: name.clone(), why });
        let filled = filled_kinds(&proto);
        if let [first, second, ..] = filled[..] {
            return Err(wrong(format!(
                "it has two values, of kinds {} and {}",
                kind_name(first),
                kind_name(second)
            )));
        }
        let declared = proto.r#type.filter(|&kind| kind != 0);
        if let (Some(declared), Some(&found)) = (declared, filled.first())
            && declared != found
        {
            return Err(wrong(format!(
                "it is declared as {} but holds {}",
                kind_name(declared),
                kind_name(found)
            )));
        }
        let mut notes = AttrNotes {
            doc_string: proto.doc_string.take(),
            written_kind: declared.is_none().then_some(proto.r#type),
            implicit: false,
            unknown: std::mem::take(&mut proto.unknown),
        };
        match proto.ref_attr_name.take() {
            Some(reference) if !reference.is_empty() => {
                if !filled.is_empty() {
                    return Err(wrong(
                        "it refers to an attribute of the function and has a value too".into(),
                    ));
                }
                notes.written_kind = proto.r#type.is_none().then_some(None);
                let value = AttrValue::Reference { name: reference, kind: proto.r#type.unwrap_or(0) };
                return Ok(attr(name, value, notes));
            }
            // An empty reference means nothing; it is kept as it was.
            Some(_) => notes.unknown.0.extend(EMPTY_REFERENCE),
            None => {}
        }
        let kind = declared
            .or(filled.first().copied())
            .ok_or_else(|| wrong("it has neither type nor value".into()))?;
        notes.implicit = filled.is_empty() && matches!(kind, 1..=3);
        let missing = || wrong(format!("it is declared as {} but holds nothing", kind_name(kind)));
        let value = match kind {
            1 => AttrValue::Float(proto.f.unwrap_or(0.0)),
            2 => AttrValue::Int(proto.i.unwrap_or(0)),
            3 => AttrValue::String(proto.s.unwrap_or_default()),
            4 => AttrValue::Tensor(self.tensor(*proto.t.ok_or_else(missing)?)?),
            5 => AttrValue::Graph(self.body(scope, node, *proto.g.ok_or_else(missing)?)?),
            6 => AttrValue::Floats(proto.floats),
            7 => AttrValue::Ints(proto.ints),
            8 => AttrValue::Strings(proto.strings),
            9 => {
                AttrValue::Tensors(proto.tensors.into_iter().map(|t| self.tensor(t)).collect::<Result<_>>()?)
            }
            10 => AttrValue::Graphs(
                proto.graphs.into_iter().map(|g| self.body(scope, node, g)).collect::<Result<_>>()?,
            ),
            11 => AttrValue::Sparse(Arc::new(self.sparse(*proto.sparse_tensor.ok_or_else(missing)?)?)),
            12 => AttrValue::Sparses(
                proto.sparse_tensors.into_iter().map(|t| self.sparse(t)).collect::<Result<_>>()?,
            ),
            13 => AttrValue::Type(Arc::new(*proto.tp.ok_or_else(missing)?)),
            14 => AttrValue::Types(proto.type_protos),
            other => return Err(wrong(format!("its type {other} does not exist"))),
        };
        Ok(attr(name, value, notes))
    }
}

fn attr(name: Str, value: AttrValue, notes: AttrNotes) -> Attr {
    Attr { name, value, notes: (notes != AttrNotes::default()).then(|| Box::new(notes)) }
}

/// An attribute that stands outside of a graph, such as a function's default; `None` when it holds a graph, a sparse
/// tensor, or nothing that can be read.
pub fn plain_attribute(proto: &AttributeProto) -> Option<Attr> {
    let tensor = |proto: &TensorProto| match attached(proto) {
        Ok(None) => from_proto(proto.clone(), &mut ExternalFiles::default()).ok(),
        Ok(found) => found,
        Err(_) => None,
    };
    let kind = proto.r#type.filter(|&kind| kind != 0).or(filled_kinds(proto).first().copied())?;
    let value = match kind {
        1 => AttrValue::Float(proto.f.unwrap_or(0.0)),
        2 => AttrValue::Int(proto.i.unwrap_or(0)),
        3 => AttrValue::String(proto.s.clone().unwrap_or_default()),
        4 => AttrValue::Tensor(tensor(proto.t.as_ref()?)?),
        6 => AttrValue::Floats(proto.floats.clone()),
        7 => AttrValue::Ints(proto.ints.clone()),
        8 => AttrValue::Strings(proto.strings.clone()),
        9 => AttrValue::Tensors(proto.tensors.iter().map(tensor).collect::<Option<_>>()?),
        13 => AttrValue::Type(Arc::new((**proto.tp.as_ref()?).clone())),
        14 => AttrValue::Types(proto.type_protos.clone()),
        _ => return None,
    };
    Some(Attr::new(proto.name.clone()?, value))
}

/// The kinds of values that an attribute holds, by `AttributeType`.
pub fn filled_kinds(proto: &AttributeProto) -> Vec<i32> {
    [
        (1, proto.f.is_some()),
        (2, proto.i.is_some()),
        (3, proto.s.is_some()),
        (4, proto.t.is_some()),
        (5, proto.g.is_some()),
        (6, !proto.floats.is_empty()),
        (7, !proto.ints.is_empty()),
        (8, !proto.strings.is_empty()),
        (9, !proto.tensors.is_empty()),
        (10, !proto.graphs.is_empty()),
        (11, proto.sparse_tensor.is_some()),
        (12, !proto.sparse_tensors.is_empty()),
        (13, proto.tp.is_some()),
        (14, !proto.type_protos.is_empty()),
    ]
    .into_iter()
    .filter_map(|(kind, filled)| filled.then_some(kind))
    .collect()
}

/// What ONNX calls an `AttributeType`.
fn kind_name(kind: i32) -> &'static str {
    const NAMES: [&str; 15] = [
        "undefined",
        "float",
        "int",
        "string",
        "tensor",
        "graph",
        "floats",
        "ints",
        "strings",
        "tensors",
        "graphs",
        "sparse_tensor",
        "sparse_tensors",
        "type_proto",
        "type_protos",
    ];
    usize::try_from(kind).ok().and_then(|kind| NAMES.get(kind)).copied().unwrap_or("an unknown type")
}
