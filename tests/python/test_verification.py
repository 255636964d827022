"""`onnxforge optimize` checks what it does; `verify --blocks` and `reduce`."""

import json
import sys

import numpy as np
import onnx
import pytest
from corpus import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.onnx"))
BERT = ROOT / "examples" / "tiny_bert.onnx"
WITH = {"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": ""}
WITHOUT = {"VIRTUAL_ENV": "", "CONDA_PREFIX": "", "ORT_DYLIB_PATH": "/nowhere/libonnxruntime.so"}


def report(forge, *args, env=WITH):
    return json.loads(forge("optimize", *args, "--json", "-", env=env).good().out)


def parsed(forge, tmp_path, text, opset=21):
    source, model = tmp_path / "model.onnxtxt", tmp_path / "model.onnx"
    source.write_text(f'<ir_version: 10, opset_import: ["" : {opset}, "com.example" : 1]>\n{text}')
    forge("parse", source, "-o", model).good()
    return model


@pytest.mark.parametrize("engine, env", [("auto", WITH), ("auto", WITHOUT), ("ort", WITH)], ids=["found", "missing", "asked"])
@pytest.mark.parametrize("model", EXAMPLES, ids=lambda path: path.stem)
def test_every_edit_and_the_whole_are_checked(forge, model, engine, env, tmp_path):
    found = report(forge, model, "-o", tmp_path / "out.onnx", "--opset", 23, "--engine", engine, env=env)
    proof, edits = found["verification"], sum(entry["edits"] for entry in found["passes"])
    unchecked = sum(proof["local"]["unchecked"].values())
    assert proof["local"]["checked"] + unchecked == edits and unchecked <= edits // 10
    assert proof["reverted"] == [] and proof["unverified"] is None and found["reproducers"] == []
    assert proof["global"]["verdict"] in ("identical", "rounding") and proof["global"]["inside"] > 0
    assert proof["global"]["engine"] == ("native" if engine == "auto" else "ort") and proof["global"]["samples"] == 2
    assert (proof["loaded_by"] is not None) == (engine == "auto" and env is WITH)


def test_the_user_decides_when_and_with_what(forge, tmp_path):
    out = tmp_path / "out.onnx"
    off = report(forge, BERT, "-o", out, "--verify", "off")
    assert off["verification"]["global"] is None and off["verification"]["local"]["checked"] == 0
    each = report(forge, BERT, "-o", out, "--verify", "each", "--samples", 1, "--engine", "native")
    assert each["verification"]["global"]["samples"] == 1 and each["after"] == off["after"]
    ids = tmp_path / "in.npz"
    names = [port.name for port in onnx.load(BERT).graph.input]
    np.savez(ids, **{name: np.ones((2, 3), np.int64) for name in names})
    report(forge, BERT, "-o", out, "--inputs", ids)
    np.savez(ids, nothing=np.ones(1))
    forge("optimize", BERT, "-o", out, "--inputs", ids).refused("nothing")
    forge("optimize", BERT, "-o", out, "--engine", "ort", env=WITHOUT).refused("ORT_DYLIB_PATH")


def test_the_command_says_what_was_checked(forge, tmp_path):
    import onnxruntime

    shown = forge("optimize", BERT, "-o", tmp_path / "out.onnx", env=WITH).good().out
    assert "edits checked where they happened" in shown and "engine native" in shown and "values inside" in shown
    assert f"ONNX Runtime {onnxruntime.__version__} loads the result" in shown
    shown = forge("optimize", BERT, "-o", tmp_path / "out.onnx", env=WITHOUT).good().out
    assert "engine native" in shown and "ONNX Runtime" not in shown


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda path: path.stem)
def test_exact_results_have_the_same_bits(forge, model, tmp_path):
    import onnxruntime

    out, trace = tmp_path / "out.onnx", tmp_path / "trace.jsonl"
    found = report(forge, model, "-o", out, "--accuracy", "exact", "--opset", 23, "--trace", trace)
    assert found["accuracy"] == "exact" and found["verification"]["reverted"] == []
    assert found["verification"]["global"]["verdict"] == "identical"
    assert {json.loads(line)["class"] for line in trace.read_text().splitlines()} <= {"bit-exact"}
    rounded = report(forge, model, "-o", tmp_path / "rounded.onnx", "--opset", 23)
    assert rounded["accuracy"] == "default" and rounded["after"]["nodes"] < found["after"]["nodes"]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    sessions = [onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for path in (model, out)]
    random = np.random.default_rng(0)
    inputs = {}
    for port in sessions[0].get_inputs():
        shape = [size if isinstance(size, int) else 5 for size in port.shape]
        is_float = port.type == "tensor(float)"
        inputs[port.name] = random.standard_normal(shape).astype(np.float32) if is_float else np.ones(shape, np.int64)
    before, after = (session.run(None, inputs) for session in sessions)
    assert [result.tobytes() for result in before] == [result.tobytes() for result in after]


