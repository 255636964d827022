//! Saving: where weights go, that they arrive unchanged, and that a save which fails leaves no trace.

mod owners;
mod regressions;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use onnxforge_ir::io::{External, SaveError, SaveOptions, Saved, load, load_bytes, save};
use onnxforge_ir::tensor::Data;
use onnxforge_ir::{Accuracy, DType, Model, Rewrite, Tensor};
use onnxforge_proto::Str;
use onnxforge_proto::schema::*;
use tempfile::TempDir;

use crate::common::*;

const MODES: [External; 5] =
    [External::Keep, External::Share, External::Inline, External::Split, External::Auto];

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn store(model: &Model, path: &Path, external: External) -> Result<Saved, SaveError> {
    save(model, path, &SaveOptions { external })
}

fn open(path: &Path) -> Model {
    let model = load(path, &Default::default()).unwrap_or_else(|error| panic!("{error}"));
    model.validate().unwrap();
    model
}

/// Every file below `folder` and its content, sorted.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => found.push((entry.path(), fs::read(entry.path()).unwrap())),
            }
        }
    }
    found.sort();
    found
}

fn names(folder: &Path) -> Vec<String> {
    files(folder)
        .into_iter()
        .map(|(path, _)| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// The constants: name, type, shape, and a digest of the elements.
fn constants(model: &Model) -> Vec<(Str, DType, Vec<usize>, u64)> {
    let mut found: Vec<_> = model
        .initializers()
        .map(|(id, constant)| {
            let tensor = constant.dense().unwrap();
            let mut digest = DefaultHasher::new();
            match tensor.strings() {
                Ok(strings) => strings.iter().for_each(|text| text.hash(&mut digest)),
                Err(_) => tensor.bytes().unwrap_or_else(|error| panic!("{error}")).hash(&mut digest),
            }
            (model.value(id).name().clone(), tensor.dtype(), tensor.shape().to_vec(), digest.finish())
        })
        .collect();
    found.sort();
    found
}

fn entries(location: &str, offset: Option<usize>, length: usize) -> Vec<StringStringEntryProto> {
    let offset = offset.map(|offset| ("offset", offset.to_string()));
    [("location", location.to_owned()), ("length", length.to_string())]
        .into_iter()
        .chain(offset)
        .map(|(key, value)| StringStringEntryProto {
            key: Some(key.into()),
            value: Some(value.into()),
            ..Default::default()
        })
        .collect()
}

/// `length` bytes at `offset` of `location`.
fn external(name: &str, location: &str, offset: Option<usize>, length: usize) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![length as i64],
        data_type: Some(2),
        data_location: Some(1),
        external_data: entries(location, offset, length),
        ..Default::default()
    }
}

fn pattern(length: usize, start: u8) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8 ^ start).collect()
}

fn inner(name: &str, length: usize, start: u8) -> TensorProto {
    let raw_data = Some(onnxforge_proto::blob::Blob::from(pattern(length, start)).into());
    TensorProto {
        name: Some(name.into()),
        dims: vec![length as i64],
        data_type: Some(2),
        raw_data,
        ..Default::default()
    }
}

fn with(initializer: Vec<TensorProto>) -> ModelProto {
    message(GraphProto { initializer, ..graph(&["x"], &[], vec![node("y = Neg(x)")], &["y"]) })
}

/// The path of a file below `folder`, in folders that are made for it.
fn in_new_folder(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

/// Writes a model file and its data files.
fn put(folder: &Path, name: &str, tensors: Vec<TensorProto>, data: &[(&str, Vec<u8>)]) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    for (name, bytes) in data {
        fs::write(folder.join(name), bytes).unwrap();
    }
    let path = folder.join(name);
    fs::write(&path, encoded(&with(tensors))).unwrap();
    path
}

