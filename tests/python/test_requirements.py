"""The fields and options that docs/requirements.md lists for module information, operations, consumers, extraction and coverage."""

import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import onnx
import pytest
from corpus import ROOT
from hierarchy_cases import NAMES, Case, session
from modular import metadata, model, net, node, port, weight, write

CATEGORIES = {
    "mathematical_operations", "activation_functions", "neural_network_layers", "reduction_operations", "lookup_indexing", "tensor_manipulation",
    "shape_metadata", "parameter_constants", "comparison_logic", "type_conversion", "control_flow", "uncategorized",
}  # fmt: skip


def told(outcome):
    return json.loads(outcome.orderly().out)


def beside(path):
    return json.loads(path.with_name(f"{path.stem}_hierarchy.json").read_text(encoding="utf-8"))


@pytest.fixture
def plain(tmp_path):
    return write(net(), tmp_path / "net.onnx")


# ---------------------------------------------------------------- the table itself

TABLE = [line.split("|")[1:-1] for line in (ROOT / "docs/requirements.md").read_text(encoding="utf-8").splitlines() if line.startswith("| R")]
quoted = re.compile(r"`([^`]+)`").findall


def names_in(value):
    """All names of fields in a report."""
    if isinstance(value, dict):
        return set(value).union(*map(names_in, value.values()))
    return set().union(*map(names_in, value)) if isinstance(value, list) else set()


def test_commands_and_options_of_the_table_are_there(forge):
    known = set(re.findall(r"^  ([a-z0-9]+)  ", forge("--help").good().out, re.M))
    assert len(TABLE) == 14 and {"profile", "tag"} <= known
    for requirement, words, _, _ in TABLE:
        # Functions of Python are no commands.
        used = [word for word in quoted(words) if re.match(r"[a-z]+( |$)", word)]
        options = {option for word in quoted(words) for option in re.findall(r"--[a-z-]+", word)}
        commands = {word.split()[0] for word in used} or {"tag"}
        assert commands <= known, requirement
        assert options <= {option for command in commands for option in re.findall(r"--[a-z-]+", forge(command, "--help").good().out)}, requirement


def test_fields_of_the_table_are_there(forge, plain, tmp_path):
    tagged, lost = tmp_path / "tagged.onnx", net()
    # Some fields are about nodes that are not known.
    lost.graph.node.append(onnx.helper.make_node("Neg", ["x"], ["lost"], name="lost"))
    lost.graph.output.append(port("lost", "batch", 4))
    reports = [told(forge("tag", plain, "-o", tagged, "--consumers=transitive", "--operations", "--json", "-")), beside(tagged)]
    reports += [told(forge(*words, "--json", "-")) for words in (
        ("coverage", write(lost, tmp_path / "lost.onnx")), ("analyze", plain), ("validate", tagged), ("compare", plain, tagged), ("extract", plain, "-m", "stem", "--verify"),
        ("profile", plain, "--engine", "native", "--seconds", "0.1"),
    )]  # fmt: skip
    written = onnx.load(tagged)
    there = set().union(*map(names_in, reports), (prop.key for each in (written, *written.graph.node) for prop in each.metadata_props))
    for requirement, _, fields, _ in TABLE:
        wanted = {field.split(":")[0] for field in quoted(fields)} - {"onnxforge.evidence", "exporter", "recorded"}
        missing = {field for field in wanted - there if not set(field.split(".")) <= there}
        assert not missing, (requirement, missing)


def test_tests_of_the_table_are_there():
    for requirement, _, _, tests in TABLE:
        last = None
        for word in quoted(tests):
            if word.startswith("test_"):
                assert f"def {word}(" in last, (requirement, word)
            elif not word.startswith("cargo "):
                last = (ROOT / word).read_text(encoding="utf-8")


# ---------------------------------------------------------------- modules and operations


def test_confidence_beside_the_evidence(forge, plain, tmp_path):
    forge("tag", plain).good()
    whole = beside(plain)
    nodes = list(whole["nodes"].values())
    assert {each["confidence"] for each in nodes if each["evidence"] == "exporter"} == {0.99}
    assert all(0 <= each["confidence"] < 0.99 for each in nodes if each["certainty"] != "exact")
    mean = sum(each["confidence"] for each in nodes) / len(nodes)
    assert whole["summary"]["confidence"] == pytest.approx(mean) == told(forge("coverage", plain, "--json", "-"))["confidence"]
    assert f"confidence {mean:.2f}" in forge("coverage", plain).good().out
    # Where names are all that there is, what is around a node tells less.
    named = tmp_path / "named_hierarchy.json"
    forge("tag", ROOT / "tests/data/tiny_llama.torchscript.onnx", "--sidecar", named).good()
    by_evidence = {each["evidence"]: each["confidence"] for each in json.loads(named.read_text(encoding="utf-8"))["nodes"].values()}
    assert by_evidence["scope_guess"] > 0.9 > 0.5 > by_evidence["neighbours"]


