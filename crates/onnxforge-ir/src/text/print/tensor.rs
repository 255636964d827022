//! Tensors, dense and sparse.

use std::fmt::{self, Display};

use super::super::convention::Convention;
use super::super::element::{EXTERNAL, Field, Unit};
use super::super::literal::{Bytes, Name, Quoted};
use super::super::note::{Encoded, Entries, Note, are_plain, not_plain};
use super::number::{Integer, Numbers};
use super::{Item, Printer, SparseTensorProto, TensorProto};
use crate::dtype::DType;
use onnxforge_proto::blob::Payload;
use onnxforge_proto::wire::PackedFixed;

/// Where the elements are that the text shows.
enum Body<'a> {
    External,
    Raw(&'a Payload, Unit),
    Typed,
}

impl<'a> Body<'a> {
    fn of(tensor: &'a TensorProto, dtype: DType) -> Self {
        let entries = &tensor.external_data;
        if tensor.data_location == Some(EXTERNAL) && !entries.is_empty() && are_plain(entries) {
            return Self::External;
        }
        match (&tensor.raw_data, Unit::of(dtype)) {
            (Some(raw), Some(unit)) if raw.byte_len() % unit.width() as u64 == 0 => Self::Raw(raw, unit),
            _ => Self::Typed,
        }
    }
}

/// The element type of a tensor that the notation can say.
pub(super) fn dtype(tensor: &TensorProto) -> Option<DType> {
    DType::from_code(tensor.data_type?)
}

