"""Weights in other files: where they go, what may be read, and what is refused."""

import os
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import corpus
from conftest import Limits
from corpus import ROOT

SIZES = {"large": 3000, "odd": 1001, "small": 8, "tied": 3000, "text": 0}


def arrays():
    rng = np.random.default_rng(7)
    values = {name: rng.standard_normal(size).astype(np.float32) for name, size in SIZES.items()}
    values["tied"] = values["large"]
    return values


def entries(tensor, **values):
    """Makes `tensor` external, with these entries."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in values.items():
        tensor.external_data.add(key=key, value=str(value))


def make_model(tensors):
    """A model that concatenates `tensors`."""
    node = helper.make_node("Concat", [tensor.name for tensor in tensors], ["y"], axis=0)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    graph = helper.make_graph([node], "g", [], [output], initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inline_model(path):
    """A model with its weights inside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(make_model([numpy_helper.from_array(value, name) for name, value in arrays().items()]), path)
    return path


def external_model(path, location="weights.bin"):
    """A model with all weights in one file, the tied ones once, at offsets with gaps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors, data, places = [], bytearray(b"header!!"), {}
    for name, value in arrays().items():
        tensor = numpy_helper.from_array(value, name)
        raw = tensor.raw_data
        if raw not in places:
            places[raw] = len(data)
            data += raw + bytes(13)
        entries(tensor, location=location, offset=places[raw], length=len(raw))
        tensors.append(tensor)
    path.write_bytes(make_model(tensors).SerializeToString())
    file = path.parent / location
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return path


def loaded(path):
    """The tensors of a model, by onnx."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def assert_same_weights(path, expected=None):
    found = loaded(path)
    expected = arrays() if expected is None else expected
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name


def locations(path):
    """The name of the data file of each tensor; None: in the model."""
    def location(tensor):
        return next((entry.value for entry in tensor.external_data if entry.key == "location"), None)

    return {tensor.name: location(tensor) for tensor in corpus.parse(path).graph.initializer}


def offsets(path):
    """(offset, length) of each external tensor."""
    found = {}
    for tensor in corpus.parse(path).graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            values = {entry.key: entry.value for entry in tensor.external_data}
            found[tensor.name] = int(values["offset"]), int(values["length"])
    return found


def visible(folder):
    """The files of a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


MAKERS = {"inline": inline_model, "external": external_model}


@pytest.mark.parametrize("mode", ["keep", "inline", "split", "auto"])
@pytest.mark.parametrize("maker", MAKERS)
def test_to_another_folder(forge, tmp_path, maker, mode):
    source = MAKERS[maker](tmp_path / "in/model.onnx")
    target = tmp_path / "out/deep/model.onnx"
    forge("save", source, "-o", target, "--external", mode).good()
    assert_same_weights(target)
    if mode == "split":
        assert visible(target.parent) == ["model.onnx", "model.onnx.data"]
        where = locations(target)
        assert where["small"] is None and where["text"] is None
        assert where["large"] == where["odd"] == where["tied"] == "model.onnx.data"
    elif mode == "keep" and maker == "external":
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


def test_keep_in_the_same_folder_writes_only_the_model(forge, tmp_path):
    source = external_model(tmp_path / "model.onnx")
    before = (tmp_path / "weights.bin").stat()
    forge("save", source, "-o", tmp_path / "other.onnx").good()
    after = (tmp_path / "weights.bin").stat()
    assert (before.st_ino, before.st_mtime_ns, before.st_size) == (after.st_ino, after.st_mtime_ns, after.st_size)
    assert visible(tmp_path) == ["model.onnx", "other.onnx", "weights.bin"]
    assert corpus.parse(tmp_path / "other.onnx") == corpus.parse(source)


@pytest.mark.parametrize("mode", ["keep", "inline", "split", "auto"])
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
    for target in [tmp_path / "out/model.onnx", source]:
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
    target = tmp_path / "out/model.onnx"
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
    for target in [tmp_path / "out/model.onnx", source]:
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
        target = tmp_path / mode / "model.onnx"
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
        target = tmp_path / mode / "model.onnx"
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


# What must be refused: files that are not what the model says.


@pytest.mark.parametrize("mode", ["keep", "inline", "split", "auto"])
def test_missing_file(forge, tmp_path, mode):
    source = external_model(tmp_path / "in/model.onnx")
    (tmp_path / "in/weights.bin").unlink()
    for target in [tmp_path / "out/model.onnx", source]:
        forge("save", source, "-o", target, "--external", mode).refused("weights.bin")
    assert not (tmp_path / "out").exists() or visible(tmp_path / "out") == []
    assert visible(source.parent) == ["model.onnx"]


@pytest.mark.parametrize("size", [0, 1, 20, -1])
def test_short_file(forge, tmp_path, size):
    source = external_model(tmp_path / "in/model.onnx")
    file = tmp_path / "in/weights.bin"
    end = max(offset + length for offset, length in offsets(source).values())
    os.truncate(file, size if size >= 0 else end - 1)
    for mode in ["keep", "inline", "split"]:
        forge("save", source, "-o", tmp_path / "out/model.onnx", "--external", mode).refused("weights.bin")
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
    forge("save", source, "-o", tmp_path / "out/model.onnx", "--external", "inline").refused(
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
    "secret\0.bin", "../secret.bin\0", "/dev/zero", "/dev/stdin", "/proc/self/environ", "file:///{secret}", "~/secret.bin",
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
        for target in [tmp_path / "out" / "model.onnx", folder / "other.onnx"]
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
    target = tmp_path / "out/model.onnx"
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
            target = tmp_path / mode / location.replace("/", "_") / "model.onnx"
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
    forge("save", snapshot / "model.onnx", "-o", target, "--external", "inline").refused("--follow-links")
    forge("save", snapshot / "model.onnx", "-o", target, "--external", "inline", "--follow-links").good()
    assert_same_weights(target)


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
