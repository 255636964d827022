"""`onnxforge verify`: rounding is told from error, and what cannot be compared is refused."""

import json
import sys

import numpy as np
import onnx
import pytest
from corpus import ROOT
from onnx import TensorProto, helper, numpy_helper

EXAMPLES = sorted((ROOT / "examples").glob("*.onnx"))
ENGINES = ["native", "ort"]


@pytest.fixture
def verify(forge):
    def run(*args):
        return forge("verify", *args, env={"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": ""})

    return run


def said(done):
    return json.loads(done.out)


def perceptron(path, change=lambda weights: weights, name="y"):
    """A small network; `change` changes its first weights."""
    random = np.random.default_rng(0)
    first, second = (random.standard_normal(shape).astype(np.float32) for shape in ((16, 32), (32, 8)))
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "a"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "b"], [name]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8])],
        [numpy_helper.from_array(change(first), "a"), numpy_helper.from_array(second, "b")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", EXAMPLES, ids=lambda path: path.stem)
def test_a_model_is_itself_and_what_we_make_of_it(verify, forge, model, engine, tmp_path):
    same = said(verify(model, model, "--engine", engine, "--json", "-").good())
    assert same["verdict"] == "identical" and same["engine"] == engine
    out = tmp_path / "out.onnx"
    forge("optimize", model, "-o", out, "--opset", "23").good()
    found = said(verify(model, out, "--engine", engine, "--json", "-").good())
    assert found["verdict"] in ("identical", "rounding") and found["samples"] == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_two_units_in_the_last_place_are_rounding_and_a_millionth_is_not(verify, engine, tmp_path):
    plain = perceptron(tmp_path / "plain.onnx")
    # The products are summed in another order: rounding, as large as that of the model itself.
    order = np.random.default_rng(1).permutation(16)
    model = onnx.load(plain)
    model.graph.node[0].input[0] = "shuffled"
    model.graph.initializer.append(numpy_helper.from_array(order, "order"))
    model.graph.node.insert(0, helper.make_node("Gather", ["x", "order"], ["shuffled"], axis=1))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(model.graph.initializer[0])[order], "a"))
    onnx.save(model, tmp_path / "shuffled.onnx")
    found = said(verify(plain, tmp_path / "shuffled.onnx", "--engine", engine, "--json", "-").good())
    assert found["verdict"] == "rounding" and found["outputs"][0]["difference"]["max_rel"] > 0
    # A factor that is wrong by a millionth is an error, although the results are as close as that.
    wrong = perceptron(tmp_path / "wrong.onnx", lambda weights: weights * np.float32(1 + 4e-6))
    done = verify(plain, wrong, "--engine", engine, "--json", "-")
    assert done.code == 1 and said(done)["verdict"] == "different"
    assert said(done)["outputs"][0]["difference"]["max_rel"] < 1e-5
    # Where the user says what is close enough, that holds.
    assert verify(plain, wrong, "--tolerance", "1e-4").code == 0
    assert verify(plain, wrong, "--tolerance", "1e-7").code == 1


def test_a_sweep_recommends_a_tolerance(verify, forge, tmp_path):
    model, out = ROOT / "examples/tiny_bert.onnx", tmp_path / "out.onnx"
    forge("optimize", model, "-o", out, "--opset", "23").good()
    found = said(verify(model, out, "--sweep", "20", "--json", "-").good())
    sweep = found["sweep"]
    assert len(found["by_sample"]) == 20 and not sweep["all_zero"]
    assert 0 < sweep["min"] <= sweep["mean"] <= sweep["max"] and sweep["recommended_tolerance"] == 10 * sweep["p99"]
    assert said(verify(model, model, "--sweep", "5", "--json", "-").good())["sweep"]["all_zero"]


def test_other_names_of_outputs_go_by_place(verify, tmp_path):
    a, b = perceptron(tmp_path / "a.onnx"), perceptron(tmp_path / "b.onnx", name="z")
    assert said(verify(a, b, "--json", "-").good())["verdict"] == "identical"


