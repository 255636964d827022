"""Whether times of modules add up, on real models: `onnxforge profile` beside `onnxforge bench`.

    python tests/python/profiled.py ONNXFORGE MODEL.onnx … [--table NAME=TABLE.json …] [--seconds N]

A row for each model, and an exit code of 1 where less than 95 % of the time is attributed to modules inside of the model, or where sums do not agree.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path


def ask(binary, *words):
    answer = subprocess.run([binary, *map(str, words), "--json", "-"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise SystemExit(f"{words}: {answer.stderr.strip()}")
    return json.loads(answer.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--tables", type=Path, help="a folder with NAME.json for NAME.….onnx")
    parser.add_argument("--seconds", default="5")
    options = parser.parse_args()
    print("| model | bench, ms | profile, ms | overhead | nodes, of the profiler's total | modules, of nodes | exact | inferred | unknown | below the root |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    missed = []
    for path in options.models:
        table = options.tables and options.tables / f"{path.name.split('.')[0]}.json"
        words = ["--modules", table] if table and table.exists() and ".torchscript." in path.name else []
        found = ask(options.binary, "profile", path, *words, "--seconds", options.seconds)["models"][0]
        timed = ask(options.binary, "bench", path, "--seconds", options.seconds, "--sessions", "6")["models"][0]
        modules = sum(module["self_ms"]["median"] for module in found["modules"]) / found["nodes_ms"]["median"]
        shares = found["attributed"]
        percent = lambda share: f"{100 * share:.1f} %"
        cells = [
            path.name, f"{timed['latency_ms']['median']:.2f}", f"{found['total_ms']['median']:.2f}", percent(found["overhead"]), percent(found["accounted"]),
            percent(modules), *(percent(shares[key]) for key in ("exact", "inferred", "unknown", "below_root")),
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)
        if abs(modules - 1) > 0.03 or shares["below_root"] < 0.95:
            missed.append(path.name)
    return f"missed: {', '.join(missed)}" if missed else 0


if __name__ == "__main__":
    sys.exit(main())
