"""Models and comparisons for the tests of `onnxforge.simplify` and `onnxforge.slim`."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxforge
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

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
