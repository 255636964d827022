"""`attribute`: which pass does what, on many models at a time, and what becomes of results."""

import json

import onnxforge

from conftest import ROOT
from corpus import repository_models

EXAMPLES = sorted((ROOT / "examples").glob("*.onnx"))


def attributed(forge, *arguments):
    return json.loads(forge("attribute", *arguments, "--json", "-").good().out)["models"]


def test_parts_add_up_and_do_not_depend_on_jobs(forge):
    models = repository_models()
    serial = attributed(forge, *models, "--jobs", 1)
    assert attributed(forge, *models, "--jobs", 4) == serial
    for model in serial:
        assert sum(each["cumulative"] for each in model["passes"]) == model["after"] - model["nodes"]


def test_parts_are_those_of_optimize(forge, tmp_path):
    for model in attributed(forge, *EXAMPLES):
        done = forge("optimize", model["model"], "-o", tmp_path / "out.onnx", "--verify", "off", "--json", "-").good()
        passes = json.loads(done.out)["passes"]
        assert [(each["pass"], each["cumulative"]) for each in model["passes"]] == [
            (each["name"], each["nodes"]) for each in passes
        ]
        for each in model["passes"]:
            if each["isolated"]:
                alone = forge("optimize", model["model"], "-o", tmp_path / "out.onnx", "--verify", "off",
                              "--passes", each["pass"], "--json", "-").good()  # fmt: skip
                assert [entry["nodes"] for entry in json.loads(alone.out)["passes"]] == [each["isolated"]]


def test_results_after_each_pass(forge):
    for model in attributed(forge, *EXAMPLES, "--verify", "--engine", "native"):
        for each in model["passes"]:
            assert ("accuracy_isolated" in each) >= (each["isolated"] != 0)
            assert ("accuracy_cumulative" in each) >= (each["cumulative"] != 0)
            for which in ("accuracy_isolated", "accuracy_cumulative"):
                assert each.get(which, {}).get("verdict") in (None, "identical", "rounding")
    shown = forge("attribute", EXAMPLES[0], "--verify", "--engine", "native").good().out
    assert "results" in shown and "e-" in shown


def test_optimize_tells_results_after_each_pass(forge, tmp_path):
    done = forge("optimize", EXAMPLES[0], "-o", tmp_path / "out.onnx", "--verify", "each", "--engine", "native", "--json", "-").good()
    report = json.loads(done.out)
    after = report["verification"]["after"]
    fired = {each["name"] for each in report["passes"] if each["edits"]}
    assert {each["pass"] for each in after} == fired
    assert all(each["verdict"] in ("identical", "rounding") and each["difference"] < 1e-5 for each in after)


def test_as_a_function():
    result = onnxforge.attribute(*EXAMPLES, verify=True, samples=1, engine="native", jobs=2)
    assert len(result.models) == len(EXAMPLES)
    assert any("accuracy_isolated" in each for each in result.models[0]["passes"])


def test_what_does_not_fit_is_left_out_and_told(forge, tmp_path):
    done = forge("optimize", ROOT / "examples/small_cnn.onnx", "-o", tmp_path / "out.onnx", "--verify", "off", "-v", "--json", tmp_path / "r.json")
    report = json.loads((tmp_path / "r.json").read_text())
    left_out = {each["name"]: each["left_out"] for each in report["passes"] if "left_out" in each}
    assert left_out["unroll_loops"] == "there is no Loop" and "fuse_conv_relu" not in left_out
    assert "unroll_loops is skipped: there is no Loop" in done.good().err and "vision" in done.out
    asked = forge("optimize", ROOT / "examples/small_cnn.onnx", "-o", tmp_path / "out.onnx", "--verify", "off", "--passes", "unroll_loops", "--json", "-")
    assert all("left_out" not in each for each in json.loads(asked.good().out)["passes"])
