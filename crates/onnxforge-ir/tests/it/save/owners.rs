//! Whose data a saved model reads: its own, unless sharing is asked for.

use super::*;

const DATA: &str = "m.onnx.data";

/// A model with two data files, one of them large enough to be copied by the kernel.
fn original(folder: &Path) -> PathBuf {
    let length = 3 << 20;
    let tensors = vec![
        external("a", DATA, Some(4096), length - 5000),
        external("b", DATA, Some(100), 50),
        external("c", "sub.bin", Some(0), 2000),
        inner("inside", 3000, 5),
    ];
    put(folder, "m.onnx", tensors, &[(DATA, pattern(length, 1)), ("sub.bin", pattern(2000, 2))])
}

fn locations(path: &Path) -> Vec<String> {
    let mut found: Vec<String> = stored(path, "location").into_iter().map(|(_, location)| location).collect();
    found.sort();
    found.dedup();
    found
}

type Damage = fn(&Path);

/// What may happen to a file of somebody else.
const DAMAGES: [(&str, Damage); 4] = [
    ("replaced", |file| {
        let new = file.with_extension("new");
        fs::write(&new, pattern(3 << 20, 77)).unwrap();
        fs::rename(new, file).unwrap();
    }),
    ("overwritten", |file| {
        use std::io::Write;
        fs::File::options().write(true).open(file).unwrap().write_all(&pattern(2000, 78)).unwrap();
    }),
    ("truncated", |file| fs::File::options().write(true).open(file).unwrap().set_len(10).unwrap()),
    ("deleted", |file| fs::remove_file(file).unwrap()),
];

#[test]
fn a_result_outlives_the_data_of_its_original() {
    for mode in MODES.into_iter().filter(|&mode| mode != External::Share) {
        for place in ["in/small.onnx", "out/small.onnx", "out/m.onnx"] {
            for (what, damage) in DAMAGES {
                let root = folder();
                let path = original(&root.path().join("in"));
                let out = in_new_folder(root.path(), place);
                let model = open(&path);
                let expected = constants(&model);
                let saved = store(&model, &out, mode).unwrap();
                assert_eq!(saved.shared, [""; 0].map(PathBuf::from));
                drop(model);
                for file in [DATA, "sub.bin"] {
                    damage(&path.with_file_name(file));
                }
                assert_eq!(constants(&open(&out)), expected, "{mode:?} {place}: data was {what}");
            }
        }
    }
}

/// Both names are new, and what they hold stands at the offsets where it stood.
#[test]
fn data_beside_the_original_is_named_after_the_result() {
    let root = folder();
    let path = original(root.path());
    let out = root.path().join("small.onnx");
    store(&open(&path), &out, External::Keep).unwrap();
    assert_eq!(locations(&out), ["small.onnx.1.data", "small.onnx.data"]);
    assert_eq!(stored(&out, "offset")[0], ("a".to_owned(), "4096".to_owned()));
    // Elsewhere only names of the original's own data change.
    let there = in_new_folder(root.path(), "there/small.onnx");
    store(&open(&path), &there, External::Keep).unwrap();
    assert_eq!(locations(&there), ["small.onnx.data", "sub.bin"]);
    let same = root.path().join("there/m.onnx");
    store(&open(&path), &same, External::Keep).unwrap();
    assert_eq!(locations(&same), ["m.onnx.1.data", DATA], "sub.bin is taken");
}

#[test]
fn sharing_is_done_and_told_on_request() {
    let root = folder();
    let path = original(root.path());
    let out = root.path().join("small.onnx");
    let before = files(root.path());
    let saved = store(&open(&path), &out, External::Share).unwrap();
    assert_eq!(saved.files.len(), 1);
    assert_eq!(saved.shared, [DATA, "sub.bin"].map(|name| root.path().join(name)));
    assert_eq!(locations(&out), [DATA, "sub.bin"]);
    assert_eq!(constants(&open(&out)), constants(&open(&path)));
    assert!(files(root.path()).iter().filter(|(file, _)| *file != out).eq(&before));
    // In another folder there is nothing to share.
    let there = in_new_folder(root.path(), "there/small.onnx");
    let saved = store(&open(&path), &there, External::Share).unwrap();
    assert_eq!((saved.files.len(), saved.shared.len()), (3, 0));
    assert_eq!(constants(&open(&there)), constants(&open(&path)));
}

