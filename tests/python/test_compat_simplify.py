"""Every parameter of `simplify`: honoured, without meaning here, or refused by name."""

import os

import numpy as np
import onnx
import onnxforge
import pytest
from onnx import helper, numpy_helper, parser
from onnxforge import simplify, slim

from drop_ins import EXAMPLES, FEEDS, IMAGES, assert_same, detector, example, operators, results, saved, shape


def test_parts_of_simplify_can_be_left_out():
    whole = operators(simplify(detector())[0])
    assert whole["BatchNormalization"] == whole["MatMul"] == whole["Pad"] == whole["Mul"] == 0 and whole["Slice"] == 1
    for options, kept in [
        ({"skip_fuse_bn": True}, "BatchNormalization"),
        ({"skip_constant_folding": True}, "Mul"),
        ({"skipped_optimizers": ["fuse_bn_into_conv"]}, "BatchNormalization"),
        ({"skipped_optimizers": ["fuse_pad_into_conv"]}, "Pad"),
        ({"skipped_optimizers": ["fuse_matmul_add"]}, "MatMul"),
        ({"perform_optimization": False}, "BatchNormalization"),
        ({"perform_optimization": False, "skip_constant_folding": True}, "Mul"),
    ]:
        made, check = simplify(detector(), **options)
        assert check and operators(made)[kept] == 1, options
        assert_same(detector(), made, IMAGES)
    assert operators(simplify(detector(), perform_optimization=False)[0])["Mul"] == 0
    with pytest.raises(onnxforge.Error, match="fuse_nothing"):
        simplify(detector(), skipped_optimizers=["fuse_nothing"])


