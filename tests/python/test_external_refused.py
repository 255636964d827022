"""Weights in other files that are not what the model says, or none of its business."""

import os
import shutil

import numpy as np
import pytest
from onnx import numpy_helper

import corpus
from external import assert_same_weights, entries, external_model, in_new_folder, loaded, make_model, offsets, visible

# What must be refused: files that are not what the model says.


@pytest.mark.parametrize("mode", ["keep", "inline", "split", "auto"])
def test_missing_file(forge, tmp_path, mode):
    source = external_model(tmp_path / "in/model.onnx")
    (tmp_path / "in/weights.bin").unlink()
    for target in [in_new_folder(tmp_path / "out/model.onnx"), source]:
        forge("save", source, "-o", target, "--external", mode).refused("weights.bin")
    assert visible(tmp_path / "out") == []
    assert visible(source.parent) == ["model.onnx"]


@pytest.mark.parametrize("size", [0, 1, 20, -1])
def test_short_file(forge, tmp_path, size):
    source = external_model(tmp_path / "in/model.onnx")
    file = tmp_path / "in/weights.bin"
    end = max(offset + length for offset, length in offsets(source).values())
    os.truncate(file, size if size >= 0 else end - 1)
    for mode in ["keep", "inline", "split"]:
        forge("save", source, "-o", in_new_folder(tmp_path / "out/model.onnx"), "--external", mode).refused("weights.bin")
    os.truncate(file, end)
    forge("save", source, "-o", tmp_path / "out/model.onnx").good()


def with_entries(path, **changed):
    """A model with one external tensor whose entries are changed; None removes one."""
    value = np.arange(1000, dtype=np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "weights.bin").write_bytes(bytes(8) + value.tobytes() + bytes(8))
    first = numpy_helper.from_array(value, "w")
    all_entries = {"location": "weights.bin", "offset": 8, "length": 4000, **changed}
    entries(first, **{key: value for key, value in all_entries.items() if value is not None})
    path.write_bytes(make_model([first]).SerializeToString())
    return path


@pytest.mark.parametrize(
    "entry, value",
    [
        ("offset", -1), ("offset", "0x8"), ("offset", "8.0"), ("offset", "eight"), ("offset", 2**63), ("offset", 2**64),
        ("offset", 2**64 - 4), ("offset", ""), ("length", -1), ("length", 3999), ("length", 4001), ("length", 2**63),
        ("length", 2**64 - 8), ("length", 0), ("length", "all"), ("location", None),
    ],
)  # fmt: skip
def test_entries_that_make_no_sense(forge, tmp_path, entry, value):
    source = with_entries(tmp_path / "model.onnx", **{entry: value})
    forge("save", source, "-o", in_new_folder(tmp_path / "out/model.onnx"), "--external", "inline").refused(
        entry if entry == "location" else ""
    )
    assert not (tmp_path / "out/model.onnx").exists()


def test_entries_that_may_be_absent(forge, tmp_path):
    for missing in [{"length": None}, {"checksum": "0" * 40}, {"basepath": "/nowhere"}]:
        source = with_entries(tmp_path / "model.onnx", **missing)
        forge("save", source, "-o", tmp_path / "out.onnx", "--external", "inline").good()
        assert_same_weights(tmp_path / "out.onnx", {"w": np.arange(1000, dtype=np.float32)})


def test_partly_overlapping_tensors(forge, tmp_path):
    """Nothing could be said about which tensor such bytes belong to."""
    source = external_model(tmp_path / "model.onnx")
    model = corpus.parse(source)
    start, _ = offsets(source)["large"]
    for entry in model.graph.initializer[1].external_data:
        if entry.key == "offset":
            entry.value = str(start + 4)
    source.write_bytes(model.SerializeToString())
    forge("save", source, "-o", tmp_path / "out.onnx", "--external", "inline").refused("weights.bin")


# What must not be read: anything outside the folder.

SECRET = b"secret! " * 500