/// Weights of all kinds: large, small, tied, typed, texts, none.
fn weights() -> Model {
    let typed = TensorProto {
        name: Some("typed".into()),
        dims: vec![600],
        data_type: Some(7),
        int64_data: onnxforge_proto::wire::Packed((0..600).collect()),
        ..Default::default()
    };
    let strings = vec![vec![b's'; 2000].into(), onnxforge_proto::blob::Blob::default()];
    let texts = TensorProto {
        name: Some("texts".into()),
        dims: vec![2],
        data_type: Some(8),
        string_data: strings,
        ..Default::default()
    };
    let tensors = vec![
        inner("large", 5000, 1),
        inner("small", 1023, 2),
        inner("limit", 1024, 3),
        typed,
        texts,
        inner("none", 0, 0),
    ];
    loaded(&with(tensors))
}

/// The entry `key` of every external tensor of a model file.
fn stored(path: &Path, key: &str) -> Vec<(String, String)> {
    let message = onnxforge_ir::io::load::read_message(path).unwrap();
    let tensors =
        message.graph.unwrap().initializer.into_iter().filter(|tensor| tensor.data_location == Some(1));
    let entry = |tensor: &TensorProto| {
        tensor
            .external_data
            .iter()
            .find(|entry| entry.key.as_deref() == Some(key))
            .unwrap()
            .value
            .clone()
            .unwrap()
    };
    tensors.map(|tensor| (tensor.name.clone().unwrap().to_string(), entry(&tensor).to_string())).collect()
}

#[test]
fn weights_go_where_they_should_and_arrive() {
    let model = weights();
    for mode in MODES {
        let folder = folder();
        let path = folder.path().join("m.onnx");
        let saved = store(&model, &path, mode).unwrap();
        let expected = if mode == External::Split { vec!["m.onnx", "m.onnx.data"] } else { vec!["m.onnx"] };
        assert_eq!(names(folder.path()), expected, "{mode:?}");
        assert_eq!(saved.files.last().unwrap().0, path);
        for (file, size) in &saved.files {
            assert_eq!(fs::metadata(file).unwrap().len(), *size, "{mode:?}: {file:?}");
        }
        assert_eq!(constants(&open(&path)), constants(&model), "{mode:?}");
    }
}

#[test]
fn split_tensors_are_aligned_and_small_ones_stay() {
    let folder = folder();
    let path = folder.path().join("m.onnx");
    store(&weights(), &path, External::Split).unwrap();
    let offsets = stored(&path, "offset");
    assert_eq!(
        offsets.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["large", "limit", "typed"]
    );
    for (name, offset) in &offsets {
        assert_eq!(offset.parse::<u64>().unwrap() % 64, 0, "{name} at {offset}");
    }
    let data = fs::read(folder.path().join("m.onnx.data")).unwrap();
    assert_eq!(data[..5000], pattern(5000, 1));
    assert!(data[5000..5056].iter().all(|&byte| byte == 0), "padding is zero");
    // What is split comes back together, byte for byte.
    let back = folder.path().join("back.onnx");
    store(&open(&path), &back, External::Inline).unwrap();
    let once = folder.path().join("once.onnx");
    store(&weights(), &once, External::Inline).unwrap();
    assert_eq!(constants(&open(&back)), constants(&open(&once)));
}

