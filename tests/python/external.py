"""Models with weights in other files, and what is in them."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import corpus

SIZES = {"large": 3000, "odd": 1001, "small": 8, "tied": 3000, "text": 0}


def arrays():
    rng = np.random.default_rng(7)
    values = {name: rng.standard_normal(size).astype(np.float32) for name, size in SIZES.items()}
    values["tied"] = values["large"]
    return values


def entries(tensor, **values):
    """Makes `tensor` external, with these entries."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in values.items():
        tensor.external_data.add(key=key, value=str(value))


def make_model(tensors):
    """A model that concatenates `tensors`."""
    node = helper.make_node("Concat", [tensor.name for tensor in tensors], ["y"], axis=0)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    graph = helper.make_graph([node], "g", [], [output], initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inline_model(path):
    """A model with its weights inside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(make_model([numpy_helper.from_array(value, name) for name, value in arrays().items()]), path)
    return path


def external_model(path, location="weights.bin"):
    """A model with all weights in one file, the tied ones once, at offsets with gaps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors, data, places = [], bytearray(b"header!!"), {}
    for name, value in arrays().items():
        tensor = numpy_helper.from_array(value, name)
        raw = tensor.raw_data
        if raw not in places:
            places[raw] = len(data)
            data += raw + bytes(13)
        entries(tensor, location=location, offset=places[raw], length=len(raw))
        tensors.append(tensor)
    path.write_bytes(make_model(tensors).SerializeToString())
    file = path.parent / location
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return path


def in_new_folder(path):
    """`path`, whose folder is made: commands write into folders that exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def loaded(path):
    """The tensors of a model, by onnx."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def assert_same_weights(path, expected=None):
    found = loaded(path)
    expected = arrays() if expected is None else expected
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name


def locations(path):
    """The name of the data file of each tensor; None: in the model."""
    def location(tensor):
        return next((entry.value for entry in tensor.external_data if entry.key == "location"), None)

    return {tensor.name: location(tensor) for tensor in corpus.parse(path).graph.initializer}


def offsets(path):
    """(offset, length) of each external tensor."""
    found = {}
    for tensor in corpus.parse(path).graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            values = {entry.key: entry.value for entry in tensor.external_data}
            found[tensor.name] = int(values["offset"]), int(values["length"])
    return found


def visible(folder):
    """The files of a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
