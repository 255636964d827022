"""Type checkers on programs that use the package: silent on what is right, and not on what is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("typed")
CHECKERS = {
    "mypy": ["mypy", "--strict", "--no-error-summary", "--no-incremental", "--config-file="],
    "basedpyright": ["basedpyright", "--level=error", "--pythonpath", sys.executable, "--project"],
}


def errors(checker, tmp_path):
    """Lines with errors, by file."""
    words = CHECKERS[checker]
    if checker == "basedpyright":
        # The checks of plain pyright; the package is the installed one.
        config = tmp_path / "pyrightconfig.json"
        config.write_text('{"typeCheckingMode": "standard", "include": ["' + FOLDER.as_posix() + '"], "failOnWarnings": false}')
        words = [*words, str(config)]
    done = subprocess.run(
        [sys.executable, "-m", *words, *([FOLDER / "good.py", FOLDER / "bad.py"] if checker == "mypy" else [])],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    found = {"good.py": {}, "bad.py": {}}
    for name, line, text in re.findall(r"(good|bad)\.py:(\d+):(?:\d+:| -)?(?:\d+)? ?(?:- )?(.*)", done.stdout):
        if "error" in text:
            found[f"{name}.py"].setdefault(int(line), text)
    assert any(found.values()), done.stdout + done.stderr
    return found


@pytest.mark.parametrize("checker", CHECKERS)
def test_calls(checker, tmp_path):
    found = errors(checker, tmp_path)
    assert found["good.py"] == {}
    lines = (FOLDER / "bad.py").read_text(encoding="utf-8").splitlines()
    bad = {number for number, line in enumerate(lines, 1) if line.endswith("# bad")}
    assert set(found["bad.py"]) == bad
    good = (FOLDER / "good.py").read_text(encoding="utf-8")
    assert len(re.findall(r"^\s*(?:assert_type\(|onnxforge\.|simplify\(|slim\()", good, re.M)) >= 100
