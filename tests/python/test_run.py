"""`onnxforge run`: numpy in, numpy out, the same numbers as ONNX Runtime."""

import json

import native
import numpy as np
import onnx
import pytest
import wheels
from conftest import MIB, Limits
from corpus import ROOT

SMALL = ["tiny_bert", "small_cnn", "tiny_llama"]
TYPES = """<ir_version: 10, opset_import: ["" : 21]>
g (float[n] f, int64[n] i, bool[n] b, string[n] s, float16[n] h) => (float[n] f2, int64[n] i2, bool[n] b2, string[n] s2, float16[n] h2) {
  f2 = Identity (f)  i2 = Identity (i)  b2 = Identity (b)  s2 = Identity (s)  h2 = Identity (h)
}
"""


def parsed(text, path):
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("sizes", [("batch=1", "seq=7"), ("batch=3", "seq=2")])
def test_examples_agree_with_onnxruntime(forge, name, sizes):
    path = ROOT / "examples" / f"{name}.onnx"
    named = {dim.dim_param for port in onnx.load(path, load_external_data=False).graph.input
             for dim in port.type.tensor_type.shape.dim if dim.dim_param}  # fmt: skip
    dims = [size for size in sizes if size.split("=")[0] in named]
    assert native.accuracy(forge.binary, path, dims) < 1e-5


@pytest.mark.parametrize("name", [name for name in wheels.INPUTS if "nudenet" not in name and "det" not in name])
def test_trained_models_agree_with_onnxruntime(forge, name, trained):
    assert native.accuracy(forge.binary, trained[name], given=wheels.INPUTS[name]()) < 1e-4


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    folder = ROOT / "target" / "wheels"
    return wheels.fetch(folder)


def test_every_type_goes_through(forge, tmp_path):
    path = parsed(TYPES, tmp_path / "types.onnx")
    given = {
        "f": np.array([1.5, -0.0, np.nan], np.float32), "i": np.array([1, -2, 2**60]), "b": np.array([True, False, True]),
        "s": np.array(["ä", "", "long text"]), "h": np.array([0.5, 1, 65504], np.float16),
    }  # fmt: skip
    np.savez_compressed(tmp_path / "in.npz", **given)
    forge("run", path, "--inputs", tmp_path / "in.npz", "-o", tmp_path / "out.npz").good()
    found = np.load(tmp_path / "out.npz")
    for name, value in given.items():
        assert found[name + "2"].dtype.kind == value.dtype.kind
        np.testing.assert_array_equal(found[name + "2"], value)


def test_the_oracle_computes_in_64_bits(forge, tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[n] x) => (float[n] y) { z = Exp (x)  w = Cast <to = 1> (z)  y = Log (w) }'
    path = parsed(text, tmp_path / "m.onnx")
    x = np.array([0.1, 3.0], np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    forge("run", path, "--inputs", tmp_path / "in.npz", "-o", tmp_path / "out.npz", "--engine", "oracle").good()
    y = np.load(tmp_path / "out.npz")["y"]
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, x.astype(np.float64), rtol=1e-14)


def test_made_up_inputs_depend_on_the_seed_alone(forge, tmp_path):
    path = ROOT / "examples" / "tiny_bert.onnx"
    files = [tmp_path / f"{i}.npz" for i in range(3)]
    for file, seed in zip(files, (1, 1, 2), strict=True):
        forge("run", path, "--save-inputs", file, "--seed", seed).good()
    first, again, other = (dict(np.load(file)) for file in files)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert any(not np.array_equal(first[name], other[name]) for name in first)


def test_any_value_can_be_asked_for(forge, tmp_path):
    path = parsed('<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { z = Neg (x)  y = Abs (z) }',
                  tmp_path / "m.onnx")  # fmt: skip
    report = json.loads(forge("run", path, "--all", "--json", "-").good().out)
    assert [value["name"] for value in report["outputs"]] == ["z", "y"]
    report = json.loads(forge("run", path, "--outputs", "z", "--json", "-").good().out)
    assert [value["name"] for value in report["outputs"]] == ["z"]
    forge("run", path, "--outputs", "q").refused("q")


def test_bad_inputs_are_refused_in_one_line(forge, tmp_path):
    path = parsed(TYPES, tmp_path / "types.onnx")
    np.savez(tmp_path / "wrong.npz", f=np.zeros(2, np.int64))
    forge("run", path, "--inputs", tmp_path / "wrong.npz").refused("f")
    np.savez(tmp_path / "unknown.npz", q=np.zeros(2, np.float32))
    forge("run", path, "--inputs", tmp_path / "unknown.npz", "--set-dim", "n=2").refused("q")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    forge("run", path, "--inputs", tmp_path / "broken.npz").refused("broken.npz")
    forge("run", path, "--inputs", tmp_path / "absent.npz").refused("absent.npz")
    forge("run", path, "--set-dim", "m=2").refused("m")
    np.savez(tmp_path / "pickled.npz", f=np.array([{}], object))
    forge("run", path, "--inputs", tmp_path / "pickled.npz").refused("pickled.npz")


