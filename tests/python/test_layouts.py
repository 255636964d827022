"""Models that are full of Transposes: how many are left, and that ONNX Runtime gets the same from them."""

import layouts
import onnx
import passes
import pytest
from test_optimize import assert_equal, report

# What must be left: the way into channels first and out of it again; in a detector the boxes and scores of three scales; in a Swin
# transformer the way out of the first Conv, two Transposes around the windows of each block and three of its attention.
LEFT = {"nhwc_resnet": 1, "nhwc_mobilenet": 1, "nhwc_unet": 2, "nhwc_detector": 7, "swin": 21}


@pytest.fixture(params=layouts.MODELS, ids=lambda make: make.__name__)
def made(request, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(request.param(), path)
    return request.param.__name__, path


def test_few_are_left(forge, made, tmp_path):
    name, model = made
    out = tmp_path / "out.onnx"
    found = report(forge, model, out)
    assert layouts.transposes(onnx.load(out)) == LEFT[name]
    assert found["after"]["nodes"] <= found["before"]["nodes"]
    assert_equal(forge, model, out, tmp_path)


def test_alone_it_gives_the_same(forge, made, tmp_path):
    _, model = made
    out = tmp_path / "out.onnx"
    found = report(forge, model, out, "--passes", "cancel_transposes")
    assert found["after"]["nodes"] <= found["before"]["nodes"]
    assert_equal(forge, model, out, tmp_path)


def test_the_order_of_passes_does_not_matter(forge, made, tmp_path):
    import random

    _, model = made
    known = list(passes.passes(forge.binary))
    left = {
        report(forge, model, tmp_path / f"{seed}.onnx", "--passes", ",".join(random.Random(seed).sample(known, len(known))))[
            "after"
        ]["nodes"]
        for seed in range(3)
    }
    assert left == {report(forge, model, tmp_path / "out.onnx")["after"]["nodes"]}
