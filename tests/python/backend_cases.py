"""Writes the test cases of the onnx package as folders that any tool can read.

    python tests/python/backend_cases.py DIR

The cases of contrib_cases.py, whose reference is ONNX Runtime, go there too. DIR/SUITE/CASE/ gets model.onnx, test_data_set_N/input_N.pb and output_N.pb, and tolerance.txt (relative, absolute).
"""

import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

DATA = Path(onnx.__file__).parent / "backend/test/data"


def stored(value, kind):
    """The message that holds a value of the declared type `kind`."""
    if isinstance(value, (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto, onnx.MapProto)):
        return value
    form = kind.WhichOneof("value")
    if form == "optional_type":
        dtype = None
        if value is None:
            inner = kind.optional_type.elem_type.WhichOneof("value")
            dtype = {"tensor_type": 1, "sequence_type": 3}[inner]
        return numpy_helper.from_optional(value, dtype=dtype)
    if form == "sequence_type":
        return numpy_helper.from_list(value)
    if form == "map_type":
        return numpy_helper.from_dict(value)
    return numpy_helper.from_array(np.asarray(value))


def write_case(folder, model, data_sets, rtol, atol):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "tolerance.txt").write_text(f"{rtol} {atol}\n")
    for number, (inputs, outputs) in enumerate(data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        for side, values, ports in (
            ("input", inputs, model.graph.input),
            ("output", outputs, model.graph.output),
        ):
            for index, (value, port) in enumerate(zip(values, ports, strict=True)):
                (data / f"{side}_{index}.pb").write_bytes(stored(value, port.type).SerializeToString())


def write_node_cases(folder):
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        write_case(folder / case.name, case.model, case.data_sets, case.rtol, case.atol)


def write_light_cases(folder):
    """The light models with the inputs that the onnx test runner gives them."""
    for path in sorted((DATA / "light").glob("*.onnx")):
        model = onnx.load(path)
        constants = {tensor.name for tensor in model.graph.initializer}
        inputs = []
        for port in model.graph.input:
            if port.name not in constants:
                shape = [dim.dim_value or 1 for dim in port.type.tensor_type.shape.dim]
                count = np.prod(shape)
                inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
        case = folder / path.stem
        case.mkdir(parents=True)
        shutil.copy(path, case / "model.onnx")
        (case / "tolerance.txt").write_text("0.001 1e-7\n")
        data = case / "test_data_set_0"
        data.mkdir()
        given = [port for port in model.graph.input if port.name not in constants]
        for index, (value, port) in enumerate(zip(inputs, given, strict=True)):
            message = numpy_helper.from_array(value, port.name)
            (data / f"input_{index}.pb").write_bytes(message.SerializeToString())
        for index in range(len(model.graph.output)):
            shutil.copy(path.with_name(f"{path.stem}_output_{index}.pb"), data / f"output_{index}.pb")


def write_folder_cases(folder, suite):
    for source in sorted((DATA / suite).iterdir()):
        shutil.copytree(source, folder / source.name)
        (folder / source.name / "tolerance.txt").write_text("0.001 1e-7\n")


def write_all(folder):
    write_node_cases(folder / "node")
    write_light_cases(folder / "light")
    for suite in ("simple", "pytorch-operator", "pytorch-converted"):
        write_folder_cases(folder / suite, suite)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    # A half-written folder is of no use to anybody.
    shutil.rmtree(target, ignore_errors=True)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    import contrib_cases

    write_all(partial)
    contrib_cases.write_all(partial)
    partial.rename(target)
