//! Types and typed names.

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};

use super::super::literal::{InLine, Name, Qualified};
use super::super::note::{Encoded, Entries, Note, are_plain, not_plain};
use super::{Printer, TensorAnnotation, TypeProto, ValueInfoProto};
use crate::dtype::DType;
use onnxforge_proto::schema::{Dimension, ElementType, MapType, OpaqueType, TensorType};
use onnxforge_proto::wire::Unknown;

impl<'a> Printer<'a> {
    pub(super) fn value_info(&mut self, value: &ValueInfoProto) -> fmt::Result {
        if let Some(r#type) = &value.r#type {
            let (bare, _) = Denotations::split(r#type);
            self.type_proto(&bare)?;
            self.out.write_char(' ')?;
        }
        write!(self.out, "{}", Name(value.name.as_deref().unwrap_or_default()))
    }

    pub(super) fn value_info_note(&self, value: &ValueInfoProto, note: &mut Note<'_>) {
        let ValueInfoProto { name, r#type, doc_string, metadata_props, unknown } = value;
        note.missing("name", name.is_none());
        if let Some(r#type) = r#type {
            let (_, denotations) = Denotations::split(r#type);
            note.text("denotation", denotations.of_type);
            if !denotations.of_dims.is_empty() {
                note.entry("dim.denotation", &denotations);
            }
        }
        note.text("doc_string", doc_string.as_deref());
        note.entries("metadata_props", metadata_props);
        let rest = ValueInfoProto {
            metadata_props: not_plain(metadata_props),
            unknown: unknown.clone(),
            ..Default::default()
        };
        note.rest("proto", &rest);
    }

    /// Writes a type; as an encoded message where it is not one that the notation knows.
    pub(in super::super) fn type_proto(&mut self, r#type: &TypeProto) -> fmt::Result {
        match Known::of(r#type) {
            None => write!(self.out, "{}", Encoded { message: r#type, options: self.options }),
            Some(Known::Tensor(tensor, dtype)) => self.tensor_type(tensor, dtype),
            Some(Known::Sparse(tensor, dtype)) => {
                self.out.write_str("sparse_tensor(")?;
                self.tensor_type(tensor, dtype)?;
                self.out.write_char(')')
            }
            Some(Known::Sequence(element)) => self.wrapped("seq(", element),
            Some(Known::Optional(element)) => self.wrapped("optional(", element),
            Some(Known::Map(key, value)) => {
                write!(self.out, "map({key}, ")?;
                self.wrapped("", value)
            }
            Some(Known::Opaque(OpaqueType { domain, name, .. })) => {
                self.out.write_str("opaque(")?;
                match (domain, name) {
                    (Some(domain), Some(name)) => write!(self.out, "{}, {}", Qualified(domain), Name(name))?,
                    (_, Some(name)) => write!(self.out, "{}", Qualified(name))?,
                    _ => {}
                }
                self.out.write_char(')')
            }
        }
    }

    fn wrapped(&mut self, open: &str, r#type: &TypeProto) -> fmt::Result {
        self.out.write_str(open)?;
        self.type_proto(r#type)?;
        self.out.write_char(')')
    }

    fn tensor_type(&mut self, tensor: &TensorType, dtype: DType) -> fmt::Result {
        self.out.write_str(dtype.name())?;
        match &tensor.shape {
            None => self.out.write_str("[]"),
            Some(shape) if shape.dim.is_empty() => Ok(()),
            Some(shape) => {
                for (i, dim) in shape.dim.iter().enumerate() {
                    self.out.write_str(if i == 0 { "[" } else { ", " })?;
                    match (dim.dim_value, &dim.dim_param) {
                        (Some(value), _) => write!(self.out, "{value}")?,
                        (None, Some(name)) => write!(self.out, "{}", Name(name))?,
                        (None, None) => self.out.write_char('?')?,
                    }
                }
                self.out.write_char(']')
            }
        }
    }
}

/// A type whose outermost level the notation knows.
pub(super) enum Known<'a> {
    Tensor(&'a TensorType, DType),
    Sparse(&'a TensorType, DType),
    Sequence(&'a TypeProto),
    Optional(&'a TypeProto),
    Map(DType, &'a TypeProto),
    Opaque(&'a OpaqueType),
}

impl<'a> Known<'a> {
    fn of(r#type: &'a TypeProto) -> Option<Self> {
        let TypeProto {
            tensor_type,
            sequence_type,
            map_type,
            denotation: None,
            opaque_type,
            sparse_tensor_type,
            optional_type,
            unknown: Unknown(unknown),
        } = r#type
        else {
            return None;
        };
        let element =
            |element: &'a ElementType| element.elem_type.as_deref().filter(|_| element.unknown.0.is_empty());
        let kinds: [Option<Option<Self>>; 6] = [
            tensor_type.as_deref().map(|tensor| Some(Self::Tensor(tensor, element_type(tensor)?))),
            sparse_tensor_type.as_deref().map(|tensor| Some(Self::Sparse(tensor, element_type(tensor)?))),
            sequence_type.as_deref().map(|sequence| element(sequence).map(Self::Sequence)),
            optional_type.as_deref().map(|optional| element(optional).map(Self::Optional)),
            map_type.as_deref().map(|MapType { key_type, value_type, unknown }| {
                let key = DType::from_code((*key_type)?)?;
                value_type.as_deref().filter(|_| unknown.0.is_empty()).map(|value| Self::Map(key, value))
            }),
            opaque_type.as_deref().map(|opaque| {
                let plain = opaque.unknown.0.is_empty() && (opaque.domain.is_none() || opaque.name.is_some());
                plain.then_some(Self::Opaque(opaque))
            }),
        ];
        let mut present = kinds.into_iter().flatten();
        match (present.next(), present.next()) {
            (Some(kind), None) if unknown.is_empty() => kind,
            _ => None,
        }
    }
}

/// The element type, if there is nothing in the tensor's type that the notation does not know.
fn element_type(tensor: &TensorType) -> Option<DType> {
    let plain_dim = |dim: &Dimension| {
        let one = dim.dim_value.is_none() || dim.dim_param.is_none();
        one && dim.denotation.is_none() && dim.unknown.0.is_empty()
    };
    let plain = tensor.unknown.0.is_empty()
        && tensor.shape.iter().all(|shape| shape.unknown.0.is_empty() && shape.dim.iter().all(plain_dim));
    DType::from_code(tensor.elem_type?).filter(|_| plain)
}

/// What a type and its dimensions are said to mean.
#[derive(Default)]
struct Denotations<'a> {
    of_type: Option<&'a str>,
    of_dims: Vec<(usize, &'a str)>,
}

impl<'a> Denotations<'a> {
    /// The type without denotations, and the denotations. Those further inside than the dimensions stay.
    fn split(r#type: &'a TypeProto) -> (Cow<'a, TypeProto>, Self) {
        let dims = r#type.tensor_type.iter().flat_map(|tensor| &tensor.shape).flat_map(|shape| &shape.dim);
        let of_dims = dims.enumerate().filter_map(|(i, dim)| Some((i, dim.denotation.as_deref()?)));
        let found = Self { of_type: r#type.denotation.as_deref(), of_dims: of_dims.collect() };
        if found.of_type.is_none() && found.of_dims.is_empty() {
            return (Cow::Borrowed(r#type), found);
        }
        let mut bare = r#type.clone();
        bare.denotation = None;
        let shapes = bare.tensor_type.iter_mut().flat_map(|tensor| &mut tensor.shape);
        for dim in shapes.flat_map(|shape| &mut shape.dim) {
            dim.denotation = None;
        }
        (Cow::Owned(bare), found)
    }
}

impl Display for Denotations<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (dim, denotation)) in self.of_dims.iter().enumerate() {
            write!(f, "{}{dim}: {}", if i == 0 { "[" } else { ", " }, InLine(denotation))?;
        }
        f.write_char(']')
    }
}

/// Whether the notation for quantization parameters can say all of them.
pub(super) fn are_plain_annotations(annotations: &[TensorAnnotation]) -> bool {
    annotations.iter().all(|annotation| {
        let TensorAnnotation { tensor_name, quant_parameter_tensor_names, unknown } = annotation;
        tensor_name.is_some() && are_plain(quant_parameter_tensor_names) && unknown.0.is_empty()
    })
}

/// Quantization parameters: the name of a tensor, and the roles and names of its parameters.
pub(super) struct Annotations<'a>(pub &'a [TensorAnnotation]);

impl Display for Annotations<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, annotation) in self.0.iter().enumerate() {
            let name = InLine(annotation.tensor_name.as_deref().unwrap_or_default());
            let parameters = Entries(&annotation.quant_parameter_tensor_names, |text, f| InLine(text).fmt(f));
            write!(f, "{}{name}: {parameters}", if i == 0 { "[" } else { ", " })?;
        }
        f.write_char(']')
    }
}
