//! Types and typed names.

use super::super::lex::Token;
use super::super::literal::is_type_word;
use super::super::note::{self, Applied, Value, unknown_key};
use super::tensor::Draft;
use super::{Parser, Result};
use crate::dtype::DType;
use onnxforge_proto::schema::{
    Dimension, ElementType, GraphProto, MapType, OpaqueType, TensorProto, TensorShapeProto, TensorType,
    TypeProto, ValueInfoProto,
};

impl<'a> Parser<'a> {
    /// Whether a type comes next.
    pub(super) fn at_type(&self) -> bool {
        match self.cursor.peek() {
            Token::Ident(word) => is_type_word(word),
            Token::Hex(_) => true,
            _ => false,
        }
    }

    pub(in super::super) fn type_proto(&mut self) -> Result<TypeProto> {
        let mut r#type = TypeProto::default();
        let offset = self.cursor.offset();
        if note::encoded(&mut self.cursor, &mut r#type)? {
            return Ok(r#type);
        }
        let word = self.cursor.ident("a type")?;
        if let Some(dtype) = DType::from_name(word) {
            r#type.tensor_type = Some(self.tensor_type(dtype)?.into());
            return Ok(r#type);
        }
        if !is_type_word(word) {
            return Err(self.cursor.error_at(offset, format!("expected a type, found `{word}`")));
        }
        self.cursor.expect('(')?;
        match word {
            "seq" => r#type.sequence_type = Some(self.element()?.into()),
            "optional" => r#type.optional_type = Some(self.element()?.into()),
            "map" => {
                let key_type = Some(self.dtype("the type of the keys")?.code());
                self.cursor.expect(',')?;
                let value_type = Some(self.nested(2, Self::type_proto)?.into());
                r#type.map_type = Some(MapType { key_type, value_type, ..Default::default() }.into());
            }
            "sparse_tensor" => {
                let dtype = self.dtype("the type of the elements")?;
                r#type.sparse_tensor_type = Some(self.tensor_type(dtype)?.into());
            }
            _ => r#type.opaque_type = Some(self.opaque()?.into()),
        }
        self.cursor.expect(')')?;
        Ok(r#type)
    }

    fn dtype(&mut self, what: &str) -> Result<DType> {
        let offset = self.cursor.offset();
        let word = self.cursor.ident(what)?;
        DType::from_name(word)
            .ok_or_else(|| self.cursor.error_at(offset, format!("expected {what}, found `{word}`")))
    }

    fn element(&mut self) -> Result<ElementType> {
        let element = self.nested(2, Self::type_proto)?;
        Ok(ElementType { elem_type: Some(element.into()), ..Default::default() })
    }

    /// What follows the element type: nothing for a scalar, `[]` for an unknown rank, or dimensions.
    fn tensor_type(&mut self, dtype: DType) -> Result<TensorType> {
        let mut shape = Some(TensorShapeProto::default());
        if self.cursor.eat('[')? {
            if self.cursor.at(']') {
                shape = None;
            }
            if let Some(shape) = &mut shape {
                self.nested(3, |parser| parser.dims(&mut shape.dim))?;
            }
            self.cursor.expect(']')?;
        }
        Ok(TensorType { elem_type: Some(dtype.code()), shape: shape.map(Box::new), ..Default::default() })
    }

    fn dims(&mut self, dims: &mut Vec<Dimension>) -> Result<()> {
        loop {
            let mut dim = Dimension::default();
            if let Some(name) = self.cursor.optional_name()? {
                dim.dim_param = Some(name);
            } else if !self.cursor.eat('?')? {
                dim.dim_value = Some(self.cursor.int("a dimension")?);
            }
            dims.push(dim);
            if !self.cursor.eat(',')? {
                return Ok(());
            }
        }
    }

    fn opaque(&mut self) -> Result<OpaqueType> {
        if self.cursor.at(')') {
            return Ok(OpaqueType::default());
        }
        if self.cursor.at('.') {
            return Err(self.cursor.expected("the name of an opaque type"));
        }
        let (mut first, last) = self.qualified()?;
        if !first.is_empty() {
            first.push('.');
        }
        let first = Some(format!("{first}{last}").into());
        if self.cursor.eat(',')? {
            let name = Some(self.cursor.name("the name of an opaque type")?);
            return Ok(OpaqueType { domain: first, name, ..Default::default() });
        }
        Ok(OpaqueType { name: first, ..Default::default() })
    }

    fn value_info(&mut self) -> Result<ValueInfoProto> {
        let r#type = if self.at_type() { Some(self.nested(1, Self::type_proto)?.into()) } else { None };
        let name = Some(self.cursor.name("a type and a name")?);
        Ok(ValueInfoProto { name, r#type, ..Default::default() })
    }

    /// Values between brackets, with or without types.
    pub(super) fn value_infos(&mut self, open: char, close: char) -> Result<Vec<ValueInfoProto>> {
        self.cursor.expect(open)?;
        let mut values = Vec::new();
        let mut more = !self.cursor.at(close);
        while more {
            let mut value = self.nested(1, Self::value_info)?;
            more = self.separator(|key, entry| value_note(&mut value, key, entry))?;
            values.push(value);
        }
        self.cursor.expect(close)?;
        Ok(values)
    }

    /// The inputs of a graph. One that has a default value is an initializer, too.
    pub(super) fn inputs(&mut self, graph: &mut GraphProto) -> Result<Vec<ValueInfoProto>> {
        let mut inputs = Vec::new();
        self.cursor.expect('(')?;
        let mut more = !self.cursor.at(')');
        while more {
            let mut value = self.nested(1, Self::value_info)?;
            if self.cursor.eat('=')? {
                inputs.push(value.clone());
                more = self.initializer(value, graph)?;
            } else {
                more = self.separator(|key, entry| value_note(&mut value, key, entry))?;
                inputs.push(value);
            }
        }
        self.cursor.expect(')')?;
        Ok(inputs)
    }

    /// The initializers of a graph, which are added to it, and the values that only have a type.
    pub(super) fn declarations(&mut self, graph: &mut GraphProto) -> Result<Vec<ValueInfoProto>> {
        let mut values = Vec::new();
        self.cursor.expect('<')?;
        let mut more = !self.cursor.at('>');
        while more {
            let mut value = self.nested(1, Self::value_info)?;
            if self.cursor.eat('=')? {
                more = self.initializer(value, graph)?;
            } else {
                more = self.separator(|key, entry| value_note(&mut value, key, entry))?;
                values.push(value);
            }
        }
        self.cursor.expect('>')?;
        Ok(values)
    }

    /// What stands behind the `=` of an initializer, with its notes. Tells whether another declaration
    /// follows.
    fn initializer(&mut self, value: ValueInfoProto, graph: &mut GraphProto) -> Result<bool> {
        let offset = self.cursor.offset();
        let r#type = value.r#type.unwrap_or_default();
        if r#type.sparse_tensor_type.is_some() {
            let sparse = self.nested(1, |parser| parser.sparse(&r#type, value.name))?;
            graph.sparse_initializer.push(sparse);
            return self.separator(|key, _| unknown_key(key, "a sparse tensor"));
        }
        let mut tensor = TensorProto { name: value.name.clone(), ..Default::default() };
        let mut draft = if note::encoded(&mut self.cursor, &mut tensor)? {
            Draft::complete(tensor)
        } else {
            self.nested(1, |parser| parser.tensor(&r#type, value.name))?
        };
        let more = self.separator(|key, entry| draft.note(key, entry))?;
        let tensor = draft.finish().map_err(|message| self.cursor.error_at(offset, message))?;
        graph.initializer.push(tensor);
        Ok(more)
    }
}

fn value_note(value: &mut ValueInfoProto, key: &str, entry: Value<'_>) -> Applied {
    match key {
        "name" => value.name = entry.text()?,
        "doc_string" => value.doc_string = entry.text()?,
        "metadata_props" => value.metadata_props = entry.entries()?,
        "denotation" => {
            let r#type = value.r#type.as_mut().ok_or("there is no type to denote")?;
            r#type.denotation = entry.text()?;
        }
        "dim.denotation" => {
            let shape = value
                .r#type
                .iter_mut()
                .flat_map(|r#type| &mut r#type.tensor_type)
                .find_map(|t| t.shape.as_mut());
            let dims = &mut shape.ok_or("there are no dimensions to denote")?.dim;
            for (index, denotation) in entry.pairs()? {
                let Value::Int(index) = index else {
                    return Err("dimensions are numbered".into());
                };
                let dim = usize::try_from(index).ok().and_then(|index| dims.get_mut(index));
                dim.ok_or_else(|| format!("there is no dimension {index}"))?.denotation =
                    denotation.text()?;
            }
        }
        "proto" => entry.merge(value)?,
        _ => return unknown_key(key, "a value"),
    }
    Ok(())
}
