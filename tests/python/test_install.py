"""`onnxforge.compat.install`: programs that import onnxsim or onnxslim themselves get ours, whether these are installed or not; and the build of the package."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path

import onnxforge
import onnxforge.compat
import pytest

from drop_ins import EXAMPLES, ROOT

SCRIPT = """
import importlib.metadata, json, sys
import onnxsim
from onnxsim import simplify
from onnxsim.onnx_simplifier import simplify as same
from onnxslim import slim
import onnx

model, ok = onnxsim.simplify(onnx.load(sys.argv[1]))
versions = [importlib.metadata.version(name) for name in ("onnxsim", "onnxslim")]
print(json.dumps([len(model.graph.node), ok, simplify is same, len(slim(sys.argv[1]).graph.node), versions, onnxsim.__version__, sys.argv[2:], __name__]))
"""


@pytest.fixture
def installed():
    onnxforge.compat.install()
    yield
    onnxforge.compat.uninstall()


def run(folder, *words):
    return subprocess.run([sys.executable, "-m", "onnxforge.compat", *map(str, words)], capture_output=True, text=True, cwd=folder)


def test_a_script_and_a_module_run_with_ours(tmp_path):
    (tmp_path / "export.py").write_text(SCRIPT)
    model = EXAMPLES["tiny_bert"]
    expected = (
        '[100, true, true, 100, ["0.8.1", "0.1.98"], "0.8.1", ["--half"], "__main__"]\n'
    )
    for words in (["export.py"], ["-m", "export"]):
        done = run(tmp_path, "run", *words, model, "--half")
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_mistakes_on_the_command_line(tmp_path):
    for words in ([], ["walk"], ["run"]):
        done = run(tmp_path, *words)
        assert done.returncode == 2 and "usage" in done.stderr
    done = run(tmp_path, "run", "none.py")
    assert done.returncode == 2 and "none.py" in done.stderr and "Traceback" not in done.stderr
    assert run(tmp_path, "--help").returncode == 0


def test_what_there_is_not_is_said(installed):
    import onnxslim

    with pytest.raises(AttributeError, match="onnxforge here, which has slim and no 'OptimizationSettings'"):
        onnxslim.OptimizationSettings
    with pytest.raises(ImportError):
        from onnxsim import model_info  # noqa: F401
    with pytest.raises(onnxforge.UsageError, match="onnxtool"):
        onnxforge.compat.install("onnxtool")


def test_one_of_them():
    onnxforge.compat.install("onnxslim")
    try:
        assert importlib.metadata.version("onnxslim") == "0.1.98"
        names = [each.metadata["Name"] for each in importlib.metadata.distributions()]
        assert "onnxslim" in names and "numpy" in names
        assert not any(finder.find_spec("onnxsim") for finder in sys.meta_path if type(finder).__module__ == "onnxforge.compat._install")
    finally:
        onnxforge.compat.uninstall()
    assert not any(type(finder).__module__ == "onnxforge.compat._install" for finder in sys.meta_path)
    assert "onnxslim" not in sys.modules


def test_a_peer_that_was_imported_before(monkeypatch):
    original = lambda model: "theirs"
    package, inner = types.ModuleType("onnxsim"), types.ModuleType("onnxsim.onnx_simplifier")
    package.simplify = inner.simplify = original
    monkeypatch.setitem(sys.modules, "onnxsim", package)
    monkeypatch.setitem(sys.modules, "onnxsim.onnx_simplifier", inner)
    onnxforge.compat.install("onnxsim")
    assert package.simplify is inner.simplify is onnxforge.simplify
    onnxforge.compat.uninstall()
    assert package.simplify is inner.simplify is original


@pytest.mark.parametrize("kept", [None, "given"])
def test_a_build_leaves_nothing(kept, monkeypatch, tmp_path):
    """The build backend gives cargo a folder that goes afterwards, unless it has one."""
    seen = {}

    def build_wheel(*arguments):
        folder = Path(os.environ["CARGO_TARGET_DIR"])
        folder.mkdir(exist_ok=True)
        (folder / "object").touch()
        seen.update(folder=folder, arguments=arguments)
        return "wheel"

    names = "build_editable build_sdist get_requires_for_build_editable get_requires_for_build_sdist get_requires_for_build_wheel"
    names += " prepare_metadata_for_build_editable prepare_metadata_for_build_wheel"
    fake = types.SimpleNamespace(build_wheel=build_wheel, **dict.fromkeys(names.split()))
    monkeypatch.setitem(sys.modules, "maturin", fake)
    monkeypatch.delenv("CARGO_TARGET_DIR", raising=False)
    if kept:
        monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / kept))
    spec = importlib.util.spec_from_file_location("build_backend", ROOT / "scripts/build_backend.py")
    backend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    assert backend.build_wheel("out", {"a": 1}) == "wheel" and seen["arguments"] == ("out", {"a": 1}, None)
    assert seen["folder"].exists() == bool(kept) and (os.environ.get("CARGO_TARGET_DIR") is not None) == bool(kept)
