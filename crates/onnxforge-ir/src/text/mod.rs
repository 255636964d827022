//! The ONNX textual syntax, both ways: the notation of tests, snapshots, patterns and dumps.
//!
//! The language is the one of `docs/Syntax.md` in the ONNX project, as its parser implements it:
//!
//! ```
//! use onnxforge_ir::text;
//!
//! let source = r#"<
//!   ir_version: 8,
//!   opset_import: ["" : 17]
//! >
//! main (float[N, 3] x) => (float[N, 3] y)
//! <
//!   float[3] scale = {0.5, 1.0, 2.0}
//! >
//! {
//!   scaled = Mul(x, scale)
//!   y = LeakyRelu<alpha = 0.1>(scaled)
//! }
//! "#;
//! let model = text::parse(source)?;
//! assert_eq!(text::print(&model, &text::PrintOptions::default()), source);
//! # Ok::<(), text::ParseError>(())
//! ```
//!
//! Note that `float` is a scalar and `float[]` a tensor of unknown rank.
//!
//! # Exactness
//!
//! [`parse()`] of [`print()`] is the identity on every model, down to absent fields, the payloads of NaNs and
//! fields that this version does not know; and `print` of `parse` is the identity on everything that was
//! printed. What the standard notation can express is printed in nothing else, control characters excepted.
//! For the rest there are extensions, of two sorts.
//!
//! **Notes** hold what the standard notation has no place for. A note is a comment to other readers, so that
//! they accept the text and get the same computation. It starts with `#@`, ends with its line, and lists
//! fields of the message beside it:
//!
//! ```text
//! #@ node.domain: unset, tensor.data: raw
//! main (
//!   float[N, 3] x,  #@ doc_string: "the image", dim.denotation: [0: "DATA_BATCH"]
//!   float[N] y
//! ) => (float[N, 3] z)  #@ metadata_props: ["stage": "first"]
//! {
//!   z = Mul(x, y)  #@ doc_string: "weighted"
//! }
//! ```
//!
//! The note of a value, initializer, attribute or tensor stands behind it (or behind the comma that follows
//! it), that of a node behind the node, that of a graph or function behind its outputs, that of a model at
//! the start. The keys are
//!
//! | of | keys |
//! |---|---|
//! | anything | `doc_string`, `metadata_props` (where the message has them), `proto` |
//! | anything with a name | `name: unset` |
//! | model | `graph: unset`, and the conventions |
//! | graph | `quantization_annotation: ["tensor": ["SCALE_TENSOR": "scale"]]` |
//! | node | `domain`, `op_type`, `overload` |
//! | value | `denotation`, `dim.denotation: [0: "DATA_BATCH"]` |
//! | attribute | `type`, `f`, `i`, `s` (where the value is absent), and those of its tensor behind `t.` |
//! | tensor | `data: raw` or `typed`, `data_location` |
//!
//! `unset` says that a field is absent. `proto: x"…"` is the last resort: fields that have no notation of
//! their own, as an encoded message that is merged into the one beside it.
//!
//! *Conventions* stand in the note at the start of a text. They answer once what would need a note on every
//! line: `node.domain: unset`, `opset_import.domain: unset`, `tensor.name: unset` (absent where nothing is
//! written, instead of empty), `node.overload: ""`, `node.doc_string: ""`, `tensor.data_location: 0`
//! (present), `tensor.data: raw` (elements are in `raw_data`). A note overrides a convention. Without any, a
//! text means what it means to the standard parser.
//!
//! **Literals** fill gaps where the standard notation has a place but no way to write the thing:
//!
//! - `b"\xff\n"`, with the escapes of Rust, for strings with control characters or bytes that are not
//!   UTF-8. In `"…"` a backslash only stands for the character behind it, as in the standard.
//! - `0x7fc00001` for the bits of a float, where it is a NaN with a payload.
//! - Decimals for 16- and 8-bit floats, where the standard has integers for their bits (see
//!   [`PrintOptions::decimals`]). Elements smaller than a byte are written as the bytes that they are packed
//!   into.
//! - Quoted names for operators, domains, overloads, attributes and graphs in attributes, as in
//!   `y = "my-domain".Op(x)`.
//! - `[…]` lists of tensors, graphs and types, which the standard parser drops silently.
//! - `sparse_tensor(float[8]) {float[2] {1.0, 2.0}, int64[2] {3, 5}}`: a sparse tensor by its values and
//!   indices, as an attribute or, behind a name and `=`, as an initializer.
//! - `x"…"`: an encoded message for a type, for the data of an initializer or for the value of an attribute
//!   that cannot be written otherwise, such as those of later versions.
//!
//! `{...}` stands for elements that [`PrintOptions::max_elements`] left out; it cannot be read back.
//!
//! # Untrusted text
//!
//! Parsing takes linear time and memory in the length of the text, whatever shapes it declares, refuses
//! nesting that no protobuf reader would accept, and does not panic.

