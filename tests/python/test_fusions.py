"""The golden cases of fusions into today's operators and of targets, in ONNX Runtime: both sides of a case give the same."""

import re

import native
import numpy as np
import passes
import pytest
from corpus import ROOT
from test_optimize import report

FUSIONS = [
    "decompose_layernorm",
    "fuse_attention",
    "fuse_attention_qkv",
    "fuse_conv_relu",
    "fuse_gelu",
    "fuse_hard_sigmoid",
    "fuse_instance_norm",
    "fuse_layer_norm",
    "fuse_log_softmax",
    "fuse_rms_norm",
    "fuse_rotary_embedding",
    "fuse_softplus",
    "ort_bias_gelu",
    "ort_conv_activation",
    "ort_gemm_activation",
    "ort_matmul",
    "ort_quick_gelu",
    "ort_skip_layer_norm",
]
HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


def cases():
    for name in FUSIONS:
        text = (ROOT / "crates/onnxforge-rewrite/tests/rules" / f"{name}.onnxtxt").read_text()
        for case in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
            title, rest = case.split("\n", 1)
            before, verdict = rest.split("\n--- ", 1)
            # ONNX Runtime has no kernels for bfloat16 on CPUs, and no case of it can be fed. Sizes of caches add up, which the independent sizes of
            # this test do not, and `optimize` does not prove lengths of outputs that have names of their own: with caches, whole decoders are
            # tried in tests/torch.
            if "bfloat16" in rest or title.startswith("appended to a cache"):
                continue
            if verdict.startswith("becomes"):
                before = before if before.startswith("<") else HEADER + before
                yield pytest.param(name, before, id=f"{name}: {title}")


@pytest.mark.parametrize("name, text", list(cases()))
def test_onnx_runtime_agrees(forge, name, text, tmp_path):
    (tmp_path / "case.onnxtxt").write_text(text)
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    forge("parse", tmp_path / "case.onnxtxt", "-o", model).good()
    found = report(forge, model, out, "--passes", name)
    assert found["passes"][0]["edits"] > 0
    before, after = native.session(model), native.session(out)
    for size in (1, 2, 5):
        dims = native.flags(f"{dim}={size + index % 2}" for index, dim in enumerate(passes.named_dims(model)))
        _, inputs, _ = native.run_ours(forge.binary, model, tmp_path, *dims)
        # Rows of masks that hide every key, and such that hide none.
        for masks in (None, False, True):
            given = {
                key: np.full_like(value, masks) if masks is not None and value.dtype == bool else value
                for key, value in inputs.items()
            }
            expected = before.run(None, native.feeds_of(before, given))
            actual = after.run(None, native.feeds_of(after, given))
            for x, y in zip(expected, actual, strict=True):
                assert native.relative_error(y, x) <= (1e-5 if x.dtype == np.float32 else 2e-3)
