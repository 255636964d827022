"""Modules: what `tag` writes and where, how they are counted, cut out, carried through optimization and brought back."""

import gzip
import json
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from corpus import ROOT, repository_models
from modular import CLASSES, LINEAR, TRACE, metadata, model, net, node, port, weight, write
from onnx import TensorProto, helper

BERT = "bert_base.torchscript"
THRESHOLDS = {
    "mathematical_operations": 95, "activation_functions": 95, "neural_network_layers": 95, "reduction_operations": 95, "lookup_indexing": 90,
    "tensor_manipulation": 85, "shape_metadata": 85, "comparison_logic": 85, "control_flow": 80, "parameter_constants": 70,
    "type_conversion": 60, "uncategorized": None,
}  # fmt: skip


def copy(model):
    other = type(model)()
    other.CopyFrom(model)
    return other


def told(outcome):
    return json.loads(outcome.orderly().out)


def sidecar(path):
    return path.with_name(f"{path.stem}_hierarchy.json")


def beside(path):
    return json.loads(sidecar(path).read_text(encoding="utf-8"))


def graphs(graph):
    """A graph and all bodies in it."""
    yield graph
    for one in graph.node:
        for attribute in one.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


def nodes(model):
    """All nodes: of the graph, of bodies and of functions."""
    return [n for graph in graphs(model.graph) for n in graph.node] + [n for f in model.functions for n in f.node]


def by_output(model):
    return {n.output[0]: n for n in nodes(model)}


def paths(node):
    return json.loads(metadata(node)["onnxforge.module"])


@pytest.fixture
def plain(tmp_path):
    return write(net(), tmp_path / "net.onnx")


@pytest.fixture
def tagged(forge, plain):
    path = plain.with_name("tagged.onnx")
    forge("tag", plain, "-o", path).good()
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The graph of BERT without weights, of the exporter that writes only names, and PyTorch's table of its modules."""
    folder = tmp_path_factory.mktemp("bert")
    path, table = folder / "bert.onnx", folder / "modules.json"
    path.write_bytes(gzip.decompress((ROOT / f"zoo/{BERT}.onnx.gz").read_bytes()))
    table.write_bytes(gzip.decompress((ROOT / "zoo/modules/bert_base.json.gz").read_bytes()))
    return path, table


def sidecar_of(forge, source, folder, *args):
    """The sidecar that `tag` writes for a model without weights."""
    path = folder / "seen.onnx"
    path.write_bytes(source.read_bytes())
    forge("tag", path, *args).good()
    return beside(path)


# ---------------------------------------------------------------- the sidecar


def test_the_sidecar_lists_modules_nodes_and_tensors(forge, bert, tmp_path):
    source, table = bert
    whole = sidecar_of(forge, source, tmp_path, "--modules", table)
    listed = json.loads(table.read_text(encoding="utf-8"))
    assert whole["schema_version"] == "1.0"
    assert re.fullmatch("[0-9a-f]{32}", whole["fingerprint"])
    assert whole["model_file"] == "seen.onnx"
    assert whole["model_class"] == listed[""]["class"]
    signature = {key: listed[""].get(key, {}) for key in ("forward_args", "forward_defaults")}
    assert whole["model_signature"] == signature
    assert whole["hierarchy_depth"] == max(path.count(".") + 1 for path in listed if path)

    assert whole["modules"].keys() == listed.keys()
    for path, module in whole["modules"].items():
        own = listed[path]
        assert module["module_path"] == path
        assert (module["class"], module["qualified_class"]) == (own["class"].rsplit(".")[-1], own["class"])
        for key in ("forward_args", "direct_parameters", "direct_buffers", "children"):
            assert module[key] == own[key], (path, key)
        inside = {p: m for p, m in listed.items() if not path or p == path or p.startswith(f"{path}.")}
        full = {f"{p}.{name}".lstrip(".") for p, m in inside.items() for name in m["direct_parameters"]}
        prefix = f"{path}." if path else ""
        assert {prefix + name for name in module["parameters"]} == full, path

    expected = whole["expected_hierarchy"]
    assert all(len(value) == 1 for value in expected.values())
    assert len({value[0] for value in expected.values()}) == len(expected)

    graph = onnx.load(source, load_external_data=False).graph
    assert len(whole["nodes"]) == len(graph.node) == len(whole["operation_hierarchy"])
    for index, n in enumerate(graph.node):
        found = whole["nodes"][f"graph/{index}"]
        assert (found["name"], found["outputs"]) == (n.name, list(n.output))
        assert found["modules"] and all(path in listed for path in found["modules"] + found["consumers"])
        assert found["tags"] and set(found["tags"]) <= expected.keys()
        assert whole["operation_hierarchy"][n.name] == found["tags"][0]
        assert whole["hierarchy_mapping"][n.name] == found["modules"][0]
        assert all(n.name in whole["module_to_operations"][path] for path in found["modules"])
        certain = {"scope": "exact", "scope_guess": "inferred", "neighbours": "inferred", "owner": "inferred"}
        assert found["certainty"] == certain[found["evidence"]]
    assert sum(map(len, whole["module_to_operations"].values())) == sum(len(n["modules"]) for n in whole["nodes"].values())

    made = [name for n in graph.node for name in n.output if name]
    assert whole["tensors"].keys() == {tensor.name for tensor in graph.initializer} | {port.name for port in graph.input} | set(made)
    embedding = whole["tensors"]["model.embeddings.word_embeddings.weight"]
    path = "model.embeddings.word_embeddings"
    tag = whole["modules"][path]["tag"]
    assert embedding == {"kind": "initializer", "modules": [path], "consumers": [path], "tags": [tag], "consumer_tags": [tag]}

    summary = whole["summary"]
    assert summary["nodes"]["nodes"] == len(graph.node) and summary["nodes"]["root"] == 0
    statistics = summary["category_statistics"]
    assert summary["total_operations"] == summary["tagged_operations"] == len(graph.node)
    assert {"mathematical_operations", "activation_functions", "lookup_indexing", "parameter_constants"} <= statistics.keys()
    assert "Erf" in statistics["activation_functions"]["operators"]
    for category in statistics.values():
        counts = [category[key] for key in ("exact", "inferred", "root")]
        assert sum(counts) == category["nodes"] == sum(op["nodes"] for op in category["operators"].values())
        assert category["coverage"] == pytest.approx(sum(counts[:2]) / category["nodes"])
        assert (category["total"], category["tagged"]) == (category["nodes"], sum(counts[:2]))
        assert category["percentage"] == pytest.approx(100 * category["coverage"])
        assert category["critical"] == (category["threshold"] == 95)


