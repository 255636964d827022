//! From messages to text.

mod attribute;
mod graph;
mod number;
mod tensor;
mod value;

use std::fmt::{self, Display, Write};

use super::convention::{Convention, Conventions, Votes};
use super::literal::{Name, Quoted};
use super::note::{Entries, Note, are_plain, not_plain};
use super::options::PrintOptions;
use onnxforge_proto::Str;
use onnxforge_proto::schema::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, SparseTensorProto,
    TensorAnnotation, TensorProto, TypeProto, ValueInfoProto,
};

/// Writes messages as text.
pub(super) struct Printer<'a> {
    out: &'a mut dyn Write,
    options: &'a PrintOptions,
    conventions: Conventions,
    indent: usize,
}

/// One element of a list between brackets.
#[derive(Clone, Copy)]
enum Item<'a> {
    /// A name without a type.
    Name(&'a str),
    Value(&'a ValueInfoProto),
    Initializer(&'a TensorProto),
    SparseInitializer(&'a SparseTensorProto),
    Attribute(&'a AttributeProto),
    /// A tensor within an attribute.
    Tensor(&'a TensorProto),
    /// The elements of a sparse initializer, whose name stands before it.
    Unnamed(&'a TensorProto),
    Sparse(&'a SparseTensorProto),
    Graph(&'a GraphProto),
    Type(&'a TypeProto),
}

impl<'a> Printer<'a> {
    /// A printer that follows the conventions that `vote` counts.
    pub(super) fn new(
        out: &'a mut dyn Write,
        options: &'a PrintOptions,
        vote: impl FnOnce(&mut Votes),
    ) -> Self {
        let mut votes = Votes::default();
        if options.notes {
            vote(&mut votes);
        }
        Self { out, options, conventions: votes.conventions(), indent: 0 }
    }

    /// Writes the note that states the conventions, for a text that is not a whole model.
    pub(super) fn start(&mut self) -> fmt::Result {
        let mut note = self.new_note();
        self.conventions.state(&mut note);
        if note.is_empty() { Ok(()) } else { writeln!(self.out, "#@ {}", note.as_str()) }
    }

    fn new_note(&self) -> Note<'a> {
        Note::new(self.options)
    }

    /// Writes a note behind what it is about.
    fn note(&mut self, note: &Note<'_>) -> fmt::Result {
        if note.is_empty() { Ok(()) } else { write!(self.out, "  #@ {}", note.as_str()) }
    }

    fn newline(&mut self) -> fmt::Result {
        write!(self.out, "\n{:1$}", "", self.indent * 2)
    }

    /// Writes a list, one element per line if `lines` or if an element has a note, which ends its line.
    fn list(&mut self, open: char, items: &[Item<'_>], close: char, lines: bool) -> fmt::Result {
        let notes: Vec<_> = items.iter().map(|&item| self.item_note(item)).collect();
        let lines = lines && !items.is_empty() || notes.iter().any(|note| !note.is_empty());
        self.out.write_char(open)?;
        self.indent += usize::from(lines);
        for (i, (&item, note)) in items.iter().zip(&notes).enumerate() {
            if lines {
                self.newline()?;
            }
            self.item(item)?;
            if i + 1 < items.len() {
                self.out.write_str(if lines { "," } else { ", " })?;
            }
            self.note(note)?;
        }
        self.indent -= usize::from(lines);
        if lines {
            self.newline()?;
        }
        self.out.write_char(close)
    }

    fn item(&mut self, item: Item<'_>) -> fmt::Result {
        match item {
            Item::Name(name) => write!(self.out, "{}", Name(name)),
            Item::Value(value) => self.value_info(value),
            Item::Initializer(tensor) => self.initializer(tensor),
            Item::SparseInitializer(sparse) => self.sparse_initializer(sparse),
            Item::Attribute(attribute) => self.attribute(attribute),
            Item::Tensor(tensor) => self.tensor(tensor, tensor.name.as_deref()),
            Item::Unnamed(tensor) => self.tensor(tensor, None),
            Item::Sparse(sparse) => self.sparse(sparse),
            Item::Graph(graph) => self.graph(graph),
            Item::Type(r#type) => self.type_proto(r#type),
        }
    }

    fn item_note(&self, item: Item<'_>) -> Note<'a> {
        let mut note = self.new_note();
        match item {
            Item::Value(value) => self.value_info_note(value, &mut note),
            Item::Initializer(tensor) => {
                note.missing("name", tensor.name.is_none());
                self.tensor_note(tensor, "", &mut note);
            }
            Item::Attribute(attribute) => self.attribute_note(attribute, &mut note),
            Item::Tensor(tensor) => {
                self.tensor_name_note(tensor, "", &mut note);
                self.tensor_note(tensor, "", &mut note);
            }
            Item::Unnamed(tensor) => self.tensor_note(tensor, "", &mut note),
            Item::Name(_) | Item::SparseInitializer(_) | Item::Sparse(_) | Item::Graph(_) | Item::Type(_) => {
            }
        }
        note
    }

    fn names(&mut self, names: &[Str]) -> fmt::Result {
        for (i, name) in names.iter().enumerate() {
            write!(self.out, "{}{}", if i == 0 { "" } else { ", " }, Name(name))?;
        }
        Ok(())
    }

    pub(super) fn model(&mut self, model: &ModelProto) -> fmt::Result {
        let ModelProto {
            ir_version,
            producer_name,
            producer_version,
            domain,
            model_version,
            doc_string,
            graph,
            opset_import,
            metadata_props,
            training_info,
            functions,
            configuration,
            unknown,
        } = model;
        let mut note = self.new_note();
        self.conventions.state(&mut note);
        if graph.is_none() {
            note.entry("graph", "unset");
        }
        let rest = ModelProto {
            opset_import: self.odd_opsets(opset_import),
            metadata_props: not_plain(metadata_props),
            training_info: training_info.clone(),
            configuration: configuration.clone(),
            unknown: unknown.clone(),
            ..Default::default()
        };
        note.rest("proto", &rest);
        if !note.is_empty() {
            writeln!(self.out, "#@ {}", note.as_str())?;
        }
        let mut header = Header::default();
        header.add("ir_version", *ir_version);
        header.add("opset_import", self.opsets(opset_import));
        header.add("producer_name", producer_name.as_deref().map(Quoted));
        header.add("producer_version", producer_version.as_deref().map(Quoted));
        header.add("domain", domain.as_deref().map(Quoted));
        header.add("model_version", *model_version);
        header.add("doc_string", doc_string.as_deref().map(Quoted));
        let metadata = Entries(metadata_props, |text, f| Quoted(text).fmt(f));
        header.add(
            "metadata_props",
            (!metadata_props.is_empty() && are_plain(metadata_props)).then_some(metadata),
        );
        header.write(self.out)?;
        match graph {
            Some(graph) => self.graph(graph)?,
            None => self.graph(&GraphProto { name: Some("".into()), ..Default::default() })?,
        }
        self.out.write_char('\n')?;
        functions.iter().try_for_each(|function| self.function(function))
    }

    /// The operator sets, if there are any and the notation can say them.
    fn opsets(&self, opsets: &[OperatorSetIdProto]) -> Option<String> {
        if opsets.is_empty() || !self.odd_opsets(opsets).is_empty() {
            return None;
        }
        let entry = |opset: &OperatorSetIdProto| {
            format!(
                "{} : {}",
                Quoted(opset.domain.as_deref().unwrap_or_default()),
                opset.version.unwrap_or_default()
            )
        };
        Some(format!("[{}]", opsets.iter().map(entry).collect::<Vec<_>>().join(", ")))
    }

    /// The operator sets, if the notation cannot say all of them under the present conventions.
    fn odd_opsets(&self, opsets: &[OperatorSetIdProto]) -> Vec<OperatorSetIdProto> {
        let absent = self.conventions.has(Convention::OpsetDomain);
        let plain = opsets.iter().all(|opset| {
            let domain = opset.domain.as_deref();
            let written = domain.is_some_and(|domain| !domain.is_empty()) || domain.is_none() == absent;
            written && opset.version.is_some() && opset.unknown.0.is_empty()
        });
        if plain || !self.options.notes { Vec::new() } else { opsets.to_vec() }
    }
}

/// The entries between `<` and `>` before a model or a function.
#[derive(Default)]
struct Header(Vec<String>);

impl Header {
    fn add(&mut self, key: &str, value: Option<impl Display>) {
        self.0.extend(value.map(|value| format!("{key}: {value}")));
    }

    fn write(&self, out: &mut dyn Write) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { writeln!(out, "<\n  {}\n>", self.0.join(",\n  ")) }
    }
}
