//! Tensors, dense and sparse.

use super::super::convention::Convention;
use super::super::element::{EXTERNAL, Field, make_raw};
use super::super::lex::{ELIDED, Token};
use super::super::literal::{Float, small_float_bits};
use super::super::note::{Applied, Value, unknown_key};
use super::{Parser, Result};
use crate::dtype::DType;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{SparseTensorProto, TensorProto, TensorType, TypeProto};
use onnxforge_proto::wire::PackedFixed;

/// A tensor whose notes may still change how its elements are stored. Until it is finished they are in the
/// field of their type.
pub(super) struct Draft {
    tensor: TensorProto,
    /// The element type, if the elements are to be moved to `raw_data`.
    raw: Option<DType>,
    dtype: Option<DType>,
}

impl Draft {
    /// A tensor that stays as it is.
    pub(super) fn complete(tensor: TensorProto) -> Self {
        Self { tensor, raw: None, dtype: None }
    }

    fn settle(&mut self) -> Applied {
        match self.raw.take() {
            Some(dtype) => make_raw(&mut self.tensor, dtype),
            None => Ok(()),
        }
    }

    pub(super) fn note(&mut self, key: &str, value: Value<'_>) -> Applied {
        match key {
            "name" => self.tensor.name = value.text()?,
            "data" if value.is("raw") => self.raw = self.dtype,
            "data" if value.is("typed") => self.raw = None,
            "data" => return Err("the data of a tensor is `raw` or `typed`".into()),
            "data_location" => self.tensor.data_location = value.int32()?,
            "doc_string" => self.tensor.doc_string = value.text()?,
            "metadata_props" => self.tensor.metadata_props = value.entries()?,
            "proto" => {
                // What is merged in must not be taken for elements of the text.
                self.settle()?;
                value.merge(&mut self.tensor)?;
            }
            _ => return unknown_key(key, "a tensor"),
        }
        Ok(())
    }

    /// The tensor, after the last note.
    pub(super) fn finish(mut self) -> std::result::Result<TensorProto, String> {
        self.settle()?;
        Ok(self.tensor)
    }
}

impl<'a> Parser<'a> {
    /// Element type and dimensions of a constant.
    fn numeric_type(&self, tensor: Option<&TensorType>) -> Result<(DType, Vec<i64>)> {
        let tensor = tensor.ok_or_else(|| self.cursor.error("only tensors have constant data"))?;
        let shape = tensor.shape.as_ref();
        let shape =
            shape.ok_or_else(|| self.cursor.error("the type of constant data needs a rank, not `[]`"))?;
        let dims: Option<Vec<_>> = shape.dim.iter().map(|dim| dim.dim_value).collect();
        let dims =
            dims.ok_or_else(|| self.cursor.error("the dimensions of constant data must be numbers"))?;
        let dtype = tensor.elem_type.and_then(DType::from_code);
        Ok((dtype.ok_or_else(|| self.cursor.error("constant data of an unknown type"))?, dims))
    }

