"""`profile`: whose time it is, and whether times add up."""

import functools
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import onnx
import pytest
from modular import model, node, port, write
from onnx import helper, numpy_helper

EXAMPLES = Path(__file__).resolve().parents[1] / "data"
BLOCKS = 10
CLASSES = {"": "demo.Net", **{f"blocks.{index}": "demo.Block" for index in range(BLOCKS)}}


@pytest.fixture
def forge(forge):
    """The command line, where ONNX Runtime is found."""
    return functools.partial(forge, env={"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": ""})


def told(outcome):
    return json.loads(outcome.orderly().out)


def slow_one(which, names=True):
    """Ten modules of which one multiplies by many more numbers than the others."""
    nodes, weights = [], []
    for index in range(BLOCKS):
        inner = 2048 if index == which else 16
        for name, shape in ((f"up.{index}", (64, inner)), (f"down.{index}", (inner, 64))):
            weights.append(numpy_helper.from_array(np.full(shape, 1 / inner, np.float32), name))
        given, path = f"x{index}" if index else "x", f"blocks.{index}"
        nodes += [
            node("MatMul", [given, f"up.{index}"], f"wide{index}", path, CLASSES),
            node("Relu", [f"wide{index}"], f"act{index}", path, CLASSES),
            node("MatMul", [f"act{index}", f"down.{index}"], f"x{index + 1}", path, CLASSES),
        ]
    if not names:
        for one in nodes:
            one.name = ""
    return model(nodes, [port("x", 64, 64)], [port(f"x{BLOCKS}", 64, 64)], weights)


def blocks(report, which=0):
    return {each["module"]: each for each in report["models"][which]["modules"]}


@pytest.mark.parametrize("engine", ["ort", "native"])
@pytest.mark.parametrize("which", range(BLOCKS))
def test_the_slow_module_is_at_the_top(forge, tmp_path, which, engine):
    path = write(slow_one(which), tmp_path / "slow.onnx")
    report = told(forge("profile", path, "--engine", engine, "--seconds", "0.5", "--json", "-"))
    assert report["engine"] == engine
    (found,) = report["models"]
    times = {path: each["total_ms"]["median"] for path, each in blocks(report).items() if path}
    assert max(times, key=times.get) == f"blocks.{which}"
    assert times[f"blocks.{which}"] > 3 * sorted(times.values())[-2]
    assert found["nodes"][0]["module"] == f"blocks.{which}" and found["nodes"][0]["op"] == "MatMul"


def test_times_add_up(forge, tmp_path):
    path = write(slow_one(4), tmp_path / "slow.onnx")
    report = told(forge("profile", path, "--seconds", "1", "--json", "-"))
    (found,) = report["models"]
    modules = blocks(report)
    for module in modules.values():
        inside = [each for each in modules.values() if module["module"] == "" or each["module"] == module["module"]]
        total = sum(each["self_ms"]["median"] for each in inside)
        assert module["total_ms"]["median"] == pytest.approx(total, rel=0.05, abs=2e-3)
        assert module["total_ms"]["low"] <= module["total_ms"]["median"] <= module["total_ms"]["high"]
    assert modules[""]["total_ms"]["median"] == pytest.approx(found["nodes_ms"]["median"])
    for groups in ("operators", "nodes"):
        assert sum(each["self_ms"]["median"] for each in found[groups]) == pytest.approx(found["nodes_ms"]["median"], rel=0.05)
    assert {each["name"] for each in found["classes"]} == {"Net", "Block"}
    shares = found["attributed"]
    assert shares["exact"] + shares["inferred"] + shares["unknown"] == pytest.approx(1, abs=0.02)
    assert shares["below_root"] > 0.95 and shares["unknown"] == 0
    assert found["total_ms"]["median"] > 0 and len(found["runs"]) == report["sessions"] == 6 and min(found["runs"]) >= 3


