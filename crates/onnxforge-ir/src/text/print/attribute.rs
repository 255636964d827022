//! Attributes.

use std::fmt;

use super::super::kind::Kind;
use super::super::literal::{Bytes, Float, Word};
use super::super::note::{Encoded, Note};
use super::{AttributeProto, Item, Printer, tensor};

/// Which field of an attribute the text shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// `ref_attr_name`
    Reference,
    /// The field of a kind.
    Kind(Kind),
    /// None: the attribute is written as an encoded message.
    Nothing,
}

impl Shown {
    fn of(attribute: &AttributeProto) -> Self {
        if attribute.ref_attr_name.is_some() {
            return Self::Reference;
        }
        let declared = attribute.r#type.and_then(Kind::from_code);
        match declared.or_else(|| first_present(attribute)) {
            Some(kind) if can_be_said(attribute, kind) => Self::Kind(kind),
            _ => Self::Nothing,
        }
    }
}

/// The kind of the first value that is there, for an attribute that does not declare one.
fn first_present(attribute: &AttributeProto) -> Option<Kind> {
    [
        (attribute.f.is_some(), Kind::Float),
        (attribute.i.is_some(), Kind::Int),
        (attribute.s.is_some(), Kind::String),
        (attribute.t.is_some(), Kind::Tensor),
        (attribute.g.is_some(), Kind::Graph),
        (attribute.tp.is_some(), Kind::TypeProto),
        (attribute.sparse_tensor.is_some(), Kind::SparseTensor),
        (!attribute.floats.is_empty(), Kind::Floats),
        (!attribute.ints.is_empty(), Kind::Ints),
        (!attribute.strings.is_empty(), Kind::Strings),
        (!attribute.tensors.is_empty(), Kind::Tensors),
        (!attribute.graphs.is_empty(), Kind::Graphs),
        (!attribute.type_protos.is_empty(), Kind::TypeProtos),
        (!attribute.sparse_tensors.is_empty(), Kind::SparseTensors),
    ]
    .into_iter()
    .find_map(|(is_present, kind)| is_present.then_some(kind))
}

/// Whether there is a notation for the value of this kind. A number or string that is absent is written as
/// its default.
fn can_be_said(attribute: &AttributeProto, kind: Kind) -> bool {
    match kind {
        Kind::Tensor => attribute.t.as_ref().is_some_and(|tensor| tensor::dtype(tensor).is_some()),
        Kind::Tensors => attribute.tensors.iter().all(|tensor| tensor::dtype(tensor).is_some()),
        Kind::SparseTensor => {
            attribute.sparse_tensor.as_ref().is_some_and(|s| tensor::sparse_parts(s).is_some())
        }
        Kind::SparseTensors => attribute.sparse_tensors.iter().all(|s| tensor::sparse_parts(s).is_some()),
        Kind::Graph => attribute.g.is_some(),
        Kind::TypeProto => attribute.tp.is_some(),
        _ => true,
    }
}

impl<'a> Printer<'a> {
    pub(super) fn attribute(&mut self, attribute: &AttributeProto) -> fmt::Result {
        write!(self.out, "{}", Word(attribute.name.as_deref().unwrap_or_default()))?;
        let shown = Shown::of(attribute);
        let kind = match shown {
            Shown::Kind(kind) => Some(kind).filter(|&kind| needs_kind(attribute, kind)),
            Shown::Reference => attribute.r#type.and_then(Kind::from_code),
            Shown::Nothing => None,
        };
        if let Some(kind) = kind {
            write!(self.out, ": {}", kind.name())?;
        }
        self.out.write_str(" = ")?;
        match shown {
            Shown::Reference => {
                write!(self.out, "@{}", Word(attribute.ref_attr_name.as_deref().unwrap_or_default()))
            }
            Shown::Kind(kind) => self.attribute_value(attribute, kind),
            Shown::Nothing => {
                let nameless = AttributeProto { name: None, ..attribute.clone() };
                write!(self.out, "{}", Encoded { message: &nameless, options: self.options })
            }
        }
    }

