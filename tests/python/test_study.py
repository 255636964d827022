"""The study: every experiment on a small corpus, models that cannot be studied among them, and its page."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from conftest import ROOT, Forge

EXAMPLES = ROOT / "examples"
EXPERIMENTS = ["01-19", "02-15", "03", "04", "05", "06", "07", "08", "10-20", "11", "12", "13", "14", "16", "17", "18", "21", "22"]


def rejected(path):
    """A valid model of an operator that no runtime knows."""
    port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["y"], domain="nobody")], "g", [port("x")], [port("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nobody", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def hungry(path):
    """A valid model that computes 4 GB on the way, from an input that says how much."""
    size = helper.make_tensor_value_info("size", TensorProto.INT64, [1])
    total = helper.make_tensor_value_info("total", TensorProto.FLOAT, [])
    billion = helper.make_tensor("billion", TensorProto.INT64, [1], [1 << 30])
    nodes = [
        helper.make_node("Max", ["size", "billion"], ["many"]),
        helper.make_node("ConstantOfShape", ["many"], ["zeros"]),
        helper.make_node("Identity", ["zeros"], ["same"]),
        helper.make_node("ReduceSum", ["same"], ["total"], keepdims=0),
    ]
    graph = helper.make_graph(nodes, "g", [size], [total], [billion])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for path in EXAMPLES.glob("*.onnx"):
        shutil.copy(path, folder)
    (folder / "corrupt.onnx").write_bytes((EXAMPLES / "tiny_bert.onnx").read_bytes()[:1000])
    rejected(folder / "rejected.onnx")
    hungry(folder / "hungry.onnx")
    return folder


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Classes of which one is wrong."""
    path = tmp_path_factory.mktemp("labels") / "labels.txt"
    path.write_text("# written down before\nsmall_cnn vision\ntiny_bert  transformer\ntiny_llama vision\n")
    return path


