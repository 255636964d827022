"""Whether `onnxforge optimize` takes what ONNX Runtime loads, and gives results that ONNX Runtime computes alike.

    python tests/python/accepted.py --binary PATH [--timeout 120] [OPTION-OF-OPTIMIZE …] -- MODEL-OR-FOLDER …

Every model is loaded in ONNX Runtime; those that load are optimized with the default command, verification included, and
original and result are run side by side on the same random inputs, without ONNX Runtime's own optimizations. Nothing of
onnxforge takes part in that comparison. Sizes of named dimensions are tried until the original runs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import corpus

# How far results may be apart, relative to the largest number of the original's, or to a thousandth where all are smaller (probabilities
# that are next to 0): rounding of a few layers.
ROUNDING = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "float64": 1e-9}

# Runs in a process of its own, for ONNX Runtime crashes on some models.
RUNNER = r'''
import itertools, json, sys
import numpy as np, onnxruntime as ort
ort.set_default_logger_severity(4)
TYPES = {"float": "float32", "double": "float64", "float16": "float16", "bool": "bool", "string": "object",
         **{kind: kind for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")}}

def session(path, level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level, options.intra_op_num_threads = level, 4, 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

def values(given, size, limit, random):
    if not given.type.startswith("tensor("):
        raise ValueError(f"no inputs of type {given.type}")
    dtype = TYPES[given.type[7:-1]]
    shape = [dim if isinstance(dim, int) else size for dim in given.shape]
    if dtype == "object":
        return random.choice(["a", "b", "3"], shape).astype(object)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        return np.asarray(random.standard_normal(shape)).astype(dtype)
    return random.integers(0, limit, shape).astype(dtype)

def first_run(model):
    """Inputs on which the model runs, and what it gives; or why there are none."""
    why = None
    for size, limit in itertools.product((2, 1, 3, 4, 8, 16, 32, 128), (2, 1)):
        random = np.random.default_rng(7)
        try:
            feed = {given.name: values(given, size, limit, random) for given in model.get_inputs()}
            return feed, model.run(None, feed), None
        except Exception as error:
            why = why or str(error)
    return None, None, why

def difference(a, b):
    if type(a) is not type(b):
        return "another type", None
    if isinstance(a, (list, dict)):
        return (None if repr(a) == repr(b) else "other values"), None
    if not isinstance(a, np.ndarray):
        return (None if a == b else "other values"), None
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{a.shape} became {b.dtype}{b.shape}", None
    if a.dtype.kind != "f":
        return (None if np.array_equal(a, b) else "other values"), None
    wide, other = a.astype(np.float64), b.astype(np.float64)
    odd = ~np.isfinite(wide)
    if not np.array_equal(odd, ~np.isfinite(other)) or not np.array_equal(wide[odd], other[odd], equal_nan=True):
        return "NaN or infinity elsewhere", None
    scale = np.abs(wide[~odd]).max(initial=0.0)
    apart = np.abs(wide[~odd] - other[~odd]).max(initial=0.0)
    return None, (float(apart / max(scale, 1e-3)), str(a.dtype))

task = json.loads(sys.stdin.read())
try:
    model = session(task["model"])
except Exception as error:
    try:
        model = session(task["model"], ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
    except Exception:
        print(json.dumps({"loads": False, "why": str(error)[:300]}))
        sys.exit()
answer = {"loads": True}
if "result" in task:
    feed, expected, why = first_run(model)
    if why:
        answer["not_run"] = why[:200]
    try:
        result = session(task["result"])
        if [given.name for given in model.get_inputs()] != [given.name for given in result.get_inputs()]:
            answer["differs"] = "other inputs"
        if [given.name for given in model.get_outputs()] != [given.name for given in result.get_outputs()]:
            answer["differs"] = "other outputs"
        if feed is not None:
            again = [model.run(None, feed) for _ in range(4)]
            got = result.run(None, feed)
            for output, a, b, *same in zip(model.get_outputs(), expected, got, *again):
                what, far = difference(a, b)
                if any(difference(a, c) not in ((None, None), (None, (0.0, far and far[1]))) for c in same):
                    answer["draws"] = True
                elif what:
                    answer["differs"] = f"{output.name}: {what}"
                elif far:
                    answer.setdefault("far", []).append(far)
    except Exception as error:
        answer["refused"] = str(error)[:300]
print(json.dumps(answer))
'''


def in_runtime(timeout, **task):
    """What ONNX Runtime says; a crash of it is an answer, too."""
    command = [sys.executable, "-c", RUNNER]
    try:
        done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"crash": f"no answer after {timeout} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"crash": f"exit code {done.returncode}: {done.stderr[-200:]}"}


def judged(args, options, model, folder):
    """What became of one model: a word, and why."""
    first = in_runtime(args.timeout, model=str(model))
    if not first.get("loads"):
        return "not loaded by ONNX Runtime", first.get("why") or first.get("crash")
    result = folder / "result.onnx"
    command = [str(args.binary), "optimize", str(model), "-o", str(result), "--json", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout)
    except subprocess.TimeoutExpired:
        return "REFUSED", f"no result after {args.timeout} s"
    if done.returncode not in (0, 1) or not result.exists():
        return "REFUSED", f"exit code {done.returncode}: {done.stderr.strip()}"
    proof = json.loads(done.stdout)["verification"]
    second = in_runtime(args.timeout, model=str(model), result=str(result))
    if done.returncode == 1:
        return "REVERTED", "; ".join(f"{wrong['rule']}: {wrong['difference']}" for wrong in proof["reverted"])
    if "refused" in second or "differs" in second:
        return "DIFFERS", second.get("refused") or second["differs"]
    far = [(apart, kind) for apart, kind in second.get("far", []) if apart > ROUNDING.get(kind, 0.0)]
    if far:
        return "DIFFERS", ", ".join(f"{apart:.1e} of {kind}" for apart, kind in far)
    alone = "not compared" if proof.get("unverified") else "unchanged"
    verdict = (proof.get("global") or {}).get("verdict", alone)
    if "not_run" in second or "crash" in second or "draws" in second:
        return f"taken; {verdict}; no run in ONNX Runtime", second.get("not_run") or second.get("crash") or "it draws"
    return f"taken; {verdict}; equal in ONNX Runtime", ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path, default=corpus.ROOT / "target/release/onnxforge")
    parser.add_argument("--timeout", type=int, default=120)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("models", nargs="+", type=Path)
    args, options = parser.parse_known_args()
    paths = [path for given in args.models for path in (sorted(given.rglob("*.onnx")) if given.is_dir() else [given])]

    def one(path):
        with tempfile.TemporaryDirectory() as folder:
            return judged(args, options, path, Path(folder))

    counts = Counter()
    with ThreadPoolExecutor(args.jobs) as pool:
        for path, (word, why) in zip(paths, pool.map(one, paths)):
            counts[word] += 1
            if why:
                print(f"{word}: {path}: {' '.join(str(why).split())[:400]}", flush=True)
    print()
    for word, count in counts.most_common():
        print(f"{count:5} {word}")
    loaded = len(paths) - counts["not loaded by ONNX Runtime"]
    taken = loaded - counts["REFUSED"]
    print(f"taken: {taken} of {loaded} that ONNX Runtime loads ({taken / max(loaded, 1):.2%})")
    return any(word.isupper() for word in counts)


if __name__ == "__main__":
    sys.exit(main())
