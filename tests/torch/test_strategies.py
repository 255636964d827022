"""The table of strategies: it is made of what is there, tells reasons, and would show errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import strategies


def called(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, strategies.__file__, *map(str, words)], capture_output=True, text=True, check=False)


def test_models_are_exported_and_held_against_pytorch(tmp_path: Path) -> None:
    done = called("measure", tmp_path, "dicts", "branches")
    assert done.returncode == 0, done.stderr
    page = tmp_path / "page.md"
    done = called("table", tmp_path, "-o", page)
    assert done.returncode == 0, done.stderr
    lines = page.read_text(encoding="utf-8").splitlines()
    row = lambda start: next(line for line in lines if line.startswith(start))
    assert "| exporter 13 | 0.99 | 13 of 13 |" in row("| dicts | containers | dynamo |")
    # Names leave out the dictionaries.
    assert "| 2 of 13 |" in row("| dicts | containers | names |")
    assert "failed: see below" in row("| branches | control flow | torchscript |")
    assert "torch.jit.trace a dynamo-optimized function" in row("| branches | torchscript |") and "`auto` takes dynamo" in row("| branches | torchscript |")
    assert not any("{" in line for line in lines if line.startswith("| "))


def test_confidence_is_a_lower_bound() -> None:
    assert strategies.confidence(0, 0) == strategies.confidence(0, 10) == 0
    assert strategies.confidence(2, 2) == 0.42 and strategies.confidence(8, 8) == 0.74
    assert strategies.confidence(4000, 4000) == 0.99
    assert strategies.confidence(90, 100) < 0.9 < strategies.confidence(99, 100)


def test_what_is_missing_is_noticed() -> None:
    seen = lambda **fields: strategies.Seen(summary={"with_parameters": {"root": 0}}, **fields)
    assert strategies.good({"one": {"dynamo": seen(), "names": strategies.Seen(failed="a reason")}})
    assert not strategies.good({"one": {"dynamo": strategies.Seen(failed="")}})
    assert not strategies.good({"one": {"dynamo": seen(different=["a.b: different"])}})
    unknown = strategies.Seen(summary={"with_parameters": {"root": 1}})
    assert not strategies.good({"one": {"names": unknown}}) and strategies.good({"one": {"parameters": unknown}})


@pytest.mark.parametrize(("failed", "shown"), [("a | b", "a ¦ b"), ("x" * 300, "x" * 199 + "…"), ("why [Caused by the value]", "why")])
def test_reasons_fit_into_a_table(failed: str, shown: str) -> None:
    assert strategies.brief(failed) == shown
