"""Packages of Core ML: coremltools loads what was written, infers the same types, and computes what ONNX Runtime does."""

import json

import coremltools as ct
import numpy as np
import onnx
import onnxruntime
import oracle
import pytest
from conftest import ROOT, forge

#: The largest difference in float32, as a share of the largest magnitude.
BOUND = 1e-5
#: The same in float16: what the command accepts, too.
HALF = 64 / 2048
SIZES = [{"batch": 1, "seq": 7, "sequence": 7}, {"batch": 3, "seq": 12, "sequence": 12}]
MODELS = ["examples/small_cnn.onnx", "examples/tiny_bert.onnx", "examples/tiny_llama.onnx", "tests/data/small_cnn.dynamo.onnx"]


@pytest.mark.parametrize("sizes", SIZES, ids=["small", "larger"])
@pytest.mark.parametrize("model", MODELS)
def test_computes_what_onnx_runtime_does(converted, model, sizes):
    out, report = converted(ROOT / model, "--precision", "float32")
    assert report["comparison"]["verdict"] in ("identical", "rounding") and report["refused"] == []
    apart = oracle.differences(ROOT / model, out, oracle.made_up(ROOT / model, sizes))
    assert apart and max(apart.values()) <= BOUND, apart


@pytest.mark.parametrize("model", MODELS)
def test_float16(converted, model, tmp_path):
    out, report = converted(ROOT / model)
    assert any("float16" in note for note in report["summary"]["notes"])
    feed = oracle.made_up(ROOT / model, SIZES[0])
    apart = oracle.differences(ROOT / model, out, feed)
    assert max(apart.values()) <= HALF, apart
    # The native engine runs the package in float16, too: coremltools is no further off than that.
    np.savez(tmp_path / "in.npz", **feed)
    done = forge("run", out, "--inputs", tmp_path / "in.npz", "-o", tmp_path / "native.npz")
    assert done.returncode == 0, done.stderr
    native = np.load(tmp_path / "native.npz")
    session = onnxruntime.InferenceSession(str(ROOT / model), providers=["CPUExecutionProvider"])
    for port, expected in zip(session.get_outputs(), session.run(None, feed)):
        own = np.abs(native[port.name] - expected).max() / np.abs(expected).max()
        assert apart[port.name] <= 4 * own + 4 / 2048, (port.name, apart, own)
    wide, _ = converted(ROOT / model, "--precision", "float32", name="wide.mlpackage")
    weights = [path / "Data/com.apple.CoreML/weights/weight.bin" for path in (out, wide)]
    assert weights[0].stat().st_size < 0.8 * weights[1].stat().st_size


@pytest.mark.parametrize("ios", [15, 16, 17, 18])
def test_versions(converted, ios):
    model = ROOT / "examples/tiny_bert.onnx"
    out, _ = converted(model, "--ios", ios, "--precision", "float32")
    assert ct.models.MLModel(str(out), skip_model_load=True).get_spec().specificationVersion == ios - 9
    assert max(oracle.differences(model, out, oracle.made_up(model, SIZES[0])).values()) <= BOUND


def test_the_same_bytes_each_time(converted):
    def files(folder):
        return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    first, second = (files(converted(ROOT / "examples/tiny_bert.onnx", name=name)[0]) for name in ("a.mlpackage", "b.mlpackage"))
    assert first == second and len(first) == 3


def test_names_types_and_scalars(converted, tmp_path):
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    integer, flag, number = onnx.TensorProto.INT64, onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT
    nodes = [node("Cast", ["mask"], ["a"], to=integer), node("Add", ["0.x", "a"], ["b"]), node("Neg", ["b"], ["y:0"]), node("Not", ["mask"], ["z"]), node("Neg", ["s"], ["t"])]
    inputs = [value("0.x", integer, [2]), value("mask", flag, [2]), value("s", number, [])]
    outputs = [value("y:0", integer, [2]), value("z", flag, [2]), value("t", number, [])]
    model = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), model)
    out, report = converted(model, "--precision", "float32")
    feed = {"0.x": np.array([3, -4]), "mask": np.array([True, False]), "s": np.array(1.5, np.float32)}
    assert max(oracle.differences(model, out, feed).values()) == 0
    notes = report["summary"]["notes"]
    assert "0.x is called _0_x and is int32 instead of int64" in notes and "y:0 is called y_0 and is int32 instead of int64" in notes, notes


def test_shapes_that_inputs_may_have(converted):
    model = ROOT / "examples/tiny_bert.onnx"
    out, _ = converted(model, "--range", "batch=1..4", "--range", "sequence=2..64")
    spec = ct.models.MLModel(str(out), skip_model_load=True).get_spec()
    ranges = spec.description.input[0].type.multiArrayType.shapeRange.sizeRanges
    assert [(size.lowerBound, size.upperBound) for size in ranges] == [(1, 4), (2, 64)]
    names = [port.name for port in spec.description.input]
    listed = [arg for name in names for arg in ("--shapes", f"{name}=1,8;1,16")]
    out, _ = converted(model, *listed, name="listed.mlpackage")
    array = ct.models.MLModel(str(out), skip_model_load=True).get_spec().description.input[0].type.multiArrayType
    assert [list(shape.shape) for shape in array.enumeratedShapes.shapes] == [[1, 8], [1, 16]]


