"""Conversion to float16: what stays in 32 bits and why, and that results are close, finite and load."""

import numpy as np
import onnx
import onnxforge
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from drop_ins import EXAMPLES, FEEDS, every_example, operators

HALF, FULL = TensorProto.FLOAT16, TensorProto.FLOAT


def model(text, **weights):
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    return made


def converted(original, **options):
    result = onnxforge.float16(original, **options)
    onnx.checker.check_model(result.model, full_check=True)
    onnxruntime.InferenceSession(result.model.SerializeToString(), providers=["CPUExecutionProvider"])
    return result


def kinds(made):
    return {tensor.name: tensor.data_type for tensor in made.graph.initializer}


def reasons(result):
    return {each["operator"]: each["reason"] for each in result.kept}


W = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
LINEAR = "g (float[N,4] x) => (float[N,3] y) { m = MatMul(x, w)  s = Sigmoid(m)  y = Mul(m, s) }"


@every_example
@pytest.mark.parametrize("interface", [False, True])
def test_examples(name, interface):
    original = onnx.load(EXAMPLES[name])
    result = converted(original, interface=interface, inputs=FEEDS[name])
    assert result.worst < 0.01 and result.converted > 10
    weights = [each for each in result.model.graph.initializer if each.data_type == FULL and len(each.dims) > 1]
    assert not weights
    declared = {value.name: value.type.tensor_type.elem_type for value in result.model.graph.output}
    assert set(declared.values()) == {HALF if interface else FULL}
    assert [value.name for value in result.model.graph.output] == [value.name for value in original.graph.output]


def test_weights_are_narrow_and_casts_stand_at_the_border():
    result = converted(model(LINEAR, w=W))
    assert kinds(result.model) == {"w": HALF}
    assert operators(result.model) == {"Cast": 2, "MatMul": 1, "Sigmoid": 1, "Mul": 1}
    assert [value.type.tensor_type.elem_type for value in result.model.graph.input] == [FULL]
    result = converted(model(LINEAR, w=W), interface=True)
    assert operators(result.model) == {"MatMul": 1, "Sigmoid": 1, "Mul": 1}
    assert [value.type.tensor_type.elem_type for value in result.model.graph.input] == [HALF]


def test_what_is_kept_by_name_and_operator():
    original = model(LINEAR, w=W)
    original.graph.node[0].name = "/head/MatMul"
    result = converted(original, keep=["/head/*"])
    assert kinds(result.model) == {"w": FULL} and reasons(result) == {"MatMul": "asked for"}
    result = converted(original, keep_ops=["Sigmoid", "Mul"])
    assert kinds(result.model) == {"w": HALF} and reasons(result) == {"Sigmoid": "asked for", "Mul": "asked for"}
    for wrong in ({"keep": ["/tail/*"]}, {"keep_ops": ["Softmax"]}):
        with pytest.raises(onnxforge.Error, match="tail|Softmax"):
            onnxforge.float16(original, **wrong)


def test_a_weight_that_is_read_in_both_widths():
    text = "g (float[N,4] x) => (float[N,3] y) { m = MatMul(x, w)  r = ReduceSum<keepdims=0>(w)  y = Add(m, r) }"
    result = converted(model(text, w=W))
    assert sorted(kinds(result.model).values()) == [FULL, HALF]


@pytest.mark.parametrize(
    "text, weights, stays",
    [
        ("g (float[N,4] x) => (float[N,4] y) { s = Mul(x, c)  y = Relu(s) }", {"c": np.float32(1e6)}, "Mul"),
        ("g (float[N,4] x) => (float[N,4] y) { s = Add(x, c)  r = Sqrt(s)  y = Div(x, r) }", {"c": np.float32(1e-12)}, "Div"),
        ("g (float[N,4] x) => (float[N,4] y) { e = Exp(x)  s = Mul(e, e)  t = Mul(s, s)  u = Mul(t, t)  y = Log(u) }", {}, "Log"),
        ("g (float[N,4] x) => (float[N,4] y) { y = CumSum(x, c)  }", {"c": np.int64(1)}, "CumSum"),
    ],
    ids=["large", "tiny", "grows", "sums"],
)
def test_what_16_bits_do_not_hold_stays(text, weights, stays):
    result = converted(model(text, **weights))
    assert stays in reasons(result)


