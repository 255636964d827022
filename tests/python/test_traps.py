"""Models on which optimizers are known to go wrong: the whole pipeline keeps what they compute."""

from collections import Counter

import onnx
import pytest
from test_optimize import assert_equal, report

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
WEIGHTS = "float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}"

# What the trap is, the graph, and how many nodes of each operator must be left.
TRAPS = {
    "a factor along the width, as long as there are channels": (
        f"g (float[N,2,3,3] x) => (float[N,3,3,3] y) <{WEIGHTS}, float[3] s = {{1, 2, 3}}> {{ a = Conv(x, w)  y = Mul(a, s) }}",
        {"Conv": 1, "Mul": 1},
    ),
    "a factor behind a Conv whose weights are computed": (
        "g (float[N,2,3,3] x, float[3,2,1,1] w) => (float[N,3,3,3] y) <float[3,1,1] s = {1, 2, 3}> { a = Conv(x, w)  y = Mul(a, s) }",
        {"Conv": 1, "Mul": 1},
    ),
    "a factor behind a Gemm that something else reads": (
        "g (float[N,2] x) => (float[N,2] y, float[N,2] z) <float[2,2] w = {1, 2, 3, 4}, float s = {3}> {"
        " a = Gemm(x, w)  y = Mul(a, s)  z = Relu(a) }",
        {"Gemm": 1, "Mul": 1, "Relu": 1},
    ),
    "random numbers of a constant shape": (
        "g (float[2] x) => (float[2] y) { a = RandomNormal<shape = [2]>()  y = Add(x, a) }",
        {"RandomNormal": 1, "Add": 1},
    ),
    "random numbers like a constant": (
        "g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { a = RandomUniformLike(c)  y = Add(x, a) }",
        {"RandomUniformLike": 1, "Add": 1},
    ),
    "random choices by constant odds": (
        "g (float[2] x) => (float[2] y) <float[2] c = {0.25, 0.75}> { a = Bernoulli(c)  y = Add(x, a) }",
        {"Bernoulli": 1, "Add": 1},
    ),
    "the same random call twice": (
        "g (float[N] x) => (float[N] y) { a = RandomNormalLike(x)  b = RandomNormalLike(x)  y = Sub(a, b) }",
        {"RandomNormalLike": 2, "Sub": 1},
    ),
    "a mask of Dropout that is read": (
        "g (float[N] x) => (float[N] y, bool[N] z) { a, m = Dropout(x)  y = Neg(a)  z = Not(m) }",
        {"Dropout": 1, "Neg": 1, "Not": 1},
    ),
    "Dropout in training": (
        "g (float[N] x) => (float[N] y) <float r = {0.5}, bool t = {1}> { a = Dropout(x, r, t)  y = Neg(a) }",
        {"Dropout": 1, "Neg": 1},
    ),
    "a Reshape to a computed shape that may contain 0": (
        "g (float[2,6] x, int64[2] s) => (float[A,B] y) <int64[2] t = {3, 4}> { a = Reshape(x, t)  y = Reshape(a, s) }",
        {"Reshape": 2},
    ),
    "a Reshape whose 0 copies from the Reshape before": (
        "g (float[2,6] x) => (float[3,4] y) <int64[2] t = {3, 4}, int64[2] s = {0, 4}> { a = Reshape(x, t)  b = Reshape(a, s)  y = Neg(b) }",
        {"Reshape": 1, "Neg": 1},
    ),
    "zeros before MaxPool, all data negative": (
        "g (float[N,1,4,4] x) => (float[N,1,5,5] y) <int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}> {"
        " e = Exp(x)  n = Neg(e)  a = Pad(n, p)  y = MaxPool<kernel_shape = [2, 2]>(a) }",
        {"Exp": 1, "Neg": 1, "Pad": 1, "MaxPool": 1},
    ),
    "the largest of roots, of which some are none": (
        "g (float[N,4] x) => (int64[N] y) { a = Sqrt(x)  y = ArgMax<axis = 1, keepdims = 0>(a) }",
        {"Sqrt": 1, "ArgMax": 1},
    ),
    "the logarithm of a Softmax without axis": (
        "g (float[N,2,4] x) => (float[N,2,4] y) { a = Softmax(x)  y = Log(a) }",
        None,
    ),
    "BatchNormalization in training behind a Conv": (
        f"g (float[N,2,3,3] x) => (float[N,3,3,3] y, float[3] m, float[3] v) <{WEIGHTS}, float[3] o = {{1, 2, 3}}> {{"
        " a = Conv(x, w)  y, m, v = BatchNormalization<training_mode = 1>(a, o, o, o, o) }",
        {"Conv": 1, "BatchNormalization": 1},
    ),
}  # fmt: skip


