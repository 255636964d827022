"""Rounding is told from errors."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from unittest.mock import patch

import exports
import numpy as np
import onnx
import onnxforge
import onnxforge.torch
import pytest
import torch
from onnxforge.torch import _check
from onnxforge.torch._arguments import Call
from torch import nn

VALUES = np.linspace(-3, 3, 50, dtype=np.float32)


@pytest.mark.parametrize(
    ("found", "right", "verdict"),
    [
        (VALUES, VALUES.copy(), "identical"),
        (VALUES * np.float32(1 + 3e-7), VALUES, "rounding"),
        (VALUES * np.float32(1.001), VALUES, "error"),
        # A small value beside large ones may be far off, as shares of itself go.
        (np.where(np.arange(50) == 25, VALUES + np.float32(1e-6), VALUES), VALUES, "rounding"),
        (VALUES.astype(np.float16), (VALUES * 1.001).astype(np.float16), "rounding"),
        (VALUES.astype(np.float64), VALUES.astype(np.float64) * (1 + 1e-10), "error"),
        (VALUES, VALUES.astype(np.float64), "error"),
        (VALUES.reshape(5, 10), VALUES, "error"),
        (np.arange(4), np.array([0, 1, 2, 4]), "error"),
        (np.array([1.0, np.nan, np.inf]), np.array([1.0, np.nan, np.inf]) + 0.0, "identical"),
        (np.array([1.0 + 1e-14, np.nan, np.inf]), np.array([1.0, np.nan, np.inf]), "rounding"),
        (np.array([1.0, np.nan]), np.array([np.nan, 1.0]), "error"),
        (np.array([1.0, np.inf]), np.array([1.0, -np.inf]), "error"),
        (np.array([1.0, 2.0]), np.array([1.0, np.inf]), "error"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "identical"),
        (np.array([1 + 1j]), np.array([1 + 1.1j]), "error"),
    ],
)
def test_verdicts(found: np.ndarray, right: np.ndarray, verdict: str) -> None:
    assert _check.compared("y", found, right).verdict == verdict


class Cancelling(nn.Module):
    """Large values of which little is left: every order of adding them gives something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)).sum(-1)


def test_a_float64_run_of_pytorch_judges_large_differences(tmp_path: Path) -> None:
    torch.manual_seed(1)
    x = torch.rand(8, 50_000) * 1e4
    with exports.quiet():
        result = onnxforge.torch.export(Cancelling(), (x,), tmp_path / "m.onnx", check=True, verbose=False)
    assert result.check is not None
    output = result.check.outputs[0]
    assert output.verdict == "rounding"
    assert output.difference > torch.finfo(torch.float32).eps ** _check.FREE
    assert "float64" in output.detail


class Doubler(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.norm(x) * 2, "count": x.argmax(-1)}


def test_checking_changes_nothing(tmp_path: Path) -> None:
    """Inputs and buffers keep their values, also in training mode."""
    model, x = Doubler().train(), torch.randn(8, 4)
    before, given = {name: value.clone() for name, value in model.state_dict().items()}, x.clone()
    with exports.quiet():
        result = onnxforge.torch.export(model, (x,), tmp_path / "m.onnx", strategy="torchscript", check=True)
    assert result.check and len(result.check.outputs) == 2
    assert model.training
    assert torch.equal(x, given)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_without_onnx_runtime_onnxforge_computes(tmp_path: Path) -> None:
    found = importlib.util.find_spec
    with (
        exports.quiet(),
        patch("importlib.util.find_spec", lambda name, *rest: None if name == "onnxruntime" else found(name, *rest)),
    ):
        result = onnxforge.torch.export(
            nn.Linear(4, 2), (torch.randn(3, 4),), tmp_path / "m.onnx", check=True, verbose=False
        )
    assert result.check is not None
    assert result.check.engine == "onnxforge"
    assert "1 output" in str(result.check)


def test_outputs_are_counted(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    with exports.quiet():
        onnxforge.torch.export(model, (torch.randn(3, 4),), tmp_path / "m.onnx", verbose=False)
    file = onnx.load(tmp_path / "m.onnx")
    file.graph.output.append(file.graph.output[0])
    file.graph.output[1].name = "twice"
    file.graph.node.append(onnx.helper.make_node("Identity", [file.graph.output[0].name], ["twice"]))
    onnx.save(file, tmp_path / "two.onnx")
    told = _check.check(model, Call((torch.randn(3, 4),), {}), tmp_path / "two.onnx", evaluate=True)
    assert not told
    assert "2 outputs" in str(told)


@pytest.mark.parametrize("strategy", ["dynamo", "torchscript"])
def test_what_does_not_repeat_itself_is_not_good(strategy: str) -> None:
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand_like(x)

    with pytest.raises(onnxforge.torch.CheckError, match="does not repeat itself"):
        onnxforge.torch.export(Noisy(), (torch.zeros(2, 8),), strategy=strategy, check=True)


def test_outputs_that_are_no_floats_do_not_hide_the_others(tmp_path: Path) -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return 2.0 * x, x.argmax(-1)

    model, x = Both(), torch.arange(8.0).reshape(2, 4)
    exported = onnxforge.torch.export(model, (x,), tmp_path / "m.onnx")
    names = [value.name for value in exported.model.graph.output]
    right = [2.0 * x.numpy(), x.argmax(-1).numpy()]
    for results, wrong in (([2.1 * x.numpy(), right[1]], names[0]), ([right[0], right[1] + 1], names[1])):
        outputs = [_check.compared(name, found, value) for name, found, value in zip(names, results, right)]
        judged = _check._judged(model, Call.of((x,), None), True, outputs, dict(zip(names, results)), right)
        assert [output.name for output in judged if output.verdict == "error"] == [wrong]