def test_tags_follow_the_classes_of_the_table(forge, bert, tmp_path):
    source, table = bert
    listed = json.loads(table.read_text(encoding="utf-8"))
    tags = {paths[0]: tag for tag, paths in sidecar_of(forge, source, tmp_path, "--modules", table)["expected_hierarchy"].items()}
    short = lambda path: listed[path]["class"].rsplit(".")[-1]
    assert tags["model.encoder.layer.0.attention.self"].endswith("/BertModel/BertEncoder/BertLayer.0/BertAttention/BertSelfAttention")
    for path, tag in tags.items():
        levels = tag.split("/")[1:]
        around = [p for p in listed if p in tags and (not p or path == p or path.startswith(f"{p}."))]
        # The classes of all modules around it that have tags, and the number of an instance.
        assert [level.split(".")[0] for level in levels] == [short(p) for p in sorted(around, key=len)]
        number = path.split(".")[-1]
        assert not number.isdigit() or levels[-1].endswith(f".{number}")
    nn = {path for path, module in listed.items() if module["class"].startswith("torch.nn.")}
    kept = {short(path) for path in nn & tags.keys()}
    assert kept == {"LayerNorm", "Embedding"}
    assert tags.keys() >= listed.keys() - nn


def test_views_change_without_a_new_export(forge, bert, tmp_path):
    source, table = bert
    listed = json.loads(table.read_text(encoding="utf-8"))
    view = lambda *args: sidecar_of(forge, source, tmp_path, "--modules", table, *args)
    usual, every, bare, linear = view(), view("--all"), view("--no-torch-nn"), view("--keep", "Linear")
    tags = lambda whole: {paths[0] for paths in whole["expected_hierarchy"].values()}
    classes = lambda whole: {listed[path]["class"].rsplit(".")[-1] for path in tags(whole)}
    assert tags(every) == listed.keys()
    assert tags(bare) < tags(usual) < tags(every)
    assert "Linear" in classes(linear) and "LayerNorm" not in classes(linear)
    assert not any(listed[path]["class"].startswith("torch.nn.") for path in tags(bare))
    # Facts stay; only tags differ.
    facts = lambda whole: {place: (n["modules"], n["evidence"], n["consumers"]) for place, n in whole["nodes"].items()}
    assert facts(usual) == facts(every) == facts(bare)
    assert {tuple(n["tags"]) for n in bare["nodes"].values()} != {tuple(n["tags"]) for n in every["nodes"].values()}


def test_a_tagged_model_remembers_its_view(forge, plain, tmp_path):
    path = tmp_path / "all.onnx"
    forge("tag", plain, "-o", path, "--all", "--no-sidecar").good()
    assert not sidecar(path).exists()
    tag = lambda *args: {row["module"]: row["tag"] for row in told(forge("tree", path, "--json", "-", *args))["modules"]}
    assert tag()["stem"] == "/Net/Linear"
    assert tag("--no-torch-nn")["stem"] == "/Net"


def test_the_tree_shows_levels_and_counts(forge, plain):
    rows = {row["module"]: row for row in told(forge("tree", plain, "--json", "-"))["modules"]}
    assert rows.keys() == CLASSES.keys()
    assert (rows[""]["nodes"], rows[""]["own_nodes"], rows["blocks.0"]["nodes"], rows["blocks.0"]["own_nodes"]) == (18, 1, 2, 1)
    assert (rows["stem"]["parameters"], rows["stem"]["bytes"], rows[""]["parameters"]) == (20, 80, 44)
    assert rows["blocks.0"]["operators"] == {"Mul": 1, "Relu": 1}
    shown = forge("tree", plain, "--view", "path").good().out
    assert re.search(r"^ *stem \(Linear\) +2 ", shown, re.M) and "act (ReLU)" in shown
    assert "1 more" not in shown and "act (ReLU)" not in forge("tree", plain, "--view", "path", "--depth", "1").good().out
    # Without a class the model still is a level of its own.
    lines = forge("tree", ROOT / "examples/tiny_bert.onnx").good().out.splitlines()
    indent = lambda name: next(len(line) - len(line.lstrip()) for line in lines if re.match(rf" +{re.escape(name)} ", line))
    assert [indent(name) - indent("/") for name in ("bert", "encoder", "layer.0")] == [2, 4, 6]


