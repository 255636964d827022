"""Which module every node comes from, against what PyTorch executed in each module."""

from __future__ import annotations

import exports
import pytest
import truth
from onnxforge.torch import _recorder

# Nodes that a rewrite of PyTorch's exporter makes without telling where from; found by their neighbours.
UNTOLD = {("gpt2", "dynamo"): 2, ("yolo", "dynamo"): 2}
# Nodes to which PyTorch gives no scope: helpers of recurrent layers, and what comes out of compiled functions.
UNSCOPED = {"lstm": 9, "looped": 3}


def wrong(made: exports.Made) -> tuple[dict[str, object], int]:
    """The nodes that are attributed to other modules than PyTorch ran, and how many nodes are compared."""
    named = made.origins()
    seen, inside = truth.Oracle(made.truth).of_nodes(made.model.graph, made.values)
    found = {name: (named[name], paths) for name, paths in seen.items() if not paths.intersection(named[name])}
    found |= {name: (named[name], path) for name, path in inside.items() if path not in named[name]}
    return found, len(seen) + len(inside)


@pytest.mark.parametrize(("name", "strategy"), exports.NAMES)
def test_every_node_names_the_module_that_ran(name: str, strategy: str, made: exports.Exports, record_row) -> None:
    exported = made.made(name, strategy)
    found, compared = wrong(exported)
    computing = [node for node in exported.model.graph.node if node.op_type not in truth.FROM_NOTHING | truth.HAND_ON]
    record_row(
        "origins", f"{name}.{strategy}", nodes=len(exported.model.graph.node), compared=compared, wrong=len(found)
    )
    assert not found
    assert compared >= 0.75 * len(computing)
    inexact = UNTOLD.get((name, strategy), 0) if strategy == "dynamo" else UNSCOPED.get(name, 0)
    assert len(exported.evidence()) == inexact
    assert "root" not in exported.evidence().values()


@pytest.mark.parametrize("name", [name for name, strategy in exports.NAMES if strategy == "torchscript"])
def test_names_alone_are_never_wrong(name: str, made: exports.Exports, record_row) -> None:
    """Without the recorder, onnxforge resolves names with the table. What PyTorch merged into a convolution is then
    not known, and all that is.
    """
    exported = made.made(name, "torchscript", recorder=False)
    found, compared = wrong(exported)
    convolutions = {node.output[0] for node in exported.model.graph.node if node.op_type == "Conv"}
    merged = {output for output, (_, paths) in found.items() if output in convolutions and followed_by(exported, paths)}
    record_row("names", name, compared=compared, wrong=len(found) - len(merged), merged=len(merged))
    assert set(found) == merged


def followed_by(made: exports.Made, paths: set[str]) -> bool:
    """Whether the modules are normalizations."""
    table = {
        path: type(module).__name__ for path, module in exports.models.MODELS[made.name].build()[0].named_modules()
    }
    return all(table[path].startswith("BatchNorm") for path in paths)


@pytest.mark.parametrize(("name", "strategy"), [("bert", "dynamo"), ("resnet", "torchscript")])
def test_the_comparison_notices_errors(name: str, strategy: str, made: exports.Exports) -> None:
    """Origins that are moved by one node are found to be wrong."""
    exported = made.made(name, strategy)
    seen, _ = truth.Oracle(exported.truth).of_nodes(exported.model.graph, exported.values)
    named = list(exported.origins().items())
    moved = {output: named[index - 1][1] for index, (output, _) in enumerate(named)}
    noticed = sum(not paths.intersection(moved[output]) for output, paths in seen.items())
    assert noticed > len(seen) / 3


def test_the_recorder_knows_what_names_do_not(made: exports.Exports) -> None:
    """Names of this model mean other modules than they seem to."""
    exported = made.made("reused", "torchscript")
    origins = {node.name: exports.stored(node, "onnxforge.module") for node in exported.model.graph.node}
    assert origins["/proj_1/Gemm"] == ["proj"]
    assert origins["/proj_1/Gemm_1"] == ["proj_1"]


def test_private_functions_are_put_back(made: exports.Exports) -> None:
    import torch

    made.made("cnn", "torchscript")
    exporter = _recorder._exporter()
    assert getattr(exporter, _recorder._SETUP).__module__ == exporter.__name__
    for name in (_recorder._NAMING, _recorder._MERGING):
        assert type(getattr(torch._C, name)).__name__ == "builtin_function_or_method"
