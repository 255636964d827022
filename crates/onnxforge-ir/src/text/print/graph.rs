//! Graphs, functions and nodes.

use std::fmt;

use super::super::convention::Convention;
use super::super::literal::{Name, Qualified, Quoted, Word};
use super::super::note::not_plain;
use super::{AttributeProto, FunctionProto, GraphProto, Header, Item, NodeProto, Printer, tensor, value};

impl Printer<'_> {
    pub(in super::super) fn function(&mut self, function: &FunctionProto) -> fmt::Result {
        let FunctionProto {
            name,
            input,
            output,
            attribute,
            node,
            doc_string,
            opset_import,
            domain,
            attribute_proto,
            value_info,
            overload,
            metadata_props,
            unknown,
        } = function;
        let mut header = Header::default();
        header.add("domain", domain.as_deref().map(Quoted));
        header.add("overload", overload.as_deref().map(Quoted));
        header.add("opset_import", self.opsets(opset_import));
        header.add("doc_string", doc_string.as_deref().map(Quoted));
        header.write(self.out)?;
        write!(self.out, "{} ", Name(name.as_deref().unwrap_or_default()))?;
        let parameters: Vec<_> = (attribute.iter().map(|name| Item::Name(name)))
            .chain(attribute_proto.iter().map(Item::Attribute))
            .collect();
        if !parameters.is_empty() {
            self.list('<', &parameters, '>', has_graph(attribute_proto))?;
            self.out.write_char(' ')?;
        }
        self.out.write_char('(')?;
        self.names(input)?;
        self.out.write_str(") => (")?;
        self.names(output)?;
        self.out.write_char(')')?;
        let mut note = self.new_note();
        note.missing("name", name.is_none());
        note.entries("metadata_props", metadata_props);
        let rest = FunctionProto {
            opset_import: self.odd_opsets(opset_import),
            metadata_props: not_plain(metadata_props),
            unknown: unknown.clone(),
            ..Default::default()
        };
        note.rest("proto", &rest);
        self.note(&note)?;
        self.declarations(&value_info.iter().map(Item::Value).collect::<Vec<_>>(), !note.is_empty())?;
        self.nodes(node)?;
        self.out.write_char('\n')
    }

    pub(in super::super) fn graph(&mut self, graph: &GraphProto) -> fmt::Result {
        let GraphProto {
            node,
            name,
            initializer,
            doc_string,
            input,
            output,
            value_info,
            quantization_annotation,
            sparse_initializer,
            metadata_props,
            unknown,
        } = graph;
        let (sparse, odd_sparse) = tensor::sparse_initializers(sparse_initializer);
        let annotated = value::are_plain_annotations(quantization_annotation);
        let mut note = self.new_note();
        note.missing("name", name.is_none());
        note.text("doc_string", doc_string.as_deref());
        note.entries("metadata_props", metadata_props);
        if annotated && !quantization_annotation.is_empty() {
            note.entry("quantization_annotation", value::Annotations(quantization_annotation));
        }
        let rest = GraphProto {
            quantization_annotation: if annotated { Vec::new() } else { quantization_annotation.clone() },
            sparse_initializer: odd_sparse.to_vec(),
            metadata_props: not_plain(metadata_props),
            unknown: unknown.clone(),
            ..Default::default()
        };
        note.rest("proto", &rest);

        write!(self.out, "{} ", Name(name.as_deref().unwrap_or_default()))?;
        self.list('(', &input.iter().map(Item::Value).collect::<Vec<_>>(), ')', false)?;
        self.out.write_str(" => ")?;
        self.list('(', &output.iter().map(Item::Value).collect::<Vec<_>>(), ')', false)?;
        self.note(&note)?;
        let declarations: Vec<_> = (initializer.iter().map(Item::Initializer))
            .chain(sparse.iter().map(Item::SparseInitializer))
            .chain(value_info.iter().map(Item::Value))
            .collect();
        self.declarations(&declarations, !note.is_empty())?;
        self.nodes(node)
    }

    /// Writes what stands between the signature and the nodes. `new_line`: the line before ends with a note.
    fn declarations(&mut self, items: &[Item<'_>], new_line: bool) -> fmt::Result {
        if items.is_empty() {
            return if new_line { self.newline() } else { self.out.write_char(' ') };
        }
        self.newline()?;
        self.list('<', items, '>', true)?;
        self.newline()
    }

    fn nodes(&mut self, nodes: &[NodeProto]) -> fmt::Result {
        self.out.write_char('{')?;
        self.indent += 1;
        for node in nodes {
            self.newline()?;
            self.node(node)?;
        }
        self.indent -= 1;
        self.newline()?;
        self.out.write_char('}')
    }

    pub(in super::super) fn node(&mut self, node: &NodeProto) -> fmt::Result {
        let NodeProto {
            input,
            output,
            name,
            op_type,
            attribute,
            doc_string,
            domain,
            overload,
            metadata_props,
            device_configurations,
            unknown,
        } = node;
        if let Some(name) = name {
            write!(self.out, "[{}] ", Name(name))?;
        }
        self.names(output)?;
        self.out.write_str(if output.is_empty() { "= " } else { " = " })?;
        if let Some(domain) = domain.as_deref().filter(|domain| !domain.is_empty()) {
            write!(self.out, "{}.", Qualified(domain))?;
        }
        write!(self.out, "{}", Word(op_type.as_deref().unwrap_or_default()))?;
        if let Some(overload) = overload.as_deref().filter(|overload| !overload.is_empty()) {
            write!(self.out, ":{}", Word(overload))?;
        }
        let attributes: Vec<_> = attribute.iter().map(Item::Attribute).collect();
        let bodies = has_graph(attribute);
        if !attributes.is_empty() && !bodies {
            self.list('<', &attributes, '>', false)?;
        }
        self.out.write_char('(')?;
        self.names(input)?;
        self.out.write_char(')')?;
        if bodies {
            self.out.write_char(' ')?;
            self.list('<', &attributes, '>', true)?;
        }

        let mut note = self.new_note();
        note.missing("op_type", op_type.is_none());
        let usual =
            |convention, other, standard| if self.conventions.has(convention) { other } else { standard };
        if domain.as_deref().is_none_or(str::is_empty) {
            note.unusual("domain", domain.as_deref(), usual(Convention::NodeDomain, None, Some("")));
        }
        if overload.as_deref().is_none_or(str::is_empty) {
            note.unusual("overload", overload.as_deref(), usual(Convention::NodeOverload, Some(""), None));
        }
        note.unusual("doc_string", doc_string.as_deref(), usual(Convention::NodeDoc, Some(""), None));
        note.entries("metadata_props", metadata_props);
        let rest = NodeProto {
            metadata_props: not_plain(metadata_props),
            device_configurations: device_configurations.clone(),
            unknown: unknown.clone(),
            ..Default::default()
        };
        note.rest("proto", &rest);
        self.note(&note)
    }
}

/// Whether an attribute holds a graph.
fn has_graph(attributes: &[AttributeProto]) -> bool {
    attributes.iter().any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty())
}
