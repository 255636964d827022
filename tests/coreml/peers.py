"""Tools that convert ONNX models to packages of Core ML, side by side: success, accuracy, seconds and memory.

    python -m venv .venv-coreml-peers && .venv-coreml-peers/bin/pip install coremltools==9.0 'numpy<2' onnx onnxruntime onnxsim==0.8.1 onnx2coreml==1.1.0
    ONNXFORGE_BIN=target/dist/onnxforge .venv-coreml-peers/bin/python tests/coreml/peers.py FOLDER [--name PART …] [--json FILE]

All tools write float32, and get the sizes of `zoo.py` for dimensions that are not known, where they take sizes. Accuracy is that of `oracle.py`.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import oracle
from zoo import SIZES, arguments, tabulate

ONNXSIM = """
import coremltools as ct, onnx, onnxsim, sys
model, _ = onnxsim.simplify(onnx.load(sys.argv[1]))
onnxsim.export_coreml(model, sys.argv[2], compute_precision=ct.precision.FLOAT32, minimum_deployment_target=ct.target.iOS17)
"""
ONNX2COREML = """
import subprocess, sys, os
sys.exit(subprocess.call([os.path.join(os.path.dirname(sys.executable), "onnx2coreml"), "convert", sys.argv[1], "-o", sys.argv[2], "--precision", "fp32", "--target", "iOS17"]))
"""


def commands(model, out, sizes):
    """What each tool is called with."""
    fixed = [word for name, size in sizes.items() for word in ("--set-dim", f"{name}={size}")]
    return {
        "onnxforge": [os.environ["ONNXFORGE_BIN"], "-q", "convert", model, "-o", out, "--precision", "float32", *fixed],
        "onnxforge --verify off": [os.environ["ONNXFORGE_BIN"], "-q", "convert", model, "-o", out, "--precision", "float32", "--verify", "off", *fixed],
        "onnxsim": [sys.executable, "-c", ONNXSIM, model, out],
        "onnx2coreml": [sys.executable, "-c", ONNX2COREML, model, out],
    }


def measured(command):
    """Seconds, peak of memory, exit code and the end of what was said."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(list(map(str, command)), stdout=said, stderr=said)
        _, status, used = os.wait4(child.pid, 0)
        said.seek(0)
        text = said.read().strip()[-200:]
    return {"seconds": round(time.perf_counter() - start, 2), "peak_mb": round(used.ru_maxrss / 1024), "code": os.waitstatus_to_exitcode(status), "said": text}


def accuracy(model, out, inputs):
    """How far the results of a package are from those of ONNX Runtime, whichever tool wrote it; outputs belong together by place."""
    import coremltools as ct
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    spec = ct.models.MLModel(str(out), skip_model_load=True).get_spec()
    kinds = {65568: np.float32, 65552: np.float16, 131104: np.int32}
    feed = {}
    for port, name in zip(spec.description.input, inputs):
        array = inputs[port.name] if port.name in inputs else inputs[name]
        feed[port.name] = array.astype(kinds[port.type.multiArrayType.dataType])
    oracle.mismatches = lambda program, declared: []
    found = list(oracle.run(out, feed).values())
    worst = 0.0
    for a, b in zip(expected, found):
        a, b = a.astype(np.float64), np.reshape(b, a.shape).astype(np.float64)
        worst = max(worst, float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)))
    return worst


def rows_of(model):
    """What becomes of one model with each tool."""
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    named = {dim.dim_param for port in graph.input for dim in port.type.tensor_type.shape.dim if dim.dim_param}
    sizes = {name: SIZES.get(name, 2) for name in sorted(named)}
    inputs = oracle.made_up(model, sizes)
    for tool in commands(model, "", sizes):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.mlpackage"
            row = {"model": model.stem, "tool": tool, **measured(commands(model, out, sizes)[tool])}
            if out.exists() and row["code"] == 0:
                try:
                    row["apart"] = accuracy(model, out, inputs)
                except Exception as error:
                    row["oracle"] = f"{type(error).__name__}: {str(error)[:200]}"
        yield row


if __name__ == "__main__":
    tabulate(arguments(__doc__).parse_args(), rows_of)
