"""`audit`, `fingerprint` and what `inspect` tells of effort and passes: on the command line, and as functions."""

import gzip
import json

import onnx
import onnxforge
import pytest
import wheels

from conftest import ROOT
from corpus import repository_models, zoo_skeletons

EXAMPLES = ROOT / "examples"


def expected():
    """The class of each model of the zoo and of the examples, as it was written down beforehand."""
    lines = (ROOT / "tests/python/data/fingerprints.txt").read_text().splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def seen(forge, paths):
    """What the command says of models, by their names."""
    report = json.loads(forge("fingerprint", *paths.values(), "--json").good().out)
    return dict(zip(paths, report["models"], strict=True))


def unpacked(skeleton, folder):
    path = folder / skeleton.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(skeleton.read_bytes()))
    return path


def renamed(model):
    """The same model with other names everywhere, and nothing else that a person reads."""
    names = {}

    def new(name):
        return names.setdefault(name, f"n{len(names)}") if name else name

    def graph(of):
        of.name = "g"
        for value in [*of.input, *of.output, *of.value_info]:
            value.name = new(value.name)
            for dim in value.type.tensor_type.shape.dim:
                if dim.WhichOneof("value") == "dim_param":
                    dim.dim_param = new(dim.dim_param)
        for tensor in of.initializer:
            tensor.name = new(tensor.name)
        for node in of.node:
            node.name, node.doc_string = new(node.name), ""
            del node.metadata_props[:]
            node.input[:] = [new(name) for name in node.input]
            node.output[:] = [new(name) for name in node.output]
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    graph(attribute.g)

    result = onnx.ModelProto.FromString(model.SerializeToString())
    graph(result.graph)
    result.producer_name = result.producer_version = result.doc_string = result.domain = ""
    del result.metadata_props[:]
    return result


def test_every_model_is_what_it_is(forge, tmp_path):
    """Exports of the zoo, examples, and trained models of packages, each with a class that was written down before."""
    paths = [unpacked(skeleton, tmp_path) for skeleton in zoo_skeletons()] + sorted(EXAMPLES.glob("*.onnx"))
    found = seen(forge, {path.stem: path for path in paths} | wheels.fetch(ROOT / "target" / "wheels"))
    labels = expected()
    assert found.keys() == labels.keys() and len(labels) == 51
    wrong = {name: (found[name]["class"], label) for name, label in labels.items() if found[name]["class"] != label}
    assert not wrong
    for model in found.values():
        assert 0 < model["confidence"] < 1 and model["reasons"]


@pytest.mark.parametrize("name", ["small_cnn", "tiny_bert", "tiny_llama"])
def test_names_decide_nothing(forge, tmp_path, name):
    path = EXAMPLES / f"{name}.onnx"
    other = tmp_path / "bert_vision_audio.onnx"
    other.write_bytes(renamed(onnx.load(path)).SerializeToString())
    before, after = seen(forge, {"before": path, "after": other}).values()
    for key in ("class", "confidence", "reasons", "features", "selects"):
        assert before[key] == after[key]


def test_audit_lists_places_with_modules(forge):
    path = EXAMPLES / "tiny_bert.onnx"
    (model,) = json.loads(forge("audit", path, "--json").good().out)["models"]
    findings = {finding["id"]: finding for finding in model["findings"]}
    attention = findings["attention_blocks"]
    assert attention["count"] == len(attention["places"]) == 2
    assert attention["passes"] == ["fuse_attention"]
    assert all(node["module"] for place in attention["places"] for node in place["nodes"])
    assert attention["newer"]["handled"] == 2
    for finding in model["findings"]:
        assert finding["handled"] + sum(finding["stays"].values()) == (finding["count"] if finding["passes"] else 0)
        assert bool(finding["passes"]) != ("no_pass" in finding)


def test_audit_is_worth_what_optimize_removes(forge, tmp_path):
    """Nodes that go are those that the command removes with the pass alone."""
    dead = onnx.load(EXAMPLES / "small_cnn.onnx")
    dead.graph.node.append(onnx.helper.make_node("Relu", [dead.graph.input[0].name], ["unread"]))
    onnx.save(dead, tmp_path / "dead.onnx")
    compared = set()
    for path in [*sorted(EXAMPLES.glob("*.onnx")), tmp_path / "dead.onnx"]:
        (model,) = json.loads(forge("audit", path, "--json").good().out)["models"]
        for finding in model["findings"]:
            if finding["id"] not in ("dead_nodes", "repeated_calls") or not finding["count"]:
                continue
            made = tmp_path / "made.onnx"
            (name,) = finding["passes"]
            report = json.loads(forge("optimize", path, "-o", made, "--passes", name, "--json").good().out)
            assert finding["worth"] == report["before"]["all_nodes"] - report["after"]["all_nodes"] > 0
            compared.add(finding["id"])
    assert compared == {"dead_nodes", "repeated_calls"}


def test_audit_of_several_models_has_a_column_for_each(forge):
    out = forge("audit", *sorted(EXAMPLES.glob("*.onnx"))).good().out
    assert "small_cnn.onnx" in out and "tiny_llama.onnx" in out and "rotary_embeddings" in out
    assert "handled by fuse_conv_batchnorm" in forge("audit", EXAMPLES / "small_cnn.onnx", "-v").good().out


def test_every_model_of_the_repository_is_looked_at(forge):
    for path in repository_models():
        for command in ("audit", "fingerprint", "inspect"):
            forge(command, path, "-q").good()


def test_inspect_counts_operations_and_memory(forge):
    path = EXAMPLES / "tiny_bert.onnx"
    one, two = (
        json.loads(forge("inspect", path, "--set-dim", f"batch={batch}", "--json").good().out)["models"][0]
        for batch in (1, 2)
    )
    assert two["effort"]["macs"]["value"] == 2 * one["effort"]["macs"]["value"] > 0
    assert "batch" in one["effort"]["macs"]["expression"]
    assert one["effort"]["memory"]["value"] > 0
    assert "passes" not in one
    with_passes = json.loads(forge("inspect", path, "--passes", "--json").good().out)["models"][0]
    fires = {each["pass"]: each["fires"] for each in with_passes["passes"]}
    assert fires["fold_constants"] > 100


def test_optimize_tells_the_class(forge, tmp_path):
    outcome = forge("optimize", EXAMPLES / "tiny_llama.onnx", "-o", tmp_path / "made.onnx", "-v").good()
    assert "llm" in outcome.out and "fuse_rotary_embedding matters" in outcome.err


def test_functions_of_the_package():
    path = EXAMPLES / "tiny_llama.onnx"
    found = onnxforge.audit(path)
    assert found.ok and found.finding("rms_norm_subgraphs")["count"] == 5
    with pytest.raises(KeyError):
        found.finding("no such finding")
    assert "places" in found._repr_html_()
    result = onnxforge.fingerprint(path, onnx.load(EXAMPLES / "small_cnn.onnx"))
    assert result.classes == ["llm", "vision"]
    assert "llm" in repr(result) and "because" in result._repr_html_()
    (model,) = onnxforge.inspect(path, set_dim={"batch": 2}, passes=True).models
    assert model["effort"]["macs"]["value"] > 0 and model["passes"]
