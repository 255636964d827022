"""A save that is killed at any moment leaves the old model or the new one, whole."""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

TENSORS, ELEMENTS = 16, 1_700_000  # about 109 MB


def weights(seed):
    rng = np.random.default_rng(seed)
    values = {f"w{i}": np.frombuffer(rng.bytes(4 * ELEMENTS), np.float32) for i in range(TENSORS)}
    values["small"] = np.frombuffer(rng.bytes(40), np.float32)
    return values


def write_model(path, values, external=None):
    """Writes a model; `external`: its weights into the file of this name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    node = helper.make_node("Sum", list(values), ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if external:
        onnx.save(model, path, save_as_external_data=True, location=external, size_threshold=100)
    else:
        onnx.save(model, path)
    return path


def load(path):
    """The raw tensors of a model, by onnx, data files included."""
    return {tensor.name: tensor.raw_data for tensor in onnx.load(path).graph.initializer}


def is_inline(path):
    """Whether all weights are in the model file, by its size."""
    return path.stat().st_size > 4 * TENSORS * ELEMENTS


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models that differ in their weights, each with them inside and beside it."""
    folder = tmp_path_factory.mktemp("kill")
    expected = {}
    for name, seed in [("old", 1), ("new", 2)]:
        values = weights(seed)
        write_model(folder / name / "inline/model.onnx", values)
        write_model(folder / name / "external/model.onnx", values, "weights.bin")
        write_model(folder / name / "split/model.onnx", values, "model.onnx.data")
        expected[name] = {key: value.tobytes() for key, value in values.items()}
    yield folder, expected
    shutil.rmtree(folder)


@dataclass
class Case:
    """What is saved over what, in which mode."""

    mode: str
    target: str
    source: str | None = None  # None: in place
    points: int = 50

    def __str__(self):
        return f"{self.mode}_over_{self.target}{'' if self.source else '_in_place'}"


CASES = [
    Case("inline", target="inline", source="external"),
    Case("split", target="split", source="inline"),
    Case("keep", target="external", source="external"),
    Case("inline", target="split", points=20),
    Case("split", target="split", points=20),
    Case("keep", target="inline", points=20),
]


def restore(original, folder):
    """Makes `folder` a copy of `original`. A link will do for a model: replacing it by rename leaves the original
    alone. Data files with several links would not be read."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in original.iterdir():
        copy = os.link if file.suffix == ".onnx" else shutil.copyfile
        copy(file, folder / file.name)


def attempt(process, folder, delay):
    """Kills a save after `delay`, or, without one, at the first change that can be seen; whether it had ended."""
    if delay is None:
        before = names(folder)
        while process.poll() is None and names(folder) == before:
            pass
    else:
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            pass
    ended = process.poll() is not None
    process.kill()
    _, err = process.communicate()
    if ended:
        assert process.returncode == 0, err
    return ended


def names(folder):
    """The files in plain sight, and which file each name stands for."""
    return {entry.name: entry.inode() for entry in os.scandir(folder) if not entry.name.startswith(".")}


def delays(points, full, results):
    """Evenly over a save and a bit longer; then, again and again, the moment at which files take their places."""
    spread = points * 3 // 5
    for number in range(points):
        yield full * 1.2 * number / (spread - 1) if number < spread else None
    # The machine may have become slower since `full` was measured.
    while "new" not in (outcome for _, outcome in results) and full < 60:
        full *= 2
        yield full


def state(folder):
    """What changes when any file in plain sight does."""
    files = [file for file in folder.iterdir() if not file.name.startswith(".")]
    return {file.name: (file.stat().st_ino, file.stat().st_ctime_ns) for file in files}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kill(forge, models, tmp_path, case):
    folder, expected = models
    original = folder / "old" / case.target
    target = tmp_path / "target/model.onnx"
    source = folder / "new" / case.source / "model.onnx" if case.source else target

    def outcome():
        """Which model the target is; neither is a failure."""
        found = load(target)
        if case.source:
            names = [name for name in expected if found == expected[name]]
            assert names, "the target is neither the old nor the new model"
            return names[0]
        # In place the weights are the same; the file is another one.
        assert found == expected["old"], "the weights are damaged"
        return "old" if target.samefile(original / "model.onnx") else "new"

    restore(original, target.parent)
    assert outcome() == "old"
    start = time.monotonic()
    forge("save", source, "-o", target, "--external", case.mode).good()
    full = time.monotonic() - start
    assert outcome() == "new"
    assert is_inline(target) == (case.mode == "inline" or (case.mode, case.target) == ("keep", "inline"))
    # A data file may wait for its model, or for its removal; all else that is left behind is hidden.
    data_files = {file.name for place in (original, target.parent) for file in place.iterdir()}

    results = []
    restore(original, target.parent)
    before = state(target.parent)
    for delay in delays(case.points, full, results):
        process = forge.start("save", source, "-o", target, "--external", case.mode)
        ended = attempt(process, target.parent, delay)
        after = state(target.parent)
        results.append((delay, "old" if after == before else outcome()))
        assert not ended or results[-1][1] == "new"
        assert set(after) <= data_files, "a file is left behind in plain sight"
        if after != before:
            restore(original, target.parent)
            before = state(target.parent)
        for hidden in target.parent.glob(".*"):
            hidden.unlink()
    assert {found for _, found in results} == {"old", "new"}, results
