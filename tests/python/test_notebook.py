"""The notebook runs from the first cell to the last, and what its cells show is there."""

import ast
import json

import pytest

from drop_ins import ROOT

NOTEBOOK = ROOT / "examples/notebook.ipynb"


def shown(source, names):
    """Runs a cell as a notebook does; what its last expression shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def test_the_notebook_runs(monkeypatch):
    monkeypatch.chdir(ROOT / "examples")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names, found = {}, []
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, "clear the outputs before committing"
            found.append(shown("".join(cell["source"]), names))
    tables = [text for text in found if text and "<table" in text]
    assert len(tables) >= 4
    assert any("<iframe" in text and "srcdoc=" in text for text in found if text)
    assert any("<details" in text and "encoder" in text for text in found if text)
    assert names["careful"].ok is False and names["half"].worst < 0.01


def test_a_cell_that_fails_is_a_failure():
    with pytest.raises(ZeroDivisionError):
        shown("1 / 0", {})
