"""Every module, cut out of the exported file, computes what PyTorch's module computed on the same inputs."""

from __future__ import annotations

from pathlib import Path

import exports
import models
import numpy as np
import pytest
import truth
from torch import nn

# How many modules were cut out and equal PyTorch's, at least, of models of the same size.
AT_LEAST = {
    ("cnn", "dynamo"): 16,
    ("cnn", "torchscript"): 13,
    ("resnet", "dynamo"): 48,
    ("resnet", "torchscript"): 48,
    ("bert", "dynamo"): 38,
    ("bert", "torchscript"): 40,
    ("vit", "dynamo"): 32,
    ("llama", "dynamo"): 31,
    ("gpt2", "dynamo"): 25,
}


@pytest.mark.parametrize(("name", "strategy"), exports.NAMES)
def test_parts_compute_what_pytorch_did(
    name: str, strategy: str, made: exports.Exports, tmp_path: Path, record_row
) -> None:
    exported = made.made(name, strategy)
    parts, lost = exports.cut_out(exported, tmp_path)
    different = {part.module: part for part in parts if part.equal < part.outputs}
    merged = {path for path in different if gives_what_a_normalization_gives(exported, different[path])}
    moved = {path for path in set(different) - merged if laid_out_otherwise(exported, different[path])}
    equal = len(parts) - len(different) + len(moved)
    record_row(
        "extraction",
        f"{name}.{strategy}",
        called=len(exported.truth.calls),
        cut_out=len(parts),
        equal=equal,
        merged=len(merged),
        without_nodes=len(lost),
        inputs_of_pytorch=sum(part.fed_by_pytorch for part in parts),
    )
    assert set(different) == merged | moved
    assert equal >= AT_LEAST.get((name, strategy), 1)
    for path, reason in lost.items():
        assert "has no nodes" in reason
        assert hands_on(exported, path) or not computed(exported, path), (path, reason)


def gives_what_a_normalization_gives(made: exports.Made, part: exports.Part) -> bool:
    """Exporters merge a normalization into the convolution before it, so that no value of the file is the
    convolution's.
    """
    model, _ = models.MODELS[made.name].build()
    if not isinstance(model.get_submodule(part.module), nn.Conv2d):
        return False
    norms = [path for path, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)]
    behind = [call.outputs[0] for path in norms for call in made.truth.calls[path]]
    return any(truth.close(value, output, 1e-4) for value in part.results for output in behind)


def laid_out_otherwise(made: exports.Made, part: exports.Part) -> bool:
    """What PyTorch's module gave is there in another layout, or nothing of the file reads it."""
    graph = made.model.graph
    read = {name for node in graph.node for name in node.input} | {port.name for port in graph.output}
    values = [value for name, value in made.values.items() if name in read]
    ordered = [np.sort(value, axis=None) for value in part.results]
    for output in (output for call in made.truth.calls[part.module] for output in call.outputs):
        given = any(truth.close(np.sort(output, axis=None), value, 1e-4) for value in ordered)
        if not given and any(truth.close(output, value) for value in values):
            return False
    return bool(ordered)


def hands_on(made: exports.Made, path: str) -> bool:
    """Whether a module gives what it is given."""
    return all(
        any(truth.close(output, given) for given in call.inputs)
        for call in made.truth.calls[path]
        for output in call.outputs
    )


def computed(made: exports.Made, path: str) -> bool:
    """Whether a node of the file computes what the module gave."""
    results = [made.values[name] for node in made.model.graph.node for name in node.output if name in made.values]
    return any(
        truth.close(output, value) for call in made.truth.calls[path] for output in call.outputs for value in results
    )