# An optimizer of onnxsim, an operator of which the pass that it stands for leaves fewer, an operator set and a graph.
REMOVED_BY = """
eliminate_identity Identity 17 (float[2,3] x) => (float[2,3] y) { i = Identity(x) y = Exp(i) }
eliminate_nop_dropout Dropout 17 (float[2,3] x) => (float[2,3] y) { i = Dropout(x) y = Exp(i) }
eliminate_nop_cast Cast 17 (float[2,3] x) => (float[2,3] y) { i = Cast<to=1>(x) y = Exp(i) }
eliminate_nop_transpose Transpose 17 (float[2,3] x) => (float[2,3] y) { i = Transpose<perm=[0,1]>(x) y = Exp(i) }
eliminate_nop_reshape Reshape 17 (float[2,3] x) => (float[2,3] y) <int64[2] s = {2, 3}> { i = Reshape(x, s) y = Exp(i) }
eliminate_nop_flatten Flatten 17 (float[2,3] x) => (float[2,3] y) { i = Flatten(x) y = Exp(i) }
eliminate_nop_with_unit Mul 17 (float[2,3] x) => (float[2,3] y) <float one = {1.0}> { i = Mul(x, one) y = Exp(i) }
eliminate_nop_pad Pad 17 (float[2,3] x) => (float[2,3] y) <int64[4] p = {0,0,0,0}> { i = Pad(x, p) y = Exp(i) }
eliminate_nop_concat Concat 17 (float[2,3] x) => (float[2,3] y) { i = Concat<axis=0>(x) y = Exp(i) }
eliminate_nop_split Split 17 (float[2,3] x) => (float[2,3] y) <int64[1] p = {2}> { i = Split<axis=0>(x, p) y = Exp(i) }
eliminate_nop_expand Expand 17 (float[2,3] x) => (float[2,3] y) <int64[2] p = {2,3}> { i = Expand(x, p) y = Exp(i) }
eliminate_nop_reduce ReduceSum 17 (float[2,1] x) => (float[2,1] y) <int64[1] p = {1}> { i = ReduceSum(x, p) y = Exp(i) }
fuse_consecutive_transposes Transpose 17 (float[2,3,4] x) => (float[4,2,3] y)
    { i = Transpose<perm=[1,0,2]>(x) j = Transpose<perm=[2,1,0]>(i) y = Exp(j) }
fuse_consecutive_concats Concat 17 (float[2,3] x, float[2,3] z) => (float[6,3] y)
    { i = Concat<axis=0>(x, z) j = Concat<axis=0>(i, x) y = Exp(j) }
fuse_consecutive_unsqueezes Unsqueeze 17 (float[2,3] x) => (float[1,1,2,3] y) <int64[1] p = {0}>
    { i = Unsqueeze(x, p) j = Unsqueeze(i, p) y = Exp(j) }
fuse_consecutive_squeezes Squeeze 17 (float[1,1,2,3] x) => (float[2,3] y) <int64[1] p = {0}>
    { i = Squeeze(x, p) j = Squeeze(i, p) y = Exp(j) }
fuse_consecutive_squeeze_unsqueeze Squeeze 17 (float[1,1,2,3] x) => (float[1,2,1,3] y)
    <int64[1] p = {0}, int64[1] q = {2}> { i = Squeeze(x, p) j = Unsqueeze(i, q) y = Exp(j) }
fuse_consecutive_reshapes Reshape 17 (float[4,6] x) => (float[2,12] y) <int64[2] s = {3, 8}, int64[2] t = {2, 12}>
    { i = Reshape(x, s) j = Reshape(i, t) y = Exp(j) }
fuse_reshape_family Unsqueeze 17 (float[4,6] x) => (float[2,12] y) <int64[2] s = {2, 12}, int64[1] t = {0}>
    { i = Unsqueeze(x, t) j = Reshape(i, s) y = Exp(j) }
fuse_consecutive_reduce_unsqueeze Unsqueeze 17 (float[2,3] x) => (float[2,1] y) <int64[1] p = {1}>
    { i = ReduceSum<keepdims=0>(x, p) j = Unsqueeze(i, p) y = Exp(j) }
fuse_consecutive_reduce ReduceSum 17 (float[2,3,4] x) => (float[2,1,1] y) <int64[1] p = {1}, int64[1] q = {2}>
    { i = ReduceSum(x, p) j = ReduceSum(i, q) y = Exp(j) }
fuse_consecutive_mul Mul 17 (float[2,3] x) => (float[2,3] y) <float a = {2.5}, float b = {1.7}>
    { i = Mul(x, a) j = Mul(i, b) y = Exp(j) }
fuse_transpose_into_gemm Transpose 17 (float[3,2] x, float[3,4] w) => (float[2,4] y)
    { i = Transpose<perm=[1,0]>(x) j = Gemm(i, w) y = Exp(j) }
rewrite_where Not 17 (bool[2] c, float[2] a, float[2] b) => (float[2] y) { i = Not(c) j = Where(i, a, b) y = Exp(j) }
eliminate_consecutive_idempotent_ops Ceil 17 (float[2] x) => (float[2] y) { i = Ceil(x) j = Ceil(i) y = Exp(j) }
eliminate_consecutive_idempotent_ops Relu 17 (float[2] x) => (float[2] y) { i = Relu(x) j = Relu(i) y = Exp(j) }
eliminate_shape_op Shape 17 (float[2,3] x) => (int64[2] y) <int64[2] q = {2,2}> { i = Shape(x) y = Mul(i, q) }
eliminate_slice_after_shape Shape 17 (float[N,3] x, int64[1] z) => (int64[1] y) <int64[1] a = {1}, int64[1] b = {2}>
    { i = Shape(x) j = Slice(i, a, b) y = Add(j, z) }
eliminate_shape_gather Shape 17 (float[N,3] x, int64[1] z) => (int64[1] y) <int64[1] a = {1}>
    { i = Shape(x) j = Gather(i, a) y = Add(j, z) }
fuse_concat_into_reshape Concat 17 (float[N,3,4] x) => (float[N,12] y)
    <int64 a = {0}, int64[1] m = {12}, int64[1] ax = {0}>
    { s = Shape(x) n = Gather(s, a) u = Unsqueeze(n, ax) c = Concat<axis=0>(u, m) j = Reshape(x, c) y = Exp(j) }
eliminate_deadend Relu 17 (float[2] x) => (float[2] y) { i = Relu(x) y = Exp(x) }
eliminate_common_subexpression Exp 17 (float[2] x) => (float[2] y) { i = Exp(x) j = Exp(x) k = Sqrt(i) y = Mul(k, j) }
eliminate_if_with_const_cond If 17 (float[2] x) => (float[2] y) <bool q = {1}>
    { y = If(q)<then_branch = t () => (float[2] a) { a = Exp(x) }, else_branch = e () => (float[2] b) { b = Sqrt(x) }> }
replace_einsum_with_matmul Einsum 17 (float[2,3] x, float[3,4] w) => (float[2,4] y)
    { i = Einsum<equation="ij,jk->ik">(x, w) y = Exp(i) }
fuse_gelu Erf 20 (float[2,3] x) => (float[2,3] y) <float r = {1.41421356}, float h = {0.5}, float o = {1.0}>
    { a = Div(x, r) b = Erf(a) c = Add(b, o) d = Mul(x, c) e = Mul(d, h) y = Exp(e) }
fuse_mul_into_conv Mul 17 (float[1,3,8,8] x) => (float[1,3,8,8] y) <float m = {2.5}, float[3,1,1,1] w = {1.0,2.0,3.0}>
    { i = Conv<group=3>(x, w) y = Mul(i, m) }
fuse_add_bias_into_conv Add 17 (float[1,3,8,8] x) => (float[1,3,8,8] y)
    <float[3,1,1] m = {2.5,1.0,0.5}, float[3,1,1,1] w = {1.0,2.0,3.0}> { i = Conv<group=3>(x, w) y = Add(i, m) }
fuse_pad_into_pool Pad 17 (float[1,3,8,8] x) => (float[1,3,5,5] y) <int64[8] p = {0,0,1,1,0,0,1,1}>
    { i = Pad(x, p) y = AveragePool<kernel_shape=[2,2], strides=[2,2], count_include_pad=1>(i) }
eliminate_optional_has_element+eliminate_shape_op OptionalHasElement 18 (float[2] x) => (bool y)
    { o = Optional(x) y = OptionalHasElement(o) }
eliminate_sequence_at_construct SequenceAt 17 (float[2] x, float[2] z) => (float[2] y) <int64 q = {1}>
    { o = SequenceConstruct(x, z) i = SequenceAt(o, q) y = Exp(i) }
eliminate_sequence_length_construct+eliminate_shape_op SequenceLength 17 (float[2] x, float[2] z) => (int64 y)
    { o = SequenceConstruct(x, z) y = SequenceLength(o) }
fuse_matmul_add_bias_into_gemm MatMul 17 (float[2,3] x) => (float[2,2] y)
    <float[3,2] w = {1.0,2.0,3.0,4.0,5.0,6.0}, float[2] b = {1.0,2.0}> { i = MatMul(x, w) y = Add(i, b) }
fuse_matmul_add_bias_into_gemm_batched MatMul 17
    (float[5,2,2] x) => (float[5,2,1,2] y, float[5,2,1,2] z, float[5,2,1,2] q)
    <float[2,2] u = {1,2,3,4}, float[2,2] v = {2,2,3,4}, float[2,2] w = {3,2,3,4},
    float[2] b = {1,2}, int64[4] s = {5,2,1,2}>
    { a = MatMul(x, u) c = Add(a, b) y = Reshape(c, s)
    d = MatMul(x, v) e = Add(d, b) z = Reshape(e, s)
    f = MatMul(x, w) g = Add(f, b) q = Reshape(g, s) }
eliminate_nop_monotone_argmax Softmax 17 (float[2,3] x) => (int64[2,1] y) { i = Softmax(x) y = ArgMax<axis=1>(i) }
eliminate_reshape_around_elementwise Reshape 17 (float[4,6] x) => (float[4,6] y)
    <int64[2] s = {3, 8}, int64[2] t = {4, 6}> { i = Reshape(x, s) j = Exp(i) y = Reshape(j, t) }
fuse_preceding_mul_into_conv Mul 17 (float[1,3,8,8] x) => (float[1,3,8,8] y)
    <float m = {2.5}, float[3,1,1,1] w = {1.0,2.0,3.0}> { i = Mul(x, m) y = Conv<group=3>(i, w) }
fuse_split_gather_concat Gather 17 (float[6,2] x, int64[4] i) => (float[4,2] y) <int64[2] s = {1, 3}>
    { a, b = Split<axis=0>(i, s) c = Gather(x, a) d = Gather(x, b) e = Concat<axis=0>(c, d) y = Exp(e) }
"""
# Optimizers that stand for nothing, and what therefore stays.
REMOVED_BY_NONE = """
eliminate_nop_softmax Softmax 17 (float[2,1] x) => (float[2,1] y) { i = Softmax(x) y = Exp(i) }
fuse_consecutive_log_softmax Log 17 (float[2,3] x) => (float[2,3] y) { i = Softmax<axis=1>(x) j = Log(i) y = Exp(j) }
"""


