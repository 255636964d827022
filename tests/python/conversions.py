"""Conversions to newer operator sets, ours and those of onnx's version_converter, on the test cases of the onnx package and on the models
of this repository: how many each makes, and whether ONNX Runtime, without optimizations, then gives what it gave before.

    python tests/python/conversions.py BINARY CASES [VERSION ...]

Exits with 1 when a result of ours differs, or when theirs is right where we refuse.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import native
import numpy as np
import onnx
import onnx.version_converter

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = (23, 26)
# What draws numbers gives others each time.
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}


def given(folder, message):
    """The inputs of a case, if all of them are tensors."""
    feeds = {}
    for index, port in enumerate(message.graph.input):
        path = folder / "test_data_set_0" / f"input_{index}.pb"
        if port.type.WhichOneof("value") != "tensor_type" or not path.is_file():
            return None
        feeds[port.name] = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
    return feeds


def same(expected, found):
    """Whether two results agree: tensors, or sequences of such."""
    if isinstance(expected, list):
        return isinstance(found, list) and len(expected) == len(found) and all(map(same, expected, found))
    if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fc":
        return np.array_equal(expected, found)
    return expected.shape == found.shape and native.relative_error(found, expected) <= 1e-6


def version_of(message):
    return next((entry.version for entry in message.opset_import if entry.domain in ("", "ai.onnx")), None)


def subjects(binary, cases, folder):
    """Name, path, message and inputs of every model that is tried."""
    for path in sorted(Path(cases).glob("*/*/model.onnx")):
        message = onnx.load(path)
        feeds = given(path.parent, message)
        if feeds is not None:
            yield f"{path.parent.parent.name}/{path.parent.name}", path, message, feeds
    for path in sorted([*(ROOT / "examples").glob("*.onnx"), *(ROOT / "tests/data").glob("*.onnx")]):
        try:
            yield path.stem, path, onnx.load(path), native.run_ours(binary, path, folder)[1]
        except RuntimeError:
            continue


def main(binary, cases, *versions):
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours.onnx", Path(folder) / "theirs.onnx"
        for version in map(int, versions or VERSIONS):
            counts = {"models": 0, "ours": 0, "theirs": 0, "ours refused": 0, "theirs refused": 0}
            for name, path, message, feeds in subjects(binary, cases, folder):
                before = version_of(message)
                if before is None or not 7 <= before < version or RANDOM & {node.op_type for node in message.graph.node}:
                    continue
                expected = native.outputs(path, feeds)
                if isinstance(expected, str):
                    continue
                counts["models"] += 1
                command = [binary, "upgrade", path, "-o", ours, "--opset", version, "--quiet"]
                done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
                found = native.outputs(ours, feeds) if done.returncode == 0 else None
                right = found is not None and same(expected, found)
                counts["ours"] += right
                if found is None:
                    counts["ours refused"] += 1
                    print(f"{name} to {version}: {done.stderr.strip().split(': ', 2)[-1]}")
                try:
                    onnx.save(onnx.version_converter.convert_version(message, version), theirs)
                    they = same(expected, native.outputs(theirs, feeds))
                except Exception:  # noqa: BLE001
                    counts["theirs refused"] += 1
                    they = False
                counts["theirs"] += they
                # What ONNX Runtime has no code for in that version is nobody's mistake.
                if not right and (found is not None or they) and not (isinstance(found, str) and "NOT_IMPLEMENTED" in found):
                    why = done.stderr.strip() if found is None else found if isinstance(found, str) else "it differs"
                    wrong.append(f"{name} to {version} (theirs {'agrees' if they else 'fails too'}): {why[:200]}")
            print(f"to {version}: " + ", ".join(f"{what} {count}" for what, count in counts.items()), flush=True)
    for line in wrong:
        print(line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