def test_module_information(forge, plain):
    forge("tag", plain).good()
    whole = beside(plain)
    assert whole["model_class"] == "demo.Net"
    assert whole["model_signature"].keys() == {"forward_args", "forward_defaults"}
    assert whole["hierarchy_depth"] == 2
    stem = whole["modules"]["stem"]
    assert {"class", "module_path", "forward_args", "parameters", "direct_parameters", "children"} <= stem.keys()
    assert (stem["class"], stem["module_path"]) == ("Linear", "stem")
    assert stem["parameters"] == stem["direct_parameters"] == ["weight", "bias"]
    assert whole["modules"]["blocks.0"]["children"] == {"act": "ReLU"}
    assert whole["expected_hierarchy"]["/Net/Block.0"] == ["blocks.0"]


def test_what_the_sidecar_says_of_classes_is_read_again(forge, plain):
    forge("tag", plain).good()
    first = beside(plain)
    # The sidecar is read by the second run, and says the same of itself.
    forge("tag", plain).good()
    assert beside(plain)["modules"] == first["modules"] and first["modules"]["stem"]["qualified_class"] == "torch.nn.modules.linear.Linear"


def test_operations_in_the_sidecar_and_on_request_in_the_model(forge, plain, tmp_path):
    made = tmp_path / "made.onnx"
    forge("tag", plain, "-o", made).good()
    props = lambda path: {prop.key: prop.value for prop in onnx.load(path).metadata_props}
    assert not {"module_to_operations", "operation_hierarchy"} & props(made).keys()
    forge("tag", plain, "-o", made, "--operations").good()
    whole, stored = beside(made), props(made)
    assert whole["model_file"] == "made.onnx"
    for key in ("module_to_operations", "operation_hierarchy"):
        assert json.loads(stored[key]) == whole[key]
    assert whole["module_to_operations"]["stem"] == ["node_stem_mm", "node_stem_out"]
    assert whole["operation_hierarchy"]["node_b0_out"] == "/Net/Block.0"
    assert whole["hierarchy_mapping"]["node_b0_out"] == "blocks.0.act"
    onnx.checker.check_model(onnx.load(made))
    # Passes keep what was asked for up to date, and `strip` takes it away.
    small = tmp_path / "small.onnx"
    forge("optimize", made, "-o", small, "--engine", "native").good()
    names = {n.name for n in onnx.load(small).graph.node if n.name}
    assert names & set(json.loads(props(small)["operation_hierarchy"])) and forge("validate", small).good()
    forge("strip", made, "-o", made).good()
    assert not {"module_to_operations", "operation_hierarchy"} & props(made).keys()


def test_entries_of_somebody_else_stay(forge, plain, tmp_path):
    theirs = onnx.load(plain)
    theirs.metadata_props.add(key="operation_hierarchy", value="mine")
    path, made = write(theirs, tmp_path / "theirs.onnx"), tmp_path / "made.onnx"
    forge("tag", path, "-o", made).good()
    assert {prop.key: prop.value for prop in onnx.load(made).metadata_props}["operation_hierarchy"] == "mine"


# ---------------------------------------------------------------- consumers


def test_every_tensor_has_its_producer_and_its_consumers(forge, plain):
    forge("tag", plain).good()
    tensors = beside(plain)["tensors"]
    assert tensors["x"] == {"kind": "input", "modules": [], "consumers": ["stem"], "tags": ["/Net"], "consumer_tags": ["/Net"]}
    block = tensors["b0_out"]
    assert (block["kind"], block["modules"], sorted(block["consumers"])) == ("activation", ["blocks.0.act"], ["blocks.1", "shared"])
    assert block["tags"] == ["/Net/Block.0", *block["consumer_tags"]] and set(block["consumer_tags"]) == {"/Net/Block.1", "/Net/Twice"}
    assert tensors["y"]["kind"] == "output" and tensors["y"]["consumers"] == []
    assert {"then_out", "else_out"} <= tensors.keys() and "function demo.gate/s" in tensors
    assert "transitive_consumers" not in block


