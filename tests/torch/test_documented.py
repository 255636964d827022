"""What is public in `onnxforge.torch` is documented, with examples that run; exports show themselves."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import onnxforge.torch
import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import documented  # noqa: E402

PUBLIC = documented.public(onnxforge.torch)


def test_everything_public_has_its_documentation() -> None:
    assert [lack for name, value in PUBLIC.items() for lack in documented.problems(name, value)] == []


@pytest.mark.parametrize("name", ["export", "module_table", "save_modules", "Exported.to_dict"])
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        documented.run_example(name, PUBLIC[name], {"onnxforge": onnxforge, "torch": torch})


def test_an_export_shows_itself(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    exported = onnxforge.torch.export(model, (torch.zeros(1, 4),), tmp_path / "m.onnx", strategy="torchscript", check=True)
    html = exported._repr_html_()
    assert "<table" in html and "agrees with PyTorch" in html and "torchscript" in html
    assert json.loads(json.dumps(exported.to_dict()))["ok"] is True