def cases(text):
    """The cases of a text. Lines that are indented continue a case."""
    found = []
    for case in text.replace("\n    ", " ").strip().splitlines():
        name, operator, opset, graph = case.split(" ", 3)
        model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}')
        found.append(pytest.param(name, operator, model, id=f"{name}-{operator}"))
    return found


@pytest.mark.parametrize("name, operator, model", cases(REMOVED_BY))
def test_a_skipped_optimizer_does_not_run(name, operator, model):
    made, check = simplify(model)
    assert check and operators(made)[operator] < operators(model)[operator]
    # What several optimizers remove stays without all of them.
    made, check = simplify(model, skipped_optimizers=name.split("+"))
    assert check and operators(made)[operator] == operators(model)[operator]


@pytest.mark.parametrize("name, operator, model", cases(REMOVED_BY_NONE))
def test_what_no_pass_does_needs_no_skipping(name, operator, model):
    assert operators(simplify(model)[0])[operator] == operators(model)[operator]


@pytest.mark.parametrize(
    "pattern, optimizer",
    [
        ("EliminationConcat", "fuse_consecutive_concats"),
        ("EliminationReshape", "fuse_consecutive_reshapes"),
        ("EliminationTranspose", "fuse_consecutive_transposes"),
        ("EliminationUnsqueeze", "fuse_consecutive_unsqueezes"),
        ("FusionConcatReshape", "fuse_concat_into_reshape"),
        ("FusionConvAdd", "fuse_add_bias_into_conv"),
        ("FusionConvMul", "fuse_mul_into_conv"),
        ("FusionGelu", "fuse_gelu"),
        ("FusionGemm", "fuse_matmul_add_bias_into_gemm"),
        ("FusionGemm", "fuse_matmul_add_bias_into_gemm_batched"),
        ("FusionReduce", "fuse_consecutive_reduce_unsqueeze"),
    ],
)
def test_a_skipped_pattern_is_not_fused(pattern, optimizer):
    operator, model = next(case.values[1:] for case in cases(REMOVED_BY) if case.values[0] == optimizer)
    assert operators(slim(model))[operator] < operators(model)[operator]
    assert operators(slim(model, skip_fusion_patterns=[pattern]))[operator] == operators(model)[operator]


