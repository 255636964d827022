//! Files made to break the reader: every one is refused with its place or loads into a sound model. No panic, no stack
//! overflow, and never more memory than the size of the file justifies.

mod regressions;

use std::path::PathBuf;

use onnxforge_ir::io::load::{ModelErrorKind, decode_model};
use onnxforge_ir::io::{External, LoadError, SaveOptions, load, load_bytes, save, to_bytes};
use onnxforge_ir::scope::Scope;
use onnxforge_ir::tensor::TensorError;
use onnxforge_ir::{Accuracy, Model, Op, Rewrite, Tensor};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::*;
use onnxforge_proto::wire::{self, WireError, WireErrorKind};
use onnxforge_testing::choices::Choices;
use onnxforge_testing::memory::peak;
use onnxforge_testing::{cases, fields, repository};
use proptest::prelude::*;

use crate::common::*;

/// Bytes of memory per byte of file. The densest record in a file is an empty message: two bytes, for which the reader
/// holds one element of a list, and the IR, at worst, a scope and what is left of its graph. While a list grows by
/// doubling, the old and the new one exist at once, with three times the content.
const FACTOR: usize = 3 * (ELEMENT + size_of::<Scope>() + size_of::<GraphProto>()) / 2;

/// The largest element of a list.
const ELEMENT: usize = if size_of::<AttributeProto>() > size_of::<TensorProto>() {
    size_of::<AttributeProto>()
} else {
    size_of::<TensorProto>()
};

/// What any load may take: tables, the first blocks of lists, error texts.
const CONSTANT: usize = 64 * 1024;

fn bounded(bytes: Vec<u8>) -> Result<Model, LoadError> {
    let size = bytes.len();
    let (result, used) = peak(|| load_bytes(bytes, Some(&data("")), &Default::default()));
    assert!(used <= FACTOR * size + CONSTANT, "{used} bytes held for {size}");
    result
}

// --- Messages by hand, from the last byte to the first, so that ten thousand levels cost ten thousand steps.

#[derive(Default)]
struct Backwards(Vec<u8>);

impl Backwards {
    fn varint(&mut self, mut value: u64) {
        let mut bytes = vec![(value & 0x7f) as u8];
        while value >= 0x80 {
            value >>= 7;
            bytes.push((value & 0x7f) as u8);
            let last = bytes.len() - 2;
            bytes[last] |= 0x80;
        }
        self.0.extend(bytes.iter().rev());
    }

    /// Makes everything so far the content of field `number`.
    fn wrap(&mut self, number: u32) {
        self.varint(self.0.len() as u64);
        self.varint(u64::from(number) << 3 | 2);
    }

    fn bytes(mut self) -> Vec<u8> {
        self.0.reverse();
        self.0
    }
}

/// A message of one length-delimited field in another, the innermost first.
fn nested(fields: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut bytes = Backwards::default();
    fields.for_each(|number| bytes.wrap(number));
    bytes.bytes()
}

fn data(name: &str) -> PathBuf {
    repository("tests/data").join(name)
}

fn decoded(bytes: &[u8]) -> Result<ModelProto, WireError> {
    wire::decode(&Blob::from(bytes))
}

/// Whatever loads is sound, can be written, and is the same when it is read again. Only data that is not there cannot be
/// written.
fn sound_if_loaded(bytes: Vec<u8>) -> bool {
    let Ok(model) = bounded(bytes) else { return false };
    model.validate().unwrap();
    match to_bytes(&model) {
        Ok(written) => {
            let again = load_bytes(written.clone(), None, &Default::default()).unwrap();
            assert!(to_bytes(&again).unwrap() == written);
        }
        Err(TensorError::Unavailable(_)) => {}
        Err(other) => panic!("{other}"),
    }
    true
}

