"""Whole models: our evaluator beside ONNX Runtime on the same inputs.

    python tests/python/native.py accuracy BINARY MODEL.onnx [NAME=SIZE ...]
    python tests/python/native.py speed BINARY MODEL.onnx [NAME=SIZE ...]
    python tests/python/native.py oracle BINARY MODEL.onnx [NAME=SIZE ...]
    python tests/python/native.py wheels BINARY FOLDER      # accuracy on the trained models of wheels.py
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def session(path, threads=None, optimized=False):
    import onnxruntime as ort

    options = ort.SessionOptions()
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads:
        options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run_ours(binary, model, folder, *arguments):
    """The report, inputs and outputs of a run."""
    inputs, outputs = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
    command = [binary, "run", model, "--save-inputs", inputs, "-o", outputs, "--json", "-", *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-2000:])
    return json.loads(done.stdout), dict(np.load(inputs)), dict(np.load(outputs))


def feeds_of(theirs, inputs):
    """The inputs in the element types that the session wants."""
    return {port.name: inputs[port.name] for port in theirs.get_inputs()}


def outputs(model, inputs):
    """What ONNX Runtime makes of the inputs, or why it cannot."""
    try:
        theirs = session(model)
        return theirs.run(None, feeds_of(theirs, inputs))
    except Exception as error:  # noqa: BLE001
        return str(error)


def relative_error(found, expected):
    """The largest difference as a share of the largest expected magnitude."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, f"{found.shape} is not {expected.shape}"
    if expected.dtype.kind not in "fc":
        return 0.0 if np.array_equal(found, expected) else float("inf")
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)) or not np.array_equal(
        found[~finite], expected[~finite], equal_nan=True
    ):
        return float("inf")
    scale = np.abs(expected[finite]).max(initial=0.0) or 1.0
    return float(np.abs(found[finite] - expected[finite]).max(initial=0.0) / scale)


def accuracy(binary, model, dims=(), given=None):
    """The largest relative error over the outputs, against ONNX Runtime without optimizations."""
    return max(error for _, _, error in compared(binary, model, dims, given))


def compared(binary, model, dims=(), given=None, engine="native"):
    """Name, ONNX Runtime's value and our error for every output."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*flags(dims), "--engine", engine]
        if given:
            np.savez(Path(folder) / "given.npz", **given)
            arguments += ["--inputs", Path(folder) / "given.npz"]
        _, inputs, outputs = run_ours(binary, model, folder, *arguments)
        theirs = session(model)
        names = [port.name for port in theirs.get_outputs()]
        expected = theirs.run(names, feeds_of(theirs, inputs))
        return [
            (name, value, relative_error(outputs[name], value)) for name, value in zip(names, expected, strict=True)
        ]


def judged(binary, model, dims=()):
    """The accuracy as text; where it is above the bar, with how far ONNX Runtime is from the float64 run."""
    rows = compared(binary, model, dims)
    name, value, error = max(rows, key=lambda row: row[2])
    if error <= 1e-4:
        return f"{error:.2e}"
    rounding = {name: error for name, _, error in compared(binary, model, dims, engine="oracle")}
    return (
        f"{error:.2e} at {name}, whose largest value is {np.abs(value).max():.1e};"
        f" ONNX Runtime is {rounding[name]:.1e} from the float64 run"
    )


def speed(binary, model, dims=(), runs=10, rounds=3):
    """Milliseconds of both, interleaved: medians over rounds of several runs each, with all cores."""
    import os

    threads = os.cpu_count()
    ours, plain, optimized = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        _, inputs, _ = run_ours(binary, model, folder, *flags(dims))
        sessions = [(session(model, threads), plain), (session(model, threads, optimized=True), optimized)]
        for _ in range(rounds):
            report, _, _ = run_ours(binary, model, folder, *flags(dims), "--repeat", str(runs))
            ours.append(report["milliseconds"])
            for theirs, times in sessions:
                feeds = feeds_of(theirs, inputs)
                theirs.run(None, feeds)
                for _ in range(runs):
                    start = time.perf_counter()
                    theirs.run(None, feeds)
                    times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(ours), statistics.median(plain), statistics.median(optimized)


def oracle(binary, model, dims=()):
    """For every float value of the graph: the error of ONNX Runtime's float32 against our float64 run."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        _, inputs, exact = run_ours(binary, model, folder, *flags(dims), "--engine", "oracle", "--all")
        message = onnx.load(model)
        present = {port.name for port in message.graph.output}
        for name, value in exact.items():
            if name not in present and value.dtype == np.float64:
                message.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
        watched = Path(folder) / "watched.onnx"
        onnx.save(message, watched, save_as_external_data=True, location="watched.data")
        theirs = session(watched)
        names = [port.name for port in theirs.get_outputs()]
        found = dict(zip(names, theirs.run(names, feeds_of(theirs, inputs)), strict=True))
    rows = []
    for node in message.graph.node:
        for name in node.output:
            if name in found and found[name].dtype == np.float32 and name in exact:
                rows.append((node.op_type, name, relative_error(found[name], exact[name])))
    return rows


def flags(dims):
    return [part for dim in dims for part in ("--set-dim", dim)]


def main(task, binary, model, dims):
    if task == "accuracy":
        print(judged(binary, model, dims))
    elif task == "wheels":
        import wheels

        for name, path in wheels.fetch(Path(model)).items():
            print(f"{name:64} {accuracy(binary, path, given=wheels.INPUTS[name]()):.2e}", flush=True)
    elif task == "speed":
        ours, plain, optimized = speed(binary, model, dims)
        print(f"onnxforge {ours:.1f} ms, ONNX Runtime without optimizations {plain:.1f} ms, with {optimized:.1f} ms:"
              f" {ours / plain:.2f} and {ours / optimized:.2f} times")  # fmt: skip
    elif task == "oracle":
        rows = oracle(binary, model, dims)
        by_op = {}
        for op, _, error in rows:
            by_op.setdefault(op, []).append(error)
        print("| operator | values | median | largest |\n|---|---|---|---|")
        for op, errors in sorted(by_op.items(), key=lambda item: -max(item[1])):
            print(f"| {op} | {len(errors)} | {statistics.median(errors):.1e} | {max(errors):.1e} |")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