def test_consumers_are_one_step_away(forge, plain):
    forge("tag", plain).good()
    found = {n["outputs"][0]: n["consumers"] for n in beside(plain)["nodes"].values()}
    assert found["stem_mm"] == ["stem"]
    assert found["stem_out"] == ["blocks.0"]
    assert sorted(found["b0_out"]) == ["blocks.1", "shared"]
    # A body reads what it captures; its results are read by the node that holds it.
    assert found["twice_b"] == ["choice"] and found["then_out"] == ["choice"]
    assert found["y"] == []
    tensors = beside(plain)["tensors"]
    assert {key: tensors["shared.scale"][key] for key in ("modules", "consumers")} == {"modules": ["shared"], "consumers": ["shared"]}


# ---------------------------------------------------------------- what is written into the file


def test_only_metadata_is_added(forge, plain, tagged):
    before, after = onnx.load(plain), onnx.load(tagged)
    onnx.checker.check_model(after)
    assert after.ir_version == before.ir_version
    assert told(forge("compare", plain, tagged, "--exact", "--json", "-"))["sameness"] == "identical"
    for n in nodes(after):
        entries = metadata(n)
        assert {"onnxforge.module", "onnxforge.tags", "namespace"} <= entries.keys()
        assert "onnxforge.consumers" not in entries
    assert paths(by_output(after)["b0_out"]) == ["blocks.0.act"]
    assert json.loads(metadata(by_output(after)["b0_out"])["onnxforge.tags"]) == ["/Net/Block.0"]
    # What is known from the exporter itself needs no word; what is concluded does.
    assert "onnxforge.evidence" not in metadata(by_output(after)["b0_out"])
    assert metadata(by_output(after)["then_out"])["onnxforge.evidence"] == "enclosing"
    # Where the exporter wrote a namespace, it stays.
    assert metadata(by_output(after)["stem_mm"])["namespace"] == metadata(by_output(before)["stem_mm"])["namespace"]
    assert "choice: demo.Choice/" in metadata(by_output(after)["then_out"])["namespace"]
    entries = {entry.key: entry.value for entry in after.metadata_props}
    assert len(entries) == len(after.metadata_props)
    whole = json.loads(entries["onnxforge.hierarchy"])
    assert whole["schema_version"] == "1.0" and whole["modules"].keys() == CLASSES.keys()
    assert whole["fingerprint"] == beside(tagged)["fingerprint"]


def test_consumers_are_written_when_asked_for(forge, plain, tmp_path):
    path = tmp_path / "read.onnx"
    forge("tag", plain, "-o", path, "--consumers").good()
    assert sorted(json.loads(metadata(by_output(onnx.load(path))["b0_out"])["onnxforge.consumers"])) == ["blocks.1", "shared"]


def test_tagging_again_changes_nothing(forge, tagged, tmp_path):
    again = tmp_path / "again.onnx"
    sidecar(tagged).unlink()
    forge("tag", tagged, "-o", again).good()
    assert again.read_bytes() == tagged.read_bytes()
    forge("tag", again, "-o", again, "--all").good()
    forge("tag", again, "-o", again).good()
    # The view of the last time holds until somebody asks for another one.
    assert json.loads(metadata(by_output(onnx.load(again))["stem_mm"])["onnxforge.tags"]) == ["/Net/Linear"]


@pytest.mark.parametrize("name", [path.name for path in repository_models() if "dtypes" not in path.name])
def test_strip_gives_back_the_bytes(forge, tmp_path, name):
    [source] = [path for path in repository_models() if path.name == name]
    folder = tmp_path / "whole"
    folder.mkdir()
    original, tagged, stripped = folder / name, folder / f"t_{name}", folder / f"s_{name}"
    for path in source.parent.glob(f"{source.name}*"):
        (folder / path.name).write_bytes(path.read_bytes())
    # Loading and saving comes first: what is compared is what tagging does.
    saved = folder / f"saved_{name}"
    forge("save", original, "-o", saved, "--external", "inline").good()
    done = forge("tag", original, "-o", tagged, "--external", "inline").orderly()
    if "nothing tells of modules" in done.err:
        return
    done.good()
    assert tagged.read_bytes() != saved.read_bytes()
    forge("strip", tagged, "-o", stripped).good()
    assert stripped.read_bytes() == saved.read_bytes()


def test_strip_leaves_what_others_wrote(forge, plain, tmp_path):
    written = onnx.load(plain)
    for number, n in enumerate(nodes(written)):
        del n.metadata_props[:]
        n.name = f"/{n.name.replace('_', '/')}" if n.name else f"/inner/op_{number}"
        n.metadata_props.add(key="namespace", value="my/own/levels")
        n.metadata_props.add(key="mine", value="kept")
    write(written, plain)
    path = tmp_path / "t.onnx"
    forge("tag", plain, "-o", path).good()
    assert all(metadata(n)["namespace"] == "my/own/levels" for n in nodes(onnx.load(path)))
    forge("strip", path, "-o", path).good()
    assert path.read_bytes() == plain.read_bytes()


def test_strip_all_forgets_exporters_too(forge, tagged):
    forge("strip", tagged, "-o", tagged, "--all").good()
    assert not any(n.metadata_props for n in nodes(onnx.load(tagged)))
    sidecar(tagged).unlink()
    # Names of parameters are no metadata: they still tell of owners.
    assert told(forge("coverage", tagged, "--json", "-"))["evidence"].keys().isdisjoint({"exporter", "recorded"})


