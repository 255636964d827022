//! Inputs that should be refused or take no longer than others of their size.

use super::*;

/// Tensors whose data is missing claim sizes whose sum does not fit in 64 bits.
fn exabytes() -> Model {
    let tensor = |name: &str| TensorProto {
        dims: vec![1 << 61],
        data_type: Some(1),
        name: Some(name.into()),
        data_location: Some(1),
        ..Default::default()
    };
    let initializer = ["a", "b", "c"].map(tensor).into();
    model(GraphProto { initializer, ..graph(&["x"], &[], vec![node("y = Neg(x)")], &["y"]) })
}

#[test]
fn claimed_sizes_do_not_overflow_when_saving() {
    let folder = tempfile::tempdir().unwrap();
    for external in [External::Keep, External::Inline, External::Split, External::Auto] {
        let result = save(&exabytes(), &folder.path().join("m.onnx"), &SaveOptions { external });
        assert!(matches!(result, Err(onnxforge_ir::io::SaveError::Tensor { .. })), "{external:?}");
    }
}

#[test]
fn claimed_sizes_do_not_overflow_when_editing() {
    let mut m = exabytes();
    let mut edit = Rewrite::new("test", "rule", Accuracy::BitExact, vec![]);
    ["a", "b", "c"].iter().for_each(|name| edit.drop_constant(value(&m, name)));
    m.commit(edit).unwrap();
    m.validate().unwrap();
}

#[test]
fn claimed_sizes_do_not_overflow_when_writing_a_splat() {
    let mut m = model(graph(&["x"], &["c: 1"], vec![node("y = Add(x, c)")], &["y"]));
    let one = onnxforge_ir::tensor::Data::Splat(vec![0; 4].into());
    let splat = Tensor::new(onnxforge_ir::DType::F32, [1 << 61], one).unwrap();
    let mut edit = Rewrite::new("test", "rule", Accuracy::BitExact, vec![producer(&m, "y")]);
    let constant = edit.constant("s", splat);
    let new = edit.node(Op::standard("Add"), [value(&m, "x").into(), constant], 1, vec![]);
    edit.redefine(value(&m, "y"), new.output(0));
    m.commit(edit).unwrap();
    assert!(to_bytes(&m).is_err());
}

/// Finding the nodes of a cycle takes no longer than a scan: 100,000 nodes, well below a second.
#[test]
fn a_long_cycle_is_found_quickly() {
    let count = 100_000;
    let nodes = (0..count).map(|i| node(&format!("v{i} = Neg(v{})", (i + count - 1) % count))).collect();
    let bytes = encoded(&message(graph(&["x"], &[], nodes, &["x"])));
    let start = std::time::Instant::now();
    assert!(load_bytes(bytes, None, &Default::default()).is_err());
    assert!(start.elapsed().as_secs() < 3, "{:?}", start.elapsed());
}

/// A value that many nodes read and many annotations name.
#[test]
fn many_annotations_of_one_value_are_read_quickly() {
    let mut g = graph(&["x"], &[], (0..60_000).map(|i| node(&format!("v{i} = Neg(x)"))).collect(), &["x"]);
    let annotation = TensorAnnotation { tensor_name: Some("x".into()), ..Default::default() };
    g.quantization_annotation = vec![annotation; 60_000];
    let bytes = encoded(&message(g));
    let start = std::time::Instant::now();
    load_bytes(bytes, None, &Default::default()).unwrap();
    assert!(start.elapsed().as_secs() < 3, "{:?}", start.elapsed());
}

/// Removing every reader of one value, as folding does with a shared constant.
#[test]
fn readers_of_one_value_are_removed_quickly() {
    let nodes = (0..60_000).map(|i| node(&format!("v{i} = Neg(x)"))).collect();
    let mut m = model(graph(&["x"], &[], nodes, &["x"]));
    let all: Vec<_> = m.nodes().map(|(id, _)| id).collect();
    let start = std::time::Instant::now();
    for id in all {
        m.commit(Rewrite::new("test", "rule", Accuracy::BitExact, vec![id])).unwrap();
    }
    assert!(start.elapsed().as_secs() < 3, "{:?}", start.elapsed());
}