    /// A constant of which the type and name have been read: elements, or where they are, or nothing.
    pub(super) fn tensor(&mut self, r#type: &TypeProto, name: Option<Str>) -> Result<Draft> {
        let (dtype, dims) = self.numeric_type(r#type.tensor_type.as_deref())?;
        let mut tensor = TensorProto { dims, data_type: Some(dtype.code()), name, ..Default::default() };
        if *self.cursor.peek() == Token::Ellipsis {
            return Err(self.cursor.error(ELIDED));
        }
        if self.cursor.eat('[')? {
            self.entries(&mut tensor.external_data)?;
            self.cursor.expect(']')?;
            tensor.data_location = Some(EXTERNAL);
            return Ok(Draft { tensor, raw: None, dtype: None });
        }
        if self.cursor.eat('{')? {
            self.elements(dtype, &mut tensor)?;
        }
        let raw = Some(dtype)
            .filter(|&dtype| dtype != DType::String && self.conventions.has(Convention::TensorData));
        tensor.data_location = self.conventions.has(Convention::TensorLocation).then_some(0);
        Ok(Draft { tensor, raw, dtype: Some(dtype) })
    }

    /// Elements up to the closing brace, into the field of their type.
    fn elements(&mut self, dtype: DType, tensor: &mut TensorProto) -> Result<()> {
        let mut floats = Vec::new();
        let mut doubles = Vec::new();
        let mut more = !self.cursor.at('}');
        while more {
            if *self.cursor.peek() == Token::Ellipsis {
                return Err(self.cursor.error(ELIDED));
            }
            match Field::of(dtype) {
                Field::Float => floats.extend(self.float32()?.to_le_bytes()),
                Field::Double => doubles.extend(self.float64()?.to_le_bytes()),
                Field::Int32 => {
                    let value = self.small(dtype)?;
                    tensor.int32_data.0.push(value);
                }
                Field::Int64 => tensor.int64_data.0.push(self.cursor.int("an integer")?),
                Field::Uint64 => tensor.uint64_data.0.push(self.unsigned()?),
                Field::String => tensor.string_data.push(self.bytes()?),
            }
            more = self.cursor.eat(',')?;
        }
        self.cursor.expect('}')?;
        let shared = |bytes: Vec<u8>| Some(bytes).filter(|bytes| !bytes.is_empty()).map(Blob::from);
        tensor.float_data = shared(floats).map_or(PackedFixed::Empty, PackedFixed::Shared);
        tensor.double_data = shared(doubles).map_or(PackedFixed::Empty, PackedFixed::Shared);
        Ok(())
    }

    /// A 32-bit float: a number, an infinity, NaN, or bits.
    pub(super) fn float32(&mut self) -> Result<f32> {
        self.cursor.take("a 32-bit float", |token| match *token {
            Token::Bits(bits) => u32::try_from(bits).ok().map(f32::from_bits),
            Token::Int(text) | Token::Float(text) | Token::Ident(text) => Float::<f32>::read(text),
            _ => None,
        })
    }

    fn float64(&mut self) -> Result<f64> {
        self.cursor.take("a 64-bit float", |token| match *token {
            Token::Bits(bits) => Some(f64::from_bits(bits)),
            Token::Int(text) | Token::Float(text) | Token::Ident(text) => Float::<f64>::read(text),
            _ => None,
        })
    }

    /// An element that is stored in 32 bits. Integers are bit patterns where the type is a float.
    fn small(&mut self, dtype: DType) -> Result<i32> {
        self.cursor.take(dtype.name(), |token| match *token {
            Token::Float(text) | Token::Ident(text) => {
                Float::<f64>::read(text).and_then(|value| small_float_bits(dtype, value)).map(i32::from)
            }
            _ => token.int().and_then(|value| value.try_into().ok()),
        })
    }

    /// An unsigned integer. A negative one wraps around, as in the standard parser.
    fn unsigned(&mut self) -> Result<u64> {
        self.cursor.take("an unsigned integer", |token| match *token {
            Token::Bits(bits) => Some(bits),
            Token::Int(text) => match text.strip_prefix('-') {
                Some(digits) => digits.parse().ok().map(u64::wrapping_neg),
                None => text.parse().ok(),
            },
            _ => None,
        })
    }

    /// A string of any bytes.
    pub(super) fn bytes(&mut self) -> Result<Blob> {
        self.cursor.take("a string", |token| token.bytes().map(Blob::from))
    }

    /// What follows the type of a tensor in an attribute: perhaps a name, perhaps `=`, and the data.
    pub(super) fn constant(&mut self, r#type: &TypeProto) -> Result<Draft> {
        let unnamed = if self.conventions.has(Convention::TensorName) { None } else { Some(Str::default()) };
        let name = self.cursor.optional_name()?.or(unnamed);
        self.cursor.eat('=')?;
        self.tensor(r#type, name)
    }

    /// The values and indices of a sparse tensor, between braces. `name` is that of an initializer.
    pub(super) fn sparse(&mut self, r#type: &TypeProto, name: Option<Str>) -> Result<SparseTensorProto> {
        let (_, dims) = self.numeric_type(r#type.sparse_tensor_type.as_deref())?;
        self.cursor.expect('{')?;
        let (mut values, more) = self.nested(1, Self::listed_constant)?;
        if !more {
            return Err(self.cursor.expected("`,` and the indices of a sparse tensor"));
        }
        let (indices, more) = self.nested(1, Self::listed_constant)?;
        if more {
            return Err(self.cursor.expected("`}`: a sparse tensor consists of values and indices"));
        }
        self.cursor.expect('}')?;
        values.name = name.or(values.name);
        Ok(SparseTensorProto {
            values: Some(values.into()),
            indices: Some(indices.into()),
            dims,
            ..Default::default()
        })
    }

    /// A constant in a list, with its notes, and whether another element follows.
    pub(super) fn listed_constant(&mut self) -> Result<(TensorProto, bool)> {
        let offset = self.cursor.offset();
        let r#type = self.type_proto()?;
        let mut draft = self.constant(&r#type)?;
        let more = self.separator(|key, entry| draft.note(key, entry))?;
        let tensor = draft.finish().map_err(|message| self.cursor.error_at(offset, message))?;
        Ok((tensor, more))
    }
}