def outside(tmp_path):
    """A folder with a model beside a file that is none of its business."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    secret = tmp_path / "secret.bin"
    secret.write_bytes(SECRET)
    return folder, secret


def attack(location):
    def prepare(folder, secret):
        return location.format(secret=secret)

    return prepare


def symbolic_link(folder, secret):
    (folder / "link.bin").symlink_to("../secret.bin")
    return "link.bin"


def absolute_link(folder, secret):
    (folder / "link.bin").symlink_to(secret)
    return "link.bin"


def link_to_a_link(folder, secret):
    (folder / "sub/first").symlink_to("../second")
    (folder / "second").symlink_to(secret)
    return "sub/first"


def linked_folder(folder, secret):
    (folder / "up").symlink_to("..")
    return "up/secret.bin"


def sibling_with_a_longer_name(folder, secret):
    other = folder.with_name(folder.name + "2")
    other.mkdir()
    shutil.copy(secret, other / "secret.bin")
    (folder / "link.bin").symlink_to(other / "secret.bin")
    return "link.bin"


def hard_link(folder, secret):
    os.link(secret, folder / "hard.bin")
    return "hard.bin"


LINKS = [symbolic_link, absolute_link, link_to_a_link, linked_folder, sibling_with_a_longer_name, hard_link]
PATHS = [
    "../secret.bin", "sub/../../secret.bin", "./../secret.bin", "sub/../sub/../../secret.bin", "{secret}", "/{secret}",
    "..\\secret.bin", "\\secret.bin", "C:\\secret.bin", "C:secret.bin", "", ".", "./", "sub", "sub/", "sub/.", "..",
    "secret\0.bin", "../secret.bin\0", "/dev/zero", "/dev/stdin", "/proc/self/environ", "file:///{secret}",
    "~/secret.bin",
]  # fmt: skip
ATTACKS = [*LINKS, *map(attack, PATHS)]
NAMES = [function.__name__ for function in LINKS] + [repr(path) for path in PATHS]


def attacked(folder, location):
    tensor = numpy_helper.from_array(np.zeros(len(SECRET) // 4, np.float32), "w")
    entries(tensor, location=location, offset=0, length=len(SECRET))
    path = folder / "model.onnx"
    path.write_bytes(make_model([tensor]).SerializeToString())
    return path


@pytest.mark.parametrize("prepare", ATTACKS, ids=NAMES)
def test_paths_that_leave_the_folder(forge, tmp_path, prepare):
    folder, secret = outside(tmp_path)
    source = attacked(folder, prepare(folder, secret))
    before = visible(tmp_path)
    commands = [
        ("save", source, "-o", target, "--external", mode)
        for mode in ["inline", "split", "keep", "auto"]
        for target in [in_new_folder(tmp_path / "out" / "model.onnx"), folder / "other.onnx"]
    ]
    for outcome in forge.many(commands, timeout=10):
        outcome.refused()
        assert "secret!" not in outcome.out + outcome.err
    assert visible(tmp_path) == before, "something was written"


def test_paths_are_relative_to_the_model_not_to_the_process(forge, tmp_path):
    folder, secret = outside(tmp_path)
    source = attacked(folder, "secret.bin")
    forge("save", source, "-o", tmp_path / "out.onnx", "--external", "inline", cwd=tmp_path).refused("secret.bin")
    (folder / "secret.bin").write_bytes(SECRET)
    forge("save", "in/model.onnx", "-o", "out.onnx", "--external", "inline", cwd=tmp_path).good()
    forge("save", "model.onnx", "-o", "out.onnx", "--external", "inline", cwd=folder).good()
    assert loaded(folder / "out.onnx")["w"].tobytes() == SECRET


@pytest.mark.parametrize("prepare", LINKS, ids=NAMES[: len(LINKS)])
def test_links_are_followed_when_asked(forge, tmp_path, prepare):
    folder, secret = outside(tmp_path)
    source = attacked(folder, prepare(folder, secret))
    target = in_new_folder(tmp_path / "out/model.onnx")
    forge("save", source, "-o", target, "--external", "inline", "--follow-links").good()
    assert loaded(target)["w"].tobytes() == SECRET


@pytest.mark.parametrize("path", ["../secret.bin", "{secret}", "sub/../../secret.bin"])
def test_paths_are_refused_even_when_links_are_followed(forge, tmp_path, path):
    folder, secret = outside(tmp_path)
    source = attacked(folder, path.format(secret=secret))
    forge("save", source, "-o", tmp_path / "out.onnx", "--external", "inline", "--follow-links").refused()


def test_links_inside_the_folder(forge, tmp_path):
    folder, _ = outside(tmp_path)
    (folder / "sub/real.bin").write_bytes(SECRET)
    (folder / "link.bin").symlink_to("sub/real.bin")
    (folder / "linked").symlink_to("sub")
    for location in ["link.bin", "linked/real.bin"]:
        source = attacked(folder, location)
        for mode in ["inline", "split", "keep"]:
            target = in_new_folder(tmp_path / mode / location.replace("/", "_") / "model.onnx")
            forge("save", source, "-o", target, "--external", mode).good()
            assert loaded(target)["w"].tobytes() == SECRET


def test_a_model_in_a_linked_folder(forge, tmp_path):
    """The folder itself may be a link, also one that is given as `.`."""
    external_model(tmp_path / "real/model.onnx")
    (tmp_path / "link").symlink_to("real")
    forge("save", tmp_path / "link/model.onnx", "-o", tmp_path / "out.onnx", "--external", "inline").good()
    assert_same_weights(tmp_path / "out.onnx")
    forge("save", "model.onnx", "-o", "out.onnx", "--external", "inline", cwd=tmp_path / "link").good()
    assert_same_weights(tmp_path / "real/out.onnx")


def test_a_cache_of_linked_files(forge, tmp_path):
    """A model and its weights, both links into a store, as caches of downloads have them."""
    stored = external_model(tmp_path / "blobs/model.onnx")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "model.onnx").symlink_to(stored)
    (snapshot / "weights.bin").symlink_to(tmp_path / "blobs/weights.bin")
    target = tmp_path / "out.onnx"
    forge("save", snapshot / "model.onnx", "-o", target, "--external", "inline").refused("follow links")
    forge("save", snapshot / "model.onnx", "-o", target, "--external", "inline", "--follow-links").good()
    assert_same_weights(target)
