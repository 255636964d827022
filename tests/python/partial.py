"""What `onnxforge optimize --modules` leaves alone, on real models.

    python tests/python/partial.py ONNXFORGE MODEL.onnx=PATTERN …

A row for each model: nodes before and after, nodes outside of the chosen modules and how many of them are still there byte for byte, and what the comparison says.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from test_requirements import alone, placed


def main(binary, *words):
    print("| model | modules | nodes before | nodes after | outside | byte for byte | results |")
    print("|---|---|---|---|---|---|---|")
    missed = False
    for word in words:
        path, _, pattern = word.rpartition("=")
        with tempfile.TemporaryDirectory() as folder:
            sidecar, small = Path(folder) / "seen.json", Path(folder) / "small.onnx"
            ask = lambda *line: json.loads(subprocess.run([binary, *map(str, line), "--json", "-"], capture_output=True, check=True).stdout)
            ask("tag", path, "--sidecar", sidecar)
            nodes = json.loads(sidecar.read_text(encoding="utf-8"))["nodes"]
            chosen = {part["module"] for part in ask("extract", path, "-m", pattern)["parts"]}
            report = ask("optimize", path, "-o", small, "--modules", pattern)
            inside = lambda module, chosen=chosen: any(module == one or module.startswith(f"{one}.") for one in chosen)
            graph = onnx.load(path, load_external_data=False).graph
            outer = [alone(n) for place, n in placed(graph) if not all(map(inside, nodes[place]["modules"]))]
            rest = iter([alone(n) for _, n in placed(onnx.load(small, load_external_data=False).graph)])
            kept = sum(1 for one in outer if any(one == other for other in rest))
            verdict = (report["verification"]["global"] or {}).get("verdict", report["verification"]["unverified"])
        sizes = report["before"]["all_nodes"], report["after"]["all_nodes"]
        print(f"| {Path(path).name} | {pattern} | {sizes[0]} | {sizes[1]} | {len(outer)} | {kept} | {verdict} |", flush=True)
        missed |= kept != len(outer) or verdict not in ("identical", "rounding") or sizes[0] == sizes[1]
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