def test_nodes_without_names(forge, tmp_path):
    path = write(slow_one(2, names=False), tmp_path / "nameless.onnx")
    report = told(forge("profile", path, "--engine", "ort", "--seconds", "0.5", "--json", "-"))
    times = {path: each["total_ms"]["median"] for path, each in blocks(report).items() if path}
    assert max(times, key=times.get) == "blocks.2" and report["models"][0]["attributed"]["unknown"] == 0


def test_fused_nodes_are_found_again(forge, tmp_path):
    """ONNX Runtime fuses MatMul and Add, and Gelu out of five nodes; none of them keeps its name."""
    weight = numpy_helper.from_array(np.ones((32, 32), np.float32), "w")
    bias = numpy_helper.from_array(np.ones(32, np.float32), "b")
    scalars = [numpy_helper.from_array(np.float32(value), name) for name, value in (("root", 1.4142135), ("one", 1.0), ("half", 0.5))]
    classes = {"": "demo.Net", "dense": "demo.Dense", "act": "demo.Act"}
    nodes = [
        node("MatMul", ["x", "w"], "mm", "dense", classes), node("Add", ["mm", "b"], "d", "dense", classes),
        node("Div", ["d", "root"], "g1", "act", classes), node("Erf", ["g1"], "g2", "act", classes),
        node("Add", ["g2", "one"], "g3", "act", classes), node("Mul", ["d", "g3"], "g4", "act", classes),
        node("Mul", ["g4", "half"], "y", "act", classes),
    ]  # fmt: skip
    path = write(model(nodes, [port("x", 8, 32)], [port("y", 8, 32)], [weight, bias, *scalars]), tmp_path / "fused.onnx")
    (found,) = told(forge("profile", path, "--engine", "ort", "--seconds", "0.5", "--json", "-"))["models"]
    assert len(found["nodes"]) < len(nodes)
    assert {each["module"] for each in found["nodes"]} <= {"dense", "act"} and found["attributed"]["unknown"] == 0


def test_functions_that_it_puts_in_place(forge, tmp_path):
    """ONNX Runtime computes HardSwish by three nodes that have no name."""
    paths = [f"part.{index}" for index in range(4)]
    classes = {"": "demo.Net", **{path: "demo.Part" for path in paths}}
    nodes = []
    for index, path in enumerate(paths):
        given = f"x{index}" if index else "x"
        nodes += [node("MatMul", [given, "w"], f"m{index}", path, classes), node("HardSwish", [f"m{index}"], f"x{index + 1}", path, classes)]
    weight = numpy_helper.from_array(np.full((32, 32), 0.1, np.float32), "w")
    path = write(model(nodes, [port("x", 8, 32)], [port("x4", 8, 32)], [weight]), tmp_path / "functions.onnx")
    (found,) = told(forge("profile", path, "--engine", "ort", "--seconds", "0.5", "--json", "-"))["models"]
    unnamed = [each for each in found["nodes"] if each["op"] in ("HardSigmoid", "Mul")]
    assert len(unnamed) == 8 and {each["module"] for each in unnamed} == set(paths)
    assert found["attributed"]["unknown"] == 0 and found["attributed"]["below_root"] > 0.99


def test_files_of_tensorflow_lite(forge, tmp_path):
    """The native engine runs them; `restore` brings the modules of the original."""
    original, lite, seen = EXAMPLES / "tiny_bert.dynamo.onnx", tmp_path / "small.tflite", tmp_path / "seen.onnx"
    forge("convert", original, "-o", lite, "--set-dim", "batch=1", "--set-dim", "sequence=8").good()
    report = told(forge("profile", lite, "--seconds", "0.2", "--json", "-"))
    assert report["engine"] == "native" and report["models"][0]["attributed"]["unknown"] < 0.5
    forge("profile", lite, "--engine", "ort").refused("ONNX Runtime has no operator", "--engine native")
    forge("restore", lite, "--from", original, "-o", seen).good()
    shares = told(forge("profile", seen, "--seconds", "0.2", "--json", "-"))["models"][0]["attributed"]
    assert shares["unknown"] == 0 and shares["below_root"] > 0.95


