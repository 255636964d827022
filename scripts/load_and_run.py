"""Loads a model in ONNX Runtime and runs it once: seconds for both, and the peak of the process's memory.

    load_and_run.py MODEL

Symbolic dimensions are 2, integers 0 and floats 1. Prints a line of JSON.
"""

import json
import resource
import sys
import time

import numpy as np
import onnxruntime

start = time.perf_counter()
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64, "tensor(bool)": np.bool_}
inputs = {
    port.name: np.full([size if isinstance(size, int) else 2 for size in port.shape], 1 if port.type in types else 0, types.get(port.type, np.int64))
    for port in session.get_inputs()
}
session.run(None, inputs)
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