#[test]
fn the_models_to_break_are_whole() {
    for name in SMALL {
        let bytes = std::fs::read(data(name)).unwrap();
        to_bytes(&bounded(bytes.clone()).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(sound_if_loaded(bytes));
    }
}

const SMALL: [&str; 5] = [
    "strings.onnx",
    "sequence_optional.onnx",
    "loop.torchscript.onnx",
    "if.torchscript.onnx",
    "every_field.onnx",
];

#[test]
fn every_truncation_is_an_error_with_a_place() {
    for name in SMALL {
        let bytes = std::fs::read(data(name)).unwrap();
        let mut whole = 0;
        for cut in 0..bytes.len() {
            match decoded(&bytes[..cut]) {
                Err(error) => {
                    assert!(error.offset <= cut as u64, "{name} cut at {cut}: {error}");
                    assert!(load_bytes(bytes[..cut].to_vec(), None, &Default::default()).is_err());
                }
                // Between two fields of the outermost message.
                Ok(_) => {
                    whole += 1;
                    sound_if_loaded(bytes[..cut].to_vec());
                }
            }
        }
        assert!(whole < 40, "{name}: {whole} truncations are messages");
    }
}

#[test]
fn every_wrong_byte_is_harmless() {
    let mut loaded = 0;
    for (name, all) in
        [("strings.onnx", true), ("sequence_optional.onnx", false), ("every_field.onnx", false)]
    {
        let bytes = std::fs::read(data(name)).unwrap();
        for at in 0..bytes.len() {
            let values: Vec<u8> = if all {
                (0..=255).collect()
            } else {
                (0..8).map(|bit| bytes[at] ^ 1 << bit).chain([0, 0x7f, 0x80, 0xff]).collect()
            };
            for value in values {
                let mut wrong = bytes.clone();
                wrong[at] = value;
                if let Err(error) = decoded(&wrong) {
                    assert!(error.offset <= wrong.len() as u64, "{name} at {at}: {error}");
                }
                loaded += usize::from(sound_if_loaded(wrong));
            }
        }
    }
    assert!(loaded > 1000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

    /// Fields removed, repeated, moved, renumbered and filled with what others hold, at any depth.
    #[test]
    fn mutations_are_harmless(
        which in 0..SMALL.len(),
        changes in prop::collection::vec(any::<[u8; 12]>(), 1..5),
    ) {
        let mut fields = fields::parse(&std::fs::read(data(SMALL[which])).unwrap()).unwrap();
        changes.iter().for_each(|bytes| fields::mutate(&mut fields, &mut Choices(bytes.iter())));
        sound_if_loaded(fields::encode(&fields));
    }
}

/// The mutations above are worth something only while many of them get past the wire, and some do not load.
#[test]
fn mutations_reach_the_loader() {
    let bytes = std::fs::read(data("if.torchscript.onnx")).unwrap();
    let (mut decode, mut load) = (0, 0);
    for seed in 0..1000u32 {
        let choices: Vec<u8> = (0..12).map(|i| (seed.wrapping_mul(2_654_435_761) >> i) as u8 ^ i).collect();
        let mut fields = fields::parse(&bytes).unwrap();
        fields::mutate(&mut fields, &mut Choices(choices.iter()));
        let mutant = fields::encode(&fields);
        decode += u32::from(decoded(&mutant).is_ok());
        load += u32::from(sound_if_loaded(mutant));
    }
    assert!(decode > 700 && load > 200 && decode > load + 100, "{decode} decode, {load} load");
}

#[test]
fn a_length_beyond_the_end_allocates_nothing() {
    for claimed in [1u64 << 20, 1 << 31, 1 << 32, 1 << 40, i64::MAX as u64, u64::MAX] {
        for path in
            [&[7u32][..], &[7, 5], &[7, 5, 9], &[7, 5, 4], &[7, 5, 5], &[7, 1, 5, 7], &[2], &[7, 13, 2, 1, 2]]
        {
            let mut bytes = Backwards::default();
            let (last, outer) = path.split_last().unwrap();
            bytes.varint(claimed);
            bytes.varint(u64::from(*last) << 3 | 2);
            outer.iter().rev().for_each(|&number| bytes.wrap(number));
            let bytes = bytes.bytes();
            let (result, used) = peak(|| decoded(&bytes));
            let error = result.unwrap_err();
            assert_eq!(error.kind, WireErrorKind::TooLong { claimed, left: 0 });
            assert_eq!(error.path.len(), path.len(), "{error}");
            assert!(used < 16 * 1024, "{used} bytes held for a claim");
        }
    }
}

#[test]
fn depth_is_limited() {
    let bodies = |depth: usize| nested((0..depth).flat_map(|_| [6u32, 5, 1]).chain([7]));
    let sequences = |depth: usize| nested((0..depth).flat_map(|_| [1u32, 4]).chain([2, 11, 7]));
    let maps = |depth: usize| nested((0..depth).flat_map(|_| [2u32, 5]).chain([2, 13, 7]));
    let lists = |depth: usize| nested((0..depth).flat_map(|_| [11u32, 5, 1]).chain([7]));
    for depth in [40, 100, 10_000] {
        for bytes in [bodies(depth), sequences(depth + 20), maps(depth + 20), lists(depth)] {
            assert_eq!(decoded(&bytes).unwrap_err().kind, WireErrorKind::Depth, "{depth}");
            assert!(decode_model(&Blob::from(bytes)).unwrap_err().contains("nested"));
        }
    }
    for depth in [1, 99, 100, 101, 10_000, 1_000_000] {
        let groups = [[0x8b, 1].repeat(depth), [0x8c, 1].repeat(depth)].concat();
        assert_eq!(decoded(&groups).is_ok(), depth <= wire::MAX_DEPTH as usize, "{depth} groups");
    }
    // A limit on what is unknown inside of what is nested, together.
    let mut mixed = Backwards([[0x8b, 1].repeat(60), [0x8c, 1].repeat(60)].concat());
    mixed.0.reverse();
    (0..30).for_each(|_| [6, 5, 1].iter().for_each(|&number| mixed.wrap(number)));
    mixed.wrap(7);
    assert_eq!(decoded(&mixed.bytes()).unwrap_err().kind, WireErrorKind::Depth);
}

#[test]
fn the_deepest_model_that_is_read_is_also_written() {
    let mut inner = graph(&[], &[], vec![node("v = Neg(x)")], &["v"]);
    let mut levels = 0;
    loop {
        let message = message(GraphProto { input: vec![info("x")], ..inner.clone() });
        let Ok(model) = load_bytes(encoded(&message), None, &Default::default()) else { break };
        model.validate().unwrap();
        check_saved(&model);
        levels += 1;
        let other = graph(&[], &[], vec![node("o = Abs(x)")], &["o"]);
        inner = graph(
            &[],
            &[],
            vec![if_node(&format!("v{levels} = If(x)"), inner, other)],
            &[&format!("v{levels}")],
        );
    }
    assert!((25..40).contains(&levels), "{levels}");
}

#[test]
fn memory_is_bounded_by_the_file() {
    // One more than a power of two: the list has just doubled.
    let many = |field: &[u8], path: &[u32]| {
        let mut bytes = Backwards(field.repeat(32_769));
        bytes.0.reverse();
        path.iter().rev().for_each(|&number| bytes.wrap(number));
        bytes.bytes()
    };
    // Empty messages and texts in every list, where the list is.
    let mut inputs = Vec::new();
    for number in 1..=26u8 {
        let key = if number < 16 { vec![number << 3 | 2, 0] } else { vec![number << 3 | 2 | 0x80, 1, 0] };
        for path in
            [&[][..], &[7], &[7, 1], &[7, 1, 5], &[7, 1, 5, 6], &[7, 5], &[7, 15], &[7, 13], &[25], &[20, 1]]
        {
            inputs.push(many(&key, path));
        }
    }
    // Records that the IR accepts: nodes, values, constants, bodies, attributes, declarations.
    inputs.push(many(&[0x0a, 3, 0x22, 1, b'A'], &[7]));
    inputs.push(many(&[0x0a, 5, 0x22, 1, b'A', 0x0a, 0], &[7]));
    inputs.push(many(&[0x62, 0], &[7, 1, 5, 6]));
    inputs.push([many(&[0x5a, 0], &[7, 1, 5]), vec![0x3a, 0]].concat());
    let node = |attribute: &[u8]| {
        let mut bytes = Backwards(attribute.repeat(32_769));
        bytes.0.extend([0x0a, 1, b'a']);
        bytes.0.reverse();
        bytes.wrap(5);
        bytes.0.extend([b'A', 1, 0x22]);
        [1, 7].iter().for_each(|&number| bytes.wrap(number));
        bytes.bytes()
    };
    for attribute in [&[0x5a, 0][..], &[0x4a, 0], &[0x7a, 0], &[0x40, 0], &[0x3d, 0, 0, 0, 0]] {
        inputs.push(node(attribute));
    }
    inputs.push(encoded(&message(GraphProto {
        input: (0..20_000)
            .map(|i| ValueInfoProto { name: Some(format!("{i:x}").into()), ..Default::default() })
            .collect(),
        ..Default::default()
    })));
    let texts = |i: usize| format!("{i:x} = A()");
    inputs.push(encoded(&message(graph(
        &[],
        &[],
        (0..20_000).map(|i| NodeProto { name: None, ..crate::common::node(&texts(i)) }).collect(),
        &[],
    ))));
    let mut loaded = 0;
    for bytes in inputs {
        loaded += usize::from(bounded(bytes).is_ok());
    }
    assert!(loaded > 20, "{loaded}");
}

#[test]
fn weights_stay_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.onnx");
    // A file with a hole for weights: 2048 · 2048 floats, none of them on the disk.
    let (rows, size) = (2048i64, 16u64 << 20);
    let mut start = Backwards::default();
    start.varint(size);
    start.varint(9 << 3 | 2);
    let mut head = encoded(&message(graph(&["x"], &[], vec![node("y = Add(x, w)")], &["y"])));
    let tensor = encoded_tensor(&TensorProto {
        dims: vec![rows, rows],
        data_type: Some(1),
        name: Some("w".into()),
        ..Default::default()
    });
    let content = [tensor, start.bytes()].concat();
    let mut outer = Backwards::default();
    outer.varint(content.len() as u64 + size);
    outer.varint(5 << 3 | 2);
    let initializer = [outer.bytes(), content].concat();
    let mut graph = Backwards::default();
    graph.varint(initializer.len() as u64 + size);
    graph.varint(7 << 3 | 2);
    head.extend(graph.bytes());
    head.extend(initializer);
    let length = head.len() as u64 + size;
    std::fs::write(&path, head).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();

    let (model, used) = peak(|| load(&path, &Default::default()).unwrap());
    assert!(used < CONSTANT, "{used} bytes held for 16 MiB of weights");
    let out = folder.path().join("out.onnx");
    let mut model = model;
    let w = value(&model, "w");
    let turned = model.constant(w).unwrap().transposed(&[1, 0]).unwrap();
    let mut edit = Rewrite::new("test", "rule", Accuracy::BitExact, vec![]);
    let constant = edit.constant("turned", turned);
    edit.redefine(w, constant);
    commit_quietly(&mut model, edit);
    for external in [External::Inline, External::Split] {
        let (saved, used) = peak(|| save(&model, &out, &SaveOptions { external }).unwrap());
        assert!(saved.files.iter().any(|(_, written)| *written >= size));
        assert!(used < 4 << 20, "{used} bytes held while saving ({external:?})");
    }
}

fn encoded_tensor(tensor: &TensorProto) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::encode(tensor).write_to(&mut bytes).unwrap();
    bytes
}

