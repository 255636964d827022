"""`onnxforge.simplify` and `onnxforge.slim` in the places of onnxsim's and onnxslim's: their examples, the calls that
well-known projects make, and every parameter: honoured, without meaning here, or refused by name."""

import inspect
import json
import os
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxforge
from onnxforge import compat, simplify, slim

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.onnx"))}
FEEDS = {
    "small_cnn": {"image": np.random.default_rng(0).random((2, 3, 16, 16), np.float32)},
    "tiny_bert": {
        "input_ids": np.arange(16).reshape(2, 8) % 30,
        "attention_mask": np.ones((2, 8), np.int64),
        "token_type_ids": np.zeros((2, 8), np.int64),
    },
    "tiny_llama": {"input_ids": np.arange(16).reshape(2, 8) % 30, "attention_mask": np.ones((2, 8), np.int64)},
}
every_example = pytest.mark.parametrize("name", EXAMPLES)


def operators(model):
    return Counter(node.op_type for node in model.graph.node)


def results(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([value.name for value in session.get_outputs()], session.run(None, feeds)))


def assert_same(original, made, feeds, outputs=None):
    """A valid model that computes the same, as onnxforge and ONNX Runtime see it."""
    onnx.checker.check_model(made, full_check=True)
    expected, got = results(original, feeds), results(made, feeds)
    for name in outputs or expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-4, atol=1e-5)
    if outputs is None:
        assert expected.keys() == got.keys()
        assert onnxforge.verify(original, made, inputs=feeds).equal


def example(name):
    return onnx.load(EXAMPLES[name]), FEEDS[name]


def saved(tmp_path, name, file="model.onnx"):
    """A copy of an example, to be replaced."""
    path = tmp_path / file
    path.write_bytes(EXAMPLES[name].read_bytes())
    return str(path)