def test_lists_of_the_caller_stay_as_they_are():
    skipped = ["fuse_qkv"]
    shapes = {None: [2, 3, 10, 10]}
    simplify(detector(), skip_fuse_bn=True, skipped_optimizers=skipped, overwrite_input_shapes=shapes)
    assert skipped == ["fuse_qkv"] and shapes == {None: [2, 3, 10, 10]}


def test_shapes_of_inputs():
    made, check = simplify(detector(), overwrite_input_shapes={None: (2, 3, 10, 10)}, test_input_shapes=False)
    assert check and shape(made.graph.input[0]) == [2, 3, 10, 10]
    made, check = simplify(str(EXAMPLES["tiny_bert"]), check_n=2, test_input_shapes={"input_ids": (2, 8)})
    assert check
    made, check = simplify(detector(), check_n=2, test_input_shapes={None: (2, 3, 10, 10)})
    assert check and shape(made.graph.input[0]) == ["batch", 3, "height", "width"]
    for sizes in ([1, 3, -1, 20], [1, 3, 20], [1, 3, 10, 10, 10]):
        with pytest.raises(onnxforge.Error, match="images"):
            simplify(detector(), overwrite_input_shapes={"images": sizes})
    for name in ("overwrite_input_shapes", "test_input_shapes"):
        with pytest.raises(onnxforge.Error, match="image"):
            simplify(detector(), **{name: {"image": [2, 3, 10, 10]}})
    with pytest.raises(onnxforge.UsageError, match="without a name"):
        simplify(str(EXAMPLES["tiny_bert"]), overwrite_input_shapes={None: [1, 8]})