fn commit_quietly(model: &mut Model, edit: Rewrite) {
    model.commit(edit).unwrap();
    model.validate().unwrap();
}

// --- Models that contradict themselves.

fn contradiction(graph: GraphProto) -> ModelErrorKind {
    match bounded(encoded(&message(graph))) {
        Err(LoadError::Model { source, .. }) => source.kind,
        other => panic!("{other:?}"),
    }
}

fn with(tensor: TensorProto) -> GraphProto {
    GraphProto {
        initializer: vec![TensorProto { name: Some("w".into()), ..tensor }],
        ..graph(&["x"], &[], vec![], &["x"])
    }
}

#[test]
fn impossible_tensors_are_refused() {
    let max = i64::MAX;
    let raw = |bytes: usize| Some(Blob::from(vec![0; bytes]).into());
    for dims in [
        vec![max, max],
        vec![1 << 62, 4],
        vec![-1],
        vec![i64::MIN],
        vec![1 << 32, 1 << 32],
        vec![max],
        vec![1 << 40],
        vec![0, -1],
        vec![2; 70],
    ] {
        for data_type in (0..32).chain([-1, i32::MAX, i32::MIN]).map(Some).chain([None]) {
            let plain = TensorProto { dims: dims.clone(), data_type, ..Default::default() };
            for tensor in [
                TensorProto { raw_data: raw(8), ..plain.clone() },
                TensorProto { int32_data: wire::Packed(vec![1, -1, 300]), ..plain.clone() },
                TensorProto { string_data: vec![Blob::default(); 3], ..plain.clone() },
                TensorProto { float_data: wire::PackedFixed::Collected(vec![0; 12]), ..plain.clone() },
                plain,
            ] {
                assert!(
                    matches!(contradiction(with(tensor)), ModelErrorKind::Tensor { .. }),
                    "{dims:?} {data_type:?}"
                );
            }
        }
    }
    for bytes in [0, 7, 9] {
        let tensor =
            TensorProto { dims: vec![2], data_type: Some(1), raw_data: raw(bytes), ..Default::default() };
        assert!(matches!(contradiction(with(tensor)), ModelErrorKind::Tensor { .. }));
    }
}

