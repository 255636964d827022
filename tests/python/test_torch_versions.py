"""Exports of PyTorch 2.2 and later, by each exporter that a version has: modules are found, and compute what PyTorch's did.

scripts/make_torch_fixtures.py makes the files and says what is in them. Nothing here needs PyTorch.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxforge
import pytest

DATA = Path(__file__).with_name("data") / "torch"
FOLDERS = sorted((path for path in DATA.iterdir()), key=lambda path: [int(part) for part in path.name.split(".")])
NAMES = [f"{folder.name}/{path.stem}" for folder in FOLDERS for path in sorted(folder.glob("*.onnx"))]
# Their modules are functions, which are not understood.
FUNCTIONS = [name for name in NAMES if name.endswith(".fx")]
MODULAR = [name for name in NAMES if name not in FUNCTIONS]
MODELS = ["cnn", "control", "encoder", "lstm", "shared"]
TOLERANCE = 1e-4
STACK = "pkg.torch.onnx.name_scopes"

NOTHING = "computes nothing when the model is not being trained: PyTorch leaves no node"
FUSED = "fused with the normalization behind it: what is left computes both"
INTO_CONV = "merged into the convolution before it, in a new node without a module stack"
UNREAD = "nothing reads this result, so that it is not in the file"

BLOCKS = ("stages.0.blocks.0", "stages.1.blocks.0")
CONVS = ("stem.0", *(f"{block}.conv{number}" for block in BLOCKS for number in (1, 2)))
NORMS = ("stem.1", *(f"{block}.bn{number}" for block in BLOCKS for number in (1, 2)))


def because(reason: str, *results: str) -> dict[str, str]:
    return dict.fromkeys(results, reason)


# Results of modules that a file does not hold, by model and exporter.
LOST = {
    ("cnn", "script"): because(NOTHING, "dropout") | because(FUSED, *CONVS),
    ("cnn", "dynamo"): because(NOTHING, "dropout") | because(FUSED, *CONVS),
    ("control", "script"): because(NOTHING, "same"),
    ("control", "dynamo"): because(NOTHING, "same"),
    ("encoder", "script"): because(NOTHING, "layers.0.attention.drop"),
    ("encoder", "dynamo"): because(NOTHING, "layers.0.attention.drop"),
    ("lstm", "script"): because(UNREAD, "lstm[2]"),
    ("lstm", "dynamo"): because(UNREAD, "lstm[2]"),
    # These versions merge less, or otherwise.
    ("cnn", "dynamo", "2.5.1"): {},
    ("cnn", "dynamo", "2.6.0"): {},
    ("cnn", "dynamo", "2.7.1"): because(NOTHING, "dropout"),
    ("encoder", "dynamo", "2.5.1"): {},
    ("encoder", "dynamo", "2.6.0"): {},
    ("cnn", "dynamo", "2.8.0"): because(NOTHING, "dropout") | because(FUSED, *CONVS) | because(INTO_CONV, *NORMS),
    ("cnn", "dynamo", "2.9.1"): because(NOTHING, "dropout") | because(FUSED, *CONVS) | because(INTO_CONV, *NORMS),
}


@dataclass(frozen=True)
class Fixture:
    """One file; `name` is version, model and exporter."""

    name: str

    @property
    def path(self) -> Path:
        return DATA / f"{self.name}.onnx"

    @property
    def version(self) -> str:
        return self.name.split("/")[0]

    @property
    def model_name(self) -> str:
        return self.name.split("/")[1].split(".")[0]

    @property
    def exporter(self) -> str:
        return self.name.rsplit(".", 1)[1]

    @cached_property
    def facts(self) -> dict[str, Any]:
        return json.loads(self.path.with_suffix(".json").read_text())

    @cached_property
    def model(self) -> onnx.ModelProto:
        return onnx.load(self.path)

    @cached_property
    def archive(self) -> dict[str, np.ndarray]:
        with np.load(self.path.with_name(f"{self.model_name}.npz")) as archive:
            return dict(archive)

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        return {self.facts["input"]: self.archive["input.x"]}

    @cached_property
    def calls(self) -> dict[str, list[list[np.ndarray]]]:
        """What each call of a module gave, by the first of its paths."""
        calls: dict[str, list[list[np.ndarray]]] = {}
        for number, path in enumerate(json.loads(str(self.archive["calls"]))):
            count = sum(key.startswith(f"call.{number}.") for key in self.archive)
            calls.setdefault(path, []).append([self.archive[f"call.{number}.{index}"] for index in range(count)])
        return calls

    @property
    def aliases(self) -> dict[str, list[str]]:
        """All paths of each module, by the first."""
        aliases: dict[str, list[str]] = {}
        for path, module in self.facts["told"]["modules"].items():
            aliases.setdefault(module.get("alias_of", path), []).append(path)
        return aliases

    @cached_property
    def tagged(self) -> bytes:
        return onnxforge.tag(self.path.read_bytes(), modules=self.facts["told"]).model

    @cached_property
    def by_names(self) -> bytes:
        """Tagged without what was recorded at export."""
        told = {key: value for key, value in self.facts["told"].items() if key != "origins"}
        return onnxforge.tag(self.path.read_bytes(), modules=told).model

    @cached_property
    def values(self) -> dict[str, np.ndarray]:
        """Every value of the main graph."""
        made = [name for node in self.model.graph.node for name in node.output if name]
        return self.inputs | onnxforge.run(self.path, self.inputs, outputs=made)


@cache
def fixture_of(name: str) -> Fixture:
    return Fixture(name)


@pytest.fixture(params=MODULAR)
def fixture(request: pytest.FixtureRequest) -> Fixture:
    return fixture_of(request.param)


def close(found: np.ndarray, right: np.ndarray) -> bool:
    """The same values, up to rounding."""
    scale = max(float(np.abs(right).max(initial=0.0)), 1e-6)
    return found.shape == right.shape and float(np.abs(found - right).max(initial=0.0)) <= TOLERANCE * scale


def origins(model: bytes) -> dict[str, list[str]]:
    """The modules that a tagged model names, by the first result of each node of its main graph."""
    entries = {node.output[0]: {entry.key: entry.value for entry in node.metadata_props} for node in onnx.load_from_string(model).graph.node}
    return {name: json.loads(found.get("onnxforge.module", "[]")) for name, found in entries.items()}


def wrong(fixture: Fixture, model: bytes) -> set[str]:
    """The nodes that are attributed to other modules than PyTorch ran."""
    named = origins(model)
    return {name for name, paths in fixture.facts["expected"].items() if not set(paths) & set(named[name])}


def test_all_versions_are_there() -> None:
    """Eight at least, each with all models of all exporters but for those that are said to have failed."""
    assert len(FOLDERS) >= 8
    for folder in FOLDERS:
        versions = json.loads((folder / "versions.json").read_text())
        assert versions["torch"] == folder.name
        exporters = {name.rsplit(".", 1)[1] for name in [*versions["failed"], *(path.stem for path in folder.glob("*.onnx"))]}
        assert exporters in ({"script"}, {"script", "fx"}, {"script", "dynamo"})
        for exporter in exporters - {"fx"}:
            found = {path.name.split(".")[0] for path in folder.glob(f"*.{exporter}.onnx")}
            assert found == {name for name in MODELS if f"{name}.{exporter}" not in versions["failed"]}


def test_no_file_tells_of_a_machine() -> None:
    """No file of Python code is named, as exporters do in traces, and no folder of whoever made the files and runs this."""
    own = [str(Path.home()), tempfile.gettempdir(), sys.prefix]
    words = [b".py", b"site-packages", *(f"{folder}{os.sep}".encode() for folder in own)]
    for path in DATA.glob("*/*"):
        content = path.read_bytes()
        assert not any(word in content for word in words), path
        assert len(content) < 52_000, path


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_valid_and_computes_what_pytorch_does(name: str) -> None:
    fixture = fixture_of(name)
    assert onnxforge.check(fixture.path), name
    given = onnxforge.run(fixture.path, fixture.inputs)
    assert list(given) == fixture.facts["output"]
    assert all(close(value, right) for value, right in zip(given.values(), fixture.calls[""][0], strict=True))


def test_the_export_is_pytorchs_own(fixture: Fixture) -> None:
    """As it was found when the file was made: without metadata the same bytes, and no node in a wrong module."""
    assert fixture.facts["identical"]
    assert set(fixture.facts["wrong"]) <= silent(fixture)


def merged(fixture: Fixture) -> set[str]:
    """The convolutions that a normalization was merged into: they give what that gave."""
    kinds = {path: module["class"].rsplit(".", 1)[1] for path, module in fixture.facts["told"]["modules"].items()}
    return {
        node.output[0]
        for node in fixture.model.graph.node
        if node.op_type == "Conv"
        and any(kinds[path] == "BatchNorm2d" for path in fixture.facts["expected"].get(node.output[0], []))
    }


def silent(fixture: Fixture) -> set[str]:
    """Those of them that lost their module stack in that: some versions of the exporter make a new node without it."""
    told = {node.output[0] for node in fixture.model.graph.node if any(entry.key == STACK for entry in node.metadata_props)}
    return merged(fixture) - told if fixture.exporter == "dynamo" else set()


def uncalled(model: onnx.ModelProto) -> int:
    """How many nodes stand in functions that nothing calls, which some versions write into every file."""
    called, names = set(), [(node.domain, node.op_type) for node in nodes(model.graph.node)]
    functions = {(found.domain, found.name): found for found in model.functions}
    while names:
        name = names.pop()
        if name in functions and name not in called:
            called.add(name)
            names.extend((node.domain, node.op_type) for node in nodes(functions[name].node))
    return sum(len(list(nodes(found.node))) for name, found in functions.items() if name not in called)


def nodes(listed: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of their bodies."""
    for node in listed:
        yield node
        for attribute in node.attribute:
            yield from nodes(attribute.g.node)