def test_shapes_that_were_fixed_before(tmp_path):
    model = detector(sizes=[2, 3, 20, 20])
    onnx.save(model, tmp_path / "model.onnx")
    for made in (
        simplify(model, overwrite_input_shapes={"images": [2, 3, 10, 10]})[0],
        simplify(str(tmp_path / "model.onnx"), overwrite_input_shapes={"images": [2, 3, 10, 10]})[0],
        slim(model, input_shapes=["images:2,3,10,10"]),
    ):
        assert shape(made.graph.input[0]) == [2, 3, 10, 10]
        assert [shape(value) for value in made.graph.output] == [[2, 5], [2, 4, 8, 10]]
        assert_same(detector(), made, IMAGES, outputs=["scores", "boxes"])
    assert shape(model.graph.input[0]) == [2, 3, 20, 20], "the caller's model is not changed"


@pytest.mark.parametrize("fill", ["random", "ones", "zeros", "arange"])
def test_input_fill(fill):
    made, check = simplify(detector(sizes=[2, 3, 10, 10]), check_n=1, input_fill=fill)
    assert check
    made, check = simplify(detector(), check_n=1, input_fill=fill, test_input_shapes={"images": [2, 3, 10, 10]})
    assert check
    if fill != "random":
        with pytest.raises(onnxforge.UsageError, match="test_input_shapes"):
            simplify(detector(), check_n=1, input_fill=fill)
    with pytest.raises(onnxforge.UsageError, match="twos"):
        simplify(detector(), input_fill="twos")


def test_unused_output():
    made, check = simplify(detector(), unused_output=["scores"])
    assert check and [value.name for value in made.graph.output] == ["boxes"]
    assert "MatMul" not in operators(made) and "Gemm" not in operators(made)
    with pytest.raises(onnxforge.UsageError, match="points"):
        simplify(detector(), unused_output=["points"])


def with_defaults(version):
    """A model whose weights are also inputs, as exporters wrote them."""
    model = detector()
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    model.ir_version = version
    return model


@pytest.mark.parametrize("version", [3, 8])
def test_initializers_that_are_inputs(version, tmp_path):
    model = with_defaults(version)
    onnx.save(model, tmp_path / "model.onnx")
    for made in (simplify(model)[0], simplify(str(tmp_path / "model.onnx"))[0], slim(model)):
        assert [value.name for value in made.graph.input] == ["images"]
        assert operators(made)["BatchNormalization"] == 0
        assert_same(detector(), made, IMAGES)
    assert len(model.graph.input) > 1, "the caller's model is not changed"
    made, check = simplify(model, mutable_initializer=True)
    assert check and operators(made)["BatchNormalization"] == 1 and "mean" in [value.name for value in made.graph.input]
    other = {**IMAGES, "mean": np.float32([3, 2, 1, 0])}
    np.testing.assert_allclose(results(made, other)["scores"], results(with_defaults(8), other)["scores"], rtol=1e-4)


def test_constants_that_would_grow_are_not_folded():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[400,400] x) => (float[400,400] y)'
        "<float[1,1] c = {2.0}, int64[2] s = {400, 400}> { e = Expand(c, s)  f = Tile(e, one)  y = Mul(x, f) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.int64([1, 1]), "one"))
    feeds = {"x": np.ones((400, 400), np.float32)}
    for threshold in ("1.5GB", "100KB", "1KB", "0.5MB"):
        made, check = simplify(model, tensor_size_threshold=threshold)
        assert check
        limit = 1 << 20 if threshold == "1.5GB" else {"100KB": 102400, "1KB": 1024, "0.5MB": 1 << 19}[threshold]
        assert made.ByteSize() - model.ByteSize() <= limit
        assert_same(model, made, feeds)
    for threshold in ("much", "1.5", "1.2.3MB"):
        with pytest.raises(onnxforge.UsageError, match="tensor_size_threshold"):
            simplify(model, tensor_size_threshold=threshold)


