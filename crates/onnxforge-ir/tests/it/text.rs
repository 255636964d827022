//! The textual syntax: exact round trips of anything that can be in a model, and orderly errors for anything
//! that is not a text of one. The Python tests compare it with the implementation of the ONNX project.

use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::Arc;

use onnxforge_ir::text::{self, PrintOptions};
use onnxforge_proto::blob::{Blob, Payload, Stream};
use onnxforge_proto::schema::*;
use onnxforge_proto::wire::{self, Message};
use onnxforge_testing::cases;
use proptest::prelude::*;

use crate::messages::make;

fn bytes(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::encode(message).write_to(&mut bytes).unwrap();
    bytes
}

/// Checks that printing and parsing gives the same message, and printing that the same text.
#[track_caller]
fn assert_exact<M: Message + Debug>(
    message: &M,
    print: impl Fn(&M, &PrintOptions) -> String,
    parse: impl Fn(&str) -> Result<M, text::ParseError>,
) {
    for decimals in [false, true] {
        let options = PrintOptions { decimals, ..Default::default() };
        let text = print(message, &options);
        let again = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(bytes(&again), bytes(message), "\n{text}\n{again:#?}\n{message:#?}");
        assert_eq!(print(&again, &options), text);
    }
}

#[track_caller]
fn assert_exact_model(model: &ModelProto) {
    assert_exact(model, text::print, text::parse);
}

/// Checks that a text is what the printer would write.
#[track_caller]
fn assert_canonical(source: &str) -> ModelProto {
    let model = text::parse(source).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text::print(&model, &PrintOptions::default()), source);
    assert_exact_model(&model);
    model
}

#[track_caller]
fn error(source: &str) -> String {
    text::parse(source).expect_err(source).to_string()
}

#[test]
fn a_standard_model_is_printed_in_standard_notation() {
    let model = assert_canonical(
        r#"<
  ir_version: 8,
  opset_import: ["" : 17, "com.microsoft" : 1],
  doc_string: "two
lines"
>
main (float[N, 3, "a b"] x, seq(map(int64, optional(float[]))) s) => (float y)
<
  float[2, 2] w = {0.1, -0.0, inf, nan},
  string[2] names = {"a \"b\"", ""},
  double[1] external = ["location": "weights.bin", "offset": "4096"],
  float[N] t
>
{
  [first] t = com.microsoft.Gelu(x, "", w)
  ["/layer/0"] y, "", "1" = Op:over<alpha = 1.0, axes = [0, -1], mode = "linear", empty: ints = [], to = @a>(t)
  y = If(t) <
    then_branch = then () => (float y) {
      y = Constant<value = int64[2] {1, 2}>()
    },
    else_branch = other (float a) => (float y)
    <
      float[1] b = {1.0}
    >
    {
      y = Add(a, b)
    }
  >
}
<
  domain: "local",
  opset_import: ["" : 17]
>
f <alpha, beta = 0.5> (x) => (y) {
  y = Mul(x, x)
}
"#,
    );
    let graph = model.graph.as_ref().unwrap();
    assert_eq!(graph.node[0].domain.as_deref(), Some("com.microsoft"));
    assert_eq!(graph.node[1].domain.as_deref(), Some(""));
    assert_eq!(graph.node[1].output.iter().map(|name| &**name).collect::<Vec<_>>(), ["y", "", "1"]);
    assert_eq!(graph.initializer[2].data_location, Some(1));
}

