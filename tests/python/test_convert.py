"""Models as files of TensorFlow Lite: LiteRT runs what was written, and computes what ONNX Runtime does."""

import json
import sys

import litert
import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from conftest import ROOT

SIZES = [{"batch": 1, "seq": 7}, {"batch": 3, "seq": 12}]
#: The largest difference, as a share of the largest magnitude.
BOUND = 1e-5

#: Where LiteRT and ONNX Runtime are found.
WITH = {"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": ""}


def made_up(session, sizes, seed=0):
    """Inputs of a session, with these sizes of named dimensions."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for port in session.get_inputs():
        shape = [size if isinstance(size, int) else sizes.get(size, 2) for size in port.shape]
        if "int" in port.type:
            kind = np.int64 if "64" in port.type else np.int32
            high = 2 if "mask" in port.name or "type" in port.name else 50
            inputs[port.name] = rng.integers(0, high, shape).astype(kind)
        else:
            inputs[port.name] = rng.standard_normal(shape).astype(np.float32)
    return inputs


def differences(model, converted, sizes):
    """How far LiteRT is from ONNX Runtime, for each output."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    inputs = made_up(session, sizes)
    expected = dict(zip([port.name for port in session.get_outputs()], session.run(None, inputs)))
    runner = Interpreter(str(converted), num_threads=1).get_signature_runner("serving_default")
    found = runner(**inputs)
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype), name
        yield name, float(np.abs(found[name] - array).max() / max(np.abs(array).max(), 1e-30))


@pytest.fixture
def converted(forge, tmp_path):
    def convert(model, *args):
        out = tmp_path / "out.tflite"
        report = json.loads(forge("convert", model, "-o", out, *args, "--json", "-", env=WITH).good().out)
        return out, report

    return convert


@pytest.mark.parametrize("sizes", SIZES, ids=["small", "larger"])
@pytest.mark.parametrize(
    "model",
    ["examples/small_cnn.onnx", "examples/tiny_bert.onnx", "examples/tiny_llama.onnx", "tests/data/small_cnn.dynamo.onnx"],
)
def test_litert_computes_what_onnx_runtime_does(converted, model, sizes):
    out, report = converted(ROOT / model)
    assert report["comparison"]["verdict"] in ("identical", "rounding") and report["refused"] == []
    found = dict(differences(str(ROOT / model), out, sizes))
    assert found and max(found.values()) <= BOUND, found


def test_the_same_bytes_each_time(converted):
    first = converted(ROOT / "examples/tiny_bert.onnx")[0].read_bytes()
    assert converted(ROOT / "examples/tiny_bert.onnx")[0].read_bytes() == first


def test_what_has_no_place_is_listed_and_nothing_is_written(forge, tmp_path):
    text, model, out = tmp_path / "m.onnxtxt", tmp_path / "m.onnx", tmp_path / "out.tflite"
    text.write_text('<ir_version: 8, opset_import: ["" : 18]> g (float[N,3,3] x) => (float[N] y, float[N,3,3] z) { y = Det(x)  z = Erf(x) }')
    forge("parse", text, "-o", model).good()
    answer = forge("convert", model, "-o", out, "--json", "-")
    assert answer.code == 1 and not out.exists()
    assert [refusal["operator"] for refusal in json.loads(answer.out)["refused"]] == ["Det", "Erf"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_name_that_says_no_format(forge, tmp_path):
    answer = forge("convert", ROOT / "examples/small_cnn.onnx", "-o", tmp_path / "out.bin")
    assert answer.code == 2 and "must end in .tflite" in answer.err


def test_commands_take_such_files(converted, forge, tmp_path):
    model = ROOT / "examples/small_cnn.onnx"
    out, _ = converted(model)
    forge("verify", model, out, "--engine", "native").good()
    forge("inspect", out).good()
    forge("run", out, "-o", tmp_path / "out.npz").good()


def test_weights_of_16_bits(converted):
    model = ROOT / "examples/tiny_bert.onnx"
    whole, _ = converted(model)
    size = whole.stat().st_size
    out, report = converted(model, "--weights", "float16")
    assert report["comparison"]["verdict"] in ("identical", "rounding") and report["rounded"]["verdict"] != "different"
    assert out.stat().st_size < 0.7 * size
    found = dict(differences(str(model), out, SIZES[0]))
    assert 0 < max(found.values()) < 1e-2


def test_images_with_channels_last(converted):
    model = ROOT / "examples/small_cnn.onnx"
    out, report = converted(model, "--layout", "nhwc")
    turned = report["summary"]["channels_last"]["inputs"]
    assert report["summary"]["transposes"] == 0 and len(turned) == 1
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    inputs = made_up(session, SIZES[0])
    runner = Interpreter(str(out), num_threads=1).get_signature_runner("serving_default")
    found = runner(**{name: array.transpose(0, 2, 3, 1) if name in turned else array for name, array in inputs.items()})
    for port, expected in zip(session.get_outputs(), session.run(None, inputs)):
        assert np.abs(found[port.name] - expected).max() <= BOUND * np.abs(expected).max()


def test_quantized_models_compute_in_integers(converted, tmp_path):
    target = tmp_path / "quantized.onnx"
    litert.quantize(ROOT / "examples/small_cnn.onnx", target)
    out, report = converted(target)
    summary = report["summary"]
    assert summary.get("floats", []) == [] and summary["operators"]["CONV_2D"] >= 1
    assert summary["operators"].get("QUANTIZE", 0) <= 2
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    inputs = made_up(session, SIZES[0])
    found = Interpreter(str(out), num_threads=1).get_signature_runner("serving_default")(**inputs)
    for port, expected in zip(session.get_outputs(), session.run(None, inputs)):
        assert np.abs(found[port.name] - expected).max() <= 0.02 * np.abs(expected).max()


def test_the_result_runs_in_litert(converted):
    _, report = converted(ROOT / "examples/tiny_bert.onnx", "--litert")
    assert report["litert"]["apart"] <= BOUND


def test_bench_measures_files(converted, forge):
    out, _ = converted(ROOT / "examples/small_cnn.onnx")
    report = json.loads(forge("bench", out, out, "--rounds", "3", "--json", "-", env=WITH).good().out)
    assert report["host"] == "LiteRT" and len(report["models"]) == 2
    assert forge("bench", out, ROOT / "examples/small_cnn.onnx", env=WITH).code != 0


def test_a_file_says_where_it_comes_from(converted):
    out, report = converted(ROOT / "tests/data/small_cnn.dynamo.onnx")
    text = out.read_bytes()
    start = text.index(b'{"modules"') if b'{"modules"' in text else text.index(b'{"')
    about = json.JSONDecoder().raw_decode(text[start:].decode("utf-8", "replace"))[0]
    assert about["producer"].startswith("onnxforge") and len(about["source"]) == 32
    assert len(about["operators"]) == sum(report["summary"]["operators"].values())


def test_convolutions_take_few_transposes(converted):
    """The layout of images changes where they come in, and nowhere else."""
    _, report = converted(ROOT / "examples/small_cnn.onnx")
    session = onnx.load(ROOT / "examples/small_cnn.onnx").graph
    assert report["summary"]["transposes"] <= len(session.input) + len(session.output)
