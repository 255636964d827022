"""A TorchScript trace keeps one path of Python. Where the value of a tensor chose it, one comparison does not say that the file is right."""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import exports
import onnxforge.torch
import pytest
import torch
from onnxforge.torch import CheckError, UndeterminedError, _values
from onnxforge.torch._arguments import Call
from torch import nn

X = torch.ones(2, 4)


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1 if x.shape[0] > 1 else x
        return y * 2 if x.sum() > 0 else y - 1


class Later(nn.Module):
    """The value is looked at long after it was computed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positive = x.sum() > 0
        y = torch.relu(x) + 1
        return y * 2 if positive else y


class Loop(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.sum() < 20:
            x = x + 1
        return x


class Number(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()


class Integer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1)[: int(x.sum())]


class Listed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * sum(x.sum(0).tolist())


class Sizes(nn.Module):
    """Conditions, loops and numbers of sizes, of which PyTorch warns as well."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(int(x.shape[0]), -1)
        for number in range(x.shape[1]):
            y = y + number
        if x.size() != (2, 4) or x.numel() > 100:
            raise ValueError(x.size())
        return y if x.shape[0] > 1 else -y


class Own(nn.Module):
    """A condition on a parameter, which is the same for all arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.gate = nn.Linear(4, 4), nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if self.gate > 0 else x


class Followed(nn.Module):
    """The trace follows the value into the slice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : x.sum(0).argmax() + 1]


class Flag(nn.Module):
    """An argument that is no tensor is fixed in the file; one that is a tensor is not."""

    def forward(self, x: torch.Tensor, flag: Any = False, scale: Any = 2.0) -> torch.Tensor:
        return x * scale if flag else x


def exported(model: nn.Module, **options: object) -> onnxforge.torch.Exported:
    with exports.quiet():
        return onnxforge.torch.export(model, (X,), strategy="torchscript", verbose=False, **options)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (Branch(), "boolean"),
        (Later(), "boolean"),
        (Loop(), "boolean"),
        (Number(), "number"),
        (Integer(), "integer"),
        (Listed(), "list"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_values_that_python_looked_at_leave_it_undetermined(model: nn.Module, kind: str) -> None:
    with pytest.raises(UndeterminedError, match=rf"test_undetermined.py:\d+ \({kind}\)") as raised:
        exported(model, check=True)
    result = raised.value.exported
    assert isinstance(raised.value, CheckError)
    assert result.undetermined is not None and kind in result.undetermined
    assert result.ok is None
    assert result.check is not None and not result.check and result.check.agrees
    assert str(result.check).startswith("undetermined: ") and "the same as PyTorch" in str(result.check)
    # What was found is told without a check, too; with it, as a warning where that is wanted.
    assert exported(model).undetermined == result.undetermined
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        lenient = onnxforge.torch.export(model, (X,), strategy="torchscript", verbose=False, check="warn")
    assert lenient.ok is None
    assert sum("undetermined" in str(warning.message) for warning in heard) == 1


@pytest.mark.parametrize("model", [Sizes(), Own(), Followed(), Flag()], ids=lambda model: type(model).__name__)
def test_what_does_not_depend_on_values_is_good(model: nn.Module) -> None:
    result = exported(model, check=True)
    assert result.undetermined is None
    assert result.ok is True and result.check


def test_flags_count_where_they_are_tensors() -> None:
    for flag, is_value in ((True, False), (torch.tensor(True), True)):
        with exports.quiet():
            result = onnxforge.torch.export(Flag(), (X, flag), strategy="torchscript", verbose=False)
        assert (result.undetermined is not None) == is_value


def test_the_other_exporter_is_not_concerned() -> None:
    with exports.quiet():
        result = onnxforge.torch.export(nn.Linear(4, 4), (X,), strategy="dynamo", verbose=False, check=True)
    assert result.undetermined is None and result.ok is True
    assert exported(Own()).ok is None


def test_warnings_of_pytorch_come_through_and_the_file_is_the_same() -> None:
    ours, plain = io.BytesIO(), io.BytesIO()
    heard: list[list[str]] = []
    for export in (
        lambda: onnxforge.torch.export(Branch(), (X,), ours, strategy="torchscript", verbose=False),
        lambda: torch.onnx.export(Branch(), (X,), plain, dynamo=False, verbose=False),
    ):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            export()
        traced = [each for each in found if issubclass(each.category, torch.jit.TracerWarning)]
        assert all(each.filename == __file__ for each in traced)
        heard.append([str(each.message) for each in traced])
    assert heard[0] == heard[1] and len(heard[0]) == 2
    assert bytes(onnxforge.strip(ours.getvalue()).model) == plain.getvalue()


def test_conversions_of_tensors_are_put_back() -> None:
    before = {name: vars(torch.Tensor).get(name) for name in _values._CONVERSIONS}
    exported(Branch())
    with pytest.raises(ZeroDivisionError), _values.watching(Branch(), Call((X,), {})):
        1 / 0  # noqa: B018 - the point is that it fails
    assert {name: vars(torch.Tensor).get(name) for name in _values._CONVERSIONS} == before


def test_the_error_can_be_sent_to_another_process(tmp_path: Path) -> None:
    with pytest.raises(UndeterminedError) as raised:
        exported(Branch(), f=tmp_path / "m.onnx", check=True)
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is UndeterminedError and again.exported.undetermined == raised.value.exported.undetermined
