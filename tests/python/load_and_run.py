"""Seconds that ONNX Runtime takes to load a model and to run it once, at sizes as `verify` takes them.

    python tests/python/load_and_run.py MODEL.onnx
"""

import sys
import time

import numpy as np
import onnxruntime as ort

TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(float16)": np.float16}


def load_and_run(path):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    start = time.perf_counter()
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {}
    for port in session.get_inputs():
        shape = [size if isinstance(size, int) else 2 if "batch" in str(size) else 5 for size in port.shape]
        inputs[port.name] = np.ones(shape, TYPES.get(port.type, np.float32))
    session.run(None, inputs)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(load_and_run(sys.argv[1]))