def test_consumers_under_the_policy(forge, plain):
    forge("tag", plain, "--all").good()
    tensors = beside(plain)["tensors"]
    assert tensors["x"]["consumer_tags"] == ["/Net/Linear"]
    assert tensors["b0_out"]["tags"][0] == "/Net/Block.0/ReLU"


def test_consumers_through_any_number_of_nodes(forge, plain):
    forge("tag", plain, "--consumers=transitive").good()
    tensors = beside(plain)["tensors"]
    everything = {"", "stem", "blocks.0", "blocks.0.act", "blocks.1", "blocks.1.act", "shared", "choice", "gate", "head"}
    assert set(tensors["x"]["transitive_consumers"]) == everything
    assert set(tensors["b0_out"]["transitive_consumers"]) == everything - {"stem", "blocks.0", "blocks.0.act"}
    assert set(tensors["twice_a"]["transitive_consumers"]) == {"", "head"}
    # What a body reads, whoever reads what it gives needs, too.
    assert set(tensors["twice_b"]["transitive_consumers"]) == {"choice", "gate", "", "head"} == set(tensors["choice.weight"]["transitive_consumers"])
    assert set(tensors["then_out"]["transitive_consumers"]) == {"choice", "gate", "", "head"}
    assert tensors["y"]["transitive_consumers"] == []
    assert tensors["x"]["transitive_consumer_tags"][0] == "/Net"


def test_consumers_at_nodes(forge, plain, tmp_path):
    made = tmp_path / "made.onnx"
    forge("tag", plain, "-o", made, "--consumers").good()
    found = {n.output[0]: metadata(n) for n in onnx.load(made).graph.node}
    assert sorted(json.loads(found["b0_out"]["onnxforge.consumers"])) == ["blocks.1", "shared"]
    assert sorted(json.loads(found["b0_out"]["onnxforge.consumer_tags"])) == ["/Net/Block.1", "/Net/Twice"]
    small = tmp_path / "small.onnx"
    forge("optimize", made, "-o", small, "--engine", "native").good()
    assert all("onnxforge.consumer_tags" in metadata(n) for n in onnx.load(small).graph.node)


def test_consumer_coverage(forge, tmp_path):
    made = [node("Relu", ["x"], "a", "blocks.0"), node("Add", ["u", "stray"], "d", None)]
    path = write(model(made, [port("x", 4), port("u", 4)], [port("a", 4), port("d", 4)], [weight("stray", 4)]), tmp_path / "half.onnx")
    # Of x, u and stray one is read by a known node; what is only an output does not count.
    assert told(forge("coverage", path, "--json", "-"))["consumers"] == {"total": 3, "tagged": 1, "percentage": pytest.approx(100 / 3), "unread": 2}


@pytest.mark.parametrize("name", NAMES)
def test_more_than_nine_of_ten_tensors_know_their_consumers(forge, tmp_path, name):
    case = Case(name)
    path, table = write(case.model, tmp_path / "case.onnx"), tmp_path / "case.json"
    table.write_text(json.dumps(case.table), encoding="utf-8")
    found = told(forge("coverage", path, "--modules", table, "--json", "-"))["consumers"]
    assert found["percentage"] > 90, found


# ---------------------------------------------------------------- extraction


def test_what_extract_lists(forge, plain):
    part = told(forge("extract", plain, "-m", "blocks.0", "--json", "-"))["parts"][0]
    assert part["module"] == "blocks.0"
    assert part["operations"] == part["boundary_operations"] == ["node_b0_mul", "node_b0_out"]
    assert (part["external_inputs"], part["internal_tensors"]) == (["stem_out"], ["b0_mul"])
    whole = told(forge("extract", plain, "-m", "/", "--json", "-"))["parts"][0]
    graph = onnx.load(plain).graph
    assert whole["operations"] == [n.name for n in graph.node]
    assert whole["external_inputs"] == ["x", "c"] and "node_b1_mul" not in whole["boundary_operations"]
    assert set(whole["internal_tensors"]) == {name for n in graph.node for name in n.output} - {"y"}


# ---------------------------------------------------------------- coverage by category


