"""Models of one node, and what onnxruntime makes of them."""

import zlib
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def rng(name):
    """Random numbers that are the same in every run."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def normal(random, *shape, dtype=np.float32):
    return random.standard_normal(shape).astype(dtype)


class CannotRun(Exception):
    """onnxruntime refuses the model."""


@dataclass
class Case:
    """A node with its inputs; `None` among them is an input that is left out."""

    name: str
    op: str
    inputs: list
    attributes: dict = field(default_factory=dict)
    # How many outputs there are, or for each whether it is wanted.
    outputs: int | list = 1
    domain: str = "com.microsoft"
    opset: int = 1
    rtol: float = 1e-4
    atol: float = 1e-5
    # Types of outputs that are no tensors.
    types: dict = field(default_factory=dict)
    # The opset of the standard domain.
    standard: int = 17

    def given(self):
        return [stored(value) for value in self.inputs if value is not None]


def ml(name, op, inputs, opset=1, **rest):
    """A case of ai.onnx.ml; what is left over are attributes."""
    outputs = rest.pop("outputs", 1)
    types = rest.pop("types", {})
    return Case(name, op, inputs, rest, outputs, domain="ai.onnx.ml", opset=opset, types=types)


def stored(value):
    """Maps and lists of them as messages; tensors as they are."""
    if isinstance(value, list):
        sequence = onnx.SequenceProto(elem_type=onnx.SequenceProto.MAP)
        sequence.map_values.extend(stored(element) for element in value)
        return sequence
    if not isinstance(value, dict):
        return value
    kind = input_type(value).map_type
    message = onnx.MapProto(key_type=kind.key_type)
    if kind.key_type == TensorProto.STRING:
        message.string_keys.extend(key.encode() for key in value)
    else:
        message.keys.extend(value)
    message.values.elem_type = onnx.SequenceProto.TENSOR
    for element in value.values():
        array = np.asarray(element, dtype=object if isinstance(element, str) else np.float32)
        message.values.tensor_values.append(numpy_helper.from_array(array))
    return message


def map_type(key, value):
    kind = onnx.TypeProto()
    kind.map_type.key_type = key
    kind.map_type.value_type.CopyFrom(helper.make_tensor_type_proto(value, []))
    return kind


def input_type(value):
    """The type of an input: a tensor with its shape, or a map of numbers or strings."""
    if isinstance(value, dict):
        key, element = next(iter(value.items()))
        key = TensorProto.STRING if isinstance(key, str) else TensorProto.INT64
        if isinstance(element, str):
            return map_type(key, TensorProto.STRING)
        return map_type(key, helper.np_dtype_to_tensor_dtype(np.asarray(element).dtype))
    dtype = TensorProto.STRING if value.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_type_proto(dtype, value.shape)


def model_of(case, outputs=None):
    """The model. Without `outputs`, types of outputs are left to onnxruntime."""
    wanted = [True] * case.outputs if isinstance(case.outputs, int) else case.outputs
    input_names = [f"i{i}" if value is not None else "" for i, value in enumerate(case.inputs)]
    output_names = [f"o{i}" if want else "" for i, want in enumerate(wanted)]
    node = helper.make_node(case.op, input_names, output_names, domain=case.domain, **case.attributes)
    ports = [
        helper.make_value_info(name, input_type(value))
        for name, value in zip(input_names, case.inputs, strict=True)
        if value is not None
    ]
    results = []
    for index, name in enumerate(name for name in output_names if name):
        info = onnx.ValueInfoProto(name=name)
        if index in case.types:
            info.type.CopyFrom(case.types[index])
        elif outputs is not None:
            value = np.asarray(outputs[index])
            is_text = value.dtype.kind in "OU"
            dtype = TensorProto.STRING if is_text else helper.np_dtype_to_tensor_dtype(value.dtype)
            info.type.CopyFrom(helper.make_tensor_type_proto(dtype, None))
        results.append(info)
    opsets = [helper.make_opsetid("", case.standard)]
    if case.domain:
        opsets.append(helper.make_opsetid(case.domain, case.opset))
    graph = helper.make_graph([node], case.name, ports, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def expected(case):
    """The outputs that onnxruntime computes, without any optimization."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            model_of(case).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        feed = {f"i{i}": value for i, value in enumerate(case.inputs) if value is not None}
        return [stored(value) for value in session.run(None, feed)]
    except Exception as error:  # onnxruntime raises what it likes
        raise CannotRun(str(error)) from error
