"""What is believed about modules, what is only inferred, and what is refused."""

import json

import onnx
import pytest
from corpus import ROOT
from modular import metadata, model, net, node, port, weight, write
from onnx import helper

EXAMPLES = ROOT / "examples"


def told(outcome):
    return json.loads(outcome.good().out)


@pytest.fixture
def plain(tmp_path):
    return write(net(), tmp_path / "net.onnx")


def scoped(names, tmp_path):
    """A chain of nodes with these names, as the older exporter writes them."""
    ends = ["x", *(f"v{index}" for index in range(len(names)))]
    nodes = [helper.make_node("Relu", [a], [b], name=name) for name, a, b in zip(names, ends, ends[1:])]
    return write(model(nodes, [port("x", 2)], [port(ends[-1], 2)]), tmp_path / "chain.onnx")


def table(tmp_path, *paths):
    file = tmp_path / "table.json"
    file.write_text(json.dumps({path: {"class": f"m.{path.title() or 'Net'}"} for path in ("", *paths)}))
    return file


def test_a_table_of_another_model_is_refused(forge, tmp_path):
    chain = scoped(["/conv/Relu", "/act/Relu", "/Relu"], tmp_path)
    told(forge("coverage", chain, "--modules", table(tmp_path, "conv", "act"), "--json"))
    other = tmp_path / "other.onnx"
    other.write_bytes((EXAMPLES / "small_cnn.onnx").read_bytes())
    for command in ("coverage", "tree", "tag"):
        forge(command, other, "--modules", table(tmp_path, "encoder", "pooler")).refused("table.json", "another model")


def test_an_original_that_shares_only_its_ends_is_refused(forge, plain, tmp_path):
    stranger = model([node("Relu", ["x"], "a", None), node("Tanh", ["a"], "y", None)], [port("x", 2)], [port("y", 2)])
    forge("restore", write(stranger, tmp_path / "s.onnx"), "--from", plain, "-o", tmp_path / "r.onnx").refused("0 of 2 nodes")


def test_what_neighbours_tell_ends_after_a_few_steps(forge, tmp_path):
    found = told(forge("coverage", scoped(["/a/Relu", *[""] * 20], tmp_path), "--modules", table(tmp_path, "a"), "--json"))
    assert found["evidence"] == {"scope": 1, "neighbours": 4, "root": 16}


def test_a_scope_that_nothing_fits_is_not_the_model(forge, tmp_path):
    names = ["/Relu", "/Relu_1", "/somewhere/Relu", "/Relu_2", "/a/Relu"]
    found = told(forge("coverage", scoped(names, tmp_path), "--modules", table(tmp_path, "a"), "--json"))
    assert (found["exact"], found["root"]) == (4, 1)


def test_levels_for_viewers_prove_nothing(forge, plain, tmp_path):
    found = onnx.load(plain)
    for one in found.graph.node:
        kept = metadata(one)["namespace"]
        del one.metadata_props[:]
        one.metadata_props.add(key="namespace", value=kept)
    evidence = told(forge("coverage", write(found, tmp_path / "n.onnx"), "--json"))["evidence"]
    assert "exporter" not in evidence and evidence["scope_guess"] == len(found.graph.node)


def test_a_table_improves_what_was_guessed_without_it(forge, tmp_path):
    chain, tagged = scoped(["/a/Relu", "/b/Relu"], tmp_path), tmp_path / "tagged.onnx"
    assert told(forge("tag", chain, "-o", tagged, "--no-sidecar", "--json"))["coverage"]["exact"] == 0
    again = told(forge("coverage", tagged, "--modules", table(tmp_path, "a", "b"), "--json"))
    assert (again["exact"], again["inferred"]) == (2, 0)


def test_two_equal_nodes_without_weights_are_one_call(forge, tmp_path):
    nodes = [node("Relu", ["x"], "a", "blocks.0"), node("Relu", ["a"], "y", "blocks.0")]
    twice = write(model(nodes, [port("x", 2)], [port("y", 2)]), tmp_path / "twice.onnx")
    part = told(forge("extract", twice, "-m", "blocks.0", "-o", tmp_path / "p.onnx", "--json"))["parts"][0]
    assert (part["calls"], part["nodes"]) == (1, 2)
    weights = [weight("blocks.0.scale", 2)]
    nodes = [node("Mul", ["x", "blocks.0.scale"], "a", "blocks.0"), node("Mul", ["a", "blocks.0.scale"], "y", "blocks.0")]
    twice = write(model(nodes, [port("x", 2)], [port("y", 2)], weights), tmp_path / "twice.onnx")
    assert told(forge("extract", twice, "-m", "blocks.0", "-o", tmp_path / "p.onnx", "--json"))["parts"][0]["calls"] == 2


def test_a_sidecar_that_contradicts_its_model_is_found(forge, plain, tmp_path):
    tagged, beside = tmp_path / "tagged.onnx", tmp_path / "tagged_hierarchy.json"
    forge("tag", plain, "-o", tagged).good()
    forge("validate", tagged).good()
    found = json.loads(beside.read_text())
    next(iter(found["nodes"].values()))["modules"] = ["head"]
    beside.write_text(json.dumps(found))
    outcome = forge("validate", tagged)
    assert outcome.code == 1 and "the sidecar says" in outcome.out and "1 problem" in outcome.out


def test_tables_and_sidecars_are_not_overwritten(forge, plain, tmp_path):
    mine = table(tmp_path, "stem", "blocks.0", "blocks.1", "shared", "choice", "gate", "head")
    text = mine.read_text()
    forge("report", plain, "--modules", mine, "-o", mine).refused("would overwrite")
    forge("extract", plain, "--modules", mine, "-m", "stem", "-o", mine).refused("would overwrite")
    beside = tmp_path / "net_hierarchy.json"
    beside.write_text(text)
    forge("tag", plain).refused("net_hierarchy.json", "no sidecar")
    assert mine.read_text() == beside.read_text() == text


def test_the_model_itself_and_folders(forge, plain, tmp_path):
    for name in (".", "/", ""):
        forge("extract", plain, "-m", name, "-o", tmp_path / "whole.onnx").good()
    forge("compare", plain, tmp_path / "whole.onnx").good()
    forge("extract", plain, "-m", "blocks.*", "-o", plain).refused("a pattern needs a folder")
    forge("extract", plain, "-m", "stem", "-o", tmp_path).refused("this is a folder")
    forge("extract", plain, "-m", "nothing.*", "-o", tmp_path).refused("no module fits")
    forge("extract", plain, "-m", "blocks.*", "-o", tmp_path / "d").refused("create it first")
    forge("report", plain, "-o", tmp_path / "page.html").good()
    assert (tmp_path / "page.html").stat().st_size > 1000