    fn attribute_value(&mut self, attribute: &AttributeProto, kind: Kind) -> fmt::Result {
        let a = attribute;
        match kind {
            Kind::Float => write!(self.out, "{}", Float(a.f.unwrap_or_default())),
            Kind::Int => write!(self.out, "{}", a.i.unwrap_or_default()),
            Kind::String => write!(self.out, "{}", Bytes(a.s.as_deref().unwrap_or_default())),
            Kind::Floats => self.numbers('[', a.floats.iter().map(|&value| Float(value)), ']'),
            Kind::Ints => self.numbers('[', a.ints.iter(), ']'),
            Kind::Strings => self.numbers('[', a.strings.iter().map(|text| Bytes(text)), ']'),
            Kind::Tensor => a.t.iter().try_for_each(|tensor| self.item(Item::Tensor(tensor))),
            Kind::Graph => a.g.iter().try_for_each(|graph| self.graph(graph)),
            Kind::TypeProto => a.tp.iter().try_for_each(|r#type| self.type_proto(r#type)),
            Kind::SparseTensor => a.sparse_tensor.iter().try_for_each(|sparse| self.sparse(sparse)),
            Kind::Tensors => self.items(a.tensors.iter().map(Item::Tensor), false),
            Kind::Graphs => self.items(a.graphs.iter().map(Item::Graph), true),
            Kind::TypeProtos => self.items(a.type_protos.iter().map(Item::Type), false),
            Kind::SparseTensors => self.items(a.sparse_tensors.iter().map(Item::Sparse), false),
        }
    }

    fn items<'i>(&mut self, items: impl Iterator<Item = Item<'i>>, lines: bool) -> fmt::Result {
        self.list('[', &items.collect::<Vec<_>>(), ']', lines)
    }

    pub(super) fn attribute_note(&self, attribute: &AttributeProto, note: &mut Note<'_>) {
        let AttributeProto {
            name,
            f,
            i,
            s,
            t,
            g,
            floats,
            ints,
            strings,
            tensors,
            graphs,
            doc_string,
            tp,
            type_protos,
            r#type,
            ref_attr_name: _,
            sparse_tensor,
            sparse_tensors,
            unknown,
        } = attribute;
        note.missing("name", name.is_none());
        let shown = Shown::of(attribute);
        if shown == Shown::Nothing {
            return;
        }
        let is = |kind| shown == Shown::Kind(kind);
        let said = match shown {
            Shown::Kind(kind) => Some(kind.code()),
            _ => r#type.and_then(Kind::from_code).map(Kind::code),
        };
        match r#type {
            _ if *r#type == said => {}
            Some(code) => note.entry("type", code),
            None => note.entry("type", "unset"),
        }
        note.missing("f", is(Kind::Float) && f.is_none());
        note.missing("i", is(Kind::Int) && i.is_none());
        note.missing("s", is(Kind::String) && s.is_none());
        if let Some(tensor) = t.as_ref().filter(|_| is(Kind::Tensor)) {
            self.tensor_name_note(tensor, "t.", note);
            self.tensor_note(tensor, "t.", note);
        }
        note.text("doc_string", doc_string.as_deref());
        fn unless<T: Clone + Default>(is_shown: bool, value: &T) -> T {
            if is_shown { T::default() } else { value.clone() }
        }
        let rest = AttributeProto {
            f: unless(is(Kind::Float), f),
            i: unless(is(Kind::Int), i),
            s: unless(is(Kind::String), s),
            t: unless(is(Kind::Tensor), t),
            g: unless(is(Kind::Graph), g),
            floats: unless(is(Kind::Floats), floats),
            ints: unless(is(Kind::Ints), ints),
            strings: unless(is(Kind::Strings), strings),
            tensors: unless(is(Kind::Tensors), tensors),
            graphs: unless(is(Kind::Graphs), graphs),
            tp: unless(is(Kind::TypeProto), tp),
            type_protos: unless(is(Kind::TypeProtos), type_protos),
            sparse_tensor: unless(is(Kind::SparseTensor), sparse_tensor),
            sparse_tensors: unless(is(Kind::SparseTensors), sparse_tensors),
            unknown: unknown.clone(),
            ..Default::default()
        };
        note.rest("proto", &rest);
    }
}

/// Whether the value alone does not tell its kind.
fn needs_kind(attribute: &AttributeProto, kind: Kind) -> bool {
    match kind {
        Kind::Float => attribute.f.is_some_and(|value| Float(value).is_bits()),
        Kind::Floats => {
            attribute.floats.is_empty() || attribute.floats.iter().any(|&value| Float(value).is_bits())
        }
        Kind::Ints => attribute.ints.is_empty(),
        Kind::Strings => attribute.strings.is_empty(),
        // A type may be an encoded message, which without the word would be read as the whole attribute.
        Kind::TypeProto => true,
        kind => kind.is_list(),
    }
}
