"""What older versions of PyTorch lack, taken away from this one. Files that they wrote are tests/python/test_torch_versions.py."""

from __future__ import annotations

import collections
import functools
from pathlib import Path

import exports
import models
import onnxforge
import onnxforge.torch
import pytest
import torch
from onnxforge.torch import _arguments, _export
from torch.utils import _pytree

Pair = collections.namedtuple("Pair", "first second")


def without(monkeypatch: pytest.MonkeyPatch, *parameters: str) -> None:
    """`torch.onnx.export` seems not to have these parameters."""
    takes = _export._takes
    monkeypatch.setattr(_export, "_takes", lambda name: name not in parameters and takes(name))


def test_names_of_tensors_without_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1)
    value = {"b": [x, (x, None, 3)], "a": Pair(x, {"z": x}), "o": collections.OrderedDict(k=x)}
    names = [name for name, _ in _arguments.named_tensors(value, "x")]
    assert names == ["x_b_0", "x_b_1_0", "x_a_first", "x_a_second_z", "x_o_k"]
    monkeypatch.delattr(_pytree, "tree_flatten_with_path")
    assert [name for name, _ in _arguments.named_tensors(value, "x")] == names
    assert [name for name, _ in _arguments.named_tensors(x, "x")] == ["x"]


def test_auto_leaves_the_earlier_exporter_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It writes modules as functions, and takes no shapes."""
    without(monkeypatch, "dynamic_shapes")
    model, kwargs = models.MODELS["cnn"].build()
    with exports.quiet():
        exported = onnxforge.torch.export(model, (), tmp_path / "m.onnx", kwargs=kwargs, check=True)
    assert (exported.strategy, exported.fallback) == ("torchscript", None)


@pytest.mark.parametrize("options", [{"optimize": False}, {"optimize": True, "torch_optimize": False}])
def test_nothing_is_told_that_pytorch_does_not_take(
    options: dict[str, bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told, export = [], torch.onnx.export

    @functools.wraps(export)
    def listening(*args: object, **kwargs: object) -> object:
        told.append(kwargs)
        return export(*args, **kwargs)

    monkeypatch.setattr(torch.onnx, "export", listening)
    without(monkeypatch, "optimize", "dynamic_shapes")
    model, kwargs = models.MODELS["reused"].build()
    with exports.quiet():
        onnxforge.torch.export(model, tuple(kwargs.values()), tmp_path / "m.onnx", dynamo=False, **options)
    assert [set(found) for found in told] == [{"dynamo"}]


def test_an_export_does_not_fail_for_the_names_in_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a file calls modules otherwise than the model does, its names stand."""
    tag = onnxforge.tag

    def refusing(model: object, **options: object) -> object:
        if options.get("modules") is not None:
            raise onnxforge.RequestError("the nodes do not come from these modules")
        return tag(model, **options)

    monkeypatch.setattr(onnxforge, "tag", refusing)
    model, kwargs = models.MODELS["cnn"].build()
    with pytest.warns(UserWarning, match="names that the file gives"):
        exported = onnxforge.torch.export(model, tuple(kwargs.values()), tmp_path / "m.onnx", strategy="dynamo")
    assert exported.report["coverage"]["with_parameters"]["root"] == 0