def test_functions_stay_or_are_inlined():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[N] x) => (float[N] y) { y = local.twice(x) }'
        '<domain: "local", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }'
    )
    made, check = simplify(model)
    assert check and operators(made) == {"twice": 1}
    made, check = simplify(model, inline_functions=True, check_n=2)
    assert check and operators(made) == {"Add": 1}
    assert_same(model, made, {"x": np.float32([1, 2])})


def test_output_path(tmp_path):
    path, out = saved(tmp_path, "tiny_bert"), str(tmp_path / "small.onnx")
    made, check = simplify(path, output_path=out)
    assert check and made == onnx.load(out) and not os.path.exists(out + ".data")
    made, check = simplify(path, output_path=out, external_data_threshold="1KB")
    assert check and os.path.exists(out + ".data")
    assert made == onnx.load(out, load_external_data=False)
    assert_same(onnx.load(path), onnx.load(out), FEEDS["tiny_bert"])
    with pytest.raises(onnxforge.UsageError, match="output_path"):
        simplify(onnx.load(path), output_path=out)


def test_extra_optimizers():
    assert simplify(detector(), extra_optimizers=["fuse_matmul_add_bias_into_gemm_batched"])[1]
    for name in ("quantize_fp16", "fuse_qkv", "neg_to_mul"):
        with pytest.raises(onnxforge.UsageError, match=name):
            simplify(detector(), extra_optimizers=[name])


@pytest.mark.parametrize(
    "options",
    [
        {"function_rewrite_rules": [(None, None)]},
        {"providers": ["NoSuchExecutionProvider"]},
        {"gemm_fusion_backend": "cuda"},
        {"profile": "profile.json"},
        {"profile": ""},
        {"ort_profile": "ort_profile"},
        {"merge_ort_profile": True},
        {"range_opt": True},
        {"certify": True},
        {"check_hazards": True},
        {"check_gradients": True},
        {"gradient_precision": "fp16"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_simplify_refuses_by_name(options):
    (name,) = options
    with pytest.raises(onnxforge.UsageError, match=name) as refused:
        simplify(detector(), **options)
    assert isinstance(refused.value, ValueError)


def test_what_changes_nothing_changes_nothing():
    plain, _ = simplify(detector())
    for options in [
        {"dynamic_input_shape": True},
        {"providers": ["CPUExecutionProvider"]},
        {"providers": [("CPUExecutionProvider", {})]},
        {"gemm_fusion_backend": "webgpu"},
        {"custom_lib": __file__},
        {"include_subgraph": True},
        {"import_custom_schemas": False},
        {"certify": False},
        {"custom_lib": None, "extra_optimizers": [], "unused_output": [], "input_data": {}},
    ]:
        assert simplify(detector(), **options)[0] == plain, options
    plain = slim(detector())
    for options in [
        {"verbose": True},
        {"dtype": "fp32"},
        {"size_threshold": 1 << 30},
        {"save_as_external_data": True},
        {"inspect": False, "dump_to_disk": False, "inputs": [], "outputs": [], "input_shapes": [], "size_threshold": 0},
        {"skip_optimizations": False, "skip_fusion_patterns": False, "model_check_inputs": None},
        {"model_check": True, "model_check_inputs": ["images:2,3,10,10"]},
    ]:
        assert slim(detector(), **options) == plain, options


def test_shapes_are_written_unless_they_are_not_wanted():
    without = [simplify(detector(), skip_shape_inference=True)[0], slim(detector(), no_shape_infer=True)]
    for made, bare in zip([simplify(detector())[0], slim(detector())], without):
        assert not bare.graph.value_info
        known = {value.name: shape(value) for value in made.graph.value_info}
        inside = {name for node in made.graph.node for name in node.output} - {value.name for value in made.graph.output}
        assert known.keys() == inside and all(len(dims) == 4 or len(dims) == 2 for dims in known.values())
        onnx.checker.check_model(made, full_check=True)


def test_sizes_of_0_are_kept():
    made, check = simplify(detector(), overwrite_input_shapes={"images": [0, 0, 10, 10]})
    assert check and shape(made.graph.input[0]) == ["batch", 3, 10, 10]
    assert_same(detector(), made, IMAGES)
    with pytest.raises(onnxforge.UsageError, match="dimensions"):
        simplify(detector(), overwrite_input_shapes={"images": [0, 3]})
    with pytest.raises(onnxforge.UsageError, match="below 0"):
        simplify(detector(), overwrite_input_shapes={"images": [-1, 3, 10, 10]})


def test_weights_that_are_no_constants():
    made, check = simplify(detector(), initializers_as_constants=False)
    assert check and operators(made)["BatchNormalization"] == 1 and operators(made)["Mul"] == 1
    assert [value.name for value in made.graph.input] == ["images"]
    assert {"w", "mean", "dense"} <= {tensor.name for tensor in made.graph.initializer}
    assert_same(detector(), made, IMAGES)


def test_what_only_reshapes_constants_is_folded_in_any_case():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => (float[N,2] y)'
        "<float[2,3] w = {1,2,3,4,5,6}, float[2] b = {1,2}> { t = Transpose(w)  c = Mul(b, b)  m = MatMul(x, t)  y = Add(m, c) }"
    )
    made, check = simplify(model, skip_constant_folding=True)
    assert check and "Transpose" not in operators(made) and operators(made)["Mul"] == 1
    assert_same(model, made, {"x": np.ones((2, 3), np.float32)})


def test_finer_skips():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,1] x) => (float[N,1] y)'
        "{ i = Identity(x)  r = ReduceMax<axes=[1]>(i)  y = Relu(r) }"
    )
    assert operators(simplify(model)[0]) == {"Relu": 1}
    assert operators(simplify(model, skipped_optimizers=["eliminate_identity"])[0]) == {"Identity": 1, "Relu": 1}
    assert operators(simplify(model, skipped_optimizers=["eliminate_nop_reduce"])[0]) == {"ReduceMax": 1, "Relu": 1}


