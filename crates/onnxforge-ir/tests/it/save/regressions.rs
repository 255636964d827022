//! Saves that should be refused, or do no harm.

use super::*;

/// Two spellings of one path are one file.
#[test]
fn spellings_of_a_location_are_one_file() {
    let root = folder();
    let tensors = vec![external("a", "./w.bin", Some(0), 9), external("b", "w.bin", Some(9), 9)];
    let model = open(&put(&root.path().join("in"), "m.onnx", tensors, &[("w.bin", pattern(18, 1))]));
    for name in ["m.onnx", "w.bin"] {
        let out = in_new_folder(root.path(), &format!("out/{name}"));
        store(&model, &out, External::Keep).unwrap();
        assert_eq!(constants(&open(&out)), constants(&model));
    }
    let tensors = vec![external("a", "./w.bin", Some(0), 9), external("b", "w.bin", Some(5), 9)];
    let overlapping = put(&root.path().join("bad"), "m.onnx", tensors, &[("w.bin", pattern(18, 1))]);
    assert!(store(&open(&overlapping), &in_new_folder(root.path(), "x/m.onnx"), External::Keep).is_err());
}

/// Neither the data of the model that is saved nor that of a neighbour is overwritten or removed.
#[test]
fn the_data_of_the_input_stays() {
    for (mode, shared) in MODES.iter().flat_map(|&mode| [(mode, false), (mode, true)]) {
        let root = folder();
        let tensors = || vec![external("a", "b.onnx.data", Some(0), 2000)];
        let path = put(root.path(), "a.onnx", tensors(), &[("b.onnx.data", pattern(2000, 1))]);
        if shared {
            put(root.path(), "b.onnx", tensors(), &[]);
        }
        let model = open(&path);
        let expected = constants(&model);
        store(&model, &root.path().join("b.onnx"), mode).unwrap();
        assert_eq!(constants(&open(&path)), expected, "{mode:?} {shared}");
        assert_eq!(constants(&open(&root.path().join("b.onnx"))), expected, "{mode:?} {shared}");
    }
}

/// Oddities of stored tensors come back.
#[test]
fn every_field_of_a_tensor_comes_back() {
    let root = folder();
    let plain = |name: &str| TensorProto {
        raw_data: Some(onnxforge_proto::blob::Blob::from(vec![7]).into()),
        ..external(name, "w.bin", Some(0), 1)
    };
    let tensors = vec![
        TensorProto { data_location: None, ..plain("unused") },
        TensorProto { data_location: Some(7), external_data: vec![], ..plain("strange") },
        TensorProto {
            raw_data: Some(onnxforge_proto::blob::Blob::default().into()),
            ..external("empty", "w.bin", Some(0), 1)
        },
    ];
    let path = put(&root.path().join("in"), "m.onnx", tensors, &[("w.bin", pattern(1, 1))]);
    let out = in_new_folder(root.path(), "out/m.onnx");
    store(&open(&path), &out, External::Keep).unwrap();
    let read = |path: &Path| onnxforge_ir::io::load::read_message(path).unwrap();
    assert_eq!(read(&out), read(&path));
}

/// More than new files usually get, and a file that its owner may not write.
#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_unusual_permissions() {
    let root = folder();
    let path = root.path().join("m.onnx");
    store(&weights(), &path, External::Inline).unwrap();
    for wanted in [0o444, 0o664, 0o666, 0o777] {
        set_mode(&path, wanted);
        store(&weights(), &path, External::Inline).unwrap();
        assert_eq!(mode(&path), wanted, "{wanted:o}");
    }
}

/// The replaced model is untrusted too: cleaning up after it stays in its folder.
#[test]
fn cleaning_up_does_not_leave_the_folder() {
    let root = folder();
    let inside = root.path().join("in");
    let tensor = external("w", "m.onnx.d/../../victim.data", Some(0), 4);
    let path = put(&inside, "m.onnx", vec![tensor], &[]);
    fs::create_dir(inside.join("m.onnx.d")).unwrap();
    fs::write(root.path().join("victim.data"), "precious").unwrap();
    store(&weights(), &path, External::Inline).unwrap();
    assert!(root.path().join("victim.data").exists(), "a file outside of the folder was removed");
}

/// `w.bin` is taken, so it becomes `w.1.bin`; but the model has a `w.1.bin` of its own.
#[test]
fn two_data_files_do_not_get_one_name() {
    let root = folder();
    let tensors = vec![external("a", "w.bin", None, 9), external("b", "w.1.bin", None, 9)];
    let data = [("w.bin", pattern(9, 1)), ("w.1.bin", pattern(9, 2))];
    let model = open(&put(&root.path().join("in"), "m.onnx", tensors, &data));
    let there = put(
        &root.path().join("there"),
        "m.onnx",
        vec![external("z", "w.bin", None, 9)],
        &[("w.bin", pattern(9, 9))],
    );
    store(&model, &there, External::Keep).unwrap();
    assert_eq!(constants(&open(&there)), constants(&model));
}

/// A data file that belongs to another model of the target folder is not overwritten.
#[test]
fn data_of_a_neighbour_is_not_overwritten() {
    let root = folder();
    let model = open(&put(
        &root.path().join("in"),
        "m.onnx",
        vec![external("a", "w.bin", None, 9)],
        &[("w.bin", pattern(9, 1))],
    ));
    let there = root.path().join("there");
    let neighbour = put(&there, "n.onnx", vec![external("z", "w.bin", None, 9)], &[("w.bin", pattern(9, 9))]);
    let before = constants(&open(&neighbour));
    if store(&model, &there.join("m.onnx"), External::Keep).is_ok() {
        assert_eq!(constants(&open(&there.join("m.onnx"))), constants(&model));
    }
    assert_eq!(constants(&open(&neighbour)), before);
}

