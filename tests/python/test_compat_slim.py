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

from drop_ins import EXAMPLES, FEEDS, IMAGES, assert_same, detector, operators


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