def detector(sizes=("batch", 3, "height", "width")):
    """A little of everything: Pad, Conv, BatchNormalization, two Slices, MatMul and Add, a constant product.
    The sizes of `images` are open unless others are given."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((4, 3, 3, 3)).astype(np.float32),
        **{part: random.random(4).astype(np.float32) + 0.5 for part in ("scale", "bias", "mean", "var")},
        "dense": random.standard_normal((4, 5)).astype(np.float32),
        "half": np.float32([0.25, 0.5, 0.75, 1, 1.25]),
        "pads": np.int64([0, 0, 1, 1, 0, 0, 1, 1]),
        "zero": np.int64([0]),
        "one": np.int64([1]),
        "two": np.int64([2]),
        "many": np.int64([9]),
    }
    nodes = [
        helper.make_node("Pad", ["images", "pads"], ["padded"]),
        helper.make_node("Conv", ["padded", "w"], ["conv"]),
        helper.make_node("BatchNormalization", ["conv", "scale", "bias", "mean", "var"], ["features"]),
        helper.make_node("Relu", ["features"], ["active"]),
        helper.make_node("GlobalAveragePool", ["active"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "dense"], ["product"]),
        helper.make_node("Mul", ["half", "half"], ["bias5"]),
        helper.make_node("Add", ["product", "bias5"], ["scores"]),
        helper.make_node("Slice", ["active", "zero", "many", "two"], ["cut"]),
        helper.make_node("Slice", ["cut", "one", "many", "two"], ["boxes"]),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, sizes)],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [sizes[0], 5]),
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [sizes[0], 4, "rows", "columns"]),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


IMAGES = {"images": np.random.default_rng(1).random((2, 3, 10, 10), np.float32)}


def shape(value):
    return [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]


# Signatures


def test_simplify_takes_what_onnxsim_0_8_takes():
    parameters = inspect.signature(simplify).parameters
    positional = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert positional == (
        "model check_n perform_optimization skip_fuse_bn overwrite_input_shapes test_input_shapes skipped_optimizers "
        "skip_constant_folding skip_shape_inference input_data dynamic_input_shape custom_lib include_subgraph "
        "unused_output tensor_size_threshold mutable_initializer"
    ).split()
    assert {name: each.default for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY} == {
        "initializers_as_constants": True,
        "inline_functions": False,
        "import_custom_schemas": True,
        "input_shapes": None,
        "target_opset_version": None,
        "extra_optimizers": None,
        "custom_rewriter": None,
        "function_rewrite_rules": None,
        "check_rtol": 1e-4,
        "check_atol": 1e-5,
        "input_fill": "random",
        "providers": None,
        "gemm_fusion_backend": "ort_cpu",
        "profile": None,
        "ort_profile": None,
        "merge_ort_profile": False,
        "output_path": None,
        "external_data_threshold": "100MB",
        "range_opt": False,
        "certify": None,
        "check_hazards": False,
        "check_gradients": False,
        "gradient_precision": "fp32",
    }


def test_slim_takes_what_onnxslim_0_1_takes():
    parameters = inspect.signature(slim).parameters
    assert set(parameters) == set(
        "model output_model model_check input_shapes inputs outputs no_shape_infer skip_optimizations dtype "
        "skip_fusion_patterns size_threshold inspect dump_to_disk save_as_external_data model_check_inputs verbose "
        "no_constant_folding".split()
    )
    assert not any(each.default for name, each in parameters.items() if name != "model")


def test_the_guide_has_every_parameter_and_every_name():
    guide = (ROOT / "docs/from-onnxsim-and-onnxslim.md").read_text(encoding="utf-8")
    table = [line.strip("|").split("|") for line in guide.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in table]
    told = {name for left, *_ in rows for name in left.replace("`", "").split(", ")}
    assert {*inspect.signature(simplify).parameters, *inspect.signature(slim).parameters} <= told
    for catalogue in (compat._OPTIMIZERS, compat._PATTERNS, compat._OPTIMIZATIONS):
        for name, passes in catalogue.items():
            stands_for = ", ".join(f"`{each}`" for each in passes)
            assert not passes or any(f"`{name}`" in left and right == stands_for for left, right, *_ in rows), name


@pytest.mark.parametrize("call", [simplify, slim])
def test_misspelled_parameters_and_other_kinds_of_models_are_type_errors(call):
    with pytest.raises(TypeError, match="chekc"):
        call(detector(), chekc=3)
    with pytest.raises(TypeError):
        call()
    with pytest.raises(TypeError, match="bytes"):
        call(detector().SerializeToString())


@pytest.mark.parametrize("call", [simplify, slim])
def test_files_that_are_no_models(call, tmp_path):
    with pytest.raises(FileNotFoundError):
        call(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(onnxforge.Error, match="text.onnx"):
        call(tmp_path / "text.onnx")


# The documentation of onnxsim


@every_example
def test_onnxsim_in_script(name):
    model, feeds = example(name)
    before = model.SerializeToString()
    model_simp, check = simplify(model)
    assert check, "Simplified ONNX model could not be validated"
    assert len(model_simp.graph.node) < len(model.graph.node)
    assert model.SerializeToString() == before
    assert_same(model, model_simp, feeds)


def test_onnxsim_from_a_path_and_from_a_loaded_model(tmp_path):
    path = saved(tmp_path, "tiny_bert")
    model_opt, check_ok = simplify(path)
    assert check_ok
    other, check_ok = simplify(onnx.load(path))
    assert check_ok
    assert model_opt.graph == other.graph
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_onnxsim_with_weights_beside_the_model(tmp_path):
    model, feeds = example("tiny_bert")
    beside = {"save_as_external_data": True, "location": "model.safetensors", "size_threshold": 0}
    onnx.save(model, tmp_path / "model.onnx", **beside)
    model_opt, check_ok = simplify(str(tmp_path / "model.onnx"))
    assert check_ok
    assert_same(onnx.load(EXAMPLES["tiny_bert"]), model_opt, feeds)
    model_opt, check_ok = simplify(onnx.load(str(tmp_path / "model.onnx")))
    assert check_ok


def test_models_that_are_too_large_for_a_message_go_through_files(monkeypatch, tmp_path):
    monkeypatch.setattr(compat, "_LARGEST_MESSAGE", 1000)
    model, feeds = example("tiny_bert")
    before = model.SerializeToString()
    model_opt, check_ok = simplify(model)
    assert check_ok and model.SerializeToString() == before
    slim(model, tmp_path / "out.onnx")
    for made in (model_opt, slim(model), onnx.load(tmp_path / "out.onnx")):
        assert_same(model, made, feeds)


def test_onnxsim_target_opset_version(tmp_path):
    model, feeds = example("small_cnn")
    model_simp, check = simplify(model, target_opset_version=18)
    assert check and model_simp.opset_import[0].version == 18
    assert_same(model, model_simp, feeds)
    model_simp, check = simplify(model, target_opset_version="latest")
    assert check and model_simp.opset_import[0].version > 20
    with pytest.raises(onnxforge.Error, match="upwards"):
        simplify(model, target_opset_version=13)


def test_onnxsim_custom_operators():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "TRT" : 1]> g (float[N,3] x) => (float[N,3] y)'
        "{ i = Identity(x)  z = TRT.EfficientNMS_TRT(i)  y = Relu(z) }"
    )
    for model_simp, check_ok in (simplify(model), simplify(model, import_custom_schemas=False)):
        assert check_ok
        assert operators(model_simp) == {"EfficientNMS_TRT": 1, "Relu": 1}
    with pytest.warns(RuntimeWarning, match="EfficientNMS_TRT"):
        _, check_ok = simplify(model, check_n=3)
    assert not check_ok, "nothing was compared, although that was asked for"
    model.graph.node[1].domain = ""
    with pytest.raises(onnxforge.Error, match="EfficientNMS_TRT"):
        simplify(model)


@pytest.mark.parametrize(
    "providers",
    [
        ["CUDAExecutionProvider", "CPUExecutionProvider"],
        [("CUDAExecutionProvider", {"device_id": 1}), "CPUExecutionProvider"],
        ["MIGraphXExecutionProvider", "CPUExecutionProvider"],
        [("VitisAIExecutionProvider", {"config_file": "vaip_config.json"}), "CPUExecutionProvider"],
    ],
)
def test_onnxsim_providers(providers):
    model = detector()
    model_simp, check = simplify(model, providers=providers)
    assert check and model_simp.graph == simplify(model)[0].graph


def test_onnxsim_function_rewrite_rules_are_refused():
    rule = '<domain: "com.example", opset_import: ["" : 18]> f (x, w, b) => (y) { t = MatMul(x, w)  y = Add(t, b) }'
    pattern = parser.parse_function(rule)
    with pytest.raises(onnxforge.UsageError, match="function_rewrite_rules"):
        simplify(
            detector(),
            skipped_optimizers=["fuse_matmul_add_bias_into_gemm"],
            function_rewrite_rules=[(pattern, pattern)],
        )


# The documentation of onnxslim


@every_example
def test_onnxslim_in_script(name, tmp_path):
    model, feeds = example(name)
    slimmed_model = slim(model)
    if slimmed_model:
        onnx.save(slimmed_model, tmp_path / "slimmed_model.onnx")
    assert_same(model, onnx.load(tmp_path / "slimmed_model.onnx"), feeds)


def test_onnxslim_path_to_path(tmp_path, capsys):
    out = str(tmp_path / "slimmed_onnx_model")
    assert slim(str(EXAMPLES["tiny_bert"]), out) is None
    assert capsys.readouterr() == ("", "")
    assert_same(onnx.load(EXAMPLES["tiny_bert"]), onnx.load(out), FEEDS["tiny_bert"])


def test_onnxslim_output_modification():
    model = detector()
    slimmed = slim(model, outputs=["boxes", "active"])
    assert [value.name for value in slimmed.graph.output] == ["boxes", "active"]
    assert "MatMul" not in operators(slimmed)
    assert_same(model, slimmed, IMAGES, outputs=["boxes"])
    assert [value.name for value in slim(model, outputs=["scores:fp32"]).graph.output] == ["scores"]
    for text in ("scores:fp16", "active:fp32"):
        with pytest.raises(onnxforge.UsageError, match=text):
            slim(model, outputs=[text])
    with pytest.raises(onnxforge.Error, match="nowhere"):
        slim(model, outputs=["nowhere"])


def test_onnxslim_input_shape_modification():
    model = detector()
    for shapes in (["images:2,3,10,10"], "images:2,3,10,10", {"images": [2, 3, 10, 10]}):
        slimmed = slim(model, input_shapes=shapes)
        assert shape(slimmed.graph.input[0]) == [2, 3, 10, 10]
        assert_same(model, slimmed, IMAGES, outputs=["scores", "boxes"])
    for shapes in (["image:2,3,10,10"], ["images:2,3,x"], ["2,3,10,10"]):
        with pytest.raises(onnxforge.UsageError, match="input_shapes"):
            slim(model, input_shapes=shapes)


def test_onnxslim_common_subexpressions():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)'
        "{ a = Exp(x)  b = Exp(x)  c = Sqrt(a)  d = Sqrt(b)  y = Add(c, d) }"
    )
    assert operators(slim(model)) == {"Exp": 1, "Sqrt": 1, "Add": 1}
    skipped = slim(model, skip_optimizations=["subexpression_elimination"])
    assert operators(skipped) == {"Exp": 2, "Sqrt": 2, "Add": 1}


# Calls that projects make


def test_call_of_ultralytics(tmp_path):
    path = saved(tmp_path, "small_cnn")
    original = onnx.load(path)
    model_onnx = onnx.load(path)
    assert onnxforge.__version__
    model_onnx = slim(model_onnx)
    for key, value in {"stride": 32, "task": "detect"}.items():
        meta = model_onnx.metadata_props.add()
        meta.key, meta.value = key, str(value)
    if getattr(model_onnx, "ir_version", 0) > 10:
        model_onnx.ir_version = 10
    onnx.save(model_onnx, path)
    loaded = onnx.load(path)
    assert {each.key: each.value for each in loaded.metadata_props} == {"stride": "32", "task": "detect"}
    assert_same(original, loaded, FEEDS["small_cnn"])


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_llama"])
def test_call_of_optimum_and_transformers_js(name, tmp_path):
    file_path = saved(tmp_path, name)
    slimmed_model = slim(file_path)
    onnx.checker.check_model(slimmed_model)
    onnx.save(slimmed_model, file_path)
    assert_same(onnx.load(EXAMPLES[name]), onnx.load(file_path), FEEDS[name])


@pytest.mark.parametrize("dynamic", [False, True])
def test_call_of_yolov5_before_onnxslim(dynamic, tmp_path):
    model_onnx, image = detector(), IMAGES["images"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made, check = simplify(
            model_onnx, dynamic_input_shape=dynamic, input_shapes={"images": list(image.shape)} if dynamic else None
        )
    assert check, "assert check failed"
    assert any(each.category is DeprecationWarning for each in caught) == dynamic
    assert shape(made.graph.input[0]) == (list(image.shape) if dynamic else ["batch", 3, "height", "width"])
    assert_same(model_onnx, made, IMAGES, outputs=["scores", "boxes"])


def test_call_of_rf_detr(tmp_path):
    path = saved(tmp_path, "small_cnn")
    model_opt, check_ok = simplify(path, check_n=3, input_data=dict(FEEDS["small_cnn"]), dynamic_input_shape=False)
    assert check_ok
    onnx.save(model_opt, path.replace(".onnx", ".sim.onnx"))
    assert_same(onnx.load(path), model_opt, FEEDS["small_cnn"])


def test_call_of_rt_detr(tmp_path):
    path = saved(tmp_path, "tiny_bert")
    shapes = {name: array.shape for name, array in FEEDS["tiny_bert"].items()}
    model_simplified, check = simplify(path, test_input_shapes=shapes)
    assert check
    onnx.save(model_simplified, path)
    assert shape(onnx.load(path).graph.input[0]) == ["batch", "sequence"]
    assert_same(onnx.load(EXAMPLES["tiny_bert"]), onnx.load(path), FEEDS["tiny_bert"])


def test_call_of_yolox_yolov6_yolov7_nanodet_and_mmyolo(tmp_path):
    path = saved(tmp_path, "small_cnn")
    onnx_model = onnx.load(path)
    onnx.checker.check_model(onnx_model)
    onnx_model, check = simplify(onnx_model)
    assert check, "assert check failed"
    onnx.save(onnx_model, path)
    assert_same(onnx.load(EXAMPLES["small_cnn"]), onnx.load(path), FEEDS["small_cnn"])


def test_call_of_openpifpaf(tmp_path):
    path = saved(tmp_path, "tiny_bert")
    simplified_model, check_ok = simplify(path, check_n=3, perform_optimization=False)
    assert check_ok
    assert operators(simplified_model)["Constant"] == 0
    assert_same(onnx.load(path), simplified_model, FEEDS["tiny_bert"])


def test_call_of_furiosa():
    model, check = simplify(
        detector(),
        overwrite_input_shapes={"images": [2, 3, 10, 10]},
        skipped_optimizers=[
            "eliminate_duplicate_initializer",
            "fuse_add_bias_into_conv",
            "fuse_bn_into_conv",
            "fuse_qkv",
        ],
    )
    assert check and operators(model)["BatchNormalization"] == 1
    assert_same(detector(), model, IMAGES, outputs=["scores", "boxes"])


def test_call_of_the_pinto_model_zoo(tmp_path):
    onnx.save(detector(), tmp_path / "model.onnx")
    inputs = {}
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    layer = session.get_inputs()[0]
    inputs[layer.name] = [1, layer.shape[1], 10, 10]
    with pytest.deprecated_call():
        model_simp, check = simplify(onnx.load(tmp_path / "model.onnx"), input_shapes=inputs)
    assert check and shape(model_simp.graph.input[0]) == [1, 3, 10, 10]


def test_call_of_native_llm_for_android(tmp_path):
    model, _ = simplify(
        model=onnx.load(EXAMPLES["tiny_llama"]),
        include_subgraph=True,
        dynamic_input_shape=False,
        tensor_size_threshold="1.99GB",
        perform_optimization=True,
        skip_fuse_bn=False,
        skip_constant_folding=False,
        skip_shape_inference=True,
        mutable_initializer=False,
    )
    assert_same(onnx.load(EXAMPLES["tiny_llama"]), model, FEEDS["tiny_llama"])
    path = saved(tmp_path, "tiny_llama")
    for external in (False, True):
        slim(
            model=path,
            output_model=path,
            no_shape_infer=False,
            skip_fusion_patterns=False,
            no_constant_folding=False,
            save_as_external_data=external,
            verbose=False,
        )
        assert os.path.exists(path + ".data") == external
        assert_same(onnx.load(EXAMPLES["tiny_llama"]), onnx.load(path), FEEDS["tiny_llama"])


def test_call_of_face_recognition_exports_with_model_check(tmp_path):
    onnx.save(detector(), tmp_path / "fixed.onnx")
    slim(
        str(tmp_path / "fixed.onnx"),
        str(tmp_path / "slim.onnx"),
        input_shapes=["images:2,3,10,10"],
        model_check=True,
    )
    assert_same(detector(), onnx.load(tmp_path / "slim.onnx"), IMAGES, outputs=["scores", "boxes"])


def test_call_of_ocr_converters():
    model = slim(detector(), input_shapes=["images:2,3,10,10"], skip_fusion_patterns=["FusionGemm"])
    assert operators(model)["MatMul"] == 1 and operators(model)["Gemm"] == 0
    assert_same(detector(), model, IMAGES, outputs=["scores", "boxes"])


def test_call_of_rknn_converters(tmp_path):
    onnx.save(detector(), tmp_path / "encoder.onnx")
    out = tmp_path / "encoder_slim.onnx"
    slim(str(tmp_path / "encoder.onnx"), output_model=str(out), skip_fusion_patterns=["EliminationSlice"])
    assert operators(onnx.load(out))["Slice"] == 2
    slim(str(tmp_path / "encoder.onnx"), output_model=str(out))
    assert operators(onnx.load(out))["Slice"] == 1


def test_call_of_axera_converters():
    model, check = simplify(
        detector(),
        tensor_size_threshold="1024KB",
        skipped_optimizers=["fuse_matmul_add_bias_into_gemm", "fuse_qkv", "eliminate_duplicate_initializer"],
    )
    assert check and operators(model)["MatMul"] == 1
    assert_same(detector(), model, IMAGES)


# Parameters of simplify


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
eliminate_optional_has_element OptionalHasElement 18 (float[2] x) => (bool y)
    { o = Optional(x) y = OptionalHasElement(o) }
eliminate_sequence_at_construct SequenceAt 17 (float[2] x, float[2] z) => (float[2] y) <int64 q = {1}>
    { o = SequenceConstruct(x, z) i = SequenceAt(o, q) y = Exp(i) }
eliminate_sequence_length_construct SequenceLength 17 (float[2] x, float[2] z) => (int64 y)
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
"""
# Optimizers that stand for nothing, and what therefore stays.
REMOVED_BY_NONE = """
eliminate_nop_softmax Softmax 17 (float[2,1] x) => (float[2,1] y) { i = Softmax(x) y = Exp(i) }
eliminate_nop_monotone_argmax Softmax 17 (float[2,3] x) => (int64[2,1] y) { i = Softmax(x) y = ArgMax<axis=1>(i) }
fuse_consecutive_log_softmax Log 17 (float[2,3] x) => (float[2,3] y) { i = Softmax<axis=1>(x) j = Log(i) y = Exp(j) }
eliminate_reshape_around_elementwise Reshape 17 (float[4,6] x) => (float[4,6] y)
    <int64[2] s = {3, 8}, int64[2] t = {4, 6}> { i = Reshape(x, s) j = Exp(i) y = Reshape(j, t) }
fuse_preceding_mul_into_conv Mul 17 (float[1,3,8,8] x) => (float[1,3,8,8] y)
    <float m = {2.5}, float[3,1,1,1] w = {1.0,2.0,3.0}> { i = Mul(x, m) y = Conv<group=3>(i, w) }
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
    made, check = simplify(model, skipped_optimizers=[name])
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
    for sizes in ([1, 3, -1, 20], [1, 3, 0, 20], [1, 3, 20], [1, 3, 10, 10, 10]):
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
        {"custom_lib": "ops.so"},
        {"initializers_as_constants": False},
        {"custom_rewriter": lambda model: model},
        {"check_rtol": 1e-2},
        {"check_atol": 1e-2},
        {"providers": ["CUDAExecutionProvider"]},
        {"gemm_fusion_backend": "webgpu"},
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
        {"skip_shape_inference": True},
        {"dynamic_input_shape": True},
        {"include_subgraph": True},
        {"import_custom_schemas": False},
        {"certify": False},
        {"custom_lib": None, "extra_optimizers": [], "unused_output": [], "input_data": {}},
    ]:
        assert simplify(detector(), **options)[0] == plain, options
    plain = slim(detector())
    for options in [
        {"no_shape_infer": True},
        {"verbose": True},
        {"inspect": False, "dump_to_disk": False, "inputs": [], "outputs": [], "input_shapes": [], "size_threshold": 0},
        {"skip_optimizations": False, "skip_fusion_patterns": False, "model_check_inputs": None},
        {"model_check": True, "model_check_inputs": ["images:2,3,10,10"]},
    ]:
        assert slim(detector(), **options) == plain, options
    assert not plain.graph.value_info, "no shapes are written"


# Parameters of slim


def test_parts_of_slim_can_be_left_out():
    for options, kept in [
        ({"skip_optimizations": ["constant_folding"]}, "Mul"),
        ({"skip_optimizations": ["graph_fusion"]}, "BatchNormalization"),
        ({"no_constant_folding": True}, "Mul"),
        ({"skip_fusion_patterns": ["FusionConvBN"]}, "BatchNormalization"),
        ({"skip_fusion_patterns": "FusionPadConv"}, "Pad"),
    ]:
        made = slim(detector(), **options)
        assert operators(made)[kept] == 1, options
        assert_same(detector(), made, IMAGES)
    every = ["constant_folding", "graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying"]
    assert operators(slim(detector(), skip_optimizations=every)) == operators(detector())
    with pytest.raises(onnxforge.Error, match="FusionOfAll"):
        slim(detector(), skip_fusion_patterns=["FusionOfAll"])
    with pytest.raises(onnxforge.UsageError, match="FusionGemm"):
        slim(detector(), skip_fusion_patterns=True)


def test_every_pass_has_its_place_among_the_optimizations(forge):
    listed = json.loads(forge("passes", "--json", "-").good().out)
    known = {each["name"] for each in listed}
    portable = [each for each in listed if not each["targets"] or "portable" in each["targets"]]
    default = {each["name"] for each in portable if not each["on_request"]}
    placed = Counter(name for names in compat._OPTIMIZATIONS.values() for name in names)
    assert set(placed) == default and set(placed.values()) == {1}
    for catalogue in (compat._OPTIMIZERS, compat._PATTERNS):
        assert {name for names in catalogue.values() for name in names} <= known


def test_model_check(tmp_path):
    model = detector()
    np.save(tmp_path / "images.npy", IMAGES["images"])
    for given in ("2,3,10,10", tmp_path / "images.npy"):
        slimmed = slim(model, model_check=True, model_check_inputs=[f"images:{given}"])
        assert_same(model, slimmed, IMAGES)
    with pytest.raises(onnxforge.UsageError, match="model_check_inputs"):
        slim(model, model_check=True, model_check_inputs=["image:2,3,10,10"])


def test_a_model_that_no_engine_runs_cannot_be_checked(tmp_path):
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[N,3] x) => (float[N,3] y)'
        "{ i = Identity(x)  z = my.Mystery(i)  y = Relu(z) }"
    )
    assert operators(slim(model)) == {"Mystery": 1, "Relu": 1}
    for output in (None, tmp_path / "out.onnx"):
        with pytest.raises(onnxforge.Error, match="Mystery"):
            slim(model, output, model_check=True)
    assert not os.listdir(tmp_path)


def test_save_as_external_data(tmp_path):
    out = tmp_path / "out.onnx"
    for check in (False, True):
        slim(str(EXAMPLES["tiny_bert"]), out, save_as_external_data=True, model_check=check)
        assert sorted(os.listdir(tmp_path)) == ["out.onnx", "out.onnx.data"]
        assert_same(onnx.load(EXAMPLES["tiny_bert"]), onnx.load(out), FEEDS["tiny_bert"])
        for name in os.listdir(tmp_path):
            os.remove(tmp_path / name)
    with pytest.raises(onnxforge.UsageError, match="save_as_external_data"):
        slim(detector(), save_as_external_data=True)


@pytest.mark.parametrize(
    "options",
    [
        {"inputs": ["active:fp32"]},
        {"dtype": "fp16"},
        {"dtype": "fp32"},
        {"size_threshold": 1024},
        {"inspect": True},
        {"dump_to_disk": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_slim_refuses_by_name(options):
    (name,) = options
    with pytest.raises(onnxforge.UsageError, match=name):
        slim(detector(), **options)


def test_slim_refuses_lists_of_models():
    with pytest.raises(onnxforge.UsageError, match="onnxforge inspect"):
        slim([str(path) for path in EXAMPLES.values()])


# What is found wrong


class Result:
    def __init__(self, model, verified, reverted=()):
        self.model, self.verified = model, verified
        self.report = {"verification": {"reverted": list(reverted), "unverified": None}}


def test_a_wrong_result_is_not_called_good(monkeypatch):
    monkeypatch.setattr(onnxforge, "optimize", lambda model, *_, **options: Result(model, False))
    assert simplify(detector())[1] is False
    with pytest.raises(onnxforge.Error):
        slim(detector())


def test_edits_that_were_left_out_are_told(monkeypatch):
    monkeypatch.setattr(onnxforge, "optimize", lambda model, **_: Result(model, True, [{"pass": "fuse_wrong"}]))
    with pytest.warns(RuntimeWarning, match="fuse_wrong"):
        assert simplify(detector())[1] is True
    with pytest.warns(RuntimeWarning, match="fuse_wrong"):
        slim(detector())