#[test]
fn tied_weights_stay_tied() {
    let root = folder();
    let data = [("w.bin", pattern(4096, 5))];
    let tensors = vec![
        external("a", "w.bin", Some(0), 2048),
        external("b", "w.bin", Some(2048), 2048),
        external("c", "w.bin", None, 2048),
    ];
    let path = put(&root.path().join("in"), "m.onnx", tensors, &data);
    let model = open(&path);
    for (mode, name) in [(External::Split, "m.onnx.data"), (External::Keep, "w.bin")] {
        let out = root.path().join(format!("{mode:?}"));
        store(&model, &in_new_folder(&out, "m.onnx"), mode).unwrap();
        assert_eq!(fs::metadata(out.join(name)).unwrap().len(), 4096, "{mode:?}");
        let again = open(&out.join("m.onnx"));
        assert_eq!(constants(&again), constants(&model));
        let place = |name: &str| match again.constant(value(&again, name)).unwrap().data() {
            Data::Bytes(blob) => blob.clone(),
            other => panic!("{other:?}"),
        };
        assert!(place("a").same_place(&place("c")) && !place("a").same_place(&place("b")));
    }
    // Also in memory: two constants that share their bytes.
    let mut model = loaded(&with(vec![inner("a", 3000, 1), inner("b", 3000, 1)]));
    let mut edit = Rewrite::new("test", "rule", Accuracy::BitExact, vec![]);
    let shared = model.constant(value(&model, "a")).unwrap().clone();
    let constant = edit.constant("shared", shared);
    edit.redefine(value(&model, "b"), constant);
    model.commit(edit).unwrap();
    let out = root.path().join("shared.onnx");
    store(&model, &out, External::Split).unwrap();
    assert_eq!(fs::metadata(root.path().join("shared.onnx.data")).unwrap().len(), 3000);
    assert_eq!(constants(&open(&out)), constants(&model));
}

/// The model with one more constant.
fn plus(model: &Model, tensor: Tensor) -> Model {
    let mut model = model.clone();
    let mut edit = Rewrite::new("test", "rule", Accuracy::BitExact, vec![]);
    edit.constant("new", tensor);
    model.commit(edit).unwrap();
    model.validate().unwrap();
    model
}

#[test]
fn lazy_tensors_are_written_as_what_they_stand_for() {
    let (rows, columns) = (300usize, 700usize);
    let values: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
    let source = Tensor::from_f32s([rows, columns], &values).unwrap();
    let factors: Vec<f64> = (0..rows).map(|row| row as f64).collect();
    let at = |row: usize, column: usize| (row * columns + column) as f32;
    let bytes = |values: Vec<f32>| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let by_row = |f: &dyn Fn(usize, usize) -> f32| {
        bytes((0..rows * columns).map(|i| f(i / columns, i % columns)).collect())
    };
    let by_column =
        |f: &dyn Fn(usize, usize) -> f32| bytes((0..rows * columns).map(|i| f(i % rows, i / rows)).collect());
    let turned = source.transposed(&[1, 0]).unwrap();
    let cases = [
        (turned.clone(), by_column(&at)),
        (turned.transposed(&[1, 0]).unwrap(), by_row(&at)),
        (source.scaled(0, &factors).unwrap(), by_row(&|row, column| at(row, column) * row as f32)),
        (turned.scaled(1, &factors).unwrap(), by_column(&|row, column| at(row, column) * row as f32)),
        (
            Tensor::new(DType::F32, [rows, columns], Data::Splat(7f32.to_le_bytes().to_vec().into()))
                .unwrap(),
            by_row(&|_, _| 7.0),
        ),
    ];
    let folder = folder();
    for (tensor, expected) in cases {
        for mode in MODES {
            let path = folder.path().join("m.onnx");
            store(&plus(&weights(), tensor.clone()), &path, mode).unwrap();
            let model = open(&path);
            let found = model.constant(value(&model, "new")).unwrap();
            assert_eq!(found.shape(), tensor.shape());
            assert!(*found.bytes().unwrap() == expected, "{mode:?}");
            assert_eq!(constants(&plus(&weights(), tensor.clone())), constants(&model));
        }
    }
}