impl<'a> Printer<'a> {
    /// Writes a tensor that has a [`dtype`], as it stands in an attribute.
    pub(super) fn tensor(&mut self, tensor: &TensorProto, name: Option<&str>) -> fmt::Result {
        let Some(dtype) = dtype(tensor) else {
            return write!(self.out, "{}", Encoded { message: tensor, options: self.options });
        };
        self.numeric_type(dtype, &tensor.dims)?;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            write!(self.out, " {}", Name(name))?;
        }
        self.out.write_str(if matches!(Body::of(tensor, dtype), Body::External) { " = " } else { " " })?;
        self.body(tensor, dtype)
    }

    pub(super) fn initializer(&mut self, tensor: &TensorProto) -> fmt::Result {
        let name = Name(tensor.name.as_deref().unwrap_or_default());
        let Some(dtype) = dtype(tensor) else {
            let nameless = TensorProto { name: None, ..tensor.clone() };
            return write!(self.out, "{name} = {}", Encoded { message: &nameless, options: self.options });
        };
        self.numeric_type(dtype, &tensor.dims)?;
        write!(self.out, " {name} = ")?;
        self.body(tensor, dtype)
    }

    fn numeric_type(&mut self, dtype: DType, dims: &[i64]) -> fmt::Result {
        self.out.write_str(dtype.name())?;
        for (i, dim) in dims.iter().enumerate() {
            write!(self.out, "{}{dim}", if i == 0 { "[" } else { ", " })?;
        }
        self.out.write_str(if dims.is_empty() { "" } else { "]" })
    }

    fn body(&mut self, tensor: &TensorProto, dtype: DType) -> fmt::Result {
        match Body::of(tensor, dtype) {
            Body::External => {
                write!(self.out, "{}", Entries(&tensor.external_data, |text, f| Quoted(text).fmt(f)))
            }
            Body::Raw(raw, unit) => self.raw(raw, unit, dtype),
            Body::Typed => match Field::of(dtype) {
                Field::Float => self.packed(&tensor.float_data, Unit::F32, dtype),
                Field::Double => self.packed(&tensor.double_data, Unit::F64, dtype),
                Field::Int64 => self.numbers('{', tensor.int64_data.0.iter(), '}'),
                Field::Uint64 => self.numbers('{', tensor.uint64_data.0.iter(), '}'),
                Field::String => self.numbers('{', tensor.string_data.iter().map(|text| Bytes(text)), '}'),
                Field::Int32 => {
                    let decimals = self.options.decimals;
                    let numbers = tensor.int32_data.0.iter();
                    self.numbers(
                        '{',
                        numbers.map(|&bits| Integer { dtype, bits: bits.into(), decimals }),
                        '}',
                    )
                }
            },
        }
    }

    fn is_elided(&self, elements: u64) -> bool {
        self.options.max_elements.is_some_and(|max| elements > max as u64)
    }

    /// Writes numbers or strings between brackets.
    pub(super) fn numbers<T: Display>(
        &mut self,
        open: char,
        items: impl ExactSizeIterator<Item = T>,
        close: char,
    ) -> fmt::Result {
        if self.is_elided(items.len() as u64) {
            return write!(self.out, "{open}...{close}");
        }
        self.out.write_char(open)?;
        for (i, item) in items.enumerate() {
            write!(self.out, "{}{item}", if i == 0 { "" } else { ", " })?;
        }
        self.out.write_char(close)
    }

    fn packed<const W: usize>(&mut self, data: &PackedFixed<W>, unit: Unit, dtype: DType) -> fmt::Result {
        match data {
            PackedFixed::Empty => self.out.write_str("{}"),
            PackedFixed::Shared(blob) => self.raw(&blob.clone().into(), unit, dtype),
            PackedFixed::Collected(bytes) => self.raw(&Payload::Bytes(bytes.as_slice().into()), unit, dtype),
        }
    }

    fn raw(&mut self, raw: &Payload, unit: Unit, dtype: DType) -> fmt::Result {
        if self.is_elided(raw.byte_len() / unit.width() as u64) {
            return self.out.write_str("{...}");
        }
        self.out.write_char('{')?;
        let mut numbers = Numbers::new(self.out, unit, dtype, self.options.decimals);
        let end = match raw.write_to(&mut numbers) {
            Ok(()) => "}",
            // Elements that cannot be read make the text one that is refused.
            Err(_) if numbers.is_empty() => "...}",
            Err(_) => ", ...}",
        };
        self.out.write_str(end)
    }

    /// Says what a tensor in an attribute is called where its text does not.
    pub(super) fn tensor_name_note(&self, tensor: &TensorProto, prefix: &str, note: &mut Note<'_>) {
        if tensor.name.as_deref().is_none_or(str::is_empty) {
            let usual = if self.conventions.has(Convention::TensorName) { None } else { Some("") };
            note.unusual(&format!("{prefix}name"), tensor.name.as_deref(), usual);
        }
    }

    /// Says everything else of a tensor that its text does not.
    pub(super) fn tensor_note(&self, tensor: &TensorProto, prefix: &str, note: &mut Note<'_>) {
        let Some(dtype) = dtype(tensor) else { return };
        let key = |key: &str| format!("{prefix}{key}");
        let TensorProto {
            dims: _,
            data_type: _,
            segment,
            float_data,
            int32_data,
            string_data,
            int64_data,
            name: _,
            raw_data,
            double_data,
            uint64_data,
            doc_string,
            external_data,
            data_location,
            metadata_props,
            unknown,
        } = tensor;
        let body = Body::of(tensor, dtype);
        let shown = matches!(body, Body::Typed).then(|| Field::of(dtype));
        if !matches!(body, Body::External) {
            let is_raw = matches!(body, Body::Raw(..));
            if is_raw != self.conventions.has(Convention::TensorData) {
                note.entry(&key("data"), if is_raw { "raw" } else { "typed" });
            }
            let usual = self.conventions.has(Convention::TensorLocation).then_some(0);
            match data_location {
                _ if *data_location == usual => {}
                Some(location) => note.entry(&key("data_location"), location),
                None => note.entry(&key("data_location"), "unset"),
            }
        }
        note.text(&key("doc_string"), doc_string.as_deref());
        note.entries(&key("metadata_props"), metadata_props);
        fn unless<T: Clone + Default>(is_shown: bool, data: &T) -> T {
            if is_shown { T::default() } else { data.clone() }
        }
        let rest = TensorProto {
            segment: segment.clone(),
            float_data: unless(shown == Some(Field::Float), float_data),
            int32_data: unless(shown == Some(Field::Int32), int32_data),
            string_data: unless(shown == Some(Field::String), string_data),
            int64_data: unless(shown == Some(Field::Int64), int64_data),
            double_data: unless(shown == Some(Field::Double), double_data),
            uint64_data: unless(shown == Some(Field::Uint64), uint64_data),
            raw_data: unless(matches!(body, Body::Raw(..)), raw_data),
            external_data: unless(matches!(body, Body::External), external_data),
            metadata_props: not_plain(metadata_props),
            unknown: unknown.clone(),
            ..Default::default()
        };
        note.rest(&key("proto"), &rest);
    }

    /// Writes a sparse tensor of which [`sparse_parts`] are known.
    pub(super) fn sparse(&mut self, sparse: &SparseTensorProto) -> fmt::Result {
        self.sparse_as(sparse, None)
    }

    pub(super) fn sparse_initializer(&mut self, sparse: &SparseTensorProto) -> fmt::Result {
        let name = sparse.values.as_ref().and_then(|values| values.name.as_deref());
        self.sparse_as(sparse, Some(name.unwrap_or_default()))
    }

    fn sparse_as(&mut self, sparse: &SparseTensorProto, name: Option<&str>) -> fmt::Result {
        let Some((values, indices, dtype)) = sparse_parts(sparse) else {
            return Ok(());
        };
        self.out.write_str("sparse_tensor(")?;
        self.numeric_type(dtype, &sparse.dims)?;
        self.out.write_str(") ")?;
        let values = match name {
            Some(name) => {
                write!(self.out, "{} = ", Name(name))?;
                Item::Unnamed(values)
            }
            None => Item::Tensor(values),
        };
        self.list('{', &[values, Item::Tensor(indices)], '}', false)
    }
}

/// The values, the indices and the element type of a sparse tensor that the notation can say.
pub(super) fn sparse_parts(sparse: &SparseTensorProto) -> Option<(&TensorProto, &TensorProto, DType)> {
    let SparseTensorProto { values, indices, dims: _, unknown } = sparse;
    let (values, indices) = (values.as_deref()?, indices.as_deref()?);
    dtype(indices)?;
    Some((values, indices, dtype(values)?)).filter(|_| unknown.0.is_empty())
}

/// Splits sparse initializers into those that the notation can say and those that it cannot: all or none, for
/// the order.
pub(super) fn sparse_initializers(all: &[SparseTensorProto]) -> (&[SparseTensorProto], &[SparseTensorProto]) {
    let named =
        |sparse: &SparseTensorProto| sparse_parts(sparse).is_some_and(|(values, ..)| values.name.is_some());
    if all.iter().all(named) { (all, &[]) } else { (&[], all) }
}
