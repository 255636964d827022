"""Converts random graphs, evaluates the packages, and compares with ONNX Runtime.

    mkdir target/graphs
    ONNXFORGE_KEEP=target/graphs ONNXFORGE_GRAPHS=5000 cargo test -p onnxforge-convert --test it as_a_package
    ONNXFORGE_BIN=target/debug/onnxforge python tests/coreml/random_graphs.py target/graphs

Exits with 1 where a package is refused by coremltools, or computes something else.
"""

import collections
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import oracle

#: The largest difference, as a share of the largest magnitude.
BOUND = 1e-4


def judge(model, folder):
    """What became of a graph, and why."""
    out = Path(folder) / f"{model.stem}.mlpackage"
    command = [os.environ["ONNXFORGE_BIN"], "convert", str(model), "-o", str(out), "--precision", "float32", "--verify", "off", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if not out.exists():
        refused = json.loads(done.stdout)["refused"] if done.stdout else []
        return ("refused", "; ".join(sorted({f"{it['operator']}: {it['reason']}" for it in refused}))) if refused else ("wrong", done.stderr[-300:])
    return out, dict(np.load(model.with_suffix(".npz")))


def compare(model, answer):
    out, feed = answer
    if not isinstance(out, Path):
        return answer
    try:
        apart = oracle.differences(model, out, feed)
    except oracle.Unknown as error:
        return "not evaluated", str(error)
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {str(error)[:200]}"
    worst = max(apart.values())
    return ("right", "") if worst <= BOUND else ("wrong", f"{worst} apart")


def main():
    models = sorted(Path(sys.argv[1]).glob("*.onnx"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda model: judge(model, folder), models))
        results = {model.stem: compare(model, answer) for model, answer in zip(models, answers)}
    whys = collections.Counter(f"{kind}: {why}" for kind, why in results.values() if kind not in ("right", "wrong"))
    for why, count in whys.most_common(20):
        print(f"{count:5} {why}")
    for name, (kind, why) in results.items():
        if kind == "wrong":
            print(f"wrong: {name}: {why}")
    counts = collections.Counter(kind for kind, _ in results.values())
    print(f"{len(results)} graphs: {dict(counts)}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