#[test]
fn a_model_is_saved_over_itself() {
    for first in [External::Inline, External::Split] {
        for second in MODES {
            let folder = folder();
            let path = folder.path().join("m.onnx");
            store(&weights(), &path, first).unwrap();
            let model = open(&path);
            let changed = plus(
                &model,
                Tensor::from_i64s(&[1; 500]).reshaped([20, 25]).unwrap().transposed(&[1, 0]).unwrap(),
            );
            for round in 0..3 {
                store(&changed, &path, second).unwrap();
                assert_eq!(constants(&open(&path)), constants(&changed), "{first:?} {second:?} {round}");
                // What was loaded from the replaced file is still there.
                assert_eq!(constants(&model), constants(&weights()));
                let keeps = matches!(second, External::Keep | External::Share);
                let split = second == External::Split || (keeps && first == External::Split);
                assert_eq!(
                    names(folder.path()).len(),
                    1 + usize::from(split),
                    "{first:?} {second:?}: nothing is left over"
                );
            }
            store(&open(&path), &path, second).unwrap();
            assert_eq!(constants(&open(&path)), constants(&changed));
        }
    }
}

#[test]
fn external_data_moves_with_the_model() {
    let root = folder();
    let data = [("w.bin", pattern(300, 1)), ("v.bin", pattern(100, 2))];
    let tensors = || {
        vec![
            external("a", "w.bin", Some(128), 100),
            external("b", "w.bin", Some(7), 50),
            external("v", "v.bin", Some(0), 100),
        ]
    };
    let model = open(&put(&root.path().join("in"), "m.onnx", tensors(), &data));
    let out = in_new_folder(root.path(), "a/b/m.onnx");
    store(&model, &out, External::Keep).unwrap();
    assert_eq!(constants(&open(&out)), constants(&model));
    assert_eq!(stored(&out, "offset")[..2], [("a".into(), "128".into()), ("b".into(), "7".into())]);
    // The data of the model that is replaced is not touched: the new one goes under another name.
    let there = put(
        &root.path().join("there"),
        "m.onnx",
        vec![external("z", "w.bin", None, 9)],
        &[("w.bin", pattern(9, 9))],
    );
    store(&model, &there, External::Keep).unwrap();
    assert_eq!(constants(&open(&there)), constants(&model));
    assert_eq!(fs::read(root.path().join("there/w.bin")).unwrap(), pattern(9, 9));
    assert_eq!(stored(&there, "location")[0].1, "m.onnx.data");
}

#[test]
fn a_copied_data_file_holds_what_the_model_reads() {
    const BIG: usize = 200 << 10;
    let root = folder();
    let tensors = vec![
        external("a", "w.bin", Some(64), 3000),
        external("b", "w.bin", Some(4000), BIG),
        external("unused", "w.bin", Some(300 << 10), BIG),
        external("c", "w.bin", Some((600 << 10) + 8), BIG),
        external("tied", "w.bin", Some((600 << 10) + 8), BIG),
    ];
    let path = put(&root.path().join("in"), "m.onnx", tensors, &[("w.bin", pattern(1 << 20, 7))]);
    let mut model = open(&path);
    let mut edit = Rewrite::new("test", "rule", Accuracy::BitExact, vec![]);
    let turned = model.constant(value(&model, "b")).unwrap();
    let turned = turned.reshaped([2, BIG / 2]).unwrap().transposed(&[1, 0]).unwrap();
    let turned = edit.constant("turned", turned);
    let small = edit.constant("small", Tensor::from_i64s(&[1; 20]));
    edit.redefine(value(&model, "unused"), turned);
    edit.redefine(value(&model, "b"), small);
    model.commit(edit).unwrap();
    let out = in_new_folder(root.path(), "out/m.onnx");
    store(&model, &out, External::Keep).unwrap();
    let again = open(&out);
    assert_eq!(constants(&again), constants(&model));
    let size = |name: &str| fs::metadata(root.path().join("out").join(name)).unwrap().len() as usize;
    assert!(size("m.onnx") < 2000, "weights that a pass made do not go into the model file");
    assert!(size("w.bin") < 2 * BIG + (16 << 10), "{}", size("w.bin"));
    let offset = |path: &Path, name: &str| -> usize {
        let found = stored(path, "offset");
        found.iter().find(|(tensor, _)| tensor == name).unwrap().1.parse().unwrap()
    };
    assert_eq!(offset(&out, "a"), 64);
    assert_eq!(offset(&out, "c") % 4096, offset(&path, "c") % 4096, "pages stay pages");
    assert_eq!(offset(&out, "tied"), offset(&out, "c"));
    // The original has what it had.
    assert_eq!(fs::read(root.path().join("in/w.bin")).unwrap(), pattern(1 << 20, 7));
}