#[test]
fn what_the_standard_cannot_say_is_in_notes_and_literals() {
    let model = assert_canonical(
        r#"#@ node.domain: unset, opset_import.domain: unset, tensor.name: unset, tensor.data: raw, proto: x"c03e01"
<
  opset_import: ["" : 17]
>
"float" (
  float[N, 3] x,  #@ denotation: "IMAGE", dim.denotation: [0: "DATA_BATCH"], doc_string: b"a\nb"
  x"0a020863" odd
) => (float y)  #@ doc_string: "graph", quantization_annotation: ["x": ["SCALE_TENSOR": "s"]]
<
  float16[2] h = {15360, 31745},
  float[1] typed = {0x7f800001},  #@ data: typed, doc_string: "signalling"
  future = x"081d",
  sparse_tensor(float[8]) sparse = {float[2] {1.0, 2.0}, int64[2] {3, 5}}
>
{
  y = Op<
    c = 0,  #@ i: unset
    "a b": float = 0xff800001,
    bytes = b"\xff",
    t = uint8[2] {1, 255},  #@ t.doc_string: "a tensor"
    odd = x"",
    tensors: tensors = [
      int4[3] {33, 3},
      bool named {1}  #@ data: typed
    ]
  >(x)  #@ metadata_props: ["k": "v"]
  y = "my-domain"."Op.x"(x)
  y = Op(x)  #@ domain: ""
  y = Op(x)
  b"\x1b[2J" = Loop(x) <
    body = "" () => () {
    }
  >
}
"#,
    );
    let graph = model.graph.as_ref().unwrap();
    assert_eq!(graph.node[0].domain, None);
    assert_eq!(graph.node[0].attribute[0].i, None);
    assert_eq!(graph.node[0].attribute[1].f.map(f32::to_bits), Some(0xff80_0001));
    assert_eq!(graph.node[1].domain.as_deref(), Some("my-domain"));
    assert_eq!(graph.node[2].domain.as_deref(), Some(""));
    assert_eq!(graph.node[4].output[0], "\u{1b}[2J".into());
    assert_eq!(graph.initializer[0].raw_data, Some(Blob::from(vec![0, 0x3c, 1, 0x7c]).into()));
    assert_eq!(graph.initializer[2].data_type, None);
    assert_eq!(graph.initializer[2].dims, [29]);
    assert_eq!(model.unknown.0, [0xc0, 0x3e, 1]);
}

#[test]
fn notes_may_stand_before_or_behind_the_comma_and_in_several_lines() {
    let parse = |source| text::parse(source).unwrap();
    let expected = parse("g (x #@ doc_string: \"a\", name: \"z\"\n, y) => () {}");
    assert_eq!(expected, parse("#@\ng (x, #@ doc_string: \"a\"\n #@ name: \"z\" # words\n y) => () {}"));
    assert_eq!(expected.graph.unwrap().input[0].name.as_deref(), Some("z"));
}

#[test]
fn decimals_of_small_floats() {
    let tensors = ["float16[4] a = {0.1, -0.0, inf, 1e-7}", "float8e4m3fn[2] b = {448.0, nan}"].join(",\n  ");
    let source = format!("g () => ()\n<\n  {tensors}\n>\n{{\n}}\n");
    let source = source.as_str();
    let model = text::parse(source).unwrap();
    assert_eq!(model.graph.as_ref().unwrap().initializer[0].int32_data.0, [0x2e66, 0x8000, 0x7c00, 2]);
    let options = PrintOptions { decimals: true, ..Default::default() };
    assert_eq!(text::print(&model, &options), source);
    assert_exact_model(&model);
}

#[test]
fn the_extremes_of_raw_integers() {
    for (dtype, least, most) in [
        ("int8", "-128", "127"),
        ("uint8", "0", "255"),
        ("bool", "0", "255"),
        ("int16", "-32768", "32767"),
        ("uint16", "0", "65535"),
        ("int32", "-2147483648", "2147483647"),
        ("uint32", "0", "4294967295"),
        ("int64", "-9223372036854775808", "9223372036854775807"),
        ("uint64", "0", "18446744073709551615"),
        ("float16", "0", "65535"),
        ("int4", "0", "255"),
    ] {
        let text = |values: &str| {
            format!("#@ tensor.data: raw\ng () => ()\n<\n  {dtype}[2] w = {{{values}}}\n>\n{{\n}}\n")
        };
        assert_canonical(&text(&format!("{least}, {most}")));
        for beyond in [format!("{least}1"), format!("{most}0"), format!("-{most}0")] {
            assert!(beyond.starts_with("01") || text::parse(&text(&beyond)).is_err(), "{dtype} {beyond}");
        }
    }
}

#[test]
fn long_data_is_left_out_on_request_and_then_refused() {
    let long = "c03e01".repeat(6);
    let node = format!("y = Op<a = [1, 2, 3], b = [1, 2]>() #@ proto: x\"{long}\"\n");
    let model = text::parse(&format!("g () => () <float[3] w = {{1, 2, 3}}> {{ {node} }}")).unwrap();
    let options = PrintOptions { max_elements: Some(2), ..Default::default() };
    let printed = text::print(&model, &options);
    for part in ["w = {...}", "a = [...]", "b = [1, 2]", "proto: x\"...\""] {
        assert!(printed.contains(part), "{printed}");
    }
    assert!(error(&printed).contains("print it in full"), "{}", error(&printed));
    assert!(
        text::print(&model, &PrintOptions { max_elements: Some(3), ..Default::default() })
            .contains("2.0, 3.0}")
    );
    for elided in ["float[1] x = {...}", "float[1] x = ..."] {
        assert!(error(&format!("g () => () <{elided}> {{}}")).contains("print it in full"));
    }
}