#[test]
fn names_are_resolved_or_refused() {
    let g = |nodes: &[&str], outputs: &[&str]| {
        graph(&["x"], &["c: 1"], nodes.iter().map(|text| node(text)).collect(), outputs)
    };
    for nodes in [&["x = Neg(x)"][..], &["c = Neg(x)"], &["t = Neg(x)", "t = Abs(x)"], &["t, t = Split(x)"]] {
        assert!(matches!(contradiction(g(nodes, &["x"])), ModelErrorKind::Twice(_)), "{nodes:?}");
    }
    for (nodes, outputs) in [(&["t = Neg(z)"][..], &["t"][..]), (&[], &["z"]), (&["t = Neg(x, , z)"], &["t"])]
    {
        assert!(matches!(contradiction(g(nodes, outputs)), ModelErrorKind::Dangling { .. }));
    }
    let twice = GraphProto { input: vec![info("x"), info("x")], ..g(&[], &["x"]) };
    assert!(matches!(contradiction(twice), ModelErrorKind::Twice(_)));
    let twice = GraphProto { initializer: vec![constant("w: 1"), constant("w: 2")], ..g(&[], &["x"]) };
    assert!(matches!(contradiction(twice), ModelErrorKind::Twice(_)));
    for nodes in [
        &["t = Neg(t)"][..],
        &["a = Neg(b)", "b = Neg(a)"],
        &["a = Add(x, d)", "b = Neg(a)", "d = Neg(b)", "e = Neg(d)"],
    ] {
        let ModelErrorKind::Cycle(text) = contradiction(g(nodes, &["x"])) else { panic!("{nodes:?}") };
        assert!(text.contains("node_"), "{text}");
    }
    // A body that reads the result of its own node, and what is inside of a body read outside.
    let body = || graph(&[], &[], vec![node("b = Neg(i)")], &["b"]);
    let held = if_node("i = If(x)", body(), body());
    assert!(matches!(contradiction(graph(&["x"], &[], vec![held], &["i"])), ModelErrorKind::Cycle(_)));
    let body = || graph(&[], &[], vec![node("b = Neg(x)")], &["b"]);
    let held = vec![if_node("i = If(x)", body(), body()), node("y = Neg(b)")];
    assert!(matches!(contradiction(graph(&["x"], &[], held, &["y"])), ModelErrorKind::Dangling { .. }));
    // Nothing outside is visible in a function.
    let mut closed = message(g(&["y = F(x)"], &["y"]));
    closed.functions = vec![function("F", &["a"], vec![node("b = Add(a, c)")], &["b"])];
    assert!(load_bytes(encoded(&closed), None, &Default::default()).is_err());
    assert!(matches!(contradiction(g(&["t = (x)"], &["t"])), ModelErrorKind::NoOperator));
}

