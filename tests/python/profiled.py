"""Whether times of modules add up, on real models: `onnxforge profile` beside `onnxforge bench`.

    python tests/python/profiled.py ONNXFORGE MODEL.onnx[@NAME=SIZE…] … [--tables FOLDER] [--seconds N]

A row for each model, and an exit code of 1 where less than 95 % of the time is attributed to modules inside of the model, where sums differ by more than 3 %, or where the profiler makes runs of more than 10 ms longer
by more than 10 %.
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
    parser.add_argument("models", nargs="+", help="paths, each with sizes of named dimensions of its inputs")
    parser.add_argument("--tables", type=Path, help="a folder with NAME.json for NAME.….onnx")
    parser.add_argument("--seconds", default="5")
    options = parser.parse_args()
    print("| model | bench, ms | profile, ms | overhead | µs a node | nodes, of the profiler's total | modules, of nodes | exact | inferred | unknown | below the root |")
    print("|" + "---|" * 11)
    missed = []
    for word in options.models:
        path, *sizes = word.split("@")
        path = Path(path)
        dims = [part for size in sizes for part in ("--set-dim", size)]
        table = options.tables and options.tables / f"{path.name.split('.')[0]}.json"
        words = ["--modules", table] if table and table.exists() and ".torchscript." in path.name else []
        found = ask(options.binary, "profile", path, *words, *dims, "--seconds", options.seconds)["models"][0]
        timed = ask(options.binary, "bench", path, *dims, "--seconds", options.seconds, "--sessions", "6")["models"][0]
        modules = sum(module["self_ms"]["median"] for module in found["modules"]) / found["nodes_ms"]["median"]
        shares = found["attributed"]
        each = 1000 * (found["profiled_ms"]["median"] - found["total_ms"]["median"]) / len(found["nodes"])
        percent = lambda share: f"{100 * share:.1f} %"
        cells = [
            " ".join([path.name, *sizes]), f"{timed['latency_ms']['median']:.2f}", f"{found['total_ms']['median']:.2f}", percent(found["overhead"]), f"{each:.1f}", percent(found["accounted"]),
            percent(modules), *(percent(shares[key]) for key in ("exact", "inferred", "unknown", "below_root")),
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)
        slow = timed["latency_ms"]["median"] > 10 and found["overhead"] > 0.1
        if abs(modules - 1) > 0.03 or shares["below_root"] < 0.95 or slow:
            missed.append(word)
    return f"missed: {', '.join(missed)}" if missed else 0


if __name__ == "__main__":
    sys.exit(main())
