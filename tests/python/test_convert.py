"""Models as files of TensorFlow Lite: LiteRT runs what was written, and computes what ONNX Runtime does."""

import json
import sys

import litert
import onnx
import pytest
from conftest import ROOT

#: Where LiteRT and ONNX Runtime are found.
WITH = {"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": ""}


def differences(model, converted, sizes):
    """How far LiteRT is from ONNX Runtime, for each output."""
    theirs = litert.session(model)
    inputs = litert.sample(theirs, sizes)
    expected, found = litert.results(theirs, inputs), litert.run(converted, inputs)
    assert sorted(found) == sorted(expected)
    return {name: litert.apart(found[name], array) for name, array in expected.items()}


@pytest.fixture
def converted(forge, tmp_path):
    def convert(model, *args):
        out = tmp_path / "out.tflite"
        report = json.loads(forge("convert", model, "-o", out, *args, "--json", "-", env=WITH).good().out)
        return out, report

    return convert


@pytest.mark.parametrize("sizes", litert.SIZES, ids=["small", "larger"])
@pytest.mark.parametrize(
    "model",
    ["examples/small_cnn.onnx", "examples/tiny_bert.onnx", "examples/tiny_llama.onnx", "tests/data/small_cnn.dynamo.onnx"],
)
def test_litert_computes_what_onnx_runtime_does(converted, model, sizes):
    out, report = converted(ROOT / model)
    assert report["comparison"]["verdict"] in ("identical", "rounding") and report["refused"] == []
    found = differences(ROOT / model, out, sizes)
    assert found and max(found.values()) <= litert.BOUND, found


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
    found = differences(model, out, litert.SIZES[0])
    assert 0 < max(found.values()) < 1e-2


def test_images_with_channels_last(converted):
    model = ROOT / "examples/small_cnn.onnx"
    out, report = converted(model, "--layout", "nhwc")
    turned = report["summary"]["channels_last"]["inputs"]
    assert report["summary"]["transposes"] == 0 and len(turned) == 1
    theirs = litert.session(model)
    inputs = litert.sample(theirs, litert.SIZES[0])
    found = litert.run(out, {name: array.transpose(0, 2, 3, 1) if name in turned else array for name, array in inputs.items()})
    assert litert.furthest(found, litert.results(theirs, inputs)) <= litert.BOUND


def test_quantized_models_compute_in_integers(converted, tmp_path):
    target = tmp_path / "quantized.onnx"
    litert.quantize(ROOT / "examples/small_cnn.onnx", target)
    out, report = converted(target)
    summary = report["summary"]
    assert summary.get("floats", []) == [] and summary["operators"]["CONV_2D"] >= 1
    assert summary["operators"].get("QUANTIZE", 0) <= 2
    found = differences(target, out, litert.SIZES[0])
    assert max(found.values()) <= 0.02, found


def test_the_result_runs_in_litert(converted):
    _, report = converted(ROOT / "examples/tiny_bert.onnx", "--litert")
    assert report["litert"]["apart"] <= litert.BOUND


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