#[test]
fn a_model_that_shared_gets_its_own_data_when_saved_in_place() {
    let root = folder();
    let path = original(root.path());
    let out = root.path().join("small.onnx");
    store(&open(&path), &out, External::Share).unwrap();
    assert_eq!(store(&open(&out), &out, External::Share).unwrap().shared, [root.path().join(DATA)]);
    // Nothing tells that sub.bin belongs to the other one.
    store(&open(&out), &out, External::Keep).unwrap();
    assert_eq!(locations(&out), ["small.onnx.data", "sub.bin"]);
    assert_eq!(constants(&open(&out)), constants(&open(&path)));
}

#[test]
fn in_place_no_data_is_written() {
    for mode in [External::Keep, External::Share] {
        let root = folder();
        let path = original(root.path());
        let before = files(root.path());
        let saved = store(&open(&path), &path, mode).unwrap();
        assert_eq!((saved.files.len(), saved.shared.len()), (1, 0), "{mode:?}");
        assert!(files(root.path()).iter().map(|(name, _)| name).eq(before.iter().map(|(name, _)| name)));
        assert_eq!(locations(&path), [DATA, "sub.bin"]);
    }
}

/// A second result takes the place of the first one, with its data.
#[test]
fn results_do_not_pile_up() {
    let root = folder();
    let path = original(root.path());
    let out = root.path().join("small.onnx");
    for round in 0..4 {
        let model = plus(&open(&path), Tensor::from_i64s(&vec![round; 2000]).reshaped([20, 100]).unwrap());
        store(&model, &out, External::Keep).unwrap();
        assert_eq!(constants(&open(&out)), constants(&model));
        assert_eq!(names(root.path()).len(), 6, "{:?}", names(root.path()));
    }
    // The same with other weights, so that the data of the last one does not fit.
    fs::write(root.path().join("sub.bin"), pattern(2000, 9)).unwrap();
    store(&open(&path), &out, External::Keep).unwrap();
    assert_eq!(constants(&open(&out)), constants(&open(&path)));
    assert_eq!(names(root.path()).len(), 6, "{:?}", names(root.path()));
    store(&open(&path), &out, External::Share).unwrap();
    assert_eq!(names(root.path()).len(), 4, "{:?}", names(root.path()));
}

/// What is there has the right bytes, but belongs to a neighbour.
#[test]
fn equal_data_of_a_neighbour_is_not_read() {
    let root = folder();
    let path = original(&root.path().join("in"));
    let neighbour = original(&root.path().join("out")).with_file_name("n.onnx");
    fs::rename(root.path().join("out/m.onnx"), &neighbour).unwrap();
    let out = root.path().join("out/m.onnx");
    let expected = constants(&open(&path));
    store(&open(&path), &out, External::Keep).unwrap();
    fs::remove_file(root.path().join("out").join(DATA)).unwrap();
    fs::remove_file(root.path().join("out/sub.bin")).unwrap();
    assert_eq!(constants(&open(&out)), expected);
}

/// Saving through a link replaces the link; what it led to keeps its data, and the new file has its own.
#[cfg(unix)]
#[test]
fn a_link_to_the_original_is_not_the_original() {
    for mode in MODES {
        let root = folder();
        let path = original(root.path());
        let link = root.path().join("link.onnx");
        std::os::unix::fs::symlink("m.onnx", &link).unwrap();
        let expected = constants(&open(&path));
        store(&open(&link), &link, mode).unwrap();
        assert_eq!(constants(&open(&path)), expected, "{mode:?}");
        assert_eq!(constants(&open(&link)), expected, "{mode:?}");
        let shared = locations(&link).iter().any(|name| name == DATA);
        assert_eq!(shared, mode == External::Share, "{mode:?}");
    }
}

/// A folder of the model's own layout is made in the folder that is there.
#[test]
fn data_in_a_folder_below_moves_along() {
    let root = folder();
    fs::create_dir_all(root.path().join("in/sub")).unwrap();
    let tensors = vec![external("a", "sub/w.bin", None, 2000)];
    let path = put(&root.path().join("in"), "m.onnx", tensors, &[("sub/w.bin", pattern(2000, 1))]);
    let out = in_new_folder(root.path(), "out/m.onnx");
    store(&open(&path), &out, External::Keep).unwrap();
    assert_eq!(names(out.parent().unwrap()), ["m.onnx", "sub/w.bin"]);
    assert_eq!(constants(&open(&out)), constants(&open(&path)));
    let missing = root.path().join("none/m.onnx");
    assert!(matches!(store(&open(&path), &missing, External::Keep), Err(SaveError::NoFolder { .. })));
    assert!(!root.path().join("none").exists());
}