def test_tolerances_of_the_comparison():
    model, feeds = example("small_cnn")
    assert simplify(model, check_n=2, check_rtol=1e-3)[1]
    assert simplify(model, check_n=2, check_rtol=0, check_atol=1e-3, input_data=feeds)[1]
    assert not simplify(model, check_n=2, check_rtol=0, check_atol=0, input_data=feeds)[1]
    assert simplify(model, check_n=0, check_rtol=0, check_atol=0)[1], "no comparison, no tolerance"


def test_a_custom_library_must_be_there():
    with pytest.raises(FileNotFoundError, match="ops.so"):
        simplify(detector(), custom_lib="ops.so")


def pooled(model):
    """GlobalAveragePool as ReduceMean: the same, and nothing that a pass would undo."""
    pools = [node for node in model.graph.node if node.op_type == "GlobalAveragePool"]
    for node in pools:
        node.op_type = "ReduceMean"
        node.attribute.append(helper.make_attribute("axes", [2, 3]))
    return None if pools else False


def wrong(model):
    for node in model.graph.node:
        if node.op_type == "Relu":
            node.op_type = "Sigmoid"
    return model


def test_custom_rewriters_are_verified(tmp_path):
    made, check = simplify(detector(), custom_rewriter=pooled)
    assert check and operators(made)["ReduceMean"] == 1
    assert_same(detector(), made, IMAGES)
    with pytest.warns(RuntimeWarning, match="wrong.*computes something else"):
        made, check = simplify(detector(), custom_rewriter=wrong)
    assert not check and operators(made)["Relu"] == 1
    assert_same(detector(), made, IMAGES)
    made, check = simplify(detector(), custom_rewriter=lambda model: None)
    assert check and made == simplify(detector())[0]
    out = str(tmp_path / "out.onnx")
    made, check = simplify(saved(tmp_path, "small_cnn"), custom_rewriter=lambda model: None, output_path=out)
    assert check and made == onnx.load(out)
    with pytest.raises(TypeError, match="ModelProto"):
        simplify(detector(), custom_rewriter=lambda model: 3)
    with pytest.raises(ZeroDivisionError):
        simplify(detector(), custom_rewriter=lambda model: 1 / 0)


def test_without_onnx_there_is_a_hint(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    for call in (simplify, slim):
        with pytest.raises(ImportError, match="pip install onnx"):
            call("model.onnx")
