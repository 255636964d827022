"""Runs packages of Core ML on a Mac: predicts, compares with ONNX Runtime, and measures latency on CPU, GPU and Neural Engine.

    pip install coremltools onnxruntime numpy
    onnxforge convert model.onnx -o packages/model.mlpackage
    python scripts/coreml_on_mac.py packages --models . --json report.json

A package is compared with the model of its name (`model.onnx`) in the folder that `--models` names; without one it is only measured. Inputs are synthetic; those with
sizes that vary get the smallest ones that the package takes. Exits with 1 where a package does not load, or is further from its model than `--tolerance`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import coremltools as ct
import numpy as np

UNITS = {"cpu": "CPU_ONLY", "gpu": "CPU_AND_GPU", "neural engine": "CPU_AND_NE", "all": "ALL"}
#: Element types of arrays, by their number in the format.
KINDS = {65568: np.float32, 65552: np.float16, 131104: np.int32}


def ports(spec) -> list[dict]:
    """How inputs and outputs of a package are those of the model; empty for packages of other tools."""
    return json.loads(spec.description.metadata.userDefined.get("onnxforge.ports", "[]"))


def made_up(spec, rng) -> dict[str, np.ndarray]:
    """An array for each input; images are arrays of pixels."""
    inputs = {}
    for port in spec.description.input:
        kind = port.type.WhichOneof("Type")
        if kind == "imageType":
            image = port.type.imageType
            channels = 1 if image.colorSpace == 10 else 3
            inputs[port.name] = rng.integers(0, 256, (1, channels, image.height, image.width)).astype(np.float32)
            continue
        array = port.type.multiArrayType
        dtype = KINDS[array.dataType]
        shape = tuple(array.shape)
        if dtype is np.int32:
            high = 2 if "mask" in port.name or "type" in port.name else 50
            inputs[port.name] = rng.integers(0, high, shape).astype(dtype)
        else:
            inputs[port.name] = rng.standard_normal(shape).astype(dtype)
    return inputs


def as_features(spec, inputs: dict[str, np.ndarray]) -> dict:
    """The same as `predict` takes it."""
    features = {}
    for port in spec.description.input:
        array = inputs[port.name]
        if port.type.WhichOneof("Type") == "imageType":
            from PIL import Image

            pixels = np.moveaxis(array[0], 0, -1).astype(np.uint8)
            features[port.name] = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        else:
            features[port.name] = array
    return features


def expected(model: Path, spec, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX Runtime computes, by the names of the package."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    notes = {port["name"]: port for port in ports(spec)}
    of_model = {port["model"]: port["name"] for port in ports(spec)}
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
    feed = {}
    for port in session.get_inputs():
        name = of_model.get(port.name, port.name)
        array, note = inputs[name], notes.get(name, {})
        if note.get("pixels"):
            array = array * note["pixels"]["scale"] + np.reshape(note["pixels"]["bias"], (1, -1, 1, 1))
        if note.get("scalar"):
            array = array.reshape(())
        feed[port.name] = array.astype(kinds[port.type])
    results = session.run(None, feed)
    return {of_model.get(port.name, port.name): result for port, result in zip(session.get_outputs(), results)}


def distance(expected: np.ndarray, found: np.ndarray) -> float:
    """How far a result is from the other, as a share of the largest magnitude."""
    a, b = np.asarray(expected, np.float64).ravel(), np.asarray(found, np.float64).ravel()
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(a)
    return float(np.abs(a[finite] - b[finite]).max(initial=0) / max(np.abs(a[finite]).max(initial=0), 1e-30))


def milliseconds(predict, times: int) -> dict[str, float]:
    """The middle and the best of so many runs, after two that warm up."""
    for _ in range(2):
        predict()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        predict()
        taken.append(1e3 * (time.perf_counter() - start))
    return {"median": round(statistics.median(taken), 3), "least": round(min(taken), 3)}


def examine(package: Path, models: Path | None, times: int) -> dict:
    """What there is to know of a package."""
    row: dict = {"package": package.name, "latency": {}}
    rng = np.random.default_rng(0)
    for name, unit in UNITS.items():
        try:
            start = time.perf_counter()
            model = ct.models.MLModel(str(package), compute_units=getattr(ct.ComputeUnit, unit))
            loaded = 1e3 * (time.perf_counter() - start)
            spec = model.get_spec()
            inputs = made_up(spec, rng)
            features = as_features(spec, inputs)
            found = model.predict(features)
        except Exception as error:
            row.setdefault("errors", {})[name] = f"{type(error).__name__}: {error}"
            continue
        row["latency"][name] = {"load": round(loaded, 1), **milliseconds(lambda: model.predict(features), times)}
        original = models / f"{package.stem}.onnx" if models else None
        if original and original.exists():
            wanted = expected(original, spec, inputs)
            row.setdefault("apart", {})[name] = max(distance(wanted[key], found[key]) for key in wanted)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with packages")
    parser.add_argument("--models", type=Path, help="folder with the ONNX models that they were made from")
    parser.add_argument("--times", type=int, default=20, help="predictions that are measured")
    parser.add_argument("--tolerance", type=float, default=0.05, help="largest accepted difference, as a share of the scale")
    parser.add_argument("--json", type=Path, help="write the report here")
    args = parser.parse_args()
    if sys.platform != "darwin":
        parser.error("Core ML runs on macOS only")
    rows = [examine(package, args.models, args.times) for package in sorted(args.folder.glob("*.mlpackage"))]
    if not rows:
        parser.error(f"no packages in {args.folder}")
    is_good = True
    for row in rows:
        print(row["package"])
        for unit in UNITS:
            if unit in row.get("errors", {}):
                print(f"  {unit:14} {row['errors'][unit]}")
                is_good = False
                continue
            measured, apart = row["latency"][unit], row.get("apart", {}).get(unit)
            compared = "not compared" if apart is None else f"{apart:.1e} of the scale apart"
            print(f"  {unit:14} {measured['median']:9.3f} ms, loaded in {measured['load']:.0f} ms, {compared}")
            is_good &= apart is None or apart <= args.tolerance
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
