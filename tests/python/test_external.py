"""Weights in other files: where they go, and that they stay what they are."""

import json
import os
import shutil

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import corpus
from conftest import Limits
from corpus import ROOT
from external import (
    assert_same_weights, entries, external_model, in_new_folder, inline_model, loaded, locations, make_model, offsets,
    visible,
)  # fmt: skip

MAKERS = {"inline": inline_model, "external": external_model}


@pytest.mark.parametrize("mode", ["keep", "share", "inline", "split", "auto"])
@pytest.mark.parametrize("maker", MAKERS)
def test_to_another_folder(forge, tmp_path, maker, mode):
    source = MAKERS[maker](tmp_path / "in/model.onnx")
    target = in_new_folder(tmp_path / "out/deep/model.onnx")
    forge("save", source, "-o", target, "--external", mode).good()
    assert_same_weights(target)
    if mode == "split":
        assert visible(target.parent) == ["model.onnx", "model.onnx.data"]
        where = locations(target)
        assert where["small"] is None and where["text"] is None
        assert where["large"] == where["odd"] == where["tied"] == "model.onnx.data"
    elif mode in ("keep", "share") and maker == "external":
        assert visible(target.parent) == ["model.onnx", "weights.bin"]
        assert corpus.parse(target) == corpus.parse(source)
    else:
        assert visible(target.parent) == ["model.onnx"]
        assert set(locations(target).values()) == {None}


@pytest.mark.parametrize("maker", MAKERS)
def test_split_is_aligned_and_keeps_tied_weights_tied(forge, tmp_path, maker):
    source = MAKERS[maker](tmp_path / "in/model.onnx")
    target = tmp_path / "model.onnx"
    forge("save", source, "-o", target, "--external", "split").good()
    places = offsets(target)
    assert all(offset % 64 == 0 for offset, _ in places.values())
    assert places["large"] != places["odd"]
    end = max(offset + length for offset, length in places.values())
    assert (tmp_path / "model.onnx.data").stat().st_size == end
    if maker == "external":
        assert places["large"] == places["tied"]


@pytest.mark.parametrize("command", [["save"], ["optimize", "--passes", "eliminate_identity_operands", "--verify", "off"], ["upgrade", "--opset", "18"], ["strip"]])
def test_sharing_in_the_same_folder_writes_only_the_model(forge, tmp_path, command):
    source = external_model(tmp_path / "model.onnx")
    before = (tmp_path / "weights.bin").stat()
    share = [*command, source.name, "-o", "other.onnx", "--external", "share"]
    said = forge(*share, cwd=tmp_path).good().out
    assert "other.onnx reads its weights from weights.bin" in said.splitlines()
    [model] = json.loads(forge(*share, "--json", cwd=tmp_path).good().out)["files"]
    assert (model["path"], model["shared"]) == ("other.onnx", ["weights.bin"])
    after = (tmp_path / "weights.bin").stat()
    assert (before.st_ino, before.st_mtime_ns, before.st_size) == (after.st_ino, after.st_mtime_ns, after.st_size)
    assert visible(tmp_path) == ["model.onnx", "other.onnx", "weights.bin"]
    assert_same_weights(tmp_path / "other.onnx")
    if command == ["save"]:
        assert corpus.parse(tmp_path / "other.onnx") == corpus.parse(source)


def replaced(file):
    """As an exporter that runs again does it."""
    new = file.with_suffix(".new")
    new.write_bytes(bytes(file.stat().st_size))
    new.replace(file)


