"""Weights under which a signal lives: matrices and kernels that keep its size, and biases, scales and statistics that are no
neutral elements, as in a trained model. The zoo's own weights are those of an untrained one: biases of 0 and scales of 1 go
away as soon as something is optimized, and deep networks compute next to nothing.

    python tests/python/lively.py MODEL.onnx OUT.onnx [SEED]
"""

import sys

import numpy as np
import onnx
from onnx import numpy_helper


def lively(message, seed=0):
    """The same model with other floats in its initializers."""
    random = np.random.default_rng(seed)
    for tensor in message.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        old = numpy_helper.to_array(tensor)
        if old.size < 2:
            continue
        if old.ndim >= 2:
            inputs = max(old.size // old.shape[0], 1)
            new = random.standard_normal(old.shape) * np.sqrt(2 / inputs)
        else:
            # Positive, for some of them are variances.
            new = random.uniform(0.5, 1.5, old.shape)
        tensor.CopyFrom(numpy_helper.from_array(new.astype(np.float32), tensor.name))
    return message


if __name__ == "__main__":
    changed = lively(onnx.load(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    onnx.save(changed, sys.argv[2])
