"""What a target promises is tried: a model for ONNX Runtime is one that it loads."""

import json
import sys

import onnx
import onnxruntime
import pytest

RUNTIME = {"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": ""}
NONE = {"VIRTUAL_ENV": "", "CONDA_PREFIX": "", "ORT_DYLIB_PATH": "/nowhere/libonnxruntime.so"}
ALIGN = "g (float[N,3,8,8] x, float[R,4] r, int64[R] b) => (float[R,3,2,2] y) { y = RoiAlign<output_height = 2, output_width = 2>(x, r, b) }"
POOL = "g (float[N,3,8,8] x) => (float[N,3,1,1] y) { a = Identity(x)  y = GlobalLpPool<p = 2>(a) }"
DRAW = "g (float[2,3] x) => (int32[2,4] y) { y = Multinomial<sample_size = 4>(x) }"
RELU = "g (float[N,4] x) => (float[N,4] y) { a = Identity(x)  y = Relu(a) }"


@pytest.fixture
def parsed(forge, tmp_path):
    def parse(text, opset, ir=8):
        source, model = tmp_path / "model.onnxtxt", tmp_path / "model.onnx"
        source.write_text(f'<ir_version: {ir}, opset_import: ["" : {opset}]>\n{text}')
        forge("parse", source, "-o", model).good()
        return model

    return parse


@pytest.fixture
def optimized(forge, tmp_path):
    def optimize(model, *args, env=RUNTIME):
        out = tmp_path / "out.onnx"
        report = json.loads(forge("optimize", model, "-o", out, *args, "--json", "-", env=env).good().out)
        return out, report

    return optimize


def loads(path):
    """Whether ONNX Runtime makes a session of a file, and the opset of that."""
    try:
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - whatever it says, it does not load
        return None
    return onnx.load(path).opset_import[0].version


@pytest.mark.parametrize("text", [ALIGN, POOL, DRAW], ids=["RoiAlign", "GlobalLpPool", "Multinomial"])
@pytest.mark.parametrize("verify", ["final", "off"])
def test_a_number_is_the_most_that_a_target_gets(parsed, optimized, forge, text, verify, tmp_path):
    """The operator is there until opset 21, and its version of 22 has no kernel."""
    model = parsed(text, 16)
    for asked in (22, 23, 28):
        out, found = optimized(model, "--opset", asked, "--target", "ort", "--verify", verify)
        assert loads(out) == found["opset"]["to"] == found["tried"]["opset"] == 21
        assert found["tried"]["asked"] == asked and "of opset 22" in found["tried"]["refused"]
        assert found["verification"]["reverted"] == []
    shown = forge("optimize", model, "-o", out, "--opset", 23, "--target", "ort", env=RUNTIME).good().out
    version = ".".join(onnxruntime.__version__.split(".")[:2])
    assert f"opset 21 instead of 23: ONNX Runtime {version} has no " in shown
    out, found = optimized(model, "--opset", 18, "--target", "ort")
    assert loads(out) == 18 and found["tried"]["refused"] is None


def test_without_the_target_a_number_is_what_it_says(parsed, optimized, forge, tmp_path):
    out, found = optimized(parsed(ALIGN, 16), "--opset", 23)
    assert loads(out) is None and onnx.load(out).opset_import[0].version == 23
    assert "RoiAlign of opset 22" in found["tried"]["refused"]
    shown = forge("upgrade", tmp_path / "model.onnx", "-o", out, "--opset", 23, env=RUNTIME).good().out
    assert "does not load opset 23 of this model: it has no RoiAlign of opset 22" in shown


def test_the_latest_is_one_that_loads(parsed, optimized, forge, tmp_path):
    out, found = optimized(parsed(ALIGN, 16), "--opset", "latest")
    assert loads(out) == 21 and "RoiAlign of opset 22" in found["tried"]["refused"]
    out, found = optimized(parsed(RELU, 16), "--opset", "latest")
    assert loads(out) == found["tried"]["opset"] > 22 and found["tried"]["refused"] is None
    forge("upgrade", tmp_path / "model.onnx", "-o", out, env=RUNTIME).good()
    assert loads(out) == found["tried"]["opset"]
    out, found = optimized(tmp_path / "model.onnx", "--opset", "latest", env=NONE)
    assert loads(out) and "ORT_DYLIB_PATH" in found["tried"]["untried"]


@pytest.mark.parametrize("opset", ["keep", "23", "latest"])
def test_what_does_not_load_before_is_said(parsed, optimized, opset):
    """Nothing can be tried then, and what was asked for is done."""
    out, found = optimized(parsed(ALIGN, 22, ir=10), "--opset", opset, "--target", "ort")
    assert loads(out) is None and "RoiAlign of opset 22" in found["tried"]["untried"]
    assert onnx.load(out).opset_import[0].version >= (23 if opset == "23" else 22)


def test_without_onnx_runtime_nothing_is_tried(parsed, optimized):
    out, found = optimized(parsed(ALIGN, 16), "--opset", 23, "--target", "ort", env=NONE)
    assert onnx.load(out).opset_import[0].version == 23 and "ORT_DYLIB_PATH" in found["tried"]["untried"]
    _, found = optimized(parsed(ALIGN, 16), "--opset", 23, env=NONE)
    assert "tried" not in found


def test_what_no_conversion_can_give_is_refused(parsed, forge, tmp_path):
    """A function of opset 22 takes the graph there, where its own operator has no kernel."""
    helper = onnx.helper
    model = onnx.load(parsed(ALIGN, 16))
    node = helper.make_node("Twice", ["y0"], ["y"], domain="local")
    model.graph.node[0].output[0] = "y0"
    model.graph.node.append(node)
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    model.functions.append(helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 22)]))
    model.opset_import.append(helper.make_opsetid("local", 1))
    path = tmp_path / "mixed.onnx"
    onnx.save(model, path)
    done = forge("optimize", path, "-o", tmp_path / "out.onnx", "--opset", 23, "--target", "ort", env=RUNTIME)
    if loads(path) is None:
        assert "not tried in ONNX Runtime" in done.good().out
    else:
        done.refused(path, "no opset from 22 to 23", "RoiAlign of opset 22")
        assert not (tmp_path / "out.onnx").exists()