def test_every_node_is_known(fixture: Fixture) -> None:
    found = onnxforge.coverage(fixture.path, modules=fixture.facts["told"]).report
    assert found["root"] == uncalled(fixture.model), found["uncovered"]
    assert found["evidence"] == fixture.facts["evidence"]
    told = "exporter" if fixture.exporter == "dynamo" else "recorded"
    untold = len(silent(fixture))
    assert set(found["evidence"]) <= {told, "neighbours", "enclosing", "root"} | ({"owner"} if untold else set())
    assert found["with_parameters"]["exact"] == found["with_parameters"]["nodes"] - untold
    assert found["with_parameters"]["root"] == 0
    assert wrong(fixture, fixture.tagged) <= silent(fixture)


def test_names_alone_are_never_wrong(fixture: Fixture) -> None:
    """Without what was recorded, only that is unknown which PyTorch merged into the convolution before it."""
    found = onnxforge.coverage(fixture.by_names).report
    assert found["root"] == uncalled(fixture.model), found["uncovered"]
    assert found["with_parameters"]["root"] == 0
    assert wrong(fixture, fixture.by_names) <= (merged(fixture) if fixture.exporter == "script" else silent(fixture))


def test_files_tell_without_a_table(fixture: Fixture) -> None:
    found = onnxforge.coverage(fixture.path).report
    assert found["with_parameters"]["root"] <= len(silent(fixture)), found["uncovered"]


