"""Modules of real PyTorch exports: every node is attributed, and what is cut out computes what PyTorch's module computed.

Where a file does not hold what PyTorch had, LOST says so, module by module with the reason; a module that is found after all has to leave that list.
"""

import json
import sys

import hierarchy_cases
import numpy as np
import onnx
import onnxruntime as ort
import pytest

ENGINES = ("native", "ort")
POLICIES = ((), ("--all",), ("--no-torch-nn",), ("--keep", "Linear"))

NOTHING = "computes nothing when the model is not being trained: PyTorch leaves no node"
FUSED = "fused with the normalization behind it: what is left computes both"
INTO_CONV = "fused into the convolution before it, whose name is all that is left"
UNREAD = "nothing reads this result, so that it is not in the file"
MERGED = "computes the same as its sibling, of which the exporter keeps one"
FOLDED = "depends on nothing, so that the exporter folded it"
NO_STACK = "stands in a body, where the exporter leaves no module stack: only what reads its parameters is known"
IN_BODY = "stands in a body that runs again and again, and no run shows the values in there"
RESHAPED = "gives the same values in another shape: the exporter moved the reshape out of it"

CONVS = ["stem.0", *(f"blocks.{block}.conv{conv}" for block in (0, 1) for conv in (1, 2))]
NORMS = ["stem.1", *(f"blocks.{block}.bn{conv}" for block in (0, 1) for conv in (1, 2))]
DROPOUTS = [f"encoder.layers.{layer}.{name}" for layer in (0, 1) for name in ("dropout", "dropout1", "dropout2")]
INNER = [f"{part}.{inner}" for part in ("first", "second") for inner in ("inner", "inner.0")]


def because(reason, *modules):
    return dict.fromkeys(modules, reason)


LOST = {
    "cnn.raw": because(NOTHING, "dropout"),
    "cnn.dynamo": because(NOTHING, "dropout") | because(FUSED, *CONVS),
    "cnn.script": because(NOTHING, "dropout") | because(FUSED, *CONVS) | because(INTO_CONV, *NORMS),
    "apart_bn.dynamo": because(FUSED, *INNER),
    "apart_bn.script": because(FUSED, *INNER) | because(INTO_CONV, "first.norm", "second.norm"),
    **{f"encoder.{kind}": because(NOTHING, *DROPOUTS) for kind in ("raw", "dynamo", "script")},
    **{f"functional_only.{kind}": because(NOTHING, "drop", "same") for kind in ("raw", "dynamo", "script")},
    "positions.dynamo": because(FOLDED, "places"),
    "recurrent.raw": because(UNREAD, "lstm[1]", "lstm[2]"),
    **{
        f"recurrent.{kind}": because(RESHAPED, "lstm[0]") | because(UNREAD, "lstm[1]", "lstm[2]")
        for kind in ("dynamo", "script")
    },
    **{f"several_outputs.{kind}": because(UNREAD, "split[2]") for kind in ("raw", "dynamo", "script")},
    "siblings.dynamo": because(MERGED, "right", "right.l"),
    **{f"cond_yes.{kind}": because(NO_STACK, "yes") for kind in ("raw", "dynamo")},
    **{f"cond_inside.{kind}": because(NO_STACK, "gate.open") for kind in ("raw", "dynamo")},
    **{f"scanned.{kind}": because(IN_BODY, *(f"step@{turn}" for turn in range(5))) for kind in ("raw", "dynamo")},
}


@pytest.fixture(scope="module", params=hierarchy_cases.NAMES)
def case(request):
    return hierarchy_cases.Case(request.param)


@pytest.fixture
def files(case, tmp_path):
    return case.written(tmp_path)


@pytest.fixture
def answer(forge):
    """What a command says, as JSON; it finds the ONNX Runtime of these tests."""

    def run(*args):
        outcome = forge(*args, "--json", env={"VIRTUAL_ENV": sys.prefix, "ORT_DYLIB_PATH": ""}).good()
        return json.loads(outcome.out)

    return run


def test_every_node_is_attributed(case, files, answer):
    model, table = files
    for options in {case.options(table), ("--modules", table)}:
        found = answer("coverage", model, *options)
        assert found["with_parameters"]["root"] == 0, found["uncovered"]
        assert found["root"] == 0, found["uncovered"]


