//! Attributes.

use super::super::kind::Kind;
use super::super::lex::{ELIDED, Token, is_special_float};
use super::super::note::{self, unknown_key};
use super::tensor::Draft;
use super::{Parser, Result};
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{AttributeProto, GraphProto, SparseTensorProto, TypeProto};

/// One value.
enum Single {
    Float(f32),
    Int(i64),
    String(Blob),
    Tensor(Draft),
    Graph(GraphProto),
    Sparse(SparseTensorProto),
    Type(TypeProto),
}

impl Single {
    fn kind(&self) -> Kind {
        match self {
            Self::Float(_) => Kind::Float,
            Self::Int(_) => Kind::Int,
            Self::String(_) => Kind::String,
            Self::Tensor(_) => Kind::Tensor,
            Self::Graph(_) => Kind::Graph,
            Self::Sparse(_) => Kind::SparseTensor,
            Self::Type(_) => Kind::TypeProto,
        }
    }
}

impl<'a> Parser<'a> {
    /// `<…>`, if it comes next.
    pub(super) fn attributes(&mut self) -> Result<Vec<AttributeProto>> {
        let mut attributes = Vec::new();
        if self.cursor.eat('<')? {
            loop {
                let name = self.cursor.name("the name of an attribute")?;
                let (attribute, more) = self.nested(1, |parser| parser.attribute(name))?;
                attributes.push(attribute);
                if !more {
                    break;
                }
            }
            self.cursor.expect('>')?;
        }
        Ok(attributes)
    }

    /// What follows the name of an attribute, with its notes, and whether another attribute follows.
    pub(super) fn attribute(&mut self, name: Str) -> Result<(AttributeProto, bool)> {
        let mut attribute = AttributeProto { name: Some(name), ..Default::default() };
        let mut kind = None;
        if self.cursor.eat(':')? {
            let offset = self.cursor.offset();
            let word = self.cursor.ident("the kind of an attribute")?;
            let unknown = || self.cursor.error_at(offset, format!("`{word}` is not a kind of attribute"));
            kind = Some(Kind::from_name(word).ok_or_else(unknown)?);
            attribute.r#type = kind.map(Kind::code);
        }
        self.cursor.expect('=')?;
        let offset = self.cursor.offset();
        let mut draft = None;
        if self.cursor.eat('[')? {
            self.list(kind, &mut attribute)?;
            self.cursor.expect(']')?;
        } else if self.cursor.eat('@')? {
            attribute.ref_attr_name = Some(self.cursor.name("the name of an attribute of the function")?);
        } else if kind == Some(Kind::TypeProto) || !note::encoded(&mut self.cursor, &mut attribute)? {
            let value = self.nested(1, |parser| parser.single(kind))?;
            attribute.r#type = Some(value.kind().code());
            match value {
                Single::Float(value) => attribute.f = Some(value),
                Single::Int(value) => attribute.i = Some(value),
                Single::String(value) => attribute.s = Some(value),
                Single::Graph(value) => attribute.g = Some(value.into()),
                Single::Sparse(value) => attribute.sparse_tensor = Some(value.into()),
                Single::Type(value) => attribute.tp = Some(value.into()),
                Single::Tensor(value) => draft = Some(value),
            }
        }
        let more = self.separator(|key, value| {
            if let (Some(draft), Some(key)) = (&mut draft, key.strip_prefix("t.")) {
                return draft.note(key, value);
            }
            match key {
                "name" => attribute.name = value.text()?,
                "type" => attribute.r#type = value.int32()?,
                "f" => value.unset().map(|()| attribute.f = None)?,
                "i" => value.unset().map(|()| attribute.i = None)?,
                "s" => value.unset().map(|()| attribute.s = None)?,
                "doc_string" => attribute.doc_string = value.text()?,
                "proto" => value.merge(&mut attribute)?,
                _ => return unknown_key(key, "an attribute"),
            }
            Ok(())
        })?;
        if let Some(draft) = draft {
            let tensor = draft.finish().map_err(|message| self.cursor.error_at(offset, message))?;
            attribute.t = Some(tensor.into());
        }
        Ok((attribute, more))
    }