def test_what_cannot_be_compared_is_said_and_no_failure(forge, tmp_path):
    random = parsed(forge, tmp_path, "g (float[2] x) => (float[2] y) { i = Identity(x)  r = RandomNormalLike(i)  y = Add(i, r) }")
    found = report(forge, random, "-o", tmp_path / "out.onnx")
    assert found["verification"]["unverified"] is None and found["after"]["nodes"] == 2
    assert found["verification"]["global"]["verdict"] == "identical"
    custom = parsed(forge, tmp_path, "g (float[2] x) => (float[2] y) { i = Identity(x)  y = com.example.Own(i) }")
    found = report(forge, custom, "-o", tmp_path / "out.onnx")
    assert "Own" in found["verification"]["unverified"] and found["verification"]["local"]["checked"] == 1
    done = forge("optimize", custom, "-o", tmp_path / "out.onnx", "--require-verified", env=WITH)
    assert done.code == 1 and "--verify-dim" in done.out


@pytest.mark.parametrize("engine", ["native", "ort"])
def test_models_are_compared_block_by_block(forge, engine, tmp_path):
    out = tmp_path / "out.onnx"
    forge("optimize", BERT, "-o", out).good()
    arguments = ["--blocks", "--engine", engine, "--json", "-"]
    found = json.loads(forge("verify", BERT, out, *arguments, env=WITH).good().out)
    assert found["by_blocks"] and found["inside"] > 20 and found["verdict"] in ("identical", "rounding")
    message = onnx.load(out)
    weights = max(message.graph.initializer, key=lambda tensor: np.prod(tensor.dims, dtype=np.int64))
    array = onnx.numpy_helper.to_array(weights).copy()
    array.reshape(-1)[:] *= np.float32(1.01)
    weights.CopyFrom(onnx.numpy_helper.from_array(array, weights.name))
    onnx.save(message, out)
    done = forge("verify", BERT, out, *arguments, env=WITH)
    found = json.loads(done.out)
    assert done.code == 1
    [*users] = [node.output[0] for node in message.graph.node if weights.name in node.input]
    assert found["verdict"] == "different" and found["first_difference"]["name"] in users


def test_a_failure_is_reduced_to_what_shows_it(forge, tmp_path):
    out = tmp_path / "small.onnx"
    script = tmp_path / "fails.py"
    script.write_text(
        "import onnx, sys\n"
        "ops = [node.op_type for node in onnx.load(sys.argv[1]).graph.node]\n"
        "if 'Softmax' in ops and 'Erf' in ops: sys.exit('both are there')\n"
        "if not ops: sys.exit('nothing is there')\n"
    )
    command = f"{sys.executable} {script} {{}}"
    found = json.loads(
        forge("reduce", BERT, "-o", out, "--command", command, "--expect", "both", "--json", "-").good().out
    )
    assert found["is_minimal"] and found["nodes"] == 2
    assert sorted(node.op_type for node in onnx.load(out).graph.node) == ["Erf", "Softmax"]
    onnx.checker.check_model(onnx.load(out))
    forge("reduce", BERT, "-o", out, "--command", "true {}").refused("does not fail")
    forge("reduce", BERT, "-o", out).refused("nothing wrong")


QUANTIZED = """g (float[N,2,8,8] x) => (float[N,4,8,8] y)
<float[4,2,1,1] w = {1, -2, 3, 0.5, 0.25, 1.5, -1, 2}, float[4] s = {1.1, 0.9, 1.3, 0.7}, float[4] o = {0.1, 0.2, 0.3, 0.4},
 float[4] m = {0.5, 0.4, 0.3, 0.2}, float[4] v = {1.2, 0.8, 1.1, 0.9}, float step = {0.05}, int8 zero = {0}>
{ c = Conv(x, w)  b = BatchNormalization(c, s, o, m, v)  q = QuantizeLinear(b, step, zero)  y = DequantizeLinear(q, step, zero) }"""
CAPTURING = """g (bool c, float[N,4] x) => (float[N,4] y)
{ m = Exp(x)  y = If(c) <then_branch = t () => (float[N,4] y1) { t1 = Mul(m, m)  t2 = Mul(m, m)  y1 = Sub(t1, t2) },
                         else_branch = e () => (float[N,4] y2) { y2 = Exp(m) }> }"""
