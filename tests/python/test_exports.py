"""All passes together on graphs as exporters write them: what was decomposed becomes the operator, in any order of the passes."""

import random

import exports
import onnx
import passes
import pytest
from test_optimize import assert_equal, report

ROTARY = {"RotaryEmbedding": 4, "Attention": 2}
CASES = {
    **{
        f"{family}, {exporter}": (exports.rotary(family, exporter == "script"), "23", ROTARY)
        for family in ("gptj", "roformer", "cohere")
        for exporter in ("script", "dynamo")
    },
    "hard swish": (exports.hard_swish(), "keep", {"Conv": 4, "HardSwish": 4}),
    **{
        f"instance norm of {sizes} at {opset}": (
            exports.instance_norm(sizes, opset),
            "keep",
            {"Conv": 3, "InstanceNormalization": 3, "Relu": 3},
        )
        for sizes, opset in (((6, 6), 13), ((6, 6), 17), ((6, 6), 18), (("height", "width"), 18))
    },
}


@pytest.mark.parametrize("name", CASES)
def test_exports_are_recognised(forge, name, tmp_path):
    model, opset, wanted = CASES[name]
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(model, path)
    found = report(forge, path, out, "--opset", opset)
    for operator, count in wanted.items():
        assert found["operators"][operator][1] == count, found["operators"]
    assert_equal(forge, path, out, tmp_path)
    every = list(passes.passes(forge.binary))
    for seed in range(3):
        shuffled = ",".join(random.Random(seed).sample(every, len(every)))
        again = report(forge, path, out, "--opset", opset, "--passes", shuffled)
        assert again["after"]["nodes"] == found["after"]["nodes"]