def test_given_inputs_and_sizes(verify, tmp_path):
    plain = perceptron(tmp_path / "plain.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((3, 16)))
    assert said(verify(plain, plain, "--inputs", tmp_path / "in.npz", "--json", "-").good())["verdict"] == "identical"
    np.savez(tmp_path / "in.npz", z=np.ones((3, 16)))
    verify(plain, plain, "--inputs", tmp_path / "in.npz").refused("in.npz", "z")
    verify(plain, plain, "--set-dim", "M=3").refused("M")
    verify(plain, plain, "--set-dim", "N=3").good()


def test_what_cannot_be_compared(verify, tmp_path):
    plain = perceptron(tmp_path / "plain.onnx")
    verify(plain, ROOT / "examples/tiny_bert.onnx").refused("outputs")
    verify(plain, tmp_path / "missing.onnx").refused("missing.onnx")
    other = onnx.load(plain)
    other.graph.input[0].name = other.graph.node[0].input[0] = "else"
    onnx.save(other, tmp_path / "other.onnx")
    verify(plain, tmp_path / "other.onnx").refused("else")


@pytest.mark.parametrize("engine", ENGINES)
def test_another_shape_is_different(verify, engine, tmp_path):
    plain = perceptron(tmp_path / "plain.onnx")
    other = onnx.load(plain)
    other.graph.node[2].output[0] = "flat"
    other.graph.node.append(helper.make_node("Transpose", ["flat"], ["y"]))
    other.graph.output[0].type.tensor_type.shape.ClearField("dim")
    other.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, "N"]))
    onnx.save(other, tmp_path / "other.onnx")
    done = verify(plain, tmp_path / "other.onnx", "--engine", engine, "--json", "-")
    assert done.code == 1 and "became" in said(done)["outputs"][0]["mismatch"]


def model_of(path, text, forge):
    (path.parent / "model.onnxtxt").write_text('<ir_version: 10, opset_import: ["" : 21]>\n' + text)
    forge("parse", path.parent / "model.onnxtxt", "-o", path).good()
    return path


def test_sizes_that_depend_on_rounding_excuse_nothing(verify, forge, tmp_path):
    """In 64 bits the third of x times 3 is no x: what the float64 run selects says nothing of the numbers that 32 bits select."""
    text = """g (float[N] x) => (float[M] y) <float third = {0.33333334}, float three = {3}, float f = {%s}>
              { a = Mul(x, third)  b = Mul(a, three)  e = Equal(b, x)  s = Mul(x, f)  y = Compress<axis=0>(s, e) }"""
    right, wrong = (model_of(tmp_path / f"{f}.onnx", text % f, forge) for f in ("1", "1.0001"))
    done = verify(right, wrong, "--set-dim", "N=64", "--json", "-")
    assert done.code == 1 and said(done)["verdict"] == "different"


def test_lost_digits_are_an_error(verify, forge, tmp_path):
    plain = model_of(tmp_path / "plain.onnx", "g (float[N] x) => (float[N] y) { y = Identity(x) }", forge)
    text = "g (float[N] x) => (float[N] y) <float c = {1000000}> { a = Add(x, c)  y = Sub(a, c) }"
    assert verify(plain, model_of(tmp_path / "lossy.onnx", text, forge)).code == 1


def test_a_second_model_that_does_not_run_is_no_fallback(verify, forge, tmp_path):
    text = "g (%s[N,1,4] x) => (%s[N,1,4] y) <%s[1,1,1] w = {2}> { y = Conv(x, w) }"
    single, double = (model_of(tmp_path / f"{t}.onnx", text % (t, t, t), forge) for t in ("float", "double"))
    verify(single, double).refused("second model does not run")
    found = said(verify(double, double, "--json", "-").good())
    assert found["engine"] == "native" and "first model does not run" in found["fallback"]


def test_defaults_need_not_be_given(verify, tmp_path):
    plain = perceptron(tmp_path / "plain.onnx")
    other = onnx.load(plain)
    other.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [32, 8]))
    onnx.save(other, tmp_path / "other.onnx")
    for pair in ((plain, tmp_path / "other.onnx"), (tmp_path / "other.onnx", plain)):
        assert said(verify(*pair, "--json", "-").good())["verdict"] in ("identical", "rounding")


def test_tolerances_are_numbers(verify, tmp_path):
    plain = perceptron(tmp_path / "plain.onnx")
    for text in ("nan", "-1", "much"):
        assert verify(plain, plain, "--tolerance", text).code == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_sizes_that_the_second_model_has_fixed(verify, forge, engine, tmp_path):
    plain = perceptron(tmp_path / "plain.onnx")
    forge("optimize", plain, "-o", tmp_path / "fixed.onnx", "--set-dim", "N=5").good()
    text = verify(plain, tmp_path / "fixed.onnx", "--engine", engine).good().out
    assert "no other sizes were tried than those that the second model has fixed: N=5" in text and "sizes: N=5" in text
    found = said(verify(plain, tmp_path / "fixed.onnx", "--engine", engine, "--json", "-").good())
    assert found["fixed"] == {"N": 5} and found["verdict"] in ("identical", "rounding")
    wrong = perceptron(tmp_path / "wrong.onnx", change=np.negative)
    forge("optimize", wrong, "-o", wrong, "--set-dim", "N=5").good()
    assert verify(plain, wrong, "--engine", engine).code == 1