    /// One value. `declared` is the kind that it is said to have.
    fn single(&mut self, declared: Option<Kind>) -> Result<Single> {
        let offset = self.cursor.offset();
        let value = match *self.cursor.peek() {
            _ if self.at_type() => {
                let r#type = self.type_proto()?;
                let is_named =
                    matches!(self.cursor.peek(), Token::Ident(_) | Token::Text(_) | Token::Bytes(_));
                let has_data = is_named || ['{', '=', '['].into_iter().any(|c| self.cursor.at(c));
                match has_data {
                    true if r#type.sparse_tensor_type.is_some() => {
                        Single::Sparse(self.sparse(&r#type, None)?)
                    }
                    true => Single::Tensor(self.constant(&r#type)?),
                    false if *self.cursor.peek() == Token::Ellipsis => return Err(self.cursor.error(ELIDED)),
                    false => Single::Type(r#type),
                }
            }
            Token::Float(_) => Single::Float(self.float32()?),
            Token::Int(_) | Token::Bits(_) if declared == Some(Kind::Float) => Single::Float(self.float32()?),
            Token::Int(_) | Token::Bits(_) => Single::Int(self.cursor.int("an integer")?),
            Token::Ident(word) if is_special_float(word) => Single::Float(self.float32()?),
            Token::Ident(_) => Single::Graph(self.graph()?),
            Token::Text(_) | Token::Bytes(_) => {
                let bytes = self.bytes()?;
                if self.cursor.at('(') || self.cursor.at('=') {
                    let name = std::str::from_utf8(&bytes);
                    let name =
                        name.map_err(|_| self.cursor.error_at(offset, "a name must be valid UTF-8"))?;
                    Single::Graph(self.graph_named(name.into())?)
                } else {
                    Single::String(bytes)
                }
            }
            Token::Ellipsis => return Err(self.cursor.error(ELIDED)),
            _ => return Err(self.cursor.expected("the value of an attribute")),
        };
        match declared {
            Some(declared) if declared != value.kind() => {
                let (declared, found) = (declared.name(), value.kind().name());
                Err(self.cursor.error_at(offset, format!("expected {declared}, found {found}")))
            }
            _ => Ok(value),
        }
    }

    /// Values up to the closing bracket. All have the kind of the first, which is the declared one if there
    /// is one.
    fn list(&mut self, declared: Option<Kind>, attribute: &mut AttributeProto) -> Result<()> {
        if self.cursor.at(']') {
            return match declared {
                Some(kind) if kind.is_list() => Ok(()),
                Some(kind) => Err(self.cursor.expected(&format!("a {}, which is not a list", kind.name()))),
                None => Err(self.cursor.error("an empty list needs a kind, as in `: ints`")),
            };
        }
        let mut kind = declared.map(Kind::element);
        loop {
            let offset = self.cursor.offset();
            let value = self.nested(1, |parser| parser.single(kind))?;
            kind = Some(value.kind());
            attribute.r#type = value.kind().list().map(Kind::code);
            let mut draft = None;
            match value {
                Single::Float(value) => attribute.floats.push(value),
                Single::Int(value) => attribute.ints.push(value),
                Single::String(value) => attribute.strings.push(value),
                Single::Graph(value) => attribute.graphs.push(value),
                Single::Sparse(value) => attribute.sparse_tensors.push(value),
                Single::Type(value) => attribute.type_protos.push(value),
                Single::Tensor(value) => draft = Some(value),
            }
            let more = self.separator(|key, value| match &mut draft {
                Some(draft) => draft.note(key, value),
                None => unknown_key(key, "an element of this list"),
            })?;
            if let Some(draft) = draft {
                let tensor = draft.finish().map_err(|message| self.cursor.error_at(offset, message))?;
                attribute.tensors.push(tensor);
            }
            if !more {
                return Ok(());
            }
        }
    }
}
