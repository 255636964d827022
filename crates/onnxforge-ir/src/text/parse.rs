//! From text to messages.

mod attribute;
mod tensor;
mod value;

use super::convention::{Convention, Conventions};
use super::cursor::Cursor;
use super::lex::{ParseError, Token};
use super::note::{self, Applied, Value, unknown_key};
use onnxforge_proto::Str;
use onnxforge_proto::schema::{
    FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorAnnotation,
};

type Result<T> = std::result::Result<T, ParseError>;

/// Reads messages from a text.
pub(super) struct Parser<'a> {
    cursor: Cursor<'a>,
    conventions: Conventions,
}

impl<'a> Parser<'a> {
    pub(super) fn new(source: &'a str) -> Result<Self> {
        Ok(Self { cursor: Cursor::new(source)?, conventions: Conventions::default() })
    }

    /// Reads the conventions that a text which is not a whole model may start with, and then all of the text.
    pub(super) fn whole<T>(mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.start(|key, _| unknown_key(key, "this text"))?;
        let value = read(&mut self)?;
        match self.cursor.peek() {
            Token::End => Ok(value),
            _ => Err(self.cursor.expected("the end of the text")),
        }
    }

    /// Reads the notes at the start; `apply` gets what is not about conventions.
    fn start(&mut self, mut apply: impl FnMut(&str, Value<'a>) -> Applied) -> Result<()> {
        let conventions = &mut self.conventions;
        note::read(
            &mut self.cursor,
            |key, value| {
                if conventions.read(key, &value)? { Ok(()) } else { apply(key, value) }
            },
        )
    }

    /// Reads what lies `levels` messages deeper.
    fn nested<T>(&mut self, levels: u32, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.cursor.deeper(levels)?;
        let value = read(self)?;
        self.cursor.shallower(levels);
        Ok(value)
    }

    /// Reads what stands behind an element of a list: its notes, before or after a comma. Tells whether
    /// another follows.
    fn separator(&mut self, mut apply: impl FnMut(&str, Value<'a>) -> Applied) -> Result<bool> {
        note::read(&mut self.cursor, &mut apply)?;
        let more = self.cursor.eat(',')?;
        note::read(&mut self.cursor, apply)?;
        Ok(more)
    }

    pub(super) fn model(mut self) -> Result<ModelProto> {
        let mut model = ModelProto::default();
        let mut has_graph = true;
        self.start(|key, value| match key {
            "graph" => value.unset().map(|()| has_graph = false),
            "proto" => value.merge(&mut model),
            _ => unknown_key(key, "a model"),
        })?;
        if self.cursor.eat('<')? {
            loop {
                self.model_entry(&mut model)?;
                if !self.cursor.eat(',')? {
                    break;
                }
            }
            self.cursor.expect('>')?;
        }
        let graph = self.nested(1, Self::graph)?;
        model.graph = has_graph.then(|| graph.into());
        while *self.cursor.peek() != Token::End {
            model.functions.push(self.nested(1, Self::function)?);
        }
        Ok(model)
    }

    fn model_entry(&mut self, model: &mut ModelProto) -> Result<()> {
        let offset = self.cursor.offset();
        let key = self.cursor.ident("a key of the model")?;
        self.cursor.expect(':')?;
        match key {
            "ir_version" => model.ir_version = Some(self.cursor.int("a version")?),
            "opset_import" => self.opsets(&mut model.opset_import)?,
            "producer_name" => model.producer_name = Some(self.cursor.text("a string")?),
            "producer_version" => model.producer_version = Some(self.cursor.text("a string")?),
            "domain" => model.domain = Some(self.cursor.text("a string")?),
            "model_version" => model.model_version = Some(self.cursor.int("a version")?),
            "doc_string" => model.doc_string = Some(self.cursor.text("a string")?),
            "metadata_props" => {
                self.cursor.expect('[')?;
                if !self.cursor.at(']') {
                    self.entries(&mut model.metadata_props)?;
                }
                self.cursor.expect(']')?;
            }
            _ => return Err(self.cursor.error_at(offset, format!("a model has no key `{key}`"))),
        }
        Ok(())
    }

    /// `["domain" : version, …]`
    fn opsets(&mut self, opsets: &mut Vec<OperatorSetIdProto>) -> Result<()> {
        self.cursor.expect('[')?;
        let mut more = !self.cursor.at(']');
        while more {
            let domain = self.cursor.text("the domain of an operator set")?;
            self.cursor.expect(':')?;
            let version = Some(self.cursor.int("the version of an operator set")?);
            let absent = domain.is_empty() && self.conventions.has(Convention::OpsetDomain);
            let domain = Some(domain).filter(|_| !absent);
            opsets.push(OperatorSetIdProto { domain, version, ..Default::default() });
            more = self.cursor.eat(',')?;
        }
        self.cursor.expect(']')
    }

    /// One or more `"key": "value"`.
    fn entries(&mut self, entries: &mut Vec<StringStringEntryProto>) -> Result<()> {
        loop {
            let key = Some(self.cursor.text("a key")?);
            self.cursor.expect(':')?;
            let value = Some(self.cursor.text("a string")?);
            entries.push(StringStringEntryProto { key, value, ..Default::default() });
            if !self.cursor.eat(',')? {
                return Ok(());
            }
        }
    }

    pub(super) fn function(&mut self) -> Result<FunctionProto> {
        let mut function = FunctionProto::default();
        if self.cursor.eat('<')? {
            loop {
                self.function_entry(&mut function)?;
                if !self.cursor.eat(',')? {
                    break;
                }
            }
            self.cursor.expect('>')?;
        }
        function.name = Some(self.cursor.name("the name of a function")?);
        if self.cursor.eat('<')? {
            loop {
                let name = self.cursor.name("an attribute")?;
                let more = if self.cursor.at(':') || self.cursor.at('=') {
                    let (attribute, more) = self.nested(1, |parser| parser.attribute(name))?;
                    function.attribute_proto.push(attribute);
                    more
                } else {
                    function.attribute.push(name);
                    self.separator(|key, _| unknown_key(key, "an attribute without a value"))?
                };
                if !more {
                    break;
                }
            }
            self.cursor.expect('>')?;
        }
        function.input = self.parameters(&mut function)?;
        self.cursor.expect_arrow()?;
        function.output = self.parameters(&mut function)?;
        note::read(&mut self.cursor, |key, value| {
            match key {
                "name" => function.name = value.text()?,
                "metadata_props" => function.metadata_props = value.entries()?,
                "proto" => value.merge(&mut function)?,
                _ => return unknown_key(key, "a function"),
            }
            Ok(())
        })?;
        if self.cursor.at('<') {
            function.value_info.extend(self.value_infos('<', '>')?);
        }
        function.node = self.braced_nodes()?;
        Ok(function)
    }

    fn function_entry(&mut self, function: &mut FunctionProto) -> Result<()> {
        let offset = self.cursor.offset();
        let key = self.cursor.ident("a key of the function")?;
        self.cursor.expect(':')?;
        match key {
            "opset_import" => self.opsets(&mut function.opset_import)?,
            "doc_string" => function.doc_string = Some(self.cursor.text("a string")?),
            "domain" => function.domain = Some(self.cursor.text("a string")?),
            "overload" => function.overload = Some(self.cursor.text("a string")?),
            _ => return Err(self.cursor.error_at(offset, format!("a function has no key `{key}`"))),
        }
        Ok(())
    }

    /// The names of the inputs or outputs of a function. Those that have types are values of it, too.
    fn parameters(&mut self, function: &mut FunctionProto) -> Result<Vec<Str>> {
        let values = self.value_infos('(', ')')?;
        let names = values.iter().map(|value| value.name.clone().unwrap_or_default()).collect();
        function.value_info.extend(values.into_iter().filter(|value| value.r#type.is_some()));
        Ok(names)
    }

    pub(super) fn graph(&mut self) -> Result<GraphProto> {
        let name = self.cursor.name("the name of a graph")?;
        self.graph_named(name)
    }

    /// The rest of a graph whose name has been read.
    fn graph_named(&mut self, name: Str) -> Result<GraphProto> {
        let mut graph = GraphProto { name: Some(name), ..Default::default() };
        if self.cursor.at('(') {
            graph.input = self.inputs(&mut graph)?;
        }
        self.cursor.expect_arrow()?;
        graph.output = self.value_infos('(', ')')?;
        note::read(&mut self.cursor, |key, value| {
            match key {
                "name" => graph.name = value.text()?,
                "doc_string" => graph.doc_string = value.text()?,
                "metadata_props" => graph.metadata_props = value.entries()?,
                "quantization_annotation" => {
                    for (name, parameters) in value.pairs()? {
                        graph.quantization_annotation.push(TensorAnnotation {
                            tensor_name: name.text()?,
                            quant_parameter_tensor_names: parameters.entries()?,
                            ..Default::default()
                        });
                    }
                }
                "proto" => value.merge(&mut graph)?,
                _ => return unknown_key(key, "a graph"),
            }
            Ok(())
        })?;
        if self.cursor.at('<') {
            graph.value_info = self.declarations(&mut graph)?;
        }
        graph.node = self.braced_nodes()?;
        Ok(graph)
    }

    fn braced_nodes(&mut self) -> Result<Vec<NodeProto>> {
        self.cursor.expect('{')?;
        let mut nodes = Vec::new();
        while !self.cursor.eat('}')? {
            nodes.push(self.nested(1, Self::node)?);
        }
        Ok(nodes)
    }

    /// Nodes up to the end of the text.
    pub(super) fn nodes(&mut self) -> Result<Vec<NodeProto>> {
        let mut nodes = Vec::new();
        while *self.cursor.peek() != Token::End {
            nodes.push(self.node()?);
        }
        Ok(nodes)
    }

    pub(super) fn node(&mut self) -> Result<NodeProto> {
        let mut node = NodeProto::default();
        if self.cursor.eat('[')? {
            node.name = Some(self.cursor.optional_name()?.unwrap_or_default());
            self.cursor.expect(']')?;
        }
        node.output = self.names()?;
        if !self.cursor.eat('=')? {
            return Err(self.cursor.expected("`=` and an operator, or `}`"));
        }
        let (domain, op_type) = self.qualified()?;
        let absent = domain.is_empty() && self.conventions.has(Convention::NodeDomain);
        node.domain = Some(domain).filter(|_| !absent).map(Str::from);
        node.op_type = Some(op_type);
        node.overload = self.conventions.has(Convention::NodeOverload).then(Str::default);
        node.doc_string = self.conventions.has(Convention::NodeDoc).then(Str::default);
        if self.cursor.eat(':')? {
            node.overload = Some(self.cursor.name("an overload")?);
        }
        node.attribute = self.attributes()?;
        self.cursor.expect('(')?;
        node.input = self.names()?;
        self.cursor.expect(')')?;
        if node.attribute.is_empty() {
            node.attribute = self.attributes()?;
        }
        note::read(&mut self.cursor, |key, value| {
            match key {
                "op_type" => node.op_type = value.text()?,
                "domain" => node.domain = value.text()?,
                "overload" => node.overload = value.text()?,
                "doc_string" => node.doc_string = value.text()?,
                "metadata_props" => node.metadata_props = value.entries()?,
                "proto" => value.merge(&mut node)?,
                _ => return unknown_key(key, "a node"),
            }
            Ok(())
        })?;
        Ok(node)
    }

    /// Names with commas between them. One that is left out before a comma is empty; a comma at the end adds
    /// nothing.
    fn names(&mut self) -> Result<Vec<Str>> {
        let mut names = Vec::new();
        loop {
            match self.cursor.optional_name()? {
                Some(name) => names.push(name),
                None if self.cursor.at(',') => names.push(Str::default()),
                None => return Ok(names),
            }
            if !self.cursor.eat(',')? {
                return Ok(names);
            }
        }
    }

    /// Names with dots between them: those before the last dot, and the last one.
    fn qualified(&mut self) -> Result<(String, Str)> {
        let mut domain = String::new();
        let mut last = self.cursor.optional_name()?.unwrap_or_default();
        while self.cursor.eat('.')? {
            if !domain.is_empty() {
                domain.push('.');
            }
            domain.push_str(&last);
            last = self.cursor.name("a name behind the dot")?;
        }
        Ok((domain, last))
    }
}
