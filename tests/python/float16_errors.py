"""Our conversion to float16 beside onnxconverter-common's: how far results in ONNX Runtime are from the float64 run of the original, and whether they are finite.

    python tests/python/float16_errors.py MODEL.onnx... [--seeds N]

Both convert inputs and outputs, too: ours is `onnxforge.slim(model, dtype="fp16")`, the other `convert_float_to_float16(model)`. An error is the largest difference
of an output, as a share of its largest magnitude; the worst output and seed count. Exits with 1 where ours is larger, does not run, or is not finite.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxforge
import onnxruntime
from onnxconverter_common import float16
from onnxforge.compat._edits import run_on_made_up


def session(model, folder):
    path = str(Path(folder, "model.onnx"))
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def error(model, samples):
    """The largest error over all samples; not a number where a result is not finite."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        found = session(model, folder)
        types = {each.name: each.type for each in found.get_inputs()}
        for inputs, expected in samples:
            feeds = {name: value.astype(np.float16) if types[name] == "tensor(float16)" else value for name, value in inputs.items() if name in types}
            for each, got in zip(found.get_outputs(), found.run(None, feeds)):
                wanted = expected[each.name]
                if wanted.dtype.kind != "f":
                    continue
                got = got.astype(np.float64)
                if not np.isfinite(got[np.isfinite(wanted)]).all():
                    return float("nan")
                worst = max(worst, float(np.abs(got - wanted).max() / np.abs(wanted).max()))
    return worst


def attempt(work):
    try:
        return work(), ""
    except Exception as problem:  # noqa: BLE001 - whatever goes wrong belongs into the table
        return float("nan"), str(problem).splitlines()[0][:120]


def main():
    # The other one warns of every weight that it truncates.
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    bad = False
    for path in options.models:
        original = onnx.load(path)
        samples = []
        for seed in range(options.seeds):
            inputs, _ = run_on_made_up(path, {}, {}, seed)
            samples.append((inputs, onnxforge.run(path, inputs, engine="oracle")))
        ours, why = attempt(lambda: error(onnxforge.slim(path, dtype="fp16"), samples))
        theirs, whose = attempt(lambda: error(float16.convert_float_to_float16(original), samples))
        good = ours == ours and not ours > theirs
        bad |= not good
        print(f"{Path(path).name:40} ours {ours:.2e} {why}  onnxconverter-common {theirs:.2e} {whose}  {'' if good else 'WORSE'}", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
