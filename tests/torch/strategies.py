"""What each way to know the modules of a model is worth: architectures × strategies, held against what PyTorch executed in each module.

    python tests/torch/strategies.py measure FOLDER [NAME …]    # exports each model in a process of its own: files, seconds, memory
    python tests/torch/strategies.py table FOLDER [-o FILE.md]  # writes docs/strategies.md of what is there

Strategies: `dynamo` and `torchscript` are the exporters of PyTorch as `onnxforge.torch.export` calls them, `names` is the older exporter's file as others hand it over, without metadata and without a table of modules. Three more are looked at for the numbers of confidence alone: names with a table, gaps (the newer exporter's file where every third node has lost its metadata, as new nodes of
other tools have none), and parameters (the newer exporter's file without metadata).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import architectures
import exports
import numpy as np
import onnx
import onnxforge.torch
import torch
import truth
from onnxforge.torch._errors import reason

ROOT = Path(__file__).resolve().parents[2]
EXPORTERS = ("dynamo", "torchscript")
STRATEGIES = (*EXPORTERS, "names")
FOR_CONFIDENCE = (*STRATEGIES, "names with a table", "gaps", "parameters")
#: Files that tell of modules by names alone.
BY_NAMES = ("names", "parameters")
#: One of so many nodes has lost its metadata.
GAP = 3
#: An export that takes longer has failed.
SECONDS = 300
#: How sure a number of confidence is: 95 % on one side.
NORMAL = 1.645


def measure(folder: Path, names: list[str]) -> None:
    """Exports what is not in the folder yet, each model in a process of its own. They begin as copies of one that has exported something already: what the exporters import is not counted."""
    alike()
    with tempfile.TemporaryDirectory() as scratch, silent():
        for strategy in EXPORTERS:
            # Not by onnxforge: processes that used it cannot be copied.
            torch.onnx.export(torch.nn.Linear(2, 2).eval(), (torch.zeros(1, 2),), str(Path(scratch) / "first.onnx"), dynamo=strategy == "dynamo", verbose=False)
    for name in names:
        for strategy in EXPORTERS:
            place = folder / f"{name}.{strategy}"
            answer = place / "export.json"
            if answer.exists():
                continue
            place.mkdir(parents=True, exist_ok=True)
            process = multiprocessing.get_context("fork").Process(target=one, args=(place, name, strategy))
            process.start()
            process.join(SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
                answer.write_text(json.dumps({"failed": f"not done after {SECONDS} s"}), encoding="utf-8")
            elif not answer.exists():
                answer.write_text(json.dumps({"failed": f"the process ended with {process.exitcode}"}), encoding="utf-8")
            print(name, strategy, answer.read_text(encoding="utf-8")[:200], flush=True)


def one(place: Path, name: str, strategy: str) -> None:
    """One export."""
    model, kwargs = architectures.ARCHITECTURES[name].case.build()
    with torch.no_grad():
        model(**kwargs)
    path = place / "model.onnx"
    told: dict[str, Any] = {}
    before, start = peak(), time.perf_counter()
    try:
        with silent():
            exported = onnxforge.torch.export(model, (), path, kwargs=kwargs, strategy=strategy, verbose=False, check="warn")
    except Exception as error:  # noqa: BLE001 - the table tells what the exporter could not
        told["failed"] = reason(error)
    else:
        told.update(seconds=time.perf_counter() - start, megabytes=max(0.0, peak() - before))
        told.update(agrees=exported.check is not None and exported.check.agrees, undetermined=exported.undetermined)
        onnxforge.torch.save_modules(model, place / "modules.json")
    (place / "export.json").write_text(json.dumps(told), encoding="utf-8")


def alike() -> None:
    """The same of all processes: one thread, and no fused path of inference, which has no operator of ONNX."""
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)


def peak() -> float:
    """Megabytes that the process has needed so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


@dataclass
class Seen:
    """What is known of one file."""

    failed: str | None = None
    export: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    parts: Counter[str] = field(default_factory=Counter)
    extracting: float = 0.0
    agreed: Counter[str] = field(default_factory=Counter)
    """Nodes whose module is one that PyTorch computed the value in, by evidence."""
    compared: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)


