"""A row of a table: nodes of a model, what exact and what all rewrites leave of them, and how many bits of the exact result's outputs differ from the
original's in ONNX Runtime without its optimizations, on three inputs. Exits with 1 when a bit differs.

    python tests/python/exact.py BINARY NAME MODEL.onnx
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

SIZES = ((1, 8), (2, 5), (3, 1))


def optimized(binary, model, target, *options):
    command = [binary, "optimize", model, "-o", target, "--json", "-", "-q", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def inputs(session, batch, other, random):
    given = {}
    for port in session.get_inputs():
        shape = [size if isinstance(size, int) else batch if "batch" in str(size).lower() else other for size in port.shape]
        kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
        if port.type in kinds:
            given[port.name] = random.standard_normal(shape).astype(kinds[port.type])
        else:
            most = 99 if port.name.endswith("input_ids") else 2
            dtype = {"tensor(int32)": np.int32, "tensor(bool)": np.bool_}.get(port.type, np.int64)
            given[port.name] = random.integers(0, most, shape).astype(dtype)
    return given


def results(model, given):
    """The outputs on inputs that are given, or at SIZES, and these inputs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    if given is None:
        random = np.random.default_rng(0)
        given = [inputs(session, *sizes, random) for sizes in SIZES]
    return [session.run(None, each) for each in given], given


def differing_bits(first, second):
    """How many bits differ in two lists of arrays."""
    if [array.dtype for array in first] != [array.dtype for array in second] or [array.shape for array in first] != [array.shape for array in second]:
        return sum(array.nbytes for array in first) * 8
    flat = lambda arrays: np.concatenate([np.frombuffer(array.tobytes(), np.uint8) for array in arrays])
    return int(np.unpackbits(flat(first) ^ flat(second)).sum())


def main(binary, name, model):
    with tempfile.TemporaryDirectory(dir=Path(model).parent) as folder:
        target = Path(folder) / "exact.onnx"
        exact = optimized(binary, model, target, "--accuracy", "exact", "--verify", "off")
        default = optimized(binary, model, Path(folder) / "default.onnx", "--verify", "off")
        (Path(folder) / "default.onnx").unlink()
        before, given = results(model, None)
        after, _ = results(target, given)
    bits = sum(differing_bits(first, second) for first, second in zip(before, after, strict=True))
    nodes = [exact["before"]["nodes"], exact["after"]["nodes"], default["after"]["nodes"]]
    print(f"| {name} | {' | '.join(f'{count:,}' for count in nodes)} | {bits} |", flush=True)
    return bits


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) != 0)