def random_or_training(text):
    return any(word in text for word in ("Random", "Bernoulli", "bool t = {1}", "training_mode"))


@pytest.mark.parametrize("trap", TRAPS)
def test_traps(forge, trap, tmp_path):
    text, left = TRAPS[trap]
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEADER + text), model)
    report(forge, model, tmp_path / "out.onnx")
    ops = Counter(node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node)
    assert left is None or ops == left
    if random_or_training(text):
        onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)
    elif "int64[2] s)" in text:
        import numpy as np

        given = {"x": np.arange(12, dtype=np.float32).reshape(2, 6), "s": np.array([0, -1])}
        assert_equal(forge, model, tmp_path / "out.onnx", tmp_path, given=given)
    else:
        assert_equal(forge, model, tmp_path / "out.onnx", tmp_path)


def test_the_same_name_in_another_domain_is_another_operator(forge, tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
    g (float[N] x) => (float[N] y) { a = Neg(x)  b = custom.Neg(x)  y = Sub(a, b) }"""
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    report(forge, model, tmp_path / "out.onnx")
    ops = sorted((node.domain, node.op_type) for node in onnx.load(tmp_path / "out.onnx").graph.node)
    assert ops == [("", "Neg"), ("", "Sub"), ("custom", "Neg")]


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_the_result_stays_within_its_operator_set(forge, opset, tmp_path):
    """Reshapes whose target becomes constant, among them ones that would like an attribute of a later version."""
    text = f"""<ir_version: 6, opset_import: ["" : {opset}]>
    g (float[N,S,12] x) => (float[N,3,S,4] y, float[M,12] z)
    <int64[1] three = {{3}}, int64[1] four = {{4}}, int64[1] twelve = {{12}}, int64 zero = {{0}}, int64 one = {{1}}, int64[1] all = {{-1}}>
    {{
      s = Shape(x)  n0 = Gather(s, zero)  s0 = Gather(s, one)  n = Reshape(n0, all)  m = Reshape(s0, all)
      t = Concat<axis = 0>(n, m, three, four)  a = Reshape(x, t)  y = Transpose<perm = [0, 2, 1, 3]>(a)
      nm = Mul(n, m)  u = Concat<axis = 0>(nm, twelve)  z = Reshape(x, u)
    }}"""
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    report(forge, model, tmp_path / "out.onnx")
    out = onnx.load(tmp_path / "out.onnx")
    assert [(one.domain, one.version) for one in out.opset_import] == [("", opset)]
    assert len(out.graph.node) == 3
    assert_equal(forge, model, tmp_path / "out.onnx", tmp_path)


def test_metadata_stays_with_its_nodes(forge, tmp_path):
    text = HEADER + """g (float[N,4] x) => (float[N,4] y) <float[4,4] w = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2}, float[4] b = {1, 2, 3, 4}> {
      i = Identity(x)  p = MatMul(i, w)  s = Add(p, b)  y = Relu(s) }"""
    message = onnx.parser.parse_model(text)
    message.ir_version = 10
    for node in message.graph.node:
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'layer.{node.op_type}']")
    model = tmp_path / "model.onnx"
    onnx.save(message, model)
    report(forge, model, tmp_path / "out.onnx")
    after = {node.op_type: dict((prop.key, prop.value) for prop in node.metadata_props) for node in onnx.load(tmp_path / "out.onnx").graph.node}
    assert after["Relu"] == {"pkg.torch.onnx.name_scopes": "['', 'layer.Relu']"}
    assert set(after) == {"Gemm", "Relu"}