#[test]
fn brief_text_has_no_notes() {
    let node =
        text::parse_node("[n] y = Relu<a = float16[1] {15360}>(x) #@ doc_string: \"d\", domain: unset")
            .unwrap();
    assert_eq!(text::print_node(&node, &PrintOptions::brief()), "[n] y = Relu<a = float16[1] {1.0}>(x)");
}

#[test]
fn parts_of_models() {
    let exact = PrintOptions::default();
    let node = text::parse_node("#@ node.domain: unset\ny = Relu(x)").unwrap();
    assert_eq!(node.domain, None);
    assert_eq!(text::print_node(&node, &exact), "#@ node.domain: unset\ny = Relu(x)");
    assert_eq!(text::parse_nodes("s = Sigmoid(x)  y = Mul(x, s)").unwrap().len(), 2);
    assert_eq!(text::parse_nodes(" # nothing").unwrap(), []);
    for source in [
        "float",
        "float[]",
        "float[1, N, ?, \"a b\", -1]",
        "opaque(a.b, C)",
        "opaque()",
        "map(string, seq(int8))",
    ] {
        assert_eq!(text::print_type(&text::parse_type(source).unwrap()), source);
    }
    assert!(text::parse_type("float").unwrap().tensor_type.unwrap().shape.is_some());
    assert!(text::parse_type("float[]").unwrap().tensor_type.unwrap().shape.is_none());
    let error = text::parse_node("y = Relu(x) z").unwrap_err();
    assert_eq!(error.to_string(), "line 1, column 13: expected the end of the text, found `z`");
}

#[test]
fn errors_say_what_was_expected_and_where() {
    for (source, expected) in [
        ("", "line 1, column 1: expected the name of a graph, found the end of the text"),
        ("g (\nfloat[) => () {}", "line 2, column 7: expected a dimension, found `)`"),
        ("g () => () { y Relu(x) }", "line 1, column 16: expected `=` and an operator, or `}`, found `Relu`"),
        ("g () => () { y = Relu<a: int = 1.5>(x) }", "line 1, column 32: expected int, found float"),
        (
            "g () => () <float[N] w = {1}> {}",
            "line 1, column 26: the dimensions of constant data must be numbers",
        ),
        ("g () => () <int8[1] w = {a}> {}", "line 1, column 26: expected int8, found `a`"),
        (
            "#@ tensor.data: raw\ng () => () <int8[1] w = {300}> {}",
            "line 2, column 25: 300 does not fit an element of int8",
        ),
        ("g () => () #@ wrong: 1\n {}", "line 1, column 15: the note of a graph has no key `wrong`"),
        ("g () => () #@ doc_string: 1\n {}", "line 1, column 15: this must be a string or `unset`"),
        ("#@ node.domain: 1\ng () => () {}", "line 1, column 4: `node.domain` can only be unset here"),
        ("g () => () #@ proto: x\"0a\"\n {}", "line 1, column 15: the encoded message is damaged: "),
        ("g () => () { y = Op(x) <a = \"b> }", "line 1, column 29: a string is not closed"),
        (
            "g () => () { y = Op(x) <a = b\"\\xff\" () => () {}> }",
            "line 1, column 29: a name must be valid UTF-8",
        ),
    ] {
        assert!(error(source).starts_with(expected), "{source}: {}", error(source));
    }
}

#[test]
fn nesting_and_promises_cost_nothing() {
    for open in ["seq(", "optional(", "map(int8, "] {
        let error = text::parse_type(&open.repeat(100_000)).unwrap_err();
        assert!(error.message.contains("100 messages deep"), "{error}");
    }
    let body = "y = If(c) <b = g () => () { ".repeat(50_000);
    assert!(text::parse_node(&body).unwrap_err().message.contains("100 messages deep"));
    let note = format!("g () => () #@ a: {}", "[".repeat(100_000));
    assert!(error(&note).contains("100 messages deep"));
    let model =
        text::parse("g (float[999999999999, 999999999999] x) => () <float[9223372036854775807] w = {}> {}")
            .unwrap();
    assert_exact_model(&model);
}