def test_images(converted, parsed):
    model = parsed("g (float[1,3,4,4] x) => (float[1,3,4,4] y) { y = Relu(x) }")
    out, report = converted(model, "--image", "x=0.5,-1,-2,-3", "--precision", "float32", "--author", "me", "--license", "MIT")
    assert report["comparison"]["verdict"] in ("identical", "rounding")
    spec = ct.models.MLModel(str(out), skip_model_load=True).get_spec()
    assert spec.description.input[0].type.imageType.width == 4 and spec.description.metadata.author == "me"
    pixels = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    wanted = np.maximum(pixels * 0.5 + np.array([-1, -2, -3]).reshape(1, 3, 1, 1), 0)
    assert np.abs(oracle.run(out, {"x": pixels})["y"] - wanted).max() < 1e-5


QUANTIZED = {
    "a byte for each channel": ('uint8[2,2,1,1] q = {1, 200, 30, 4}, float[2] s = {0.5, 0.25}, uint8[2] z = {3, 128}', "w = DequantizeLinear<axis=0>(q, s, z)"),
    "a signed byte for all": ("int8[2,2,1,1] q = {1, -100, 30, 4}, float s = {0.5}, int8 z = {3}", "w = DequantizeLinear(q, s, z)"),
}


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("ios", [15, 16, 18])
def test_quantized_weights(converted, parsed, name, ios):
    stored, node = QUANTIZED[name]
    model = parsed(f"g (float[1,2,4,4] x) => (float[1,2,4,4] y) <{stored}> {{ {node}  y = Conv(x, w) }}")
    out, report = converted(model, "--ios", ios, "--precision", "float32")
    assert ("constexpr_affine_dequantize" in report["summary"]["operators"]) == (ios > 15)
    assert max(oracle.differences(model, out, oracle.made_up(model, {})).values()) <= BOUND


def test_weights_in_blocks(converted, parsed):
    numbers = ", ".join(str(n % 8) for n in range(64))
    stored = f"int8[8,8] q = {{{numbers}}}, float[2,8] s = {{{', '.join(str(0.25 + n / 8) for n in range(16))}}}"
    model = parsed(f"g (float[3,8] x) => (float[3,8] y) <{stored}> {{ w = DequantizeLinear<axis=0, block_size=4>(q, s)  y = MatMul(x, w) }}")
    out, report = converted(model, "--ios", 18, "--precision", "float32")
    assert report["summary"]["operators"]["constexpr_blockwise_shift_scale"] == 1
    assert max(oracle.differences(model, out, oracle.made_up(model, {})).values()) <= BOUND
    refused = forge("convert", model, "-o", out.with_name("old.mlpackage"), "--json", "-")
    assert refused.returncode == 1 and json.loads(refused.stdout)["refused"][0]["hint"] == "--ios 18"


def test_quantized_activations(converted, parsed):
    model = parsed("g (float[2,3] x) => (float[2,3] y) <float s = {0.05}, uint8 z = {128}> { q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = Neg(d) }")
    out, report = converted(model, "--precision", "float32")
    assert report["summary"]["operators"]["quantize"] == 1
    assert max(oracle.differences(model, out, oracle.made_up(model, {})).values()) <= BOUND


def test_what_has_no_place_is_listed_and_nothing_is_written(parsed, tmp_path):
    model = parsed("g (float[N,3,3] x) => (float[N] y, double[N,3,3] z) { y = Det(x)  z = Cast<to=11>(x) }")
    out = tmp_path / "out.mlpackage"
    answer = forge("convert", model, "-o", out, "--json", "-")
    assert answer.returncode == 1 and not out.exists()
    # The operators, and the output of a type that the format lacks.
    assert [refusal["operator"] for refusal in json.loads(answer.stdout)["refused"]] == ["Det", "Cast", "output"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_commands_take_packages(converted, tmp_path):
    model = ROOT / "examples/small_cnn.onnx"
    out, _ = converted(model, "--precision", "float32")
    for command in (["verify", model, out, "--engine", "native"], ["inspect", out], ["run", out, "-o", tmp_path / "out.npz"]):
        done = forge(*command)
        assert done.returncode == 0, (command, done.stderr)


def test_options_of_another_format(tmp_path):
    answer = forge("convert", ROOT / "examples/small_cnn.onnx", "-o", tmp_path / "out.tflite", "--ios", "17")
    assert answer.returncode == 2 and "--ios is for packages of Core ML" in answer.stderr