def test_each_tag_means_one_module(case, files, answer, forge, tmp_path):
    model, table = files
    for policy in POLICIES:
        told = answer("tag", model, *case.options(table), *policy, "-o", tmp_path / "tagged.onnx")
        rows = answer("tree", model, *case.options(table), *policy)["modules"]
        assert len({row["tag"] for row in rows}) == told["tags"]
        if "--all" in policy:
            assert told["tags"] == len(rows) == told["modules"]
        forge("validate", tmp_path / "tagged.onnx").good()


def test_tags_change_nothing_else(case, files, forge, tmp_path):
    model, table = files
    tagged, stripped, restored = (tmp_path / f"{name}.onnx" for name in ("tagged", "stripped", "restored"))
    forge("tag", model, *case.options(table), "-o", tagged).good()
    forge("compare", model, tagged, "--exact").good()
    before, after = (
        ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, case.inputs) for path in (model, tagged)
    )
    assert [value.tobytes() for value in before] == [value.tobytes() for value in after]
    forge("strip", tagged, "-o", stripped).good()
    forge("compare", model, stripped, "--exact").good()
    forge("restore", stripped, "--from", tagged, "-o", restored).good()
    forge("compare", model, restored, "--exact").good()
    forge("validate", restored).good()
    modules = lambda path: [[entry.value for entry in node.metadata_props if entry.key == "onnxforge.module"] for node in onnx.load(path).graph.node]
    assert modules(tagged) == modules(restored)


def parts(case, answer, *args):
    """What was cut out, by module; all of it computes what the whole does, as far as that shows its values."""
    found = answer("extract", *args, "-m", "**", "--verify")["parts"]
    assert not any(part["problems"] for part in found), found
    hidden = {part["module"] for part in found if part["verified"] == "in_body"}
    assert hidden == set(case.in_bodies), hidden
    assert all(part["verified"] == "identical" for part in found if part["module"] not in hidden), found
    return {part["module"]: part for part in found}


def test_parts_compute_what_the_whole_does(case, files, answer, tmp_path):
    """As the file is, and after it was optimized."""
    model, table = files
    tagged, small = tmp_path / "tagged.onnx", tmp_path / "small.onnx"
    for engine in ENGINES:
        parts(case, answer, model, *case.options(table), "--engine", engine)
    answer("tag", model, *case.options(table), "-o", tagged)
    answer("optimize", tagged, "-o", small, "--verify", "off")
    assert answer("coverage", small)["root"] == 0
    for engine in ENGINES:
        parts(case, answer, small, "--engine", engine)


def lost(case, files, answer, folder):
    """The modules whose calls cannot be found again, each with what is wrong."""
    model, table = files
    folder.mkdir()
    options = (model, *case.options(table))
    found = parts(case, answer, *options, "--engine", "native", "-o", folder)
    aliases = {}
    for path, module in case.table.items():
        aliases.setdefault(module.get("alias_of", path), []).append(path)
    missing = {}
    for path, calls in case.calls.items():
        own = [found[name] for name in aliases[path] if name in found]
        for number, outputs in enumerate(calls):
            given = []
            for part in own:
                file = part["files"][0]["path"]
                if part["calls"] == len(calls) > 1:
                    file = folder / "call.onnx"
                    answer("extract", *options, f"--module={part['module'] or '/'}", "--call", number, "-o", file)
                given.extend(run(case, onnx.load(file)) or [])
            for index, expected in enumerate(outputs):
                same = lambda value: value.shape == expected.shape and np.allclose(value, expected, atol=1e-4)
                if not any(map(same, given)):
                    call = f"@{number}" if len(calls) > 1 else ""
                    missing[f"{path}{call}" + (f"[{index}]" if len(outputs) > 1 else "")] = [value.shape for value in given]
    return missing


def run(case, part):
    """What a part gives for the values of the whole; nothing if it reads some that no run shows."""
    running = hierarchy_cases.session(part)
    names = [port.name for port in running.get_inputs()]
    if all(name in case.values for name in names):
        return running.run(None, {name: case.values[name] for name in names})
    return None


def test_parts_compute_what_pytorch_did(case, files, answer, tmp_path):
    missing = lost(case, files, answer, tmp_path / "parts")
    assert set(missing) == set(LOST.get(case.name, {})), missing


def test_all_exports_are_there():
    """None of what is said to be lost is for a file that is not there, and no export is missing."""
    assert set(LOST) <= set(hierarchy_cases.NAMES)
    assert len(hierarchy_cases.NAMES) == 79
