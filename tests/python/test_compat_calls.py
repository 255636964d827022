"""The examples of onnxsim and onnxslim, and the calls that well-known projects make, with the import changed."""

import os
import warnings

import onnx
import onnxforge
import onnxruntime
import pytest
from onnx import parser
from onnxforge import simplify, slim
from onnxforge.compat import _shared

from drop_ins import EXAMPLES, FEEDS, IMAGES, assert_same, detector, every_example, example, operators, saved, shape

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
    monkeypatch.setattr(_shared, "LARGEST_MESSAGE", 1000)
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
    model_simp, _ = simplify(model)
    assert operators(model_simp) == {"EfficientNMS_TRT": 1, "Relu": 1}, "what nobody defines stays as it is, also in the standard domain"


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