def files(folder: Path, name: str, scratch: Path) -> dict[str, tuple[Path, Path | None]]:
    """The file of each strategy, with the table of modules where one is given."""
    found: dict[str, tuple[Path, Path | None]] = {}
    for strategy in EXPORTERS:
        path = folder / f"{name}.{strategy}" / "model.onnx"
        if "failed" not in exported(folder, name, strategy):
            found[strategy] = (path, None)
    if "dynamo" in found:
        # Without what export wrote at nodes, so that they are known from what the exporter did.
        path, table = scratch / f"{name}.onnx", folder / f"{name}.dynamo" / "modules.json"
        onnxforge.strip(found["dynamo"][0], path)
        found["gaps"] = (gapped(path), table)
    for strategy, source in (("names", "torchscript"), ("parameters", "dynamo")):
        path = scratch / f"{name}.{strategy}.onnx"
        if source in found:
            onnxforge.strip(found[source][0], path, all=True)
            found[strategy] = (path, None)
    if "dynamo" in found:
        found["dynamo"] = (scratch / f"{name}.onnx", None)
    if "names" in found:
        found["names with a table"] = (found["names"][0], folder / f"{name}.torchscript" / "modules.json")
    return found


def gapped(path: Path) -> Path:
    """The file with gaps in its metadata."""
    model = onnx.load(path)
    for node in model.graph.node[::GAP]:
        del node.metadata_props[:]
    made = path.with_name(f"{path.stem}.gaps.onnx")
    onnx.save(model, made)
    return made


def exported(folder: Path, name: str, strategy: str) -> dict[str, Any]:
    return dict(json.loads((folder / f"{name}.{strategy}" / "export.json").read_text(encoding="utf-8")))


@cache
def ran(name: str) -> tuple[truth.Truth, dict[str, Any]]:
    model, kwargs = architectures.ARCHITECTURES[name].case.build()

    def turns(condition: Any, body: Any, operands: Any) -> Any:
        while condition(*operands):
            operands = body(*operands)
        return operands

    # PyTorch's own loop compiles what it runs, and hooks with it.
    with patch("torch._higher_order_ops.while_loop.while_loop", turns):
        return truth.observe(model, kwargs), kwargs


