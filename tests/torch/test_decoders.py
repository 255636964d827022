"""Decoders with a key/value cache: what optimize makes of them is compared with an empty and with a filled cache."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxforge
import pytest
import truth

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import export_decoders

CASES = [
    ("gpt2", "dynamo", "cached"),
    ("llama", "dynamo", "one"),
    ("llama", "script", "one"),
    ("llama", "script", "merged"),
    ("qwen3", "dynamo", "positions"),
    ("gemma3", "script", "cached"),
    ("falcon", "dynamo", "cached"),
    ("t5", "script", "cached"),
]


def attention(graph: onnx.GraphProto) -> list[bool]:
    """Whether each Attention of a graph, branches included, appends to a cache; no attention is decomposed beside them."""
    found = []
    for node in graph.node:
        assert node.op_type != "Softmax"
        if node.op_type == "Attention":
            found.append(len(node.input) > 4)
        for attribute in node.attribute:
            found += attention(attribute.g) if attribute.HasField("g") else []
    return sorted(found)


def expected_attention(family: str, variant: str) -> list[bool]:
    """One with the cache for each layer; one without it for states of an encoder, or in the branch of the first step."""
    layers = export_decoders.FAMILIES[family].layers
    without = export_decoders.FAMILIES[family].crosses or variant == "merged"
    return [False] * (layers * without) + [True] * layers


@pytest.mark.parametrize(("family", "exporter", "variant"), CASES)
def test_caches_are_compared_empty_and_filled(family: str, exporter: str, variant: str, tmp_path: Path) -> None:
    told = export_decoders.export(tmp_path, family, exporter, variant)
    assert "right" in told["runs"].values(), told
    given, made = tmp_path / told["file"], tmp_path / "optimized.onnx"
    decoder = export_decoders.Flat(export_decoders.FAMILIES[family], variant)
    for opset in ("keep", 23):
        result = onnxforge.optimize(given, made, opset=opset)
        compared = result.report["verification"]["global"]
        assert compared is not None and compared["verdict"] in ("identical", "rounding")
        pasts = [int(past) for sizes in compared["sizes"] for past in re.findall(r"\bpast=(\d+)", sizes)]
        assert min(pasts) == 0 and max(pasts) > 0, compared["sizes"]
        if opset == 23:
            assert attention(onnx.load(made).graph) == expected_attention(family, variant)
        # The result runs wherever the file does, and gives the same.
        sessions = [truth.session(onnx.load(path)) for path in (given, made)]
        taken = {port.name for port in sessions[0].get_inputs()}
        for sizes, outcome in told["runs"].items():
            if outcome != "right":
                continue
            batch, past, new = (int(size) for size in re.findall(r"=(\d+)", sizes))
            values = export_decoders.example(decoder, export_decoders.sizes(batch, new, past))
            values = {name: value for name, value in values.items() if name in taken}
            first, second = (session.run(None, values) for session in sessions)
            for expected, found in zip(first, second, strict=True):
                assert found.shape == expected.shape
                scale = float(np.abs(expected).max(initial=0)) or 1.0
                assert np.abs(found - expected).max(initial=0) <= 1e-5 * scale, sizes