def test_thresholds_can_be_chosen(forge, plain, tmp_path):
    made = [node("Relu", ["x"], "a", "blocks.0"), node("Add", ["u", "stray"], "d", None)]
    path = write(model(made, [port("x", 4), port("u", 4)], [port("a", 4), port("d", 4)], [weight("stray", 4)]), tmp_path / "half.onnx")
    ok = lambda report: {each["category"]: each["ok"] for each in report["categories"]}
    assert ok(told(forge("coverage", path, "--json", "-"))) == {"mathematical_operations": False, "activation_functions": True}
    chosen = told(forge("coverage", path, "--threshold", "math=0", "--json", "-"))
    assert ok(chosen) == {"mathematical_operations": True, "activation_functions": True}
    assert chosen["categories"][0]["threshold"] == 0
    forge("tag", path, "--threshold", "mathematical_operations=0").good()
    assert beside(path)["summary"]["category_statistics"]["mathematical_operations"]["threshold"] == 0
    for wrong in ("nothing=5", "operations=5"):
        forge("coverage", path, "--threshold", wrong).refused("--threshold", "mathematical_operations")
    for wrong in ("math", "math=101", "math=x"):
        assert forge("coverage", path, "--threshold", wrong).code == 2


def test_the_breakdown_is_in_the_text_of_tag_validate_and_analyze(forge, tmp_path):
    made = [node("Relu", ["x"], "a", "blocks.0"), node("Add", ["u", "stray"], "d", None)]
    path = write(model(made, [port("x", 4), port("u", 4)], [port("a", 4), port("d", 4)], [weight("stray", 4)]), tmp_path / "half.onnx")
    for command in ("tag", "validate", "analyze"):
        text = forge(command, path).orderly().out
        assert "Tagging performance by category:" in text
        assert "activation_functions     100.0% tagged (1/1 nodes)\n" in text
        assert "mathematical_operations    0.0% tagged (0/1 nodes)  BELOW 95%\n" in text
    assert "  Relu" in forge("analyze", path, "--detailed").good().out
    assert "activation" not in forge("validate", path, "--category", "math").orderly().out
    report = told(forge("validate", path, "--json", "-"))
    assert report["coverage"]["categories"][0]["total"] == 1 and report["warnings"]


def test_analyze(forge, plain):
    report = told(forge("analyze", plain, "--json", "-"))
    assert report["model_class"] == "demo.Net"
    assert report["total_operations"] == report["tagged_operations"] == 18
    assert sum(report["tag_distribution"].values()) == 18 and report["unique_tags"] == len(report["tag_distribution"])
    assert report["tag_distribution"]["/Net/Block.0"] == 2
    assert report["category_statistics"].keys() <= CATEGORIES and report["ok"] and report["warnings"] == []
    for statistics in report["category_statistics"].values():
        assert {"total", "tagged", "percentage", "threshold", "critical"} <= statistics.keys()
    text = forge("analyze", plain).good().out
    assert "unique tags" in text and "18 of 18 operations tagged" in text and "/Net/Twice" in text
    assert forge("analyze", plain, "--fail-under", "100").good()


# ---------------------------------------------------------------- rewriting inside of modules


def placed(graph, prefix="graph"):
    """Every node of the graph and of bodies, with its place."""
    for index, one in enumerate(graph.node):
        yield f"{prefix}/{index}", one
        for attribute in one.attribute:
            if attribute.HasField("g"):
                yield from placed(attribute.g, f"{prefix}/{index}/{attribute.name}")


def alone(node):
    """The bytes of a node without its bodies, whose nodes are compared on their own."""
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    for attribute in copy.attribute:
        attribute.ClearField("g")
    return copy.SerializeToString()


def outside(sidecar, graph, chosen):
    """The nodes of the model that do not come from a module, or from it alone."""
    inside = lambda path: path == chosen or path.startswith(f"{chosen}.")
    return [alone(n) for place, n in placed(graph) if not all(map(inside, sidecar["nodes"][place]["modules"]))]


def is_subsequence(some, all):
    rest = iter(all)
    return all is not None and sum(one in rest for one in some) == len(some)