/// The model with the weight `b` the other way round.
fn turned(mut model: Model) -> Model {
    let mut edit = Rewrite::new("test", "rule", Accuracy::BitExact, vec![]);
    let b = model.constant(value(&model, "b")).unwrap();
    let b = b.reshaped([2, b.byte_len() as usize / 2]).unwrap().transposed(&[1, 0]).unwrap();
    let b = edit.constant("turned", b);
    edit.redefine(value(&model, "b"), b);
    model.commit(edit).unwrap();
    model
}

#[test]
fn external_weights_stay_external_when_all_are_changed() {
    for mode in [External::Keep, External::Share] {
        let root = folder();
        let tensors = || vec![external("b", "w.bin", Some(64), 8000)];
        let path = put(&root.path().join("in"), "m.onnx", tensors(), &[("w.bin", pattern(9000, 7))]);
        let out = in_new_folder(root.path(), "out/m.onnx");
        let model = turned(open(&path));
        store(&model, &out, mode).unwrap();
        assert_eq!(constants(&open(&out)), constants(&model));
        assert_eq!(fs::metadata(root.path().join("out/m.onnx.data")).unwrap().len(), 8000, "{mode:?}");
        // In place, too, again and again: data that nothing reads any more goes if it is the model's own.
        for _ in 0..3 {
            let model = turned(open(&out));
            store(&model, &out, mode).unwrap();
            assert_eq!(constants(&open(&out)), constants(&model));
            assert_eq!(names(&root.path().join("out")).len(), 2, "{mode:?}");
            assert!(fs::metadata(&out).unwrap().len() < 2000);
        }
    }
}

#[test]
fn a_failed_save_leaves_everything_as_it_was() {
    let root = folder();
    let path = root.path().join("m.onnx");
    store(&weights(), &path, External::Split).unwrap();
    let before = files(root.path());
    let unavailable = |dtype| Tensor::new(dtype, [40, 40], Data::Unavailable("no such file".into())).unwrap();
    let missing = plus(&open(&path), unavailable(DType::F32));
    let late = plus(&open(&path), unavailable(DType::F32).transposed(&[1, 0]).unwrap());
    for mode in MODES {
        assert!(matches!(store(&missing, &path, mode), Err(SaveError::Tensor { .. })), "{mode:?}");
        // Found out only while the tensor is written, after other files are complete.
        assert!(store(&late, &path, mode).is_err(), "{mode:?}");
        // A file has the name of the folder.
        let blocked = path.join("below/m.onnx");
        assert!(matches!(store(&weights(), &blocked, mode), Err(SaveError::Write { .. })), "{mode:?}");
        let nowhere = root.path().join("a/b/m.onnx");
        match store(&weights(), &nowhere, mode) {
            Err(SaveError::NoFolder { folder, .. }) => assert_eq!(folder, root.path().join("a/b")),
            other => panic!("{mode:?}: {other:?}"),
        }
        assert!(files(root.path()) == before, "{mode:?}: {:?}", names(root.path()));
        assert_eq!(constants(&open(&path)), constants(&weights()));
    }
}