def test_traces_go_and_nothing_else(forge, plain, tmp_path):
    written = onnx.load(plain)
    stack = "/home/somebody/net.py(12): forward\n/home/somebody/run.py(3): <module>"
    written.graph.node[0].doc_string = stack
    written.graph.node[1].doc_string = "see net.py (page 12)"
    written.graph.doc_string = "kept"
    write(written, plain)
    expected = copy(written)
    expected.graph.node[0].ClearField("doc_string")
    for n in nodes(expected):
        kept = [entry for entry in n.metadata_props if entry.key != "pkg.torch.onnx.stack_trace"]
        del n.metadata_props[:]
        n.metadata_props.extend(kept)
    for command in (["strip", "--traces"], ["tag", "--strip-traces"]):
        path = tmp_path / "out.onnx"
        forge(command[0], plain, "-o", path, *command[1:]).good()
        assert b"somebody" not in path.read_bytes()
        forge("strip", path, "-o", path).good()
        assert onnx.load(path) == expected, command
    assert TRACE in metadata(written.graph.node[0])["pkg.torch.onnx.stack_trace"]


# ---------------------------------------------------------------- coverage and validation


def test_every_operator_has_a_category(forge, tmp_path):
    known = sorted({(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history() if s.domain in ("", "ai.onnx.ml")})
    assert len(known) > 200
    calls = [helper.make_node(name, ["x"], [f"o{i}"], domain=domain) for i, (domain, name) in enumerate(known)]
    calls.append(helper.make_node("Unheard", ["x"], ["u"], domain="of"))
    graph = helper.make_graph(calls, "g", [port("x", 1)], [])
    path = write(helper.make_model(graph), tmp_path / "all.onnx")
    report = told(forge("coverage", path, "--json", "-"))
    found = {category["category"]: set(category["operators"]) for category in report["categories"]}
    assert {category["category"]: category["threshold"] for category in report["categories"]} == THRESHOLDS
    assert len(found) == 12 and found["uncategorized"] == {"of.Unheard"}
    counted = [name for operators in found.values() for name in operators]
    assert sorted(counted) == sorted([f"{domain}.{name}".lstrip(".") for domain, name in known] + ["of.Unheard"])
    # Nothing is known of any of them, and the model itself does not count.
    assert report["root"] == report["nodes"] == len(calls) and report["coverage"] == 0 and not report["ok"]
    assert len(report["warnings"]) == 11
    assert "MISSED" in forge("coverage", path).good().out


def half_known():
    """Four nodes of two categories; of the Adds one is known, the other reads nothing that is."""
    made = [
        node("Relu", ["x"], "a", "blocks.0"),
        node("Relu", ["a"], "b", "blocks.1"),
        node("Add", ["b", "b"], "c", "blocks.1"),
        node("Add", ["u", "stray"], "d", None),
    ]
    return model(made, [port("x", 4), port("u", 4)], [port("c", 4), port("d", 4)], [weight("stray", 4)])


def test_thresholds_decide(forge, tmp_path):
    path = write(half_known(), tmp_path / "half.onnx")
    for args, code in [
        (["--fail-under", "75"], 0), (["--fail-under", "75.1"], 1), (["--category", "mathematical", "--fail-under", "51"], 1),
        (["--category", "activation", "--fail-under", "100"], 0), (["--category", "math"], 0), ([], 0),
    ]:  # fmt: skip
        outcome = forge("coverage", path, *args).orderly()
        assert outcome.code == code, str(outcome)
    report = told(forge("coverage", path, "--category", "math", "--json", "-"))
    assert [category["category"] for category in report["categories"]] == ["mathematical_operations"]
    assert report["with_parameters"] == {"nodes": 1, "exact": 0, "inferred": 0, "root": 1}
    assert len(report["warnings"]) == 2 and not report["ok"]
    detailed = forge("coverage", path, "--detailed").good().out
    assert "unknown: " in detailed and "computes with parameters" in detailed and "  Relu" in detailed
    assert "unknown: " not in forge("coverage", path).good().out
    forge("coverage", path, "--category", "control_flow").refused(path, "control_flow", "activation")
    assert forge("coverage", path, "--fail-under", "101").code == 2


def test_what_the_model_itself_computes_is_known(forge, plain):
    report = told(forge("coverage", plain, "--json", "-"))
    assert report["root"] == 0 and report["nodes"] == 18 and report["evidence"] == {"enclosing": 4, "exporter": 14}


def test_validation_finds_what_does_not_hold(forge, tagged):
    forge("validate", tagged).good()
    good = onnx.load(tagged)

    def problems(change):
        broken = copy(good)
        change(broken)
        write(broken, tagged)
        outcome = forge("validate", tagged, "--json", "-").orderly()
        report = json.loads(outcome.out)
        assert (outcome.code, report["valid"]) == (1, False), str(outcome)
        return " ".join(report["problems"])

    def entry(model, key):
        return next(entry for entry in model.graph.node[3].metadata_props if entry.key == key)

    assert "which the table does not have" in problems(lambda m: setattr(entry(m, "onnxforge.module"), "value", '["nowhere"]'))
    assert "should be" in problems(lambda m: setattr(entry(m, "onnxforge.tags"), "value", '["/Net/Block.1"]'))
    assert "no list of tags" in problems(lambda m: setattr(entry(m, "onnxforge.tags"), "value", "Block"))
    assert "more than once" in problems(lambda m: m.graph.node[3].metadata_props.add(key="onnxforge.module", value='["stem"]'))
    assert "is not known" in problems(lambda m: m.graph.node[3].metadata_props.add(key="onnxforge.evidence", value="rumour"))
    assert "another graph" in problems(lambda m: m.graph.node[3].__setattr__("op_type", "Elu"))
    write(good, tagged)
    forge("validate", tagged).good()


def test_a_stack_that_cannot_be_read_is_told_and_not_believed(forge, plain):
    written = onnx.load(plain)
    for n in nodes(written)[:2]:
        for entry in n.metadata_props:
            if entry.key == "pkg.torch.onnx.name_scopes":
                entry.value = "['', 'stem' + evil(), 'op']"
    write(written, plain)
    outcome = forge("validate", plain).orderly()
    assert outcome.code == 1 and outcome.out.count("its module stack cannot be read") == 2
    report = told(forge("tag", plain, "--json", "-"))
    assert len(report["unreadable"]) == 2
    assert report["coverage"]["root"] == 0 and report["coverage"]["evidence"]["exporter"] == 12


# ---------------------------------------------------------------- extraction


def run(model, feed, outputs=None):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"]).run(outputs, feed)


def values(path, tmp_path, chosen=True):
    """All values of the network on some input."""
    whole = onnx.load(path)
    kept = [output.name for output in whole.graph.output]
    names = [name for n in whole.graph.node for name in n.output if name not in kept]
    whole.graph.output.extend(port(name, "batch", 4) for name in names)
    probe = write(whole, tmp_path / "probe.onnx")
    x = np.random.default_rng(5).standard_normal((3, 4)).astype(np.float32)
    feed = {"x": x, "c": np.array(chosen)}
    return {**feed, **dict(zip(kept + names, run(probe, feed, kept + names)))}


@pytest.mark.parametrize("asked, part", [
    ("stem", "stem"), ("blocks.0", "blocks.0"), ("/Net/Block.1", "blocks.1"), ("blocks", "blocks"), ("shared", "shared"),
    ("choice", "choice"), ("/Net/Gate", "gate"), ("/Net/LayerNorm", "head"), ("", ""), ("/Net", ""),
])  # fmt: skip
def test_a_module_computes_what_it_did(forge, plain, tmp_path, asked, part):
    path = tmp_path / "part.onnx"
    report = told(forge("extract", plain, "-m", asked or "/", "-o", path, "--json", "-", "--verify", "--engine", "native"))
    [found] = report["parts"]
    assert (found["module"], found["problems"], found["verified"]) == (part, [], "identical")
    assert found["left_out"] == 0 and found["feeders"] == 0
    cut = onnx.load(path)
    onnx.checker.check_model(cut, full_check=True)
    for chosen in (True, False):
        known = values(plain, tmp_path, chosen)
        feed = {i.name: known[i.name] for i in cut.graph.input}
        for output, value in zip(cut.graph.output, run(path, feed)):
            np.testing.assert_array_equal(value, known[output.name])
    # Only its own weights, and named dimensions stay named.
    assert {tensor.name for tensor in cut.graph.initializer} == {
        tensor.name for tensor in net().graph.initializer if not part or tensor.name.startswith(f"{part}.")
    }
    for end in [*cut.graph.input, *cut.graph.output]:
        if end.name != "c":
            assert [dim.dim_param or dim.dim_value for dim in end.type.tensor_type.shape.dim] == ["batch", 4]
    assert [f.name for f in cut.functions] == (["gate"] if part in ("gate", "") else [])


def test_the_boundary_names_the_modules_on_the_other_side(forge, plain):
    [found] = told(forge("extract", plain, "-m", "choice", "--verify", "--engine", "native", "--json", "-"))["parts"]
    assert found["inputs"] == [
        {"name": "c", "type": "bool[]", "modules": []}, {"name": "twice_b", "type": "float[batch,4]", "modules": ["shared"]},
    ]  # fmt: skip
    assert found["outputs"] == [{"name": "chosen", "type": "float[batch,4]", "modules": ["gate"]}]


def test_calls_of_one_module_are_told_apart(forge, plain, tmp_path):
    cut = lambda *args: told(forge("extract", plain, "-m", "shared", "-o", tmp_path / "c.onnx", "--json", "-", *args))["parts"][0]
    names = lambda ends: [end["name"] for end in ends]
    whole, first, second = cut(), cut("--call", "0"), cut("--call", "1", "--verify", "--engine", "native")
    assert [part["calls"] for part in (whole, first, second)] == [2, 2, 2]
    assert (names(whole["inputs"]), names(whole["outputs"])) == (["b0_out", "b1_out"], ["twice_a", "twice_b"])
    assert (names(first["inputs"]), names(first["outputs"]), first["nodes"]) == (["b0_out"], ["twice_a"], 2)
    assert (names(second["inputs"]), names(second["outputs"]), second["verified"]) == (["b1_out"], ["twice_b"], "identical")
    forge("extract", plain, "-m", "shared", "--call", "2", "-o", tmp_path / "c.onnx").refused("no call 2", "2 found")
    assert cut()["calls"] == 2


def test_patterns_write_one_file_each(forge, plain, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    report = told(forge("extract", plain, "-m", "blocks.*", "-o", folder, "--json", "-"))
    assert [part["module"] for part in report["parts"]] == ["blocks.0", "blocks.1"]
    assert sorted(path.name for path in folder.iterdir()) == ["blocks.0.onnx", "blocks.1.onnx"]
    tags = told(forge("extract", plain, "-m", "/Net/Block*", "-o", folder, "--json", "-"))
    assert [part["module"] for part in tags["parts"]] == ["blocks.0", "blocks.1"]
    every = told(forge("extract", plain, "-m", "**", "--verify", "--engine", "native", "--json", "-"))
    assert {part["module"] for part in every["parts"]} == CLASSES.keys()
    assert all(part["verified"] == "identical" for part in every["parts"])


def test_slips_are_understood(forge, plain, tmp_path):
    cut = lambda module: forge("extract", plain, "-m", module, "-o", tmp_path / "none.onnx")
    cut("bloks.0").refused(plain, "bloks.0", 'did you mean "blocks.0"?')
    cut("/Net/Block.3").refused("did you mean", "/Net/Block.")
    cut("nothing.like.it").refused("onnxforge tree")
    forge("extract", plain, "-m", "nothing.*", "-o", tmp_path).refused("nothing.*")
    assert not (tmp_path / "none.onnx").exists()


def test_a_module_without_nodes_says_why(forge, bert):
    source, table = bert
    dropout = "model.encoder.layer.0.output.dropout"
    forge("extract", source, "--modules", table, "-m", dropout, "-o", "unwritten.onnx").refused(dropout, "computes nothing")


def test_a_part_knows_its_modules(forge, tagged, tmp_path):
    path = tmp_path / "part.onnx"
    forge("extract", tagged, "-m", "blocks", "-o", path).good()
    forge("validate", path).good()
    assert paths(by_output(onnx.load(path))["b1_out"]) == ["blocks.1.act"]
    [again] = told(forge("extract", path, "-m", "/Net/Block.1", "-o", tmp_path / "inner.onnx", "--json", "-"))["parts"]
    assert again["module"] == "blocks.1" and again["nodes"] == 2


def test_weights_in_another_file_are_not_carried_along(forge, tmp_path):
    big = [weight("left.weight", 64, 64), weight("right.weight", 64, 64)]
    classes = {"": "demo.Net", "left": LINEAR, "right": LINEAR}
    made = [node("MatMul", ["x", "left.weight"], "l", "left", classes), node("MatMul", ["l", "right.weight"], "y", "right", classes)]
    whole = model(made, [port("x", "batch", 64)], [port("y", "batch", 64)], big)
    path = tmp_path / "whole.onnx"
    onnx.save(whole, path, save_as_external_data=True, location="whole.weights", size_threshold=0)
    tagged, part = tmp_path / "t" / "tagged.onnx", tmp_path / "p" / "part.onnx"
    tagged.parent.mkdir(), part.parent.mkdir()
    forge("tag", path, "-o", tagged).good()
    forge("compare", path, tagged, "--exact").good()
    for external in ("split", "inline"):
        forge("extract", tagged, "-m", "right", "-o", part, "--external", external).good()
        cut = onnx.load(part)
        assert [tensor.name for tensor in cut.graph.initializer] == ["right.weight"]
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(cut.graph.initializer[0]), onnx.numpy_helper.to_array(big[1]))
        stored = sum(file.stat().st_size for file in part.parent.iterdir())
        assert 64 * 64 * 4 <= stored < 2 * 64 * 64 * 4, external
        for file in part.parent.iterdir():
            file.unlink()


def test_part_of_a_body(forge, tmp_path):
    classes = {"": "demo.Net", "a": "demo.A", "b": "demo.B", "outer": "demo.Outer"}
    branch = lambda name, path, op: helper.make_graph(
        [node(op, ["h"], name, path, classes)], name, [], [port(name, "batch", 4)]
    )
    made = [
        node("Relu", ["x"], "h", "outer", classes),
        node("If", ["c"], "y", "outer", classes, then_branch=branch("t", "a", "Exp"), else_branch=branch("e", "b", "Neg")),
    ]
    whole = model(made, [port("x", "batch", 4), port("c", kind=TensorProto.BOOL)], [port("y", "batch", 4)])
    path, part = write(whole, tmp_path / "if.onnx"), tmp_path / "a.onnx"
    forge("extract", path, "-m", "a", "-o", part).good()
    cut = onnx.load(part)
    assert [n.op_type for n in cut.graph.node] == ["Exp"] and [i.name for i in cut.graph.input] == ["h"]
    forge("extract", path, "-m", "outer", "-o", part).good()
    assert [n.op_type for n in onnx.load(part).graph.node] == ["Relu", "If"]


# ---------------------------------------------------------------- other tools, and ours


def test_restoring_what_another_tool_dropped(forge, tagged, tmp_path):
    changed = onnx.load(tagged)
    del changed.metadata_props[:]
    for index, n in enumerate(nodes(changed)):
        del n.metadata_props[:]
        n.name = f"renamed_{index}"
    # Two nodes of two modules became one, and a value has another name.
    graph = changed.graph
    [fused] = [n for n in graph.node if n.output[0] == "b0_out"]
    [gone] = [n for n in graph.node if n.output[0] == "b0_mul"]
    fused.op_type, fused.input[:] = "PRelu", list(gone.input)
    graph.node.remove(gone)
    for n in graph.node:
        n.input[:] = ["other" if name == "b1_mul" else name for name in n.input]
        n.output[:] = ["other" if name == "b1_mul" else name for name in n.output]
    lost, back = write(changed, tmp_path / "lost.onnx"), tmp_path / "back.onnx"
    assert told(forge("coverage", lost, "--json", "-"))["coverage"] < 1
    report = told(forge("restore", lost, "--from", tagged, "-o", back, "--json", "-"))
    assert report["coverage"]["root"] == 0
    forge("validate", back).good()
    forge("compare", lost, back, "--exact").good()
    before, after = by_output(onnx.load(tagged)), by_output(onnx.load(back))
    assert paths(after["b0_out"]) == ["blocks.0.act", "blocks.0"]
    assert paths(after["other"])[0].startswith("blocks.1")
    # What stood between may have become part of what is left.
    assert paths(after["b1_out"]) == ["blocks.1.act", "blocks.1"]
    same = set(before) & set(after) - {"b0_out", "b1_out"}
    assert len(same) == 14
    assert {name: paths(after[name]) for name in same} == {name: paths(before[name]) for name in same}


def test_restoring_from_a_stranger_is_refused(forge, tagged, tmp_path):
    other = model([helper.make_node("Relu", ["in"], ["out"])], [port("in", 4)], [port("out", 4)])
    path = write(other, tmp_path / "other.onnx")
    forge("restore", path, "--from", tagged, "-o", tmp_path / "o.onnx").refused(path, tagged, "was it made from that model?")
    assert not (tmp_path / "o.onnx").exists()


@pytest.fixture
def siblings(tmp_path):
    """Siblings that compute the same, constants that fold, and a normalization that goes into the convolution before it."""
    classes = {"": "demo.Net", "left": "demo.Half", "right": "demo.Half", "table": "demo.Table", "conv": "torch.nn.modules.conv.Conv2d",
               "bn": "torch.nn.modules.batchnorm.BatchNorm2d", "last": "demo.Last"}  # fmt: skip
    made = [
        node("Conv", ["x", "conv.weight"], "conv_out", "conv", classes),
        node("BatchNormalization", ["conv_out", "bn.weight", "bn.bias", "bn.mean", "bn.var"], "bn_out", "bn", classes),
        node("Exp", ["bn_out"], "e1", "left", classes),
        node("Exp", ["bn_out"], "e2", "right", classes),
        node("Sin", ["table.angles"], "angles", "table", classes),
        node("Mul", ["e1", "angles"], "m", "last", classes),
        node("Sub", ["m", "e2"], "y", "last", classes),
    ]
    weights = [weight("conv.weight", 2, 3, 1, 1), *(weight(f"bn.{name}", 2) for name in ("weight", "bias", "mean")), weight("table.angles", 5)]
    weights.append(onnx.numpy_helper.from_array(np.array([0.5, 2], np.float32), "bn.var"))
    whole = model(made, [port("x", "batch", 3, 5, 5)], [port("y", "batch", 2, 5, 5)], weights, signature=[w.name for w in weights])
    return write(whole, tmp_path / "siblings.onnx")


def test_passes_keep_tags(forge, siblings, tmp_path):
    tagged, made = tmp_path / "tagged.onnx", tmp_path / "made.onnx"
    forge("tag", siblings, "-o", tagged).good()
    report = told(forge("optimize", tagged, "-o", made, "--engine", "native", "--json", "-"))
    after = onnx.load(made)
    onnx.checker.check_model(after)
    of = {n.op_type: n for n in after.graph.node}
    assert sorted(n.op_type for n in after.graph.node) == ["Conv", "Exp", "Mul", "Sub"]
    assert sorted(paths(of["Exp"])) == ["left", "right"]
    assert sorted(paths(of["Conv"])) == ["bn", "conv"]
    assert sorted(json.loads(metadata(of["Exp"])["onnxforge.tags"])) == ["/Net/Half.left", "/Net/Half.right"]
    assert paths(of["Mul"]) == ["last"]
    forge("validate", made).good()
    # What was computed once and for all still says for whom.
    folded = of["Mul"].input[1] if of["Mul"].input[0] == of["Exp"].output[0] else of["Mul"].input[0]
    tensor = beside(made)["tensors"][folded]
    assert (tensor["modules"], tensor["consumers"]) == (["table"], ["last"])
    effects = {effect["module"]: effect for effect in report["modules"]}
    assert (effects[""]["before"], effects[""]["after"]) == (7, 4)
    assert effects["table"]["after"] == 0 and effects["table"]["gone"] == "computed once and for all"
    gone = [effects[path].get("gone") for path in ("left", "right")]
    assert sorted(gone, key=str) == [None, "merged into nodes of other modules"]
    every = told(forge("extract", made, "-m", "**", "--verify", "--engine", "native", "--json", "-"))
    assert {part["module"] for part in every["parts"]} == {"", "conv", "bn", "left", "right", "last"}
    assert all(part["verified"] == "identical" and not part["problems"] for part in every["parts"])
    shared = next(part["shared"] for part in every["parts"] if part["module"] == "left")
    assert [one["with"] for one in shared] == [["right"]]


def test_passes_keep_origins_of_models_that_were_not_tagged(forge, siblings, tmp_path):
    made = tmp_path / "made.onnx"
    forge("optimize", siblings, "-o", made, "--engine", "native").good()
    assert not sidecar(made).exists()
    of = {n.op_type: n for n in onnx.load(made).graph.node}
    assert sorted(paths(of["Exp"])) == ["left", "right"]
    assert "onnxforge.tags" not in metadata(of["Exp"]) and "onnxforge.module" not in metadata(of["Sub"])
    report = told(forge("coverage", made, "--json", "-"))
    assert report["root"] == 0 and report["several_modules"] == 2


def test_strip_after_passes_leaves_nothing_of_ours(forge, tmp_path):
    tagged, made = tmp_path / "tagged.onnx", tmp_path / "made.onnx"
    forge("tag", ROOT / "examples/tiny_bert.onnx", "-o", tagged).good()
    forge("optimize", tagged, "-o", made, "--verify", "off").good()
    assert all("namespace" in metadata(n) for n in nodes(onnx.load(made)))
    for n in nodes(onnx.load(made)):
        assert metadata(n)["namespace"].split("/")[-2].split(": ")[0] == paths(n)[0]
    forge("strip", made, "-o", made).good()
    assert not any(n.metadata_props for n in nodes(onnx.load(made)))


# ---------------------------------------------------------------- pages and comparisons


def test_report_and_explorer(forge, tagged, tmp_path):
    page, graph = tmp_path / "page.html", tmp_path / "graph.json"
    forge("report", tagged, "-o", page, "--model-explorer", graph, "--set-dim", "batch=2").good()
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>") and "blocks.0.act" in text and "batch=2" in text
    explored = json.loads(graph.read_text(encoding="utf-8"))
    assert [one["id"] for one in explored["graphs"]] == ["tagged.onnx", "demo.gate"]
    for one in explored["graphs"]:
        ids = [n["id"] for n in one["nodes"]]
        assert len(ids) == len(set(ids))
        edges = [edge for n in one["nodes"] for edge in n.get("incomingEdges", [])]
        assert edges and {edge["sourceNodeId"] for edge in edges} <= set(ids)
        assert {n["namespace"] for n in one["nodes"]} - {""} <= one["groupNodeAttributes"].keys()
    main = {n["id"]: n for n in explored["graphs"][0]["nodes"]}
    assert main["graph/3"]["namespace"] == "Net/blocks.0 (Block)/act (ReLU)"
    assert main["graph/3"]["incomingEdges"][0]["sourceNodeId"] == "graph/2"
    # Levels without nodes of their own are groups, too.
    assert "Net/blocks.0 (Block)" in explored["graphs"][0]["groupNodeAttributes"]


def test_a_difference_has_its_module(forge, tagged, tmp_path):
    other = onnx.load(tagged)
    by_output(other)["b1_out"].op_type = "Elu"
    path = write(other, tmp_path / "other.onnx")
    outcome = forge("compare", tagged, path).orderly()
    assert outcome.code == 1 and "of blocks.1.act" in outcome.out
    first = told(forge("compare", tagged, path, "--json", "-"))["differences"]["first"]["first"][0]
    assert (first["op"], first["module"]) == ("Relu", "blocks.1.act")


# ---------------------------------------------------------------- bad input


def test_bad_tables_are_refused(forge, plain, tmp_path):
    table = tmp_path / "table.json"

    def refused(text, *mentioned):
        table.write_text(text, encoding="utf-8")
        forge("tag", plain, "--modules", table).refused(table, *mentioned)

    refused("", "no table of modules")
    refused("[1]", "no table of modules")
    refused('{"a": {"class": 3}}', "no table of modules")
    refused('{"a": {"alias_of": "b"}, "b": {"alias_of": "a"}}', "alias of itself")
    refused('{"schema_version": "7.0", "modules": {}}', "newer")
    refused('{"unrelated.module": {"class": "X"}}', "another model")
    refused('{"a": ' * 10000 + "1" + "}" * 10000, "another model")
    forge("tag", plain, "--modules", tmp_path / "none.json").refused("none.json")
    forge("tag", plain).good()
    foreign = json.dumps({**beside(plain), "fingerprint": "0" * 32})
    refused(foreign, "another graph", "restore")


def test_a_sidecar_of_another_graph_is_not_used(forge, plain):
    forge("tag", plain).good()
    sidecar(plain).write_text(json.dumps({**beside(plain), "fingerprint": "0" * 32}), encoding="utf-8")
    outcome = forge("coverage", plain).good()
    assert "belongs to another graph" in outcome.err
    assert forge("validate", plain).orderly().code == 1


def test_usage_that_makes_no_sense(forge, plain, tagged, tmp_path):
    bare = write(model([helper.make_node("Relu", ["x"], ["y"])], [port("x", 4)], [port("y", 4)]), tmp_path / "bare.onnx")
    forge("tag", bare, "-o", tmp_path / "t.onnx").refused(bare, "nothing tells of modules", "--modules")
    forge("extract", plain, "-m", "stem", "-o", plain).refused(plain)
    forge("report", plain, "-o", plain).refused(plain)
    forge("tree", tmp_path / "missing.onnx").refused("missing.onnx")
    forge("restore", tagged, "--from", tmp_path / "missing.onnx", "-o", tmp_path / "r.onnx").refused("missing.onnx")
    assert "wrote" not in forge("extract", plain, "-m", "stem").good().out
    for args in (["tag", plain, "--all", "--keep", "Linear", "-o", tmp_path / "t.onnx"],
                 ["tag", plain, "--strip-traces"], ["report", plain], ["restore", tagged, "-o", tmp_path / "r.onnx"],
                 ["extract", plain, "-m", "stem", "--engine", "native", "-o", tmp_path / "t.onnx"]):  # fmt: skip
        assert forge(*args).code == 2, args


def test_hostile_metadata_is_survived(forge, plain, tmp_path):
    hostile = {
        "onnxforge.module": "[" * 100000,
        "onnxforge.tags": "\x00",
        "onnxforge.evidence": "\n" * 1000,
        "namespace": ": /" * 50000,
        "pkg.torch.onnx.name_scopes": "['" + "a." * 50000 + "', 'x']",
        "pkg.torch.onnx.class_hierarchy": "(" * 100000,
    }
    (tmp_path / "parts").mkdir()
    for key, value in hostile.items():
        written = net()
        for n in written.graph.node:
            kept = [copy(entry) for entry in n.metadata_props if entry.key != key and key.startswith("onnxforge")]
            del n.metadata_props[:]
            n.metadata_props.extend(kept)
            n.metadata_props.add(key=key, value=value)
        path = write(written, tmp_path / "hostile.onnx")
        for args in (["coverage"], ["tree"], ["validate"], ["extract", "-m", "**", "-o", tmp_path / "parts"], ["tag", "-o", tmp_path / "t.onnx"]):
            forge(args[0], path, *args[1:]).orderly()
    for whole in ("{", '{"modules": {"": 3}}', '{"modules": {}, "anchors": {"y": [99999999]}}', "[" * 100000):
        written = net()
        written.metadata_props.add(key="onnxforge.hierarchy", value=whole)
        path = write(written, tmp_path / "hostile.onnx")
        for command in ("coverage", "tree", "validate"):
            forge(command, path).orderly()
