"""`onnxforge upgrade`: newer operator sets, the same results, nothing refused that the converter of onnx gets right."""

import json

import native
import numpy as np
import onnx
import onnx.version_converter
import passes
import pytest
from corpus import ROOT

# The newest operator set that ONNX Runtime runs.
RUNTIME = 26
GOLDEN = ROOT / "crates/onnxforge-rewrite/tests/upgrade"
MODELS = sorted([*(ROOT / "examples").glob("*.onnx"), *(ROOT / "tests/data").glob("*.onnx")])

# Where ONNX Runtime computes something else before than after, and why that is right.
OTHERWISE = {
    "index: OneHot of indices of 64 bits": "it counts negative indices from the end in every version",
    "values: Dropout whose mask somebody reads": "it gives no mask before opset 12, where the standard is silent",
}
# What onnx's converter leaves as it is and we refuse: ONNX Runtime still runs what the standard dropped.
LENIENT = {
    "norm: GroupNormalization before it came back",
    "resize: the coordinates of another framework, rounded up",
}


def golden():
    """The cases of the library's tests: title, model before, version to convert to, whether that is refused."""
    for path in sorted(GOLDEN.glob("*.onnxtxt")):
        for part in path.read_text().split("=== ")[1:]:
            title, rest = part.split("\n", 1)
            before, verdict = rest.split("\n--- ", 1)
            first = verdict.split("\n", 1)[0]
            name = f"{path.stem}: {title.strip()}"
            yield pytest.param(name, before, int(first.split()[0]), "refused" in first, id=name)


@pytest.fixture
def write(forge, tmp_path):
    """Writes a model in ONNX text as a file."""

    def written(text):
        source, target = tmp_path / "model.onnxtxt", tmp_path / "before.onnx"
        source.write_text(text)
        forge("parse", source, "-o", target).good()
        return target

    return written


def upgrade(forge, model, target, opset, *arguments):
    done = forge("upgrade", model, "-o", target, "--opset", opset, "--json", "-", *arguments).good()
    return json.loads(done.out)


def made_up(forge, model, folder):
    """Inputs that our evaluator can run the model with."""
    dims = native.flags(f"{name}={3 + index}" for index, name in enumerate(passes.named_dims(model)))
    return native.run_ours(forge.binary, model, folder, *dims)[1]


def agree(expected, found):
    if isinstance(expected, str) or isinstance(found, str):
        return False
    pairs = zip(expected, found, strict=True)
    return all(same(x, y) for x, y in pairs)


def same(x, y):
    if isinstance(x, list):
        return len(x) == len(y) and all(map(same, x, y))
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    return np.array_equal(x, y) if x.dtype.kind in "OSUbiu" else native.relative_error(y, x) <= 1e-6


@pytest.mark.parametrize("name, before, opset, refused", [case for case in golden() if not case.values[3]])
def test_converted_cases_of_the_library(forge, write, tmp_path, name, before, opset, refused):
    model, after = write(before), tmp_path / "after.onnx"
    opset = min(opset, RUNTIME)
    assert upgrade(forge, model, after, opset)["to"] == opset
    onnx.checker.check_model(str(after), full_check=True)
    inputs = made_up(forge, model, tmp_path)
    expected = native.outputs(model, inputs)
    if isinstance(expected, str):
        pytest.skip(f"ONNX Runtime cannot run it: {expected}")
    found = native.outputs(after, inputs)
    assert not isinstance(found, str), found
    assert agree(expected, found) != (name in OTHERWISE)


@pytest.mark.parametrize("name, before, opset, refused", [case for case in golden() if case.values[3]])
def test_refused_cases_of_the_library(forge, write, tmp_path, name, before, opset, refused):
    model = write(before)
    forge("upgrade", model, "-o", tmp_path / "after.onnx", "--opset", opset).refused(model)
    assert not (tmp_path / "after.onnx").exists()
    if opset <= RUNTIME:
        assert (by_onnx(forge, model, tmp_path, opset) is True) == (name in LENIENT)


def by_onnx(forge, model, folder, opset):
    """Whether onnx's own converter gets a model right; None where nobody can tell."""
    try:
        inputs = made_up(forge, model, folder)
    except RuntimeError:
        return None
    expected = native.outputs(model, inputs)
    if isinstance(expected, str):
        return None
    try:
        theirs = onnx.version_converter.convert_version(onnx.load(model), opset)
    except Exception:  # noqa: BLE001
        return False
    onnx.save(theirs, folder / "theirs.onnx")
    return agree(expected, native.outputs(folder / "theirs.onnx", inputs))


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("opset", [23, RUNTIME])
def test_whole_models(forge, tmp_path, model, opset):
    after = tmp_path / "after.onnx"
    imports = onnx.load(model, load_external_data=False).opset_import
    if any(one.domain in ("", "ai.onnx") and one.version > opset for one in imports):
        pytest.skip("it is newer")
    if model.stem == "every_field":
        forge("upgrade", model, "-o", after, "--opset", opset).refused("training")
        return
    upgrade(forge, model, after, opset)
    try:
        inputs = made_up(forge, model, tmp_path)
    except RuntimeError as error:
        pytest.skip(f"nobody makes up inputs: {error}")
    expected = native.outputs(model, inputs)
    if isinstance(expected, str):
        pytest.skip(f"ONNX Runtime cannot run it: {expected}")
    found = native.outputs(after, inputs)
    assert not isinstance(found, str), found
    assert agree(expected, found)