#[test]
fn two_gigabytes_do_not_go_into_a_message() {
    let root = folder();
    let splat = Data::Splat(vec![0; 4].into());
    let huge = plus(&weights(), Tensor::new(DType::F32, [3 << 28], splat).unwrap());
    let path = root.path().join("m.onnx");
    match store(&huge, &path, External::Inline) {
        Err(SaveError::TooLarge { size, .. }) => assert!(size > 3 << 30),
        other => panic!("{other:?}"),
    }
    assert_eq!(names(root.path()), [""; 0]);
    // Where the choice is ours, a data file is: it is the first thing that cannot be written here.
    fs::write(&path, "").unwrap();
    for mode in [External::Auto, External::Keep, External::Split] {
        match store(&huge, &path.join("m.onnx"), mode) {
            Err(SaveError::Write { path: failed, .. }) => {
                assert_eq!(failed, path.join("m.onnx.data"), "{mode:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    // Data that is already in a file, however large, stays there: this one is a hole.
    let size = 3usize << 30;
    let tensor = external("w", "w.bin", Some(0), size);
    let path = put(&root.path().join("hole"), "m.onnx", vec![tensor], &[("w.bin", vec![])]);
    fs::File::options().write(true).open(path.with_file_name("w.bin")).unwrap().set_len(size as u64).unwrap();
    let model = open(&path);
    assert_eq!(model.constant(value(&model, "w")).unwrap().byte_len(), size as u64);
    assert_eq!(store(&model, &path, External::Keep).unwrap().files.len(), 1);
    assert!(matches!(store(&model, &path, External::Inline), Err(SaveError::TooLarge { .. })));
    assert_eq!(names(path.parent().unwrap()).len(), 2);
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_permissions() {
    let root = folder();
    let path = root.path().join("m.onnx");
    store(&weights(), &path, External::Inline).unwrap();
    fs::write(root.path().join("plain"), "").unwrap();
    assert_eq!(mode(&path), mode(&root.path().join("plain")), "a new file is like any other");
    for wanted in [0o600, 0o640, 0o700] {
        set_mode(&path, wanted);
        store(&weights(), &path, External::Inline).unwrap();
        assert_eq!(mode(&path), wanted, "{wanted:o}");
    }
}

/// A model from bytes has no folder; its own bytes can still be saved anywhere.
#[test]
fn a_model_from_bytes_is_saved() {
    let root = folder();
    let model = load_bytes(encoded(&with(vec![inner("a", 2000, 1)])), None, &Default::default()).unwrap();
    for mode in MODES {
        let path = in_new_folder(root.path(), &format!("{mode:?}/m.onnx"));
        store(&model, &path, mode).unwrap();
        assert_eq!(constants(&open(&path)), constants(&model));
    }
}

/// The replaced model needs its data file until it is replaced, also where the tensor is a part of a sparse one.
#[test]
fn data_of_sparse_tensors_is_in_use() {
    let root = folder();
    let indices = TensorProto {
        dims: vec![9],
        data_type: Some(7),
        int64_data: onnxforge_proto::wire::Packed((0..9).collect()),
        ..Default::default()
    };
    let sparse = SparseTensorProto {
        values: Some(Box::new(external("s", "m.onnx.data", None, 9))),
        indices: Some(Box::new(indices)),
        dims: vec![20],
        ..Default::default()
    };
    let path = root.path().join("m.onnx");
    let mut message = with(vec![]);
    message.graph.as_mut().unwrap().sparse_initializer.push(sparse);
    fs::write(&path, encoded(&message)).unwrap();
    fs::write(root.path().join("m.onnx.data"), pattern(9, 1)).unwrap();
    store(&weights(), &path, External::Split).unwrap();
    assert_eq!(stored(&path, "location")[0].1, "m.onnx.1.data");
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_not_replaced() {
    let folder = folder();
    let (socket, link) = (folder.path().join("socket.onnx"), folder.path().join("link.onnx"));
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::os::unix::fs::symlink(&socket, &link).unwrap();
    for path in [&socket, &link] {
        let before = path.symlink_metadata().unwrap().file_type();
        let error = store(&weights(), path, External::Inline).unwrap_err().to_string();
        assert!(error.contains("not a file"), "{error}");
        assert_eq!(path.symlink_metadata().unwrap().file_type(), before);
    }
    drop(listener);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