PASSING = "g (float[N,4] x, float[N,4] w) => (float[N,4] w, float[N,4] y) { a = Relu(x)  y = Relu(a) }"
DROPPING = "g (float[N,4] x) => (float[N,4] y) { a = Dropout(x)  y = Relu(a) }"
FOLDED = "g (float[N,S] x) => (float[N,T,4] y) <int64[3] k = {0, -1, 4}> { i = Identity(x)  y = Reshape(i, k) }"


@pytest.mark.parametrize("engine", ["native", "ort"])
@pytest.mark.parametrize("text", [QUANTIZED, CAPTURING, PASSING, DROPPING, FOLDED], ids=["quantized", "body", "input", "dropout", "sizes"])
def test_what_is_right_raises_no_alarm(forge, text, engine, tmp_path):
    """Steps behind roundings, bodies that read what is around them, an output that is an input, Dropout at rest, sizes that must fit."""
    model = parsed(forge, tmp_path, text)
    for seed in range(4):
        found = report(forge, model, "-o", tmp_path / "out.onnx", "--engine", engine, "--seed", seed)
        proof, edits = found["verification"], sum(entry["edits"] for entry in found["passes"])
        assert proof["reverted"] == [] and proof["unverified"] is None and edits == proof["local"]["checked"] > 0
        assert proof["global"]["verdict"] in ("identical", "rounding") and proof["global"]["engine"] == engine


def test_a_conversion_alone_is_compared_too(forge, tmp_path):
    model = parsed(forge, tmp_path, "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }", opset=17)
    found = report(forge, model, "-o", tmp_path / "out.onnx", "--opset", 23)
    assert found["verification"]["global"]["verdict"] == "identical"
    latest = report(forge, model, "-o", tmp_path / "out.onnx", "--opset", "latest")
    assert latest["verification"]["global"]["verdict"] == "identical"


def test_commands_that_cannot_show_anything_are_refused(forge, tmp_path):
    out = tmp_path / "out.onnx"
    forge("reduce", BERT, "-o", out, "--command", "false").refused("{}")
    forge("reduce", BERT, "-o", out, "--command", "no_such_command {}").refused("no_such_command")


def test_an_output_that_became_a_constant_is_compared_in_blocks(forge, tmp_path):
    models = []
    for name, body in (("a", "<float[2] k = {1, 2}> { y = Add(k, k)  z = Relu(x) }"), ("b", "<float[2] y = {9, 9}> { z = Relu(x) }")):
        folder = tmp_path / name
        folder.mkdir()
        models.append(parsed(forge, folder, "g (float[2] x) => (float[2] y, float[2] z) " + body))
    done = forge("verify", *models, "--blocks", "--engine", "native", "--json", "-")
    assert done.code == 1 and json.loads(done.out)["first_difference"]["name"] == "y"


def test_a_default_that_is_given_counts(forge, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    models = [
        parsed(forge, first, "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {2, 2}> { y = Mul(x, w) }"),
        parsed(forge, second, "g (float[2] x) => (float[2] y) <float[2] w = {2, 2}> { y = Mul(x, w) }"),
    ]
    given = tmp_path / "in.npz"
    np.savez(given, w=np.full(2, 5, np.float32))
    forge("verify", *models, "--engine", "native").good()
    assert forge("verify", *models, "--engine", "native", "--inputs", given).code == 1


def test_inputs_of_another_shape_are_refused(forge, tmp_path):
    np.savez(tmp_path / "in.npz", input_ids=np.ones((2, 3, 4), np.int64))
    forge("optimize", BERT, "-o", tmp_path / "out.onnx", "--inputs", tmp_path / "in.npz").refused("in.npz", "[2,3,4]")


def test_reduce_does_not_overwrite_what_it_reduces(forge, tmp_path):
    model = tmp_path / "model.onnx"
    model.write_bytes(BERT.read_bytes())
    forge("reduce", model, "-o", model, "--command", "false {}").refused("would overwrite the input")
