"""Loads a model in ONNX Runtime and runs it once: seconds for both, and the peak of the process's memory.

    load_and_run.py MODEL [NAME=SIZE...]

Symbolic dimensions have the sizes that are given, others 2; integers are 0 and floats 1. Prints a line of JSON.
"""

import json
import resource
import sys
import time

import numpy as np
import onnxruntime

TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(bool)": np.bool_,
    "tensor(int32)": np.int32,
}
sizes = {name: int(size) for name, _, size in (pair.rpartition("=") for pair in sys.argv[2:])}
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
start = time.perf_counter()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])


def shape(port):
    named = (size if isinstance(size, int) else sizes.get(size) for size in port.shape)
    return [sizes.get(f"{port.name}[{axis}]", 2) if size is None else size for axis, size in enumerate(named)]


inputs = {
    port.name: np.full(shape(port), "float" in port.type or "double" in port.type, TYPES.get(port.type, np.int64))
    for port in session.get_inputs()
}
session.run(None, inputs)
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