mod convention;
pub(crate) mod cursor;
mod element;
mod kind;
pub(crate) mod lex;
mod literal;
mod note;
mod options;
mod parse;
mod print;

use std::fmt;

use onnxforge_proto::schema::{FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto};

pub use lex::ParseError;
pub use options::PrintOptions;
use parse::Parser;
use print::Printer;

/// Writes a model as text.
pub fn write(model: &ModelProto, options: &PrintOptions, out: &mut dyn fmt::Write) -> fmt::Result {
    Printer::new(out, options, |votes| votes.model(model)).model(model)
}

/// Writes a graph as text.
pub fn write_graph(graph: &GraphProto, options: &PrintOptions, out: &mut dyn fmt::Write) -> fmt::Result {
    let mut printer = Printer::new(out, options, |votes| votes.graph(graph));
    printer.start()?;
    printer.graph(graph)
}

/// Writes a function as text.
pub fn write_function(
    function: &FunctionProto,
    options: &PrintOptions,
    out: &mut dyn fmt::Write,
) -> fmt::Result {
    let mut printer = Printer::new(out, options, |votes| votes.function(function));
    printer.start()?;
    printer.function(function)
}

/// Writes a node as text.
pub fn write_node(node: &NodeProto, options: &PrintOptions, out: &mut dyn fmt::Write) -> fmt::Result {
    let mut printer = Printer::new(out, options, |votes| votes.node(node));
    printer.start()?;
    printer.node(node)
}

/// What `write` writes. Writing to a string does not fail.
fn to_string(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    let _ = write(&mut text);
    text
}

/// A model as text.
pub fn print(model: &ModelProto, options: &PrintOptions) -> String {
    to_string(|out| write(model, options, out))
}

/// A graph as text.
pub fn print_graph(graph: &GraphProto, options: &PrintOptions) -> String {
    to_string(|out| write_graph(graph, options, out))
}

/// A function as text.
pub fn print_function(function: &FunctionProto, options: &PrintOptions) -> String {
    to_string(|out| write_function(function, options, out))
}

/// A node as text: one line, unless it has bodies or notes.
pub fn print_node(node: &NodeProto, options: &PrintOptions) -> String {
    to_string(|out| write_node(node, options, out))
}

/// A type as text.
pub fn print_type(r#type: &TypeProto) -> String {
    to_string(|out| Printer::new(out, &PrintOptions::default(), |_| {}).type_proto(r#type))
}

/// Reads a model.
pub fn parse(text: &str) -> Result<ModelProto, ParseError> {
    Parser::new(text)?.model()
}

/// Reads a graph.
pub fn parse_graph(text: &str) -> Result<GraphProto, ParseError> {
    Parser::new(text)?.whole(Parser::graph)
}

/// Reads a function.
pub fn parse_function(text: &str) -> Result<FunctionProto, ParseError> {
    Parser::new(text)?.whole(Parser::function)
}

/// Reads a node.
pub fn parse_node(text: &str) -> Result<NodeProto, ParseError> {
    Parser::new(text)?.whole(Parser::node)
}

/// Reads any number of nodes, one after the other.
pub fn parse_nodes(text: &str) -> Result<Vec<NodeProto>, ParseError> {
    Parser::new(text)?.whole(Parser::nodes)
}

/// Reads a type.
pub fn parse_type(text: &str) -> Result<TypeProto, ParseError> {
    Parser::new(text)?.whole(Parser::type_proto)
}