def test_bodies_count_once(forge, tmp_path):
    """What a loop's body takes is not the time of the loop as well."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["v", "w"], ["v_out"], name="inner"), helper.make_node("Identity", ["cond_in"], ["cond_out"], name="go_on")],
        "body", [port("i", kind=onnx.TensorProto.INT64), port("cond_in", kind=onnx.TensorProto.BOOL), port("v", 64, 64)],
        [port("cond_out", kind=onnx.TensorProto.BOOL), port("v_out", 64, 64)],
    )  # fmt: skip
    classes = {"": "demo.Net", "loop": "demo.Loop"}
    nodes = [node("Loop", ["count", "yes", "x"], "y", "loop", classes, body=body)]
    weights = [
        numpy_helper.from_array(np.int64(50), "count"), numpy_helper.from_array(np.bool_(True), "yes"),
        numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"),
    ]  # fmt: skip
    path = write(model(nodes, [port("x", 64, 64)], [port("y", 64, 64)], weights), tmp_path / "loop.onnx")
    for engine in ("ort", "native"):
        (found,) = told(forge("profile", path, "--engine", engine, "--seconds", "0.5", "--json", "-"))["models"]
        assert found["accounted"] <= 1.001, engine
        assert {each["op"] for each in found["nodes"]} >= {"Loop", "MatMul"}, engine
        assert next(each for each in found["modules"] if each["module"] == "loop")["share"] > 0.95, engine


def test_two_models_side_by_side(forge, tmp_path):
    slow, fast = write(slow_one(3), tmp_path / "slow.onnx"), write(slow_one(None), tmp_path / "fast.onnx")
    report = told(forge("profile", slow, fast, "--engine", "ort", "--seconds", "0.5", "--json", "-"))
    assert blocks(report, 0)["blocks.3"]["total_ms"]["low"] > blocks(report, 1)["blocks.3"]["total_ms"]["high"]
    text = forge("profile", slow, fast, "--engine", "ort", "--seconds", "0.5").good().out
    assert "slow.onnx, ms" in text and "fast.onnx, ms" in text and "blocks.3" in text and " %" in text


def test_what_is_written(forge, tmp_path):
    path = write(slow_one(3), tmp_path / "slow.onnx")
    svg, trace, page = tmp_path / "flame.svg", tmp_path / "trace.json", tmp_path / "page.html"
    forge("profile", path, "--seconds", "0.3", "--flame", svg, "--trace", trace, "--report", page).good()
    root = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("blocks.3 Block\n") for title in titles) and any(title.startswith("MatMul in blocks.3") for title in titles)
    frames = [(float(r.get("x")), float(r.get("width"))) for r in root.iter("{http://www.w3.org/2000/svg}rect") if r.get("x")]
    assert all(0 <= x and x + width <= 1200.01 for x, width in frames)
    events = [event for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"] if event["ph"] == "X"]
    slices = [event for event in events if event["cat"] == "module"]
    assert {event["args"]["path"] for event in slices} == {"", *(f"blocks.{index}" for index in range(BLOCKS))}
    for event in events:
        around = [each for each in slices if each["args"]["path"] == event["args"].get("module", "")]
        inside = lambda each: each["ts"] <= event["ts"] and event["ts"] + event["dur"] <= each["ts"] + each["dur"] + 1e-6
        assert event["cat"] == "module" or any(map(inside, around))
    assert '"time":{"own":' in page.read_text(encoding="utf-8")


def test_lists(forge, tmp_path):
    path = write(slow_one(3), tmp_path / "slow.onnx")
    quick = lambda *args: forge("profile", path, "--seconds", "0.2", *args).good().out
    assert "blocks.3" in quick() and "blocks.3" not in quick("--depth", "0")
    assert "MatMul" in quick("--by", "operator") and "Block" in quick("--by", "class")
    nodes = quick("--by", "node", "--top", "2")
    assert "exact" in nodes and "more nodes" in nodes
    forge("profile", path, "--flame", path).refused(path)
    assert forge("profile", path, "--sessions", "5").code == 2
