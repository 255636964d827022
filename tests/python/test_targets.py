"""Targets, and what ONNX Runtime makes of their models."""

import json
import sys

import native
import numpy as np
import onnx
import pytest
from corpus import ROOT
from test_optimize import report

EXAMPLES = sorted((ROOT / "examples").glob("*.onnx"))
TARGETS = ["portable", "ort", "tflite", "coreml"]
# What converters of these targets do not know.
UNKNOWN = {
    "tflite": {"LayerNormalization", "RMSNormalization", "Gelu", "RotaryEmbedding", "Attention"},
    "coreml": {"RMSNormalization", "RotaryEmbedding", "Attention"},
}


@pytest.fixture
def with_runtime(forge):
    """Runs a command that finds the ONNX Runtime of this interpreter."""

    def run(*args, **environment):
        environment = {"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": "", **environment}
        return forge(*args, env=environment)

    return run


@pytest.mark.parametrize("opset", ["keep", "23"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", EXAMPLES, ids=lambda path: path.stem)
def test_a_target_computes_the_same_with_its_operators(forge, model, target, opset, tmp_path):
    out = tmp_path / "out.onnx"
    report(forge, model, out, "--target", target, "--opset", opset)
    message = onnx.load(out)
    domains = {node.domain for node in message.graph.node}
    imported = {entry.domain for entry in message.opset_import}
    assert domains <= imported
    assert domains == {""} or target == "ort"
    had = {node.op_type for node in onnx.load(model).graph.node}
    assert not ({node.op_type for node in message.graph.node} - had) & UNKNOWN.get(target, set())
    before, after = native.session(model), native.session(out)
    _, inputs, _ = native.run_ours(forge.binary, model, tmp_path)
    expected = before.run(None, native.feeds_of(before, inputs))
    actual = after.run(None, native.feeds_of(after, inputs))
    for x, y in zip(expected, actual, strict=True):
        assert native.relative_error(y, x) <= 1e-5


def test_decomposed_where_the_target_wants_it(forge, tmp_path):
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 4])
    scale = onnx.numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32), "scale")
    node = onnx.helper.make_node("LayerNormalization", ["x", "scale"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x], [y], [scale])
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), model)
    for target, stays in [("portable", True), ("ort", True), ("coreml", True), ("tflite", False)]:
        report(forge, model, out, "--target", target)
        assert ("LayerNormalization" in {node.op_type for node in onnx.load(out).graph.node}) == stays


def test_passes_of_targets_are_listed_and_can_be_asked_for(forge, tmp_path):
    listed = {entry["name"]: entry for entry in json.loads(forge("passes", "--json", "-").good().out)}
    assert listed["ort_conv_activation"]["targets"] == ["ort"]
    assert listed["decompose_layernorm"]["targets"] == ["tflite", "tflite-file"]
    assert listed["fuse_attention"]["targets"] == ["portable", "ort"]
    assert listed["fold_constants"]["targets"] == []
    asked = "fuse_conv_batchnorm,ort_conv_activation"
    found = report(forge, ROOT / "examples/small_cnn.onnx", tmp_path / "out.onnx", "--passes", asked)
    assert [entry["edits"] > 0 for entry in found["passes"]] == [True, True]


def test_forms_of_conv_and_relu(with_runtime, tmp_path):
    """What docs/targets.md says of each form."""
    out = tmp_path / "out.onnx"
    with_runtime("optimize", ROOT / "examples/small_cnn.onnx", "-o", out).good()
    found = json.loads(with_runtime("study", "lab", "forms", out, "--json", "-").good().out)
    assert found["pairs"] == 5
    forms = {each["form"]: each for each in found["forms"]}
    invalid = {"A", "B", "D, converter"}
    for name, form in forms.items():
        assert (form["invalid"] is not None) == (form["refused"] is not None) == (name in invalid), form
        if name not in invalid:
            assert form["verdict"] == "identical" and form["difference"] == 0 and form["run_nodes"] == 10
    assert forms.keys() == invalid | {"C", "D, runtime", "E", "F"} and forms["E"]["nodes"] == 10
    # A model without such a pair is no error.
    assert json.loads(with_runtime("study", "lab", "forms", ROOT / "examples/tiny_bert.onnx", "--json", "-").good().out)["forms"] == []


