"""The models that the tests run on.

    python tests/python/corpus.py DIR      # writes the ONNX node cases, as seeds for the fuzz targets
"""

import gzip
import sys
import warnings
from pathlib import Path

import onnx
from onnx import ModelProto

ROOT = Path(__file__).resolve().parents[2]


def repository_models():
    """The models in examples/ and tests/data/."""
    found = sorted([*ROOT.glob("examples/**/*.onnx"), *ROOT.glob("tests/data/**/*.onnx")])
    assert found, "no model in examples/ and tests/data/"
    return found


def wheel_models():
    """The models that the onnx package ships for testing backends."""
    return sorted((Path(onnx.__file__).parent / "backend/test/data").glob("**/*.onnx"))


def write_node_cases(folder):
    """Writes the model of every ONNX node test case; the paths."""
    from onnx.backend.test.case.node import collect_testcases

    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    paths = []
    for case in cases:
        paths.append(folder / f"{case.name}.onnx")
        paths[-1].write_bytes(case.model.SerializeToString())
    return paths


def zoo_skeletons():
    """The graphs of the zoo, their weights taken out."""
    return sorted((ROOT / "zoo").glob("*.onnx.gz"))


def write_sparse(skeleton, folder):
    """Unpacks a skeleton as a model with weights that are a hole in a file; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    model = onnx.load_from_string(gzip.decompress(skeleton.read_bytes()))
    path = folder / skeleton.name.removesuffix(".gz")
    weights = path.with_suffix(".weights")
    size = 0
    for tensor in tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        # Without this mark the tensor is an ordinary one.
        kept = [entry for entry in tensor.metadata_props if entry.key != "onnxforge.redacted"]
        assert len(kept) < len(tensor.metadata_props), f"{tensor.name} is not redacted"
        del tensor.metadata_props[:]
        tensor.metadata_props.extend(kept)
        entries = {entry.key: entry for entry in tensor.external_data}
        entries["location"].value = weights.name
        size = max(size, int(entries["offset"].value) + int(entries["length"].value))
    path.write_bytes(model.SerializeToString())
    with open(weights, "wb") as file:
        file.truncate(size)
    return path


def messages(message):
    """`message` and every message in it."""
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from messages(inner)


def tensors(model):
    """Every tensor in `model`."""
    return [message for message in messages(model) if isinstance(message, onnx.TensorProto)]


def parse(path):
    """The message in a file, without its external data."""
    model = ModelProto()
    model.ParseFromString(Path(path).read_bytes())
    return model


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(len(write_node_cases(Path(sys.argv[1]))), "node cases")