#[test]
fn as_deep_as_a_file_can_be() {
    let mut graph = GraphProto { name: Some("g".into()), ..Default::default() };
    let is_readable = |graph: &GraphProto| {
        let model = ModelProto { graph: Some(graph.clone().into()), ..Default::default() };
        wire::decode::<ModelProto>(&Blob::from(bytes(&model))).is_ok()
    };
    loop {
        let attribute = AttributeProto {
            name: Some("b".into()),
            g: Some(graph.clone().into()),
            r#type: Some(5),
            ..Default::default()
        };
        let node = NodeProto { op_type: Some("If".into()), attribute: vec![attribute], ..Default::default() };
        let deeper = GraphProto { name: Some("g".into()), node: vec![node], ..Default::default() };
        if !is_readable(&deeper) {
            break;
        }
        graph = deeper;
    }
    assert_exact_model(&ModelProto { graph: Some(graph.into()), ..Default::default() });
}

/// Bytes that come in small pieces, and perhaps not all of them.
#[derive(Debug)]
struct Pieces {
    complete: bool,
}

impl Stream for Pieces {
    fn byte_len(&self) -> u64 {
        12
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let all: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        for piece in all.chunks(5).take(if self.complete { 3 } else { 2 }) {
            out.write_all(piece)?;
        }
        if self.complete { Ok(()) } else { Err(io::Error::other("gone")) }
    }
}

#[test]
fn data_that_is_made_on_the_way() {
    for data_type in [1, 99] {
        let model = |complete| {
            let raw_data = Some(Payload::Stream(Arc::new(Pieces { complete })));
            let tensor =
                TensorProto { dims: vec![3], data_type: Some(data_type), raw_data, ..Default::default() };
            let graph = GraphProto { initializer: vec![tensor], ..Default::default() };
            ModelProto { graph: Some(graph.into()), ..Default::default() }
        };
        assert_exact_model(&model(true));
        let damaged = text::print(&model(false), &PrintOptions::default());
        assert!(error(&damaged).contains("print it in full"), "{damaged}");
    }
}

/// Pieces of texts, which in any order make a text that is nearly one.
const PIECES: [&str; 48] = [
    "x",
    "float",
    "seq",
    "sparse_tensor",
    "int4",
    "\"s\"",
    "b\"\\xff\"",
    "x\"0801\"",
    "1",
    "-1",
    "2.5",
    "nan",
    "-inf",
    "0x7f",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    ",",
    ":",
    "=",
    "=>",
    ".",
    "..",
    "...",
    "@",
    "?",
    "$",
    "|",
    "\n",
    "#@ ",
    "doc_string: ",
    "data: raw",
    "proto: ",
    "unset",
    "node.domain: unset",
    "ir_version",
    "opset_import",
    "g () => ()",
    "y = Op(x)",
    "<a = 1>",
    "float[2] w = {1, 2}",
    "\"",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2000)))]

    #[test]
    fn any_model_is_exact(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        assert_exact_model(&make(&bytes));
    }

    #[test]
    fn any_part_is_exact(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        assert_exact(&make(&bytes), text::print_graph, text::parse_graph);
        assert_exact(&make(&bytes), text::print_function, text::parse_function);
        assert_exact(&make(&bytes), text::print_node, text::parse_node);
        assert_exact(&make(&bytes), |r#type, _| text::print_type(r#type), text::parse_type);
    }

    #[test]
    fn any_tensor_is_exact(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let graph = GraphProto { initializer: vec![make(&bytes)], ..Default::default() };
        assert_exact(&graph, text::print_graph, text::parse_graph);
    }

    #[test]
    fn brief_text_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..1000)) {
        let options = PrintOptions { max_elements: None, ..PrintOptions::brief() };
        let printed = text::print(&make(&bytes), &options);
        prop_assert!(!printed.contains("#@ node"));
        prop_assert!(text::parse(&printed).is_ok(), "{}", printed);
    }

    #[test]
    fn any_text_is_read_or_refused(
        picks in prop::collection::vec((prop::sample::select(&PIECES[..]), any::<bool>()), 0..40),
    ) {
        let spaced = |&(piece, gap)| [piece, if gap { " " } else { "" }];
        let source: String = picks.iter().flat_map(spaced).collect();
        if let Ok(model) = text::parse(&source) {
            assert_exact_model(&model);
        }
    }

    #[test]
    fn any_characters_are_read_or_refused(source in any::<String>()) {
        let _ = text::parse(&source);
        let _ = text::parse_nodes(&source);
    }
}