DAMAGES = {
    "replaced": replaced,
    "overwritten": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "truncated": lambda file: os.truncate(file, 10),
    "deleted": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", ["in/small.onnx", "out/small.onnx", "out/model.onnx"])
@pytest.mark.parametrize("location", ["weights.bin", "model.onnx.data"])
def test_results_do_not_need_the_original(forge, tmp_path, location, place, damage):
    source = external_model(tmp_path / "in/model.onnx", location)
    target = in_new_folder(tmp_path / place)
    options = ["--passes", "eliminate_identity_operands", "--verify", "off"]
    outcome = forge("optimize", source, "-o", target, *options, "--json").good()
    assert not any("shared" in file for file in json.loads(outcome.out)["files"])
    assert any(locations(target).values()), "external weights stay external"
    DAMAGES[damage](source.with_name(location))
    assert_same_weights(target)


WRITERS = [
    ["save", "{model}", "-o", "{out}"],
    ["optimize", "{model}", "-o", "{out}", "--verify", "off", "--trace", "{here}"],
    ["optimize", "{model}", "-o", "{here}", "--verify", "off", "--report", "{out}"],
    ["optimize", "{model}", "-o", "{here}", "--verify", "off", "--trace", "{out}"],
    ["upgrade", "{model}", "-o", "{out}"],
    ["infer", "{model}", "-o", "{out}"],
    ["strip", "{model}", "-o", "{out}"],
    ["redact", "{model}", "-o", "{out}"],
    ["materialize", "{model}", "-o", "{out}"],
    ["print", "{model}", "-o", "{out}"],
    ["reduce", "{model}", "-o", "{out}", "--command", "false {{}}"],
    ["report", "{model}", "-o", "{out}"],
    ["extract", "{model}", "-m", "/", "-o", "{out}"],
    ["extract", "{model}", "-m", "**", "-o", "{folder}"],
    ["tag", "{model}", "-o", "{out}"],
    ["tag", "{model}", "--sidecar", "{out}"],
    ["restore", "{model}", "--from", "{model}", "-o", "{out}"],
    ["run", "{model}", "-o", "{out}"],
    ["run", "{model}", "--save-inputs", "{out}"],
    ["check", "{model}", "--json={out}"],
]


@pytest.mark.parametrize("words", WRITERS, ids=lambda words: "_".join(words[0:1] + words[2:3]).replace("{out}", ""))
def test_missing_folders_are_not_made(forge, tmp_path, words):
    external_model(tmp_path / "model.onnx")
    before = visible(tmp_path)
    places = {"model": "model.onnx", "out": "no/such/file", "folder": "no/such", "here": "here.out"}
    done = forge(*(word.format(**places) for word in words), cwd=tmp_path)
    done.refused("the folder no/such does not exist; create it first")
    assert visible(tmp_path) == before and not (tmp_path / "no").exists()


@pytest.mark.parametrize("mode", ["keep", "share", "inline", "split", "auto"])
@pytest.mark.parametrize("maker", MAKERS)
def test_in_place(forge, tmp_path, maker, mode):
    model = MAKERS[maker](tmp_path / "model.onnx")
    for _ in range(3):  # and once more over what the first save wrote
        forge("save", model, "-o", model, "--external", mode).good()
        assert_same_weights(model)
        data_files = {name for name in locations(model).values() if name}
        assert {"model.onnx", *data_files} <= set(visible(tmp_path))
        own = {name for name in visible(tmp_path) if name.startswith("model.onnx.")}
        assert own <= data_files, "data files of the replaced model are left behind"


@pytest.mark.parametrize("location", ["sub/weights.bin", "./weights.bin", "w w.bin", "ü.bin", "model.onnx.data"])
@pytest.mark.parametrize("mode", ["keep", "inline", "split"])
def test_names_of_data_files(forge, tmp_path, location, mode):
    source = external_model(tmp_path / "in/model.onnx", location)
    for target in [in_new_folder(tmp_path / "out/model.onnx"), source]:
        forge("save", source, "-o", target, "--external", mode).good()
        assert_same_weights(target)


def test_modes_one_after_the_other(forge, tmp_path):
    model = external_model(tmp_path / "model.onnx")
    for mode in ["split", "inline", "keep", "split", "keep", "split", "auto", "split"]:
        forge("save", model, "-o", model, "--external", mode).good()
        assert_same_weights(model)


def test_over_a_model_that_refers_to_a_file_of_the_same_name(forge, tmp_path):
    """The data file of the replaced model is never overwritten before the model is."""
    source = external_model(tmp_path / "in/model.onnx")
    target = in_new_folder(tmp_path / "out/model.onnx")
    for mode in ["keep", "keep", "split", "split", "keep", "keep"]:
        forge("save", source, "-o", target, "--external", mode).good()
        assert_same_weights(target)


def test_data_files_of_other_models_are_not_overwritten(forge, tmp_path):
    """A neighbour keeps its weights when a model with a data file of the same name moves in."""
    neighbour = tmp_path / "out/neighbour.onnx"
    neighbour.parent.mkdir()
    tensor = numpy_helper.from_array(np.arange(5000, dtype=np.float32), "w")
    (tmp_path / "out/weights.bin").write_bytes(tensor.raw_data)
    entries(tensor, location="weights.bin", offset=0, length=len((tmp_path / "out/weights.bin").read_bytes()))
    neighbour.write_bytes(make_model([tensor]).SerializeToString())
    before = loaded(neighbour)
    source = external_model(tmp_path / "in/model.onnx")
    outcome = forge("save", source, "-o", tmp_path / "out/model.onnx").orderly()
    assert_same_weights(neighbour, before)
    if outcome.code == 0:
        assert_same_weights(tmp_path / "out/model.onnx")


@pytest.mark.parametrize("mode", ["keep", "inline", "split"])
def test_two_spellings_of_one_file(forge, tmp_path, mode):
    source = external_model(tmp_path / "in/model.onnx")
    model = corpus.parse(source)
    for entry in model.graph.initializer[1].external_data:
        if entry.key == "location":
            entry.value = "./weights.bin"
    source.write_bytes(model.SerializeToString())
    for target in [in_new_folder(tmp_path / "out/model.onnx"), source]:
        forge("save", source, "-o", target, "--external", mode).good()
        assert_same_weights(target)


def test_a_file_for_every_tensor(forge, tmp_path):
    """As PyTorch's older exporter writes models above 2 GB; there can be more files than a process may hold open."""
    tensors = []
    for number in range(400):
        tensor = numpy_helper.from_array(np.full(300, number, np.float32), f"w{number}")
        (tmp_path / tensor.name).write_bytes(tensor.raw_data)
        entries(tensor, location=tensor.name)
        tensors.append(tensor)
    source = tmp_path / "model.onnx"
    source.write_bytes(make_model(tensors).SerializeToString())
    expected = {f"w{number}": np.full(300, number, np.float32) for number in range(400)}
    for mode in ["keep", "inline", "split"]:
        target = in_new_folder(tmp_path / mode / "model.onnx")
        forge("save", source, "-o", target, "--external", mode, limits=Limits(files=256)).good()
        assert_same_weights(target, expected)


def test_every_place_a_tensor_can_stand_in(forge, tmp_path):
    """Initializers and attributes, in bodies, functions and training information, dense and sparse."""
    source = shutil.copy(ROOT / "tests/data/every_field.onnx", tmp_path)
    expected, data = [], bytearray(64)
    model = corpus.parse(source)
    values = np.arange(400, dtype=np.float32)
    body = helper.make_graph([], "body", [], [], [numpy_helper.from_array(values, "in_a_body")])
    model.graph.node[0].attribute.append(helper.make_attribute("body", body))
    model.functions[0].node[0].attribute.append(
        helper.make_attribute("in_a_function", numpy_helper.from_array(values + 1, "in_a_function"))
    )
    model.functions[0].attribute_proto.append(
        helper.make_attribute("default", numpy_helper.from_array(values + 2, "as_a_default"))
    )
    model.training_info[0].initialization.initializer.append(numpy_helper.from_array(values + 3, "in_training"))
    for tensor in corpus.tensors(model):
        tensor.ClearField("segment")
        if tensor.data_type == TensorProto.STRING:
            continue
        if tensor.data_location == TensorProto.EXTERNAL:
            raw = (ROOT / "tests/data/every_field.onnx.data").read_bytes()
            values = {entry.key: entry.value for entry in tensor.external_data}
            offset = int(values.get("offset", 0))
            raw = raw[offset : offset + int(values.get("length", len(raw) - offset))]
        else:
            raw = numpy_helper.to_array(tensor).tobytes()
        for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(field)
        entries(tensor, location="all.bin", offset=len(data), length=len(raw))
        data += raw + bytes(-len(raw) % 64)
        expected.append(raw)
    (tmp_path / "all.bin").write_bytes(data)
    source = tmp_path / "model.onnx"
    source.write_bytes(model.SerializeToString())
    for mode in ["keep", "inline", "split"]:
        target = in_new_folder(tmp_path / mode / "model.onnx")
        forge("save", source, "-o", target, "--external", mode).good()
        found = []
        for tensor in corpus.tensors(corpus.parse(target)):
            if tensor.data_type == TensorProto.STRING:
                continue
            if tensor.data_location == TensorProto.EXTERNAL:
                values = {entry.key: entry.value for entry in tensor.external_data}
                raw = (target.parent / values["location"]).read_bytes()
                found.append(raw[int(values["offset"]) :][: int(values["length"])])
            else:
                assert mode != "keep"
                found.append(numpy_helper.to_array(tensor).tobytes() if not tensor.raw_data else tensor.raw_data)
        assert found == expected, mode


def test_targets_that_cannot_be(forge, tmp_path):
    source = inline_model(tmp_path / "model.onnx")
    (tmp_path / "folder").mkdir()
    for target in [tmp_path / "folder", tmp_path / "model.onnx/inside.onnx"]:
        forge("save", source, "-o", target).refused(target.name)
    assert_same_weights(source)
    assert visible(tmp_path) == ["model.onnx"]


def test_permissions_of_what_is_written(forge, tmp_path):
    """A new file has the usual permissions, a replaced one those that it had."""
    source = inline_model(tmp_path / "model.onnx")
    mask = os.umask(0o027)
    try:
        forge("save", source, "-o", tmp_path / "new.onnx", "--external", "split").good()
        os.chmod(source, 0o604)
        forge("save", source, "-o", source).good()
    finally:
        os.umask(mask)
    mode = lambda name: (tmp_path / name).stat().st_mode & 0o777
    assert mode("new.onnx") == mode("new.onnx.data") == 0o640
    assert mode("model.onnx") == 0o604


def test_over_a_data_file_of_the_model_itself(forge, tmp_path):
    """The output may not take the place of the weights that it needs."""
    source = external_model(tmp_path / "model.onnx")
    for mode in ["keep", "split", "inline"]:
        outcome = forge("save", source, "-o", tmp_path / "weights.bin", "--external", mode).orderly()
        if outcome.code == 0:
            assert_same_weights(tmp_path / "weights.bin")
        assert_same_weights(source)


def test_over_a_data_file_that_only_the_source_needs(forge, tmp_path):
    """The source is called a, its weights are called as those of b would be."""
    source = external_model(tmp_path / "a.onnx", "b.onnx.data")
    outcome = forge("save", source, "-o", tmp_path / "b.onnx", "--external", "split").orderly()
    assert_same_weights(source)
    if outcome.code == 0:
        assert_same_weights(tmp_path / "b.onnx")


@pytest.mark.parametrize("mode", ["keep", "inline", "split"])
def test_in_place_through_a_link(forge, tmp_path, mode):
    """Whether the link or what it points to is replaced: both are whole afterwards."""
    real = external_model(tmp_path / "real/model.onnx")
    link = tmp_path / "real/link.onnx"
    link.symlink_to("model.onnx")
    forge("save", link, "-o", link, "--external", mode).good()
    assert_same_weights(link)
    assert_same_weights(real)
