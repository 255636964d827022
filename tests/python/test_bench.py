"""`onnxforge bench`: what it reports, what it calls noise, and what it refuses."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from corpus import ROOT
from onnx import TensorProto, helper, numpy_helper

TINY_BERT = ROOT / "examples/tiny_bert.onnx"
QUICK = ["--sessions", "6", "--rounds", "5"]


@pytest.fixture
def bench(forge):
    def run(*args, **environment):
        return forge("bench", *args, env={"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": "", **environment})

    return run


def said(done):
    return json.loads(done.good().out)


def products(path, count, size=192, kind=TensorProto.FLOAT, name="x"):
    """A chain of matrix products."""
    weights = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32) / size
    steps = [name, *(f"h{step}" for step in range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in zip(steps, steps[1:])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, ["N", size])],
        [helper.make_tensor_value_info("y", kind, ["N", size])],
        [numpy_helper.from_array(weights.astype(helper.tensor_dtype_to_np_dtype(kind)), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def test_what_it_reports(bench, tmp_path):
    small = products(tmp_path / "small.onnx", 2)
    found = said(bench(small, *QUICK, "--set-dim", "N=64", "--level", "basic", "--threads", "2", "--json", "-"))
    assert (found["schema"], found["level"], found["threads"], found["sessions"]) == (1, "basic", 2, 6)
    assert found["rounds"] == [5] * 6 and found["confidence"] == 1 - 2 / 64 and found["runtime"]
    assert found["inputs"] == [{"name": "x", "type": "float", "shape": [64, 192]}]
    (model,) = found["models"]
    assert model["model"] == str(small) and model["nodes"] == 2 and model["bytes"] == small.stat().st_size
    assert model["against_first"] is None
    for estimate in (model["latency_ms"], model["load_ms"]):
        assert 0 < estimate["low"] <= estimate["median"] <= estimate["high"]
    if sys.platform == "linux":
        assert 1 << 20 < model["memory"]["held"] <= model["memory"]["peak"] < 1 << 30


def test_more_work_is_slower(bench, tmp_path):
    small, large = products(tmp_path / "small.onnx", 2), products(tmp_path / "large.onnx", 16)
    arguments = ["--set-dim", "N=128", *QUICK]
    (_, model) = said(bench(small, large, *arguments, "--json", "-"))["models"]
    against = model["against_first"]
    assert against["verdict"] == "slower" and 0.05 < against["speed"]["median"] < 0.5
    assert against["speed"]["low"] <= against["speed"]["median"] <= against["speed"]["high"] < 1
    shown = bench(large, small, *arguments).good().out
    assert f"{small}: faster than {large}" in shown and "order statistics" in shown


def test_a_model_beside_itself_is_noise(bench, tmp_path):
    model = products(tmp_path / "model.onnx", 4)
    arguments = [model, model, "--set-dim", "N=64", "--sessions", "8", "--rounds", "5", "--json", "-"]
    # All eight sessions happen to be on one side in 2 of 256 cases.
    verdicts = []
    while "noise" not in verdicts and len(verdicts) < 3:
        verdicts.append(said(bench(*arguments))["models"][1]["against_first"]["verdict"])
    assert "noise" in verdicts


def test_weights_beside_the_model(bench, forge, tmp_path):
    outside = tmp_path / "outside/model.onnx"
    outside.parent.mkdir()
    forge("save", TINY_BERT, "-o", outside, "--external", "split").good()
    arguments = ["--set-dim", "sequence=8", *QUICK, "--json", "-"]
    (inside, model) = said(bench(TINY_BERT, outside, *arguments))["models"]
    files = list(outside.parent.iterdir())
    assert len(files) == 2 and model["nodes"] == inside["nodes"]
    assert 0.9 * inside["bytes"] < model["bytes"] <= sum(file.stat().st_size for file in files)


def test_inputs_from_a_file(bench, tmp_path):
    model = products(tmp_path / "model.onnx", 2)
    np.savez(tmp_path / "inputs.npz", x=np.ones((3, 192)))
    found = said(bench(model, "--inputs", tmp_path / "inputs.npz", *QUICK, "--json", "-"))
    assert found["inputs"] == [{"name": "x", "type": "float", "shape": [3, 192]}]
    np.savez(tmp_path / "inputs.npz", x=np.ones((3, 191)))
    bench(model, "--inputs", tmp_path / "inputs.npz").refused("inputs.npz", "[3,191]")


def test_models_must_take_the_same_inputs(bench, tmp_path):
    model = products(tmp_path / "model.onnx", 2)
    for other in (
        products(tmp_path / "renamed.onnx", 2, name="other"),
        products(tmp_path / "wider.onnx", 2, size=200),
        products(tmp_path / "doubles.onnx", 2, kind=TensorProto.DOUBLE),
    ):
        bench(model, other).refused(other, model, "all models must take the same inputs")


def test_what_it_refuses(bench, tmp_path):
    model = products(tmp_path / "model.onnx", 2)
    bench(model, "--set-dim", "M=3").refused("M")
    bench(tmp_path / "missing.onnx").refused("missing.onnx")
    assert bench(model, "--sessions", "5").code == 2
    bench(model, ORT_DYLIB_PATH=str(tmp_path / "nothing.so")).refused("nothing.so", "unset it")
    # The model is valid, and ONNX Runtime does not know its operator.
    unknown = onnx.load(model)
    unknown.graph.node[0].domain = "somewhere"
    unknown.opset_import.append(helper.make_opsetid("somewhere", 1))
    onnx.save(unknown, tmp_path / "unknown.onnx")
    bench(tmp_path / "unknown.onnx").refused("unknown.onnx", "ONNX Runtime refuses it")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes another one has started")
def test_who_is_killed_leaves_nobody_at_work(forge, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setenv("ORT_DYLIB_PATH", "")
    process = forge.start("bench", TINY_BERT, TINY_BERT, "--rounds", 2_000_000)

    def until(found):
        deadline = time.monotonic() + 20
        while not found() and time.monotonic() < deadline:
            time.sleep(0.05)
        return found()

    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def working():
        """The process of a session that lasts."""
        before = children.read_text().split()
        time.sleep(1)
        return before if before == children.read_text().split() else []

    assert until(working)
    [child] = working()
    process.kill()
    process.wait()
    process.stderr.close()
    status = Path(f"/proc/{child}/status")
    # Nobody may be there to ask how it ended.
    assert until(lambda: not status.exists() or "State:\tZ" in status.read_text())