#[test]
fn text_that_is_not_text_is_refused() {
    let good = encoded(&message(graph(&["xyz"], &[], vec![node("uvw = Neg(xyz)")], &["uvw"])));
    for needle in [&b"xyz"[..], b"uvw", b"Neg", b"node_"] {
        let at = good.windows(needle.len()).position(|window| window == needle).unwrap();
        for bad in [[0xff], [0xc0], [0x80], [0xed]] {
            let mut bytes = good.clone();
            bytes[at..at + 1].copy_from_slice(&bad);
            let error = decoded(&bytes).unwrap_err();
            assert_eq!(error.kind, WireErrorKind::Utf8);
            assert!(error.offset < at as u64 + 1 && !error.path.is_empty(), "{error}");
        }
    }
}

#[cfg(unix)]
#[test]
fn nothing_outside_of_the_folder_is_read() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(root.path().join("secret"), [1; 8]).unwrap();
    std::fs::write(folder.join("good"), [2; 8]).unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    std::os::unix::fs::symlink("..", folder.join("up")).unwrap();
    std::fs::hard_link(root.path().join("secret"), folder.join("hard")).unwrap();
    let absolute = root.path().join("secret").to_str().unwrap().to_owned();
    let read = |location: &str, offset: &str, length: &str, follow: bool| {
        let tensor = TensorProto {
            dims: vec![2],
            data_type: Some(1),
            data_location: Some(1),
            external_data: [("location", location), ("offset", offset), ("length", length)]
                .map(|(key, value)| StringStringEntryProto {
                    key: Some(key.into()),
                    value: Some(value.into()),
                    ..Default::default()
                })
                .into(),
            ..Default::default()
        };
        let options = onnxforge_ir::io::LoadOptions { links: onnxforge_ir::io::LinkPolicy { follow } };
        let model = load_bytes(encoded(&message(with(tensor))), Some(&folder), &options).unwrap();
        model.constant(value(&model, "w")).unwrap().bytes().ok().map(|bytes| bytes[0])
    };
    assert_eq!(read("good", "0", "8", false), Some(2));
    for bad in
        ["../secret", "link", "up/secret", "hard", &absolute, "", ".", "good/../../secret", "up", "good\0"]
    {
        assert_eq!(read(bad, "0", "8", false), None, "{bad:?}");
    }
    assert_eq!((read("link", "0", "8", true), read("hard", "0", "8", true)), (Some(1), Some(1)));
    let limit = u64::MAX.to_string();
    for (offset, length) in
        [("1", "8"), ("0", "9"), (limit.as_str(), "8"), ("-1", "8"), ("0", "7"), ("8", "8"), ("x", "8")]
    {
        assert_eq!(read("good", offset, length, false), None, "{offset} {length}");
    }
}
