"""How much shape inference finds, beside onnx and ONNX Runtime on the same models.

    python tests/python/shapes.py BINARY [NAME ...]      # a table over the zoo
"""

import gzip
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parent))
from corpus import tensors, zoo_skeletons


def prepared(skeleton):
    """The model as every tool gets it: no declared shapes inside, every unknown dimension of an input named."""
    model = onnx.load_from_string(gzip.decompress(skeleton.read_bytes()))
    del model.graph.value_info[:]
    for tensor in tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            size = math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            # A peer may want to look at small weights; no tool needs the large ones.
            if size <= 4_000_000:
                del tensor.external_data[:]
                tensor.ClearField("data_location")
                tensor.raw_data = bytes(size)
    for port in model.graph.input:
        for axis, dim in enumerate(port.type.tensor_type.shape.dim):
            if not dim.WhichOneof("value"):
                dim.dim_param = f"{re.sub(r'[^0-9A-Za-z]', '_', port.name)}_{axis}"
    return model


def input_names(model):
    return {dim.dim_param for port in model.graph.input for dim in port.type.tensor_type.shape.dim if dim.dim_param}


def computed(model):
    """The values that nodes compute."""
    return [name for node in model.graph.node for name in node.output if name]


def expressed(inferred, model):
    """How many values have a shape of numbers and expressions of the inputs' dimensions."""
    names = input_names(model)
    known = {}
    for info in [*inferred.graph.value_info, *inferred.graph.output]:
        if info.type.WhichOneof("value") == "tensor_type" and info.type.tensor_type.HasField("shape"):
            known[info.name] = info.type.tensor_type.shape.dim
    functions = {"floor", "ceiling", "Max", "Min", "max", "min", "Mod"}

    def good(dim):
        if dim.WhichOneof("value") == "dim_value":
            return dim.dim_value >= 0
        words = set(re.findall(r"[A-Za-z_]\w*", dim.dim_param))
        return bool(dim.dim_param) and words <= names | functions

    return sum(name in known and all(map(good, known[name])) for name in computed(model))


def by_onnx(model):
    return expressed(onnx.shape_inference.infer_shapes(model, data_prop=True), model)


def by_ort(model):
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return expressed(SymbolicShapeInference.infer_shapes(copy, auto_merge=True, int_max=2**31 - 1), model)


def by_onnxforge(binary, model, folder):
    path = Path(folder) / "model.onnx"
    path.write_bytes(model.SerializeToString())
    done = subprocess.run([binary, "infer", path, "--json", "-"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return json.loads(done.stdout)


def attempt(tool, model):
    """The count of a tool and its seconds; None when it fails."""
    start = time.perf_counter()
    try:
        return tool(model), time.perf_counter() - start
    except Exception as error:
        print(f"{tool.__name__}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return None, time.perf_counter() - start


def compare(binary, skeleton):
    model = prepared(skeleton)
    with tempfile.TemporaryDirectory() as folder:
        ours = by_onnxforge(binary, model, folder)
    assert ours["total"] == len(computed(model))
    return {
        "name": skeleton.name.removesuffix(".onnx.gz"),
        "total": ours["total"],
        "onnxforge": (ours["expressed"], ours["milliseconds"] / 1e3),
        "onnx": attempt(by_onnx, model),
        "ort": attempt(by_ort, model),
        "missing": [value for value in ours["values"] if not value["expressed"]],
    }


def main(binary, names):
    print(f"{'model':28} {'values':>7} {'onnxforge':>18} {'onnx':>18} {'onnxruntime':>18}")
    for skeleton in zoo_skeletons():
        if names and not any(name in skeleton.name for name in names):
            continue
        row = compare(binary, skeleton)
        cells = []
        for tool in ("onnxforge", "onnx", "ort"):
            count, seconds = row[tool]
            share = "fails" if count is None else f"{100 * count / row['total']:.2f} %"
            cells.append(f"{share:>8} {seconds * 1e3:6.0f} ms")
        print(f"{row['name']:28} {row['total']:7} " + " ".join(f"{cell:>18}" for cell in cells), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
