"""What becomes of decoders with a key/value cache: nodes, Attention with the cache in every layer, and results at empty and filled caches.

    python tests/torch/decoders.py ONNXFORGE FOLDER [OPTION-OF-OPTIMIZE …]

FOLDER is what scripts/export_decoders.py wrote. Each file is optimized with `--opset 23`; original and result then run in ONNX Runtime, without its own
optimizations, wherever the file gives what PyTorch gives: prompts with an empty cache, and one and three tokens after a filled one. Nodes per layer are
those from one Attention with the cache to the next. Exits with 1 if a layer has none, or a result differs by more than rounding.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import export_decoders

# Rounding of a few layers in 32 bits, as a share of the largest number.
MOST = 2e-5


def graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """A graph and the bodies in it."""
    bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [graph, *(inner for body in bodies for inner in graphs(body))]


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def results(told: dict, given: Path, made: Path) -> tuple[int, float]:
    """At how many sizes both run, and how far they are apart at most."""
    decoder = export_decoders.Flat(export_decoders.FAMILIES[told["family"]], told["variant"])
    sessions = [session(path) for path in (given, made)]
    taken = {port.name for port in sessions[0].get_inputs()}
    sizes, apart = 0, 0.0
    for at, outcome in told["runs"].items():
        if outcome != "right":
            continue
        batch, past, new = (int(size) for size in re.findall(r"=(\d+)", at))
        values = export_decoders.example(decoder, export_decoders.sizes(batch, new, past))
        values = {name: value for name, value in values.items() if name in taken}
        first, second = (each.run(None, values) for each in sessions)
        pairs = zip(first, second, strict=True)
        apart = max([apart, *(export_decoders.difference(found, expected) for expected, found in pairs)])
        sizes += 1
    return sizes, apart


def examine(binary: str, folder: Path, told: dict, options: tuple[str, ...]) -> tuple[str, bool]:
    """A row of the table, and whether all is well."""
    given, layers = folder / told["file"], export_decoders.FAMILIES[told["family"]].layers
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "made.onnx")
        command = [binary, "optimize", given, "-o", made, "--opset", "23", "--json", *options]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"exit code {done.returncode}: {done.stderr.strip()[:200]}", False
        verdict = (json.loads(done.stdout)["verification"].get("global") or {}).get("verdict")
        counts, cached, left, each = [], [], 0, []
        for before in (given, made):
            found = graphs(onnx.load(before, load_external_data=False).graph)
            counts.append(sum(node.op_type != "Constant" for graph in found for node in graph.node))
        for graph in found:
            nodes = [node for node in graph.node if node.op_type != "Constant"]
            at = [place for place, node in enumerate(nodes) if node.op_type == "Attention" and len(node.input) > 4]
            cached += at
            left += sum(node.op_type == "Softmax" for node in nodes)
            each += [after - before for before, after in zip(at, at[1:], strict=False)]
        sizes, apart = results(told, given, made)
    good = len(cached) == layers and verdict in ("identical", "rounding") and sizes > 0 and apart <= MOST
    row = [*map(str, counts), f"{len(cached)} of {layers}", str(left), str(max(each, default="-")), str(verdict), f"{sizes}", f"{apart:.0e}"]
    return " | ".join(row), good


def main(binary: str, folder: str, *options: str) -> int:
    told = json.loads(Path(folder, "exports.json").read_text())
    print("| decoder | before | after | Attention with cache | Softmax left | nodes per layer | verdict | sizes tried | apart |")
    print("|---" * 9 + "|")
    failed = 0
    for one in told:
        if "file" not in one:
            continue
        row, good = examine(binary, Path(folder), one, options)
        failed += not good
        print(f"| {one['family']}.{one['exporter']}.{one['variant']} | {row} |{'' if good else ' <-'}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