/// A tensor without elements may have any place in the file, also that of another tensor.
#[test]
fn an_empty_tensor_does_not_hide_another() {
    let root = folder();
    let tensors = vec![external("a", "w.bin", Some(0), 100), external("none", "w.bin", Some(0), 0)];
    let model = open(&put(&root.path().join("in"), "m.onnx", tensors, &[("w.bin", pattern(100, 1))]));
    let out = in_new_folder(root.path(), "out/m.onnx");
    store(&model, &out, External::Keep).unwrap();
    assert_eq!(constants(&open(&out)), constants(&model));
}

/// ... also at the very end, behind padding.
#[test]
fn an_empty_tensor_at_the_end_stays_in_the_file() {
    let root = folder();
    let tensors = vec![external("a", "w.bin", Some(0), 100), external("none", "w.bin", Some(200_000), 0)];
    let model = open(&put(&root.path().join("in"), "m.onnx", tensors, &[("w.bin", pattern(200_000, 1))]));
    let out = in_new_folder(root.path(), "out/m.onnx");
    store(&model, &out, External::Keep).unwrap();
    assert_eq!(constants(&open(&out)), constants(&model));
}

/// The model file cannot take its place, so the data file must not have taken its own.
#[test]
fn no_data_file_stays_behind_when_the_model_cannot_be_placed() {
    let root = folder();
    let path = root.path().join("m.onnx");
    fs::create_dir(&path).unwrap();
    assert!(store(&weights(), &path, External::Split).is_err());
    assert_eq!(names(root.path()), [""; 0]);
}

/// The file of that name is another one by now; the weights are in the one that was loaded.
#[test]
fn a_data_file_that_was_replaced_is_not_taken_for_the_old_one() {
    let root = folder();
    let path = put(root.path(), "m.onnx", vec![external("a", "w.bin", None, 9)], &[("w.bin", pattern(9, 1))]);
    let model = open(&path);
    let expected = constants(&model);
    fs::write(root.path().join("new"), pattern(9, 7)).unwrap();
    fs::rename(root.path().join("new"), root.path().join("w.bin")).unwrap();
    store(&model, &path, External::Keep).unwrap();
    assert_eq!(constants(&open(&path)), expected);
}

/// A model cannot have the name of its own data file.
#[test]
fn a_model_does_not_overwrite_its_data() {
    let root = folder();
    let inside = root.path().join("in");
    let path = put(&inside, "m.onnx", vec![external("a", "w.bin", None, 9)], &[("w.bin", pattern(9, 1))]);
    let model = open(&path);
    let expected = constants(&model);
    for target in [in_new_folder(root.path(), "out/w.bin"), inside.join("w.bin")] {
        if store(&model, &target, External::Keep).is_ok() {
            assert_eq!(constants(&open(&target)), expected);
        }
        assert_eq!(constants(&open(&path)), expected);
    }
}

/// Bytes in memory that are marked as external have no file yet.
#[test]
fn bytes_in_memory_are_written_where_they_are_said_to_be() {
    use onnxforge_ir::tensor::Storage;
    let root = folder();
    let path =
        put(root.path(), "m.onnx", vec![external("a", "w.bin", None, 2000)], &[("w.bin", pattern(2000, 1))]);
    let storage = Storage::External(entries("w.bin", None, 2000).into());
    let tensor = Tensor::from_bytes(DType::U8, [2000], pattern(2000, 7)).unwrap().with_storage(storage);
    let model = plus(&open(&path), tensor);
    let expected = constants(&model);
    if store(&model, &path, External::Keep).is_ok() {
        assert_eq!(constants(&open(&path)), expected);
    }
}

/// Training information and defaults of functions are not in the graph, but need their data all the same.
#[test]
fn data_that_is_needed_outside_of_the_graph_stays() {
    let root = folder();
    let tensor = || external("a", "m.onnx.data", Some(0), 2000);
    let training = GraphProto { initializer: vec![tensor()], ..Default::default() };
    let default = AttributeProto {
        name: Some("k".into()),
        r#type: Some(4),
        t: Some(Box::new(tensor())),
        ..Default::default()
    };
    let mut message = with(vec![tensor()]);
    message.training_info =
        vec![TrainingInfoProto { initialization: Some(Box::new(training)), ..Default::default() }];
    let function = function("F", &["x"], vec![node("y = Neg(x)")], &["y"]);
    message.functions = vec![FunctionProto { attribute_proto: vec![default], ..function }];
    for (mode, place) in MODES.iter().flat_map(|&mode| [(mode, "in"), (mode, "out")]) {
        let folder = root.path().join("in");
        let path = put(&folder, "m.onnx", vec![], &[("m.onnx.data", pattern(2000, 1))]);
        fs::write(&path, encoded(&message)).unwrap();
        let target = in_new_folder(root.path(), &format!("{place}/m.onnx"));
        store(&open(&path), &target, mode).unwrap();
        let written = onnxforge_ir::io::load::read_message(&target).unwrap();
        let training = written.training_info[0].initialization.as_ref().unwrap().initializer[0].clone();
        let default = *written.functions[0].attribute_proto[0].t.clone().unwrap();
        for tensor in [training, default].iter().filter(|tensor| tensor.data_location == Some(1)) {
            let location = tensor.external_data.iter().find(|entry| entry.key.as_deref() == Some("location"));
            let file = target.with_file_name(&**location.unwrap().value.as_ref().unwrap());
            assert!(file.exists(), "{mode:?} {place}: {file:?} is needed and gone");
        }
    }
}