@pytest.fixture(scope="module")
def study(forge, corpus, labels, tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    forge("study", corpus, "-o", results, "--no-bench", "--sweep", 2, "--jobs", 2, "--memory", 3, "--labels", labels).good()
    return results


def tables(results, experiment):
    found = json.loads((results / "study.json").read_text())["experiments"]
    return next(each for each in found if each["id"] == experiment)["tables"]


def test_every_experiment_is_there(study):
    written = sorted(path.name for path in study.glob("*.md"))
    for experiment in EXPERIMENTS:
        assert any(name.startswith(f"{experiment}-") for name in written), experiment
    index = (study / "README.md").read_text()
    for name in written:
        text = (study / name).read_text()
        assert not re.search(r"TBD|\bNaN\b", text)
        assert name == "README.md" or f"({name})" in index
        for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
            assert (study / link).read_text().endswith("</svg>\n")


def test_what_cannot_be_studied_is_listed(study):
    index = (study / "README.md").read_text()
    assert re.search(r"corrupt \| inspect: .*corrupt\.onnx", index)
    assert re.search(r"rejected \| sweep: .*Frobnicate", index)
    assert re.search(r"hungry \| sweep: .*memory", index)
    [sizes, *_] = tables(study, "01/19")
    assert [row[0] for row in sizes["rows"]] == ["hungry", "rejected", "small_cnn", "tiny_bert", "tiny_llama"]


def test_attribution_adds_up(study):
    sizes, among, alone, after, after_alone, never = tables(study, "01/19")
    sums = {row[0]: row[1:] for row in among["rows"]}["sum"]
    for model, total in zip(sizes["rows"], sums, strict=True):
        if model[0] == "hungry":
            # It could not be optimized; what passes do with it is known all the same.
            assert "memory" in model[-1]
            continue
        assert model[2]["value"] - model[1]["value"] == total["value"]
    assert len(among["rows"]) == len(alone["rows"]) > 18
    # Results are compared after each pass that removes something.
    for counts, results in ((among, after), (alone, after_alone)):
        for nodes, found in zip(counts["rows"], results["rows"], strict=False):
            assert nodes[0] == found[0] and not any("DIFFERENT" in str(cell) for cell in found)
            for name, count, cell in zip(counts["heading"][1:], nodes[1:], found[1:], strict=True):
                assert (cell == "?") == (name == "hungry")
                assert count["value"] == 0 or cell in ("=", "?") or cell["value"] > 0
    # Every pass that removes nothing has a reason.
    assert all(row[2] for row in never["rows"])


def test_the_same_in_another_order(forge, corpus, study, tmp_path):
    forge("study", corpus, "-o", tmp_path, "--no-bench", "--sweep", 2, "--jobs", 1, "--memory", 1.5).good()
    for experiment in ("01/19", "06", "07", "11"):
        assert tables(tmp_path, experiment) == tables(study, experiment)


def test_documents_say_where_numbers_come_from(study):
    for path in study.glob("*-*.md"):
        text = path.read_text()
        assert "**Expected.** " in text and "**Seen.** " in text and "**What follows.** " in text
        assert re.search(r"`onnxforge study .* --seed=0 .*`, with onnxforge \d", text)
        assert re.search(r"(?m)^    onnxforge (study lab |(?!study))\w+ .*(MODEL|\.onnx)", text) or "10-20" in path.name or "21" in path.name


def test_labels_are_counted(study):
    gates = {gate["question"]: gate for gate in json.loads((study / "study.json").read_text())["gates"]}
    assert gates["8 models or more are classified right"]["number"] == "2 of 3"
    assert gates["every pass has a written proof or bound"]["answer"] is True


def test_a_model_that_changed_and_one_that_may_use_more_are_asked_again(forge, tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in/model.onnx"
    shutil.copy(EXAMPLES / "small_cnn.onnx", path)
    run = lambda *more: forge("study", tmp_path / "in", "-o", tmp_path / "out", "--no-bench", "--sweep", 1, *more).good()
    nodes = lambda: json.loads((tmp_path / "out/data/model/inspect.json").read_text())["report"]["models"][0]["nodes"]
    run("--memory", 0.001)
    assert "failure" in json.loads((tmp_path / "out/data/model/optimize.json").read_text())
    run()
    assert "report" in json.loads((tmp_path / "out/data/model/optimize.json").read_text())
    before = nodes()
    shutil.copy(EXAMPLES / "tiny_bert.onnx", path)
    run()
    assert nodes() != before


def test_it_goes_on_where_it_was(forge, corpus, labels, study):
    kept = {path: path.stat().st_mtime_ns for path in (study / "data").rglob("*.json")}
    assert len(kept) > 50
    lost = study / "data/tiny_bert/audit.json"
    lost.unlink()
    forge("study", corpus, "-o", study, "--no-bench", "--sweep", 2, "--jobs", 2, "--memory", 3, "--labels", labels).good()
    again = {path: path.stat().st_mtime_ns for path in (study / "data").rglob("*.json")}
    assert {path for path in again if again[path] != kept[path]} == {lost}


def test_too_little_memory_loses_only_the_model(forge, tmp_path):
    (tmp_path / "in").mkdir()
    shutil.copy(EXAMPLES / "small_cnn.onnx", tmp_path / "in")
    # Traces of processes that ran out of memory would need memory; nobody waits for them.
    command = ["study", tmp_path / "in", "-o", tmp_path / "out", "--no-bench", "--memory", 0.001, "--json"]
    report = json.loads(forge(*command, env={"RUST_BACKTRACE": "1"}).good().out)
    assert report["models"] == 1 and report["failed"]["small_cnn"]


def test_times(forge, tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("small_cnn", "tiny_bert"):
        shutil.copy(EXAMPLES / f"{name}.onnx", tmp_path / "in")
    command = ["study", tmp_path / "in", "-o", tmp_path / "out", "--sweep", 1, "--seconds", 0.05]
    forge(*command, env={"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": ""}).good()
    times, short = (table["rows"] for table in tables(tmp_path / "out", "10/20"))
    assert [row[0] for row in times] == ["small_cnn", "tiny_bert"]
    speed, low, high = (cell["value"] for cell in times[0][4:7])
    assert 0 < low <= speed <= high
    # The other one knows 32 positions; it takes shorter inputs.
    assert times[1][2].startswith("not measured: ")
    assert [row[0] for row in short] == ["tiny_bert"]
    assert all(cell["value"] > 0 for cell in short[0] if isinstance(cell, dict))
    kept = json.loads((tmp_path / "out/data/tiny_bert/bench_short.json").read_text())
    assert "--set-dim=sequence=8" in kept["command"] and len(kept["report"]["models"]) == 3
    # The models that were compared are there only as long as somebody reads them.
    assert not list((tmp_path / "out").rglob("*.onnx"))


def test_usage(forge, tmp_path):
    forge("study", tmp_path, "-o", tmp_path / "out").refused("no model")
    forge("study", tmp_path / "missing.onnx", "-o", tmp_path / "out", "--no-bench").good()
    assert "missing.onnx" in (tmp_path / "out/README.md").read_text()
    # Its help is that of the program that does the work, under the name that was typed.
    for words in (["--help"], ["-h"]):
        shown = forge("study", *words).good().out
        assert "Usage: onnxforge study" in shown and "--sweep" in shown
    assert "onnxforge-study" in forge("help", "study").good().out


def test_options_of_all_commands_are_handed_over(forge, tmp_path):
    command = ["study", EXAMPLES / "small_cnn.onnx", "-o", tmp_path / "out", "--no-bench", "--sweep", 1]
    assert json.loads(forge("--json=-", *command).good().out)["models"] == 1
    assert forge("--quiet", *command, "--json", tmp_path / "report.json").good().out == ""
    assert json.loads((tmp_path / "report.json").read_text())["models"] == 1


def test_the_programs_find_each_other(forge, tmp_path):
    names = [f"onnxforge{end}{Path(forge.binary).suffix}" for end in ("", "-study")]
    built = [Path(forge.binary).with_name(name) for name in names]
    alone = [tmp_path / name / name for name in names]
    for source, copy in zip(built, alone, strict=True):
        copy.parent.mkdir()
        shutil.copy(source, copy)
    arguments = [EXAMPLES / "small_cnn.onnx", "-o", tmp_path / "out", "--no-bench", "--sweep", 1]
    nowhere = {"PATH": str(tmp_path)}
    run, study = (Forge(program) for program in alone)
    run("study", *arguments, env=nowhere).refused("onnxforge-study", "hint: ", "cargo install --path crates/onnxforge-study")
    study(*arguments, env=nowhere).refused("onnxforge: ", "hint: ", "--program")
    study(*arguments, "--program", built[1], env=nowhere).refused("onnxforge-study", "instead of", "--program")
    # In the search path, or where an option says.
    run("study", *arguments, env={"PATH": str(alone[1].parent)}).good()
    study(*arguments, env={"PATH": str(alone[0].parent)}).good()
    study(*arguments, "--program", alone[0], env=nowhere).good()


def test_the_page(study, chromium):
    page = chromium.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: request.url.startswith("http") and problems.append(request.url))
    page.goto((study / "index.html").as_uri())
    assert page.locator("section").count() == len(EXPERIMENTS)
    assert page.locator("svg").count() >= 6
    first = page.locator("section").first
    rows = lambda: first.locator("table").first.locator("tbody tr:visible td:first-child").all_inner_texts()
    head = first.locator("table").first.locator("th button")
    head.nth(1).click()
    ascending = rows()
    head.nth(1).click()
    assert rows() == ascending[::-1] and ascending[0] in ("hungry", "rejected")
    page.fill("#filter", "tiny_llama")
    assert rows() == ["tiny_llama"]
    assert not problems


def test_the_package_runs_it_too(forge, study, corpus, tmp_path, monkeypatch):
    import onnxforge.corpus

    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(onnxforge.Error, match="onnxforge-study.*hint: "):
        onnxforge.corpus.run(corpus, tmp_path, task="study")
    monkeypatch.setenv("PATH", f"{Path(forge.binary).parent}{os.pathsep}{path}")
    result = onnxforge.corpus.run(corpus, tmp_path, task="study", sweep=2, memory=1.5)
    assert {row["model"]: row["status"] for row in result.rows}["small_cnn.onnx"] == "ok"
    # What computes may be another engine here, which rounds in another way.
    assert tables(tmp_path, "01/19")[1:3] == tables(study, "01/19")[1:3]
    assert tables(tmp_path, "11") == tables(study, "11")
