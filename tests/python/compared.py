"""Which models `onnxforge optimize` compares with their originals, and why not, beside what can run them at all.

    python tests/python/compared.py BINARY MODEL.onnx|FOLDER... [-- OPTION...]

Prints one line for every model: the verdict with the sizes at which it was reached, and dimensions that had one size only, `unchanged` where there was nothing to compare, or why it was not compared or
refused. For the last two, ONNX Runtime tries to run the original at many sizes, and so does this library unless it refuses the model. Exits with 1 when one of them can.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(bool)": np.bool_, "tensor(int32)": np.int32,
    "tensor(int64)": np.int64, "tensor(int16)": np.int16, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64, "tensor(string)": np.object_,
}  # fmt: skip
# Sizes of dimensions without one, taken in turn by name or place.
SIZES = ([1], [2], [3], [4], [8], [16], [32], [64], [128], [224], [512], [2, 3], [2, 3, 5], [1, 2, 3], [1, 3, 2], [2, 3, 5, 8], [3, 2], [1, 0, 1], [0])


def runs_in_runtime(path):
    """At which sizes ONNX Runtime runs a model, or nothing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001
        return None
    if any(port.type not in TYPES for port in session.get_inputs()):
        return None
    for sizes in SIZES:
        known = {}
        inputs = {}
        for port in session.get_inputs():
            places = [size if size is not None else f"{port.name}[{axis}]" for axis, size in enumerate(port.shape or [])]
            size = lambda place: place if isinstance(place, int) else known.setdefault(place, sizes[len(known) % len(sizes)])
            shape, dtype = [size(place) for place in places], TYPES[port.type]
            inputs[port.name] = np.full(shape, "a" if dtype is np.object_ else 1 if np.dtype(dtype).kind == "f" else 0, dtype)
        try:
            session.run(None, inputs)
        except Exception:  # noqa: BLE001, S112
            continue
        return ", ".join(f"{name}={size}" for name, size in known.items()) or "its own sizes"
    return None


def runs_here(binary, path):
    done = subprocess.run([binary, "run", path, "--engine", "native", "-q"], capture_output=True, text=True)
    return done.returncode == 0


def outcome(binary, path, options):
    """What is said of a model, and whether that leaves open whether it was compared."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = subprocess.run([binary, "optimize", path, "-o", Path(folder) / "out.onnx", "--json", report, "-q", *options], capture_output=True, text=True)
        if not report.exists():
            return f"refused: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}", True
        proof = json.loads(report.read_text())["verification"]
    wrong = "".join(f"; LEFT OUT {each['rule']}" for each in proof["reverted"])
    if proof["unverified"]:
        return f"not compared: {proof['unverified']}{wrong}", True
    found = proof["global"]
    if found is None:
        return f"unchanged{wrong}", False
    why = next((port["undetermined"] for port in found["outputs"] if port.get("undetermined")), "")
    sizes = "; ".join(found["sizes"][: found["samples"]])
    alone = f" (one size of {', '.join(sorted(single(found['sizes'])))})" if found["samples"] > 1 and single(found["sizes"]) else ""
    return f"{found['verdict']} {why} at {sizes or 'its own sizes'}{alone}{wrong}", found["verdict"] == "undetermined"


def single(sizes):
    """Dimensions that had the same size on all inputs."""
    seen = {}
    for described in sizes:
        for entry in described.split(", "):
            name, _, size = entry.rpartition("=")
            seen.setdefault(name, []).append(size)
    return [name for name, found in seen.items() if len(found) > 1 and len(set(found)) == 1]


def main(binary, *arguments):
    split = arguments.index("--") if "--" in arguments else len(arguments)
    binary, options, missed, counts = os.path.abspath(binary), arguments[split + 1 :], [], {}
    for start in map(Path, arguments[:split]):
        for path in sorted(start.rglob("*.onnx")) if start.is_dir() else [start]:
            said, is_open = outcome(binary, path, options)
            print(f"{path.relative_to(start) if start.is_dir() else path.name}: {said}", flush=True)
            kind = said.split()[0].rstrip(":;")
            if is_open:
                # What is refused is no valid model; whatever runs it all the same may do anything.
                able = [("ONNX Runtime", runs_in_runtime(path)), ("this library", kind != "refused" and runs_here(binary, path))]
                able = [f"{who} runs it{f' at {how}' if isinstance(how, str) else ''}" for who, how in able if how]
                print(f"    {'; '.join(able) or 'nothing runs it'}")
                missed += [path.name] if able else []
                kind += ", runs" if able else ", does not run"
            counts[kind] = counts.get(kind, 0) + 1
    print("; ".join(f"{kind}: {count}" for kind, count in sorted(counts.items())))
    if missed:
        sys.exit(f"not compared, although something runs them: {', '.join(missed)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
