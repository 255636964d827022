"""Converts the node cases of the onnx package, evaluates the packages, and compares with the results that the cases expect.

    ONNXFORGE_BIN=target/debug/onnxforge python tests/coreml/node_cases.py [--every N] [--part TEXT] [--json FILE]

A case counts where all of its inputs and outputs have element types that Core ML has, and none of them is empty. Prints how many of those are converted and right, and why others are refused.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import oracle
from onnx.backend.test.loader import load_model_tests

#: Element types that arrays of Core ML stand for.
TYPES = {np.dtype(kind) for kind in (np.float32, np.float16, np.int32, np.int64, np.bool_)}


def fits(values):
    """Whether these are tensors of types that Core ML has, none of them empty."""
    return all(isinstance(value, (np.ndarray, np.generic)) and value.dtype in TYPES and value.size for value in values)


def close(wanted, found):
    """Whether a result is the expected one up to rounding."""
    if wanted.shape != found.shape:
        return False
    return np.allclose(wanted.astype(np.float64), found.astype(np.float64), rtol=2e-3 if wanted.dtype == np.float16 else 1e-3, atol=1e-3 if wanted.dtype == np.float16 else 1e-5, equal_nan=True)


def convert(case, folder):
    """What the command answers; the package, if it wrote one."""
    out, model = Path(folder) / f"{case.name}.mlpackage", Path(folder) / f"{case.name}.onnx"
    model.write_bytes(case.model.SerializeToString())
    command = [os.environ["ONNXFORGE_BIN"], "convert", str(model), "-o", str(out), "--precision", "float32", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done, out


def judge(case, done, out):
    """What became of a case, and why."""
    if not out.exists():
        try:
            report = json.loads(done.stdout)
        except ValueError:
            return "refused", done.stderr.strip()[-200:]
        reasons = sorted({f"{refusal['operator']}: {refusal['reason']}" for refusal in report["refused"]})
        return ("refused", "; ".join(reasons)) if reasons else ("wrong", f"verdict {report['comparison'] and report['comparison']['verdict']}")
    inputs, outputs = case.data_sets[0]
    try:
        feed = dict(zip((port.name for port in case.model.graph.input), map(np.asarray, inputs)))
        results = oracle.run(out, oracle.arrays(out, feed))
    except oracle.Unknown as error:
        return "not evaluated", str(error)
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {str(error)[:200]}"
    for port, wanted in zip(oracle.interface(out)[1], map(np.asarray, outputs)):
        found = results[port["name"]]
        if port.get("scalar"):
            found = np.reshape(found, wanted.shape)
        if not close(wanted, found):
            return "wrong", f"{port['model']} differs"
    return "right", ""


def run(every=1, part=""):
    """What became of the cases, by name."""
    warnings.filterwarnings("ignore")
    cases = [case for case in load_model_tests(kind="node")[::every] if part in case.name and case.data_sets]
    cases = [case for case in cases if fits(case.data_sets[0][0]) and fits(case.data_sets[0][1])]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        converted = list(pool.map(lambda case: convert(case, folder), cases))
        return {case.name: judge(case, *answer) for case, answer in zip(cases, converted)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--part", default="")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = run(args.every, args.part)
    counts = collections.Counter(kind for kind, _ in results.values())
    whys = collections.Counter(f"{kind}: {why}" for kind, why in results.values() if kind != "right")
    for why, count in whys.most_common():
        print(f"{count:5} {why}")
    for name, (kind, why) in results.items():
        if kind == "wrong":
            print(f"wrong: {name}: {why}")
    print(f"{len(results)} cases: {dict(counts)}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