def test_budgets_hold(forge, tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g () => (float y) { s = Constant <value_ints = [1000000, 1000000]> ()  y = ConstantOfShape (s) }"""
    path = parsed(text, tmp_path / "large.onnx")
    forge("run", path).refused("ConstantOfShape", "budget")
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g () => (int64 y) {
      c = Constant <value = bool {1}> ()
      x = Constant <value_int = 0> ()
      y = Loop <body = b (int64 i, bool k, int64 v) => (bool k2, int64 w) { k2 = Identity (k)  w = Add (v, i) }> (, c, x)
    }"""
    path = parsed(text, tmp_path / "endless.onnx")
    forge("run", path, "--timeout", "0.2").refused("endless.onnx", "time budget")


def test_made_up_inputs_keep_to_the_budgets(forge, tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[12000, 10000] a) => (int64[2] y) { y = Shape (a) }'
    path = parsed(text, tmp_path / "wide.onnx")
    limits = Limits(address_space=1024 * MIB)
    forge("run", path, "--memory", "0.01", "--timeout", "1", limits=limits).refused("wide.onnx", "the input a", "memory")
    forge("run", path, "--timeout", "0.1", timeout=20).refused("the input a", "time budget")


def test_shapes_are_compared_with_the_declarations(forge, tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3] a, float[n] b, float[n] c) => (float[n] y) { y = Add (b, c) }'
    path = parsed(text, tmp_path / "m.onnx")

    def run(**shapes):
        np.savez(tmp_path / "in.npz", **{name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
        return forge("run", path, "--inputs", tmp_path / "in.npz")

    run(a=(2, 3), b=4, c=4).good()
    run(a=(2, 3), b=4).good()  # c is synthetic, with the size of b
    run(a=7, b=4, c=4).refused("the input a is [7], declared [2,3]")
    run(a=(2, 3), b=4, c=1).good()  # one name, two sizes: runtimes take that
    run(a=(2, 3), b=4, c=3).refused("Add")


def test_a_given_shape_binds_names(forge, tmp_path):
    path, file = ROOT / "examples" / "tiny_bert.onnx", tmp_path / "in.npz"
    forge("run", path, "--set-shape", "input_ids=2,4", "--save-inputs", file).good()
    inputs = np.load(file)
    assert len(inputs.files) > 1 and all(inputs[name].shape == (2, 4) for name in inputs.files)
    forge("run", path, "--set-shape", "input_ids=2").refused("the input input_ids is [2], declared [")
    forge("run", path, "--set-shape", "input_ids=2,4", "--set-dim", "batch=3").refused("batch is 2 in the shape of input_ids, and set to 3")
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 3] a) => (float[n, 3] y) { y = Neg (a) }'
    path = parsed(text, tmp_path / "m.onnx")
    forge("run", path, "--set-shape", "a=2x4").refused("the input a is [2,4], declared [n,3]")


@pytest.mark.parametrize(
    "argument",
    ["--timeout=-1", "--timeout=nan", "--memory=nan", "--memory=-1", "--repeat=0", "--set-shape=input_ids=2,x",
     "--set-shape=input_ids=", "--set-shape=input_ids=2,,3", "--set-dim=batch=", "--outputs=a,,b", "--outputs="],
)  # fmt: skip
def test_values_of_options_are_checked(forge, argument):
    outcome = forge("run", ROOT / "examples" / "tiny_bert.onnx", argument)
    assert outcome.code == 2 and argument.split("=")[0] in outcome.err, str(outcome)


def test_outputs_are_chosen_by_name(forge, tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] first, float[2] second) { first = Neg (x)  second = Abs (x) }'
    path = parsed(text, tmp_path / "m.onnx")
    forge("run", path, "--outputs", "second,second", "-o", tmp_path / "out.npz").good()
    assert np.load(tmp_path / "out.npz").files == ["second"]
    forge("run", path, "--outputs", "frist").refused("frist", 'did you mean "first"?')
    forge("run", path, "--outputs", "nothing").refused("nothing", "the outputs are first, second")


def test_what_is_not_finite_is_counted(forge, tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[n] x) => (float[n] y) { y = Identity (x) }'
    path = parsed(text, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.array([1, -np.inf, np.nan, np.inf, 3], np.float32))
    report = json.loads(forge("run", path, "--inputs", tmp_path / "in.npz", "--json", "-").good().out)
    (shown,) = report["outputs"]
    assert [shown[key] for key in ("min", "max", "mean", "nan", "inf")] == [1, 3, 2, 1, 2]


@pytest.mark.parametrize("command", ["run", "infer"])
def test_newer_operator_sets_are_warned_of(forge, tmp_path, command):
    text = '<ir_version: 10, opset_import: ["" : 99]> g (float[2] x) => (float[2] y) { y = Neg (x) }'
    path = parsed(text, tmp_path / "m.onnx")
    warned = forge(command, path).good().err.strip().splitlines()
    assert len(warned) == 1 and "opset 99 of ai.onnx is newer than" in warned[0], warned
    assert forge(command, path, "-q").good().err == ""


def test_an_array_that_cannot_be_written_is_named(forge, tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x) => (seq(float[2]) s, float[2] y) { s = SequenceConstruct (x)  y = Neg (x) }"""
    model = onnx.parser.parse_model(text)
    model.graph.node[1].output[0] = model.graph.output[1].name = "s.0"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    forge("run", path, "-o", tmp_path / "out.npz").refused("the array s.0 cannot be written")