# Changes whose text says something else than before, although ONNX Runtime computes the same in every version.
TEXT_ALONE = {
    "odd padding of ConvTranspose": (10, [11, 22], "ConvTranspose<output_shape = [{size}], strides = [2]>(x, w)"),
    "automatic padding of ConvTranspose": (10, [11, 22], 'ConvTranspose<auto_pad = "SAME_LOWER", strides = [{size}]>(x, w)'),
    "windows of MaxPool": (10, [12, 22], "MaxPool<kernel_shape = [3], strides = [{size}], pads = [1, 1], ceil_mode = 1>(x)"),
    "windows of AveragePool": (
        10, [11, 19, 22],
        "AveragePool<kernel_shape = [3], strides = [{size}], pads = [1, 1], ceil_mode = 1, count_include_pad = 1>(x)",
    ),
    "windows of LpPool": (18, [22], "LpPool<kernel_shape = [3], strides = [{size}], pads = [1, 1], ceil_mode = 1>(x)"),
    "swapped bounds of Clip": (11, [12, 13], "Clip(x, high, low)"),
    "infinity as a small float": (19, [21, 23, 24, 25], "Cast<to = 18>(x)"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXT_ALONE)
@pytest.mark.parametrize("size", range(2, 9))
def test_changes_of_the_text_alone(forge, write, name, size):
    first, others, call = TEXT_ALONE[name]

    def at(opset):
        body = f"a = {call.format(size=size)}  y = Cast<to = 1>(a)"
        constants = "<float[1,1,3] w = {1, 2, 3}, float low = {-1}, float high = {1}>"
        graph = f"g (float[1,1,5] x) => (float[1,1,N] y) {constants} {{ {body} }}"
        x = np.array([[[np.inf, -np.inf, 0.5, -2, 3]]] if "Cast" in call else [[[1, -2, 3, -4, 5]]], np.float32)
        return native.outputs(write(f'<ir_version: 9, opset_import: ["" : {opset}]> {graph}'), {"x": x})

    expected = at(first)
    if isinstance(expected, str):
        pytest.skip(f"ONNX Runtime cannot run it: {expected}")
    assert all(agree(expected, at(opset)) for opset in others)


HEADING = '<ir_version: 6, opset_import: ["" : 11]> '


def test_the_command(forge, write, tmp_path):
    model = write(HEADING + "g (float[1,3] x) => (float[3] y) { y = Squeeze<axes = [0]>(x) }")
    target = tmp_path / "after.onnx"
    done = upgrade(forge, model, target, 13)
    assert (done["from"], done["to"], done["ir_from"], done["ir_to"]) == (11, 13, 6, 7)
    assert done["steps"] == [{"operator": "Squeeze", "opset": 13, "nodes": 1}]
    assert onnx.load(target).opset_import[0].version == 13
    text = forge("upgrade", model, "-o", target).good().out
    assert "Squeeze" in text and f"opset 11 became {RUNTIME}" in text and str(target) in text
    assert forge("upgrade", model, "-o", target, "-q").good().out == ""
    forge("upgrade", model, "-o", target, "--opset", 9).refused(model, "opset 11", "upwards only")
    assert forge("upgrade", model, "-o", target, "--opset", 99).code == 2
    forge("upgrade", tmp_path / "none.onnx", "-o", target).refused("none.onnx")
    # The current version changes nothing at all.
    forge("save", model, "-o", tmp_path / "saved.onnx").good()
    upgrade(forge, model, target, 11)
    assert target.read_bytes() == (tmp_path / "saved.onnx").read_bytes()


def test_before_the_passes(forge, write, tmp_path):
    model = write(HEADING + "g (float[1,3] x) => (float[3] y) { a = Identity(x)  y = Squeeze<axes = [0]>(a) }")
    target = tmp_path / "after.onnx"
    version = lambda: onnx.load(target).opset_import[0].version
    forge("optimize", model, "-o", target).good()
    assert version() == 11
    forge("optimize", model, "-o", target, "--opset", "keep").good()
    assert version() == 11
    done = json.loads(forge("optimize", model, "-o", target, "--opset", 21, "--json", "-").good().out)
    assert version() == 21 and done["opset"]["from"] == 11 and done["after"]["nodes"] == 1
    forge("optimize", model, "-o", target, "--opset", "latest").good()
    assert version() == RUNTIME
    forge("optimize", model, "-o", target, "--opset", 10).refused(model, "upwards only")