def test_three_products_against_one(with_runtime, tmp_path):
    out = tmp_path / "out.onnx"
    passes = ",".join(entry["name"] for entry in json.loads(with_runtime("passes", "--json", "-").good().out)
                      if not entry["targets"] and not entry["name"].startswith("ort_"))  # fmt: skip
    with_runtime("optimize", ROOT / "examples/tiny_bert.onnx", "-o", out, "--passes", passes).good()
    found = json.loads(with_runtime("study", "lab", "products", out, "--seconds", 0.2, "--json", "-").good().out)
    [size] = found["sizes"]
    assert size["count"] == 2 and len(set(size["widths"])) == 1 and found["verdict"] in ("identical", "rounding")
    assert [row["rows"] for row in found["rows"]] == [1, 16, 128] and all(row["three"] > 0 and row["one"] > 0 for row in found["rows"])


def test_unknown_target(forge, tmp_path):
    done = forge("optimize", EXAMPLES[0], "-o", tmp_path / "out.onnx", "--target", "tpu")
    assert done.code == 2 and "portable, ort, tflite, coreml" in done.err


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda path: path.stem)
def test_onnx_runtime_runs_no_more_nodes_than_for_the_original(with_runtime, model, tmp_path):
    outs = []
    for target in ("portable", "ort"):
        for opset in ("keep", "23"):
            outs.append(tmp_path / f"{target}-{opset}.onnx")
            with_runtime("optimize", model, "-o", outs[-1], "--target", target, "--opset", opset).good()
    done = with_runtime("census", model, *outs, "--json", "-").good()
    found = json.loads(done.out)
    assert found["level"] == "extended"
    assert all(entry["run_nodes"] == sum(entry["run"].values()) for entry in found["models"])


def test_census_says_what_onnx_runtime_recovers(with_runtime, tmp_path):
    model = ROOT / "examples/small_cnn.onnx"
    done = with_runtime("census", model).good()
    assert "recovers 5 com.microsoft.FusedConv" in done.out
    out = tmp_path / "out.onnx"
    with_runtime("optimize", model, "-o", out, "--target", "ort").good()
    assert "recovers nothing" in with_runtime("census", out).good().out
    # A model for which it runs more nodes than for the first.
    larger = with_runtime("census", model, ROOT / "examples/tiny_bert.onnx")
    assert larger.code == 1


def test_census_of_what_onnx_runtime_refuses(with_runtime, tmp_path):
    node = onnx.helper.make_node("Nothing", ["x"], ["y"], domain="nowhere")
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:])
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("nowhere", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "model.onnx")
    done = with_runtime("census", tmp_path / "model.onnx").orderly()
    assert done.code == 2 and "model.onnx: ONNX Runtime refuses it" in done.err


def test_the_doctor_finds_onnx_runtime_or_says_what_to_do(with_runtime, tmp_path):
    import onnxruntime

    found = json.loads(with_runtime("doctor", "--json", "-").good().out)
    assert found["runtime"]["version"] == onnxruntime.__version__
    assert found["runtime"]["source"] == "python"
    named = json.loads(with_runtime("doctor", "--json", "-", ORT_DYLIB_PATH=found["runtime"]["file"]).good().out)
    assert named["runtime"]["source"] == "variable"
    missing = with_runtime("doctor", ORT_DYLIB_PATH=str(tmp_path / "nothing.so")).good()
    assert "ORT_DYLIB_PATH names" in missing.out and "nothing.so" in missing.out and "unset it" in missing.out
    with_runtime("census", EXAMPLES[0], ORT_DYLIB_PATH=str(tmp_path / "nothing.so")).refused("unset it")
    nowhere = with_runtime("census", EXAMPLES[0], VIRTUAL_ENV=str(tmp_path), PATH=str(tmp_path))
    nowhere.refused("pip install onnxruntime")


def test_no_library_of_the_current_folder_is_loaded(with_runtime, forge, tmp_path):
    package = tmp_path / "onnxruntime"
    (package / "capi").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "capi/libonnxruntime.so.9.9.9").write_bytes(b"not a library")
    done = forge("doctor", "--json", "-", cwd=tmp_path, env={"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": ""}).good()
    assert str(tmp_path) not in done.out and json.loads(done.out)["runtime"]


def test_passes_that_undo_each_other_are_refused(forge, tmp_path):
    asked = "fuse_layer_norm,decompose_layernorm"
    forge("optimize", EXAMPLES[0], "-o", tmp_path / "out.onnx", "--passes", asked).refused("ask for one of them")
    both = forge("optimize", EXAMPLES[0], "-o", tmp_path / "out.onnx", "--passes", "fold_constants", "--target", "ort")
    assert both.code == 2 and "--target" in both.err