def test_only_the_chosen_module_changes(forge, plain, tmp_path):
    # Two identical detours, in two modules.
    detour = lambda name, given, path: [
        node("Neg", [given], f"{name}_n", path), node("Neg", [f"{name}_n"], f"{name}_m", path), node("Tanh", [f"{name}_m"], name, path)
    ]
    made = [*detour("a", "x", "blocks.0"), *detour("b", "a", "blocks.1"), node("Relu", ["b"], "y", "head")]
    path, small = write(model(made, [port("x", 4)], [port("y", 4)]), tmp_path / "two.onnx"), tmp_path / "small.onnx"
    report = told(forge("optimize", path, "-o", small, "--modules", "blocks.1", "--engine", "native", "--json", "-"))
    assert [n.output[0] for n in onnx.load(small).graph.node] == ["a_n", "a_m", "a", "b", "y"]
    assert report["after"]["nodes"] == 5 and report["verification"]["global"]["verdict"] == "identical"
    before, after = onnx.load(path).graph.node, onnx.load(small).graph.node
    assert [n.SerializeToString() for n in before[:3]] == [n.SerializeToString() for n in after[:3]]
    forge("optimize", path, "-o", small, "--modules", "blocks.*", "--engine", "native").good()
    assert len(onnx.load(small).graph.node) == 3
    forge("optimize", path, "-o", small, "--modules", "/Net/Block.0,blocks.1", "--engine", "native").good()
    assert len(onnx.load(small).graph.node) == 3
    forge("optimize", path, "-o", small, "--modules", "block").refused("block", "onnxforge tree")
    forge("optimize", path, "-o", small, "--modules", "blocks.1", "--opset", "latest").refused("onnxforge upgrade")


@pytest.mark.parametrize("name", NAMES)
def test_nodes_outside_stay_byte_for_byte(forge, tmp_path, name):
    case = Case(name)
    path, small = write(case.model, tmp_path / "case.onnx"), tmp_path / "small.onnx"
    forge("tag", path).orderly()
    if not path.with_name("case_hierarchy.json").exists():
        return
    whole = beside(path)
    path.with_name("case_hierarchy.json").unlink()
    graph = onnx.load(path).graph
    for chosen in {module for n in whole["nodes"].values() for module in n["modules"] if module}:
        forge("optimize", path, "-o", small, "--modules", chosen, "--engine", "native").good()
        after = [alone(n) for _, n in placed(onnx.load(small).graph)]
        assert is_subsequence(outside(whole, graph, chosen), after), chosen
        forge("check", small).good()


def test_results_of_a_part_optimized_model_are_equal(forge, tmp_path):
    path, small = ROOT / "examples/tiny_bert.onnx", tmp_path / "small.onnx"
    before = onnx.load(path)
    report = told(forge("optimize", path, "-o", small, "--modules", "bert.encoder.layer.0", "--json", "-"))
    assert 0 < report["before"]["nodes"] - report["after"]["nodes"]
    random = np.random.default_rng(3)
    feeds = {}
    for given in before.graph.input:
        shape = [dim.dim_value or 2 for dim in given.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
        feeds[given.name] = random.integers(0, 2, shape).astype(kind)
    for expected, found in zip(session(before).run(None, feeds), session(onnx.load(small)).run(None, feeds)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- one drawing


def test_a_module_as_a_drawing(forge, plain, tmp_path):
    made = tmp_path / "net.svg"
    forge("report", plain, "--graph", "/", "-o", made).good()
    root = ElementTree.fromstring(made.read_text(encoding="utf-8"))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    # The modules right inside, its own nodes, inputs and outputs, and what flows.
    assert {"stem", "blocks.0", "blocks.1", "shared", "choice", "gate", "head", "Add", "x", "c", "y"} <= set(texts)
    assert any("float[batch,4]" in text for text in texts) and "blocks.0.act" not in texts
    forge("report", plain, "--graph", "blocks.0", "-o", made).good()
    assert "act" in [text.text for text in ElementTree.fromstring(made.read_text(encoding="utf-8")).iter("{http://www.w3.org/2000/svg}text")]
    # What no line leads to would hide the rest.
    more = net()
    more.graph.node.append(onnx.helper.make_node("Constant", [], ["forgotten"], name="forgotten", value_float=1.0))
    forge("report", write(more, tmp_path / "more.onnx"), "--graph", "/", "-o", made).good()
    texts = [text.text for text in ElementTree.fromstring(made.read_text(encoding="utf-8")).iter("{http://www.w3.org/2000/svg}text")]
    assert "without 1 node that no line leads to" in texts and "Constant" not in texts
    forge("report", plain, "--graph", "blocks.*", "-o", made).refused("--graph", "2 modules")
    forge("report", plain, "--graph", "block", "-o", made).refused("block")
