"""Converts models with the command line under test. `cargo xtask test` sets ONNXFORGE_BIN; by hand, set it to the built binary."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def forge(*args):
    """Runs a command; how it ended."""
    return subprocess.run([os.environ["ONNXFORGE_BIN"], *map(str, args)], capture_output=True, text=True, timeout=300)


@pytest.fixture
def converted(tmp_path):
    def convert(model, *args, name="out.mlpackage"):
        out = tmp_path / name
        done = forge("convert", model, "-o", out, *args, "--json", "-")
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return out, json.loads(done.stdout)

    return convert


@pytest.fixture
def parsed(tmp_path):
    """A model of a graph in the ONNX notation."""

    def parse(graph, opset=21):
        text, model = tmp_path / "m.onnxtxt", tmp_path / "m.onnx"
        text.write_text(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{graph}')
        done = forge("parse", text, "-o", model)
        assert done.returncode == 0, done.stderr
        return model

    return parse
