"""The table of operator signatures is what scripts/make_signatures.py makes of the onnx package."""

import importlib.util
import re
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_script():
    spec = importlib.util.spec_from_file_location("make_signatures", ROOT / "scripts/make_signatures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_up_to_date():
    script = load_script()
    table = script.TABLE.read_text(encoding="utf-8")
    made_from = re.search(r"^# Made from onnx (\S+) by:", table, re.MULTILINE)
    assert made_from, "the header does not say which onnx the table was made from"
    if made_from[1] != onnx.__version__:
        pytest.skip(f"the table was made from onnx {made_from[1]}, onnx {onnx.__version__} is installed")
    for number, (kept, made) in enumerate(zip(table.splitlines(), script.render().splitlines()), start=1):
        assert kept == made, f"line {number} differs; run scripts/make_signatures.py"
    assert table == script.render()
