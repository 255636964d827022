"""Every parameter of `slim`: honoured, without meaning here, or refused by name."""

import json
import os
from collections import Counter

import numpy as np
import onnx
import onnxforge
import pytest
from onnx import parser
from onnxforge import slim
from onnxforge.compat import _names

from drop_ins import EXAMPLES, FEEDS, IMAGES, assert_same, detector, operators, results


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
    placed = Counter(name for names in _names.OPTIMIZATIONS.values() for name in names)
    assert set(placed) == default and set(placed.values()) == {1}
    for catalogue in (_names.OPTIMIZERS, _names.PATTERNS):
        assert {name.partition(".")[0] for names in catalogue.values() for name in names} <= known


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
    assert slim(detector(), save_as_external_data=True) == slim(detector())


@pytest.mark.parametrize(
    "options",
    [
        {"inputs": ["nobody"]},
        {"inputs": ["active:fp16"]},
        {"dtype": "fp8"},
        {"dump_to_disk": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_slim_refuses_by_name(options):
    (name,) = options
    with pytest.raises(onnxforge.UsageError, match=name):
        slim(detector(), **options)


def test_lists_of_models_are_shown(capsys):
    assert slim([str(path) for path in EXAMPLES.values()]) is None
    said = capsys.readouterr().out
    assert all(name in said for name in EXAMPLES)


def test_inspect_prints_both(capsys, tmp_path):
    made = slim(detector(), inspect=True)
    assert operators(made)["BatchNormalization"] == 0
    assert "BatchNormalization" in capsys.readouterr().out
    slim(detector(), tmp_path / "out.onnx", inspect=True)
    assert "BatchNormalization" in capsys.readouterr().out


def test_a_part_can_be_cut_out():
    made = slim(detector((2, 3, 10, 10)), inputs=["active:fp32"], outputs=["scores"])
    assert [value.name for value in made.graph.input] == ["active"] and "Conv" not in operators(made)
    full = onnx.load_from_string(detector((2, 3, 10, 10)).SerializeToString())
    full.graph.output.append(onnx.helper.make_empty_tensor_value_info("active"))
    expected = onnxforge.run(full, IMAGES)
    np.testing.assert_allclose(onnxforge.run(made, {"active": expected["active"]})["scores"], expected["scores"], rtol=1e-4)
    with pytest.raises(onnxforge.UsageError, match="images"):
        slim(detector(), inputs=["product"])


def test_constants_above_a_size_are_not_made():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[64,64] x) => (float[64,64] y)'
        "<float[1,1] c = {2.0}, int64[2] s = {64, 64}> { e = Expand(c, s)  t = Tanh(e)  y = MatMul(x, t) }"
    )
    assert operators(slim(model)) == {"MatMul": 1}
    assert operators(slim(model, size_threshold=1 << 20)) == {"MatMul": 1}
    assert operators(slim(model, size_threshold=1024)) != {"MatMul": 1}


def test_float16():
    model, feeds = onnx.load(EXAMPLES["small_cnn"]), FEEDS["small_cnn"]
    made = slim(model, dtype="fp16")
    kinds = {value.type.tensor_type.elem_type for value in [*made.graph.input, *made.graph.output]}
    assert kinds == {onnx.TensorProto.FLOAT16}
    onnx.checker.check_model(made, full_check=True)
    got = results(made, {name: value.astype(np.float16) for name, value in feeds.items()})
    expected = onnxforge.run(model, feeds, engine="oracle")
    for name, value in expected.items():
        assert np.abs(got[name] - value).max() <= 0.01 * np.abs(value).max()
    with pytest.raises(onnxforge.UsageError, match="not widened"):
        slim(made, dtype="fp32")