def seen(path: Path, table: Path | None, name: str) -> Seen:
    """What a file tells, held against what PyTorch executed."""
    found = Seen()
    hierarchy = onnxforge.Hierarchy(path, table)
    found.summary = hierarchy.sidecar["summary"]
    by_result = {node["outputs"][0]: node for node in hierarchy.sidecar["nodes"].values() if node["outputs"]}
    start = time.perf_counter()
    cut = onnxforge.extract(path, "**", modules=table, verify=True).report["parts"]
    found.extracting = time.perf_counter() - start
    for part in cut:
        verified = part["verified"]
        found.parts["all"] += 1
        found.parts[verified if isinstance(verified, str) else next(iter(verified))] += 1
        if verified not in ("identical", "in_body"):
            found.different.append(f"{part['module']}: {verified}")
    executed, kwargs = ran(name)
    model = onnx.load(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = dict(zip((port.name for port in model.graph.input if port.name not in weights), (value.numpy() for value in kwargs.values())))
    # With the nodes of branches that were taken.
    flat = straight(model, inputs)
    values = truth.values_of(flat, inputs)
    allowed, _ = truth.Oracle(executed).of_nodes(flat.graph, values)
    for made in flat.graph.node:
        node, paths = by_result.get(made.output[0]), allowed.get(made.output[0])
        # A product with one computes what somebody else did.
        hands_on = any(name in values and truth.close(values[name], values[made.output[0]]) for name in made.input)
        if node is None or paths is None or hands_on or not made.input or node["evidence"] == "root":
            continue
        found.compared[node["evidence"]] += 1
        found.agreed[node["evidence"]] += bool(paths.intersection(node["modules"]))
    return found


def straight(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The model with the nodes of those branches that these inputs take in place of the conditions."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    while any(node.op_type == "If" for node in made.graph.node):
        values = truth.values_of(made, inputs)
        values |= {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
        at, node = next((at, node) for at, node in enumerate(made.graph.node) if node.op_type == "If")
        taken = next(each.g for each in node.attribute if each.name == ("then_branch" if values[node.input[0]] else "else_branch"))
        ends = [onnx.helper.make_node("Identity", [inner.name], [outer]) for inner, outer in zip(taken.output, node.output)]
        nodes = [*made.graph.node[:at], *taken.node, *ends, *made.graph.node[at + 1 :]]
        made.graph.initializer.extend(taken.initializer)
        del made.graph.node[:]
        made.graph.node.extend(nodes)
    return made


def confidence(agreed: int, compared: int) -> float:
    """The share of nodes that is right, at least: Wilson's lower bound, rounded down to whole percent."""
    if compared == 0:
        return 0.0
    share, squared = agreed / compared, NORMAL * NORMAL
    middle = share + squared / (2 * compared)
    spread = NORMAL * math.sqrt(share * (1 - share) / compared + squared / (4 * compared * compared))
    return math.floor(100 * (middle - spread) / (1 + squared / compared)) / 100


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Nothing of what libraries say while models are built."""
    import logging

    for library in ("torch.onnx", "transformers"):
        logging.getLogger(library).setLevel(logging.ERROR)
    with exports.quiet():
        yield


def table(folder: Path) -> tuple[str, bool]:
    """The page, and whether it shows what it should."""
    found: dict[str, dict[str, Seen]] = {}
    names = [name for name in architectures.ARCHITECTURES if (folder / f"{name}.torchscript" / "export.json").exists()]
    with tempfile.TemporaryDirectory() as scratch, silent():
        alike()
        for name in names:
            there = files(folder, name, Path(scratch))
            found[name] = {}
            for strategy in FOR_CONFIDENCE:
                if strategy in there:
                    try:
                        found[name][strategy] = seen(*there[strategy], name)
                    except onnxforge.RequestError as error:
                        # Nothing in a file may tell of modules at all.
                        found[name][strategy] = Seen(failed=str(error).partition(": ")[2])
                    if strategy in EXPORTERS:
                        found[name][strategy].export = exported(folder, name, strategy)
                elif strategy in STRATEGIES:
                    told = exported(folder, name, strategy)["failed"] if strategy in EXPORTERS else "the older exporter wrote no file"
                    found[name][strategy] = Seen(failed=told)
            print(name, {strategy: seen.failed or f"{seen.summary['coverage']:.3f}" for strategy, seen in found[name].items()}, file=sys.stderr, flush=True)
    return page(found), good(found)


def good(found: dict[str, dict[str, Seen]]) -> bool:
    """No failure without a reason, every node with parameters attributed (where more than names of parameters is there to tell), and every module that was cut out computes the same."""
    for strategies in found.values():
        for strategy, seen in strategies.items():
            if seen.failed is not None:
                if not seen.failed:
                    return False
            elif seen.different or (strategy != "parameters" and seen.summary["with_parameters"]["root"] > 0):
                return False
    return True


def page(found: dict[str, dict[str, Seen]]) -> str:
    shown = (ROOT / "tests/torch/strategies.md").read_text(encoding="utf-8")
    versions = f"PyTorch {torch.__version__.split('+')[0]}, transformers {__import__('transformers').__version__}"
    parts = {"count": str(len(found)), "versions": versions, "summary": totals(found), "evidence": of_evidence(found), "table": rows(found), "failures": failures(found)}
    for key, text in parts.items():
        shown = shown.replace(f"{{{key}}}", text)
    return shown


def percent(share: float) -> str:
    return f"{100 * share:.1f} %".replace("100.0 %", "100 %")


def totals(found: dict[str, dict[str, Seen]]) -> str:
    lines = ["| strategy | written | nodes | known | with parameters | right, of those compared | modules cut out |", "|---|---|---|---|---|---|---|"]
    for strategy in FOR_CONFIDENCE:
        all_of = [seen for strategies in found.values() if (seen := strategies.get(strategy)) is not None]
        there = [seen for seen in all_of if seen.failed is None]
        count = lambda *keys, there=there: sum(dig(seen.summary, keys) for seen in there)
        nodes, uses = count("total_operations"), count("with_parameters", "nodes")
        agreed, compared = (sum(sum(counter.values()) for counter in counters) for counters in ([seen.agreed for seen in there], [seen.compared for seen in there]))
        cut, bodies, same = (sum(seen.parts[key] for seen in there) for key in ("all", "in_body", "identical"))
        lines.append(
            f"| {strategy} | {len(there)} of {len(all_of)} | {nodes} | {percent(count('tagged_operations') / nodes)} | {uses - count('with_parameters', 'root')} of {uses} "
            f"| {percent(agreed / compared)} of {compared} | {same} of {cut - bodies}{f', {bodies} in bodies' if bodies else ''} |"
        )
    return "\n".join(lines)


def dig(value: Any, keys: tuple[str, ...]) -> int:
    for key in keys:
        value = value[key]
    return int(value)


def of_evidence(found: dict[str, dict[str, Seen]]) -> str:
    agreed: Counter[tuple[str, bool]] = Counter()
    compared: Counter[tuple[str, bool]] = Counter()
    for strategies in found.values():
        for strategy, seen in strategies.items():
            by_names = strategy in BY_NAMES
            for sums, counts in ((agreed, seen.agreed), (compared, seen.compared)):
                sums.update({(kind, by_names): count for kind, count in counts.items()})
    lines = ["| evidence | nodes compared | right | confidence | by names: nodes compared | right | confidence |", "|---|---|---|---|---|---|---|"]
    for kind in ("exporter", "recorded", "scope", "scope_guess", "enclosing", "neighbours", "owner"):
        pairs = [(compared[kind, by_names], agreed[kind, by_names]) for by_names in (False, True)]
        # What cannot be told has the other number.
        cells = [f"{all_of} | {right} | {confidence(right, all_of):.2f}" if all_of else "0 | | " for all_of, right in pairs]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rows(found: dict[str, dict[str, Seen]]) -> str:
    lines = [
        "| architecture | family | strategy | nodes | known | evidence | confidence | right | modules cut out | export, s | memory, MB | cutting out, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, strategies in found.items():
        for strategy in STRATEGIES:
            seen = strategies[strategy]
            start = f"| {name} | {architectures.ARCHITECTURES[name].family} | {strategy} "
            if seen.failed is not None:
                lines.append(f"{start}| failed: see below | | | | | | | | |")
                continue
            evidence = ", ".join(f"{kind} {count}" for kind, count in sorted(seen.summary["evidence"].items(), key=lambda each: -each[1]))
            right, compared = sum(seen.agreed.values()), sum(seen.compared.values())
            cut = seen.parts["all"] - seen.parts["in_body"]
            costs = [f"{seen.export['seconds']:.1f}", f"{seen.export['megabytes']:.0f}"] if seen.export else ["", ""]
            cells = [
                str(seen.summary["total_operations"]), percent(seen.summary["coverage"]), evidence, f"{seen.summary['confidence']:.2f}",
                f"{right} of {compared}", f"{seen.parts['identical']} of {cut}", *costs, f"{seen.extracting:.2f}",
            ]  # fmt: skip
            lines.append(f"{start}| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def brief(text: str) -> str:
    """A reason without what a table cannot show, and without places of the machine."""
    text = text.partition(" [Caused by")[0].replace("|", "¦")
    return text if len(text) <= 200 else f"{text[:199]}…"


def instead(strategy: str, strategies: dict[str, Seen]) -> str:
    """What is left where a strategy fails."""
    if strategy in EXPORTERS:
        able = [each for each in EXPORTERS if strategies[each].failed is None]
        return f"`auto` takes {able[0]}" if able else "none: `auto` tells both reasons"
    left = strategies.get("parameters")
    return f"names of parameters in the newer exporter's file: {percent(left.summary['coverage'])} known" if left and left.failed is None else "a table of modules"


def failures(found: dict[str, dict[str, Seen]]) -> str:
    lines = []
    for name, strategies in found.items():
        for strategy, seen in strategies.items():
            if seen.failed is not None:
                lines.append(f"| {name} | {strategy} | {brief(seen.failed)} | {instead(strategy, strategies)} |")
            elif seen.export and seen.export.get("undetermined"):
                lines.append(f"| {name} | {strategy} | written, but {brief(seen.export['undetermined'])} | |")
    return "\n".join(["| architecture | strategy | reason | fallback |", "|---|---|---|---|", *lines])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    each = commands.add_parser("measure")
    each.add_argument("folder", type=Path)
    each.add_argument("names", nargs="*", default=list(architectures.ARCHITECTURES))
    each = commands.add_parser("table")
    each.add_argument("folder", type=Path)
    each.add_argument("-o", "--output", type=Path, default=ROOT / "docs/strategies.md")
    options = parser.parse_args()
    if options.command == "measure":
        measure(options.folder, options.names)
    else:
        text, is_good = table(options.folder)
        options.output.write_text(text, encoding="utf-8")
        return 0 if is_good else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