def test_masks_of_the_largest_number_give_no_nan():
    text = (
        "g (float[2,4] x, bool[2,4] m) => (float[2,4] y) { w = Where(m, low, zero)  v = Where(m, low, zero)"
        "  s = Add(x, w)  t = Add(s, v)  y = Softmax(t) }"
    )
    original = model(text, low=np.finfo(np.float32).min / 4, zero=np.float32(0))
    feeds = {"x": np.ones((2, 4), np.float32), "m": np.array([[True] * 4, [False, True, True, False]])}
    result = converted(original, inputs=feeds)
    session = onnxruntime.InferenceSession(result.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, feeds)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, onnxforge.run(original, feeds)["y"], atol=2e-3)


def test_bodies_stay_and_read_what_they_read():
    text = (
        "g (float[N,4] x, bool c) => (float[N,3] y) { m = MatMul(x, w)"
        "  y = If (c) <then_branch = t () => (float[N,3] a) { a = Add(m, m) }, else_branch = e () => (float[N,3] b) { b = Relu(m) }> }"
    )
    for interface in (False, True):
        result = converted(model(text, w=W), interface=interface)
        assert reasons(result) == {"If": "has bodies"} and kinds(result.model) == {"w": HALF}


def test_element_types_in_attributes():
    text = (
        "g (int64[2] s, int64[N] i) => (float[A,B] y, float[N] z)"
        "{ f = ConstantOfShape<value = float[1] {0.5}>(s)  y = Sigmoid(f)  c = Cast<to = 1>(i)  z = Sigmoid(c) }"
    )
    result = converted(model(text), interface=True, inputs={"s": np.int64([2, 3]), "i": np.int64([1, 2])})
    assert result.kept == [] and result.worst < 1e-3


def test_sizes_of_resize_stay():
    text = 'g (float[1,1,4,4] x) => (float[1,1,8,8] y) { r = Resize<mode = "nearest">(x, , s)  y = Relu(r) }'
    result = converted(model(text, s=np.float32([1, 1, 2, 2])))
    assert kinds(result.model) == {"s": FULL} and result.kept == []


def test_a_default_that_callers_may_override_stays_wide():
    original = model(LINEAR, w=W)
    original.graph.input.append(helper.make_tensor_value_info("w", FULL, [4, 3]))
    result = converted(original)
    assert kinds(result.model) == {"w": FULL} and operators(result.model)["Cast"] == 3


def test_a_result_that_is_too_far_is_refused():
    with pytest.raises(onnxforge.RequestError, match="differs by .* of its scale") as refused:
        onnxforge.float16(model(LINEAR, w=W), tolerance=1e-9)
    assert "--" not in str(refused.value)


def test_operators_that_nobody_knows_stay():
    original = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[N,4] x) => (float[N,4] y)'
        "<float[4] w = {1, 2, 3, 4}> { m = Mul(x, w)  z = my.Mystery(m)  y = Relu(z) }"
    )
    result = onnxforge.float16(original)
    assert result.report["unverified"] and "my.Mystery" in reasons(result) and kinds(result.model) == {"w": HALF}


def test_external_weights(tmp_path):
    onnxforge.save(EXAMPLES["tiny_bert"], tmp_path / "m.onnx", external="split")
    result = onnxforge.float16(tmp_path / "m.onnx", tmp_path / "half.onnx", external="split")
    assert result.model == str(tmp_path / "half.onnx") and (tmp_path / "half.onnx.data").exists()
    assert onnxforge.verify(tmp_path / "m.onnx", tmp_path / "half.onnx", tolerance=0.01)
    before, after = result.report["constants"]
    assert after < 0.55 * before