def lost(fixture: Fixture, model: bytes, values: dict[str, np.ndarray], folder: Path) -> dict[str, str]:
    """The results of modules (`path`, `path@call`, `path[output]`) that no part of the model gives, and of what shape the
    results are that it gives instead.
    """
    parts = {part["module"]: part for part in onnxforge.extract(model, "**", folder).report["parts"]}
    missing = {}
    for path, calls in fixture.calls.items():
        own = [parts[alias] for alias in fixture.aliases[path] if alias in parts]
        for number, outputs in enumerate(calls):
            given: list[np.ndarray] = []
            for part in own:
                file = part["files"][-1]["path"]
                if part["calls"] == len(calls) > 1:
                    file = onnxforge.extract(model, part["module"] or "/", call_index=number).model
                given.extend(run(file, values))
            for index, right in enumerate(outputs):
                if not any(close(value, right) for value in given):
                    call = f"@{number}" if len(calls) > 1 else ""
                    missing[f"{path}{call}" + (f"[{index}]" if len(outputs) > 1 else "")] = str([value.shape for value in given])
    return missing


def run(part: Any, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What a part gives for the values of the whole."""
    graph = (onnx.load_from_string(part) if isinstance(part, bytes) else onnx.load(part)).graph
    return list(onnxforge.run(part, {port.name: values[port.name] for port in graph.input}).values())


def test_parts_compute_what_pytorch_did(fixture: Fixture, tmp_path: Path) -> None:
    missing = lost(fixture, fixture.tagged, fixture.values, tmp_path)
    key = (fixture.model_name, fixture.exporter)
    assert set(missing) == set(LOST.get((*key, fixture.version), LOST.get(key, {}))), missing


def test_optimize_keeps_modules_and_results(fixture: Fixture) -> None:
    result = onnxforge.optimize(fixture.tagged, verify="final", engine="native")
    assert result.ok
    assert result.nodes_after <= result.nodes_before
    found = onnxforge.coverage(result.model).report
    assert found["root"] == uncalled(onnx.load_from_string(result.model)), found["uncovered"]
    assert found["with_parameters"]["root"] == 0
    given = onnxforge.run(result.model, fixture.inputs)
    assert all(close(value, right) for value, right in zip(given.values(), fixture.calls[""][0], strict=True))
    named = {path for paths in origins(fixture.tagged).values() for path in paths}
    assert {path for paths in origins(result.model).values() for path in paths} <= named


@pytest.mark.parametrize("name", FUNCTIONS)
def test_modules_that_are_functions_are_never_guessed_as_exact(name: str) -> None:
    """The exporter before torch.export writes modules as functions with names of its own."""
    fixture = fixture_of(name)
    found = onnxforge.coverage(fixture.path, modules=fixture.facts["told"]).report
    assert found["exact"] == 0
    assert fixture.facts["identical"]
    result = onnxforge.optimize(fixture.tagged, verify="final", engine="native")
    assert result.ok
    given = onnxforge.run(result.model, fixture.inputs)
    assert all(close(value, right) for value, right in zip(given.values(), fixture.calls[""][0], strict=True))
