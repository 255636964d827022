"""Models in the forms that Python programs have them in, and back.

Paths stay paths: models of any size go through them, and their weights are never read into Python. Bytes are handed over without a copy.
Models of ``onnx`` and ``onnx_ir`` are serialized, so they must be smaller than 2 GiB.
"""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native
from ._call import Answer, ProgressCallback, call
from .errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx
    import onnx_ir

    Model = Union[str, os.PathLike[str], bytes, bytearray, memoryview, onnx.ModelProto, onnx_ir.Model]
    Inputs = Union[str, os.PathLike[str], Mapping[str, npt.ArrayLike]]
else:
    Model = Any
    Inputs = Any

PathLike = Union[str, "os.PathLike[str]"]
Modules = Union[str, "os.PathLike[str]", Mapping[str, Any]]

#: The most bytes that a model can have as one message.
LARGEST_MESSAGE = 2**31 - 1


def is_proto(model: object) -> bool:
    """Whether this is a model of the package ``onnx``. It can only be one if that is imported already."""
    onnx = sys.modules.get("onnx")
    return onnx is not None and hasattr(onnx, "ModelProto") and isinstance(model, onnx.ModelProto)


def is_ir(model: object) -> bool:
    """Whether this is a model of the package ``onnx_ir``."""
    onnx_ir = sys.modules.get("onnx_ir")
    return onnx_ir is not None and hasattr(onnx_ir, "Model") and isinstance(model, onnx_ir.Model)


def to_bytes(model: Any) -> bytes:
    """A model that is no path, serialized."""
    if isinstance(model, bytes):
        return model
    if isinstance(model, (bytearray, memoryview)):
        return bytes(model)
    if is_proto(model):
        return _serialized(model)
    if is_ir(model):
        import onnx_ir

        proto = onnx_ir.serde.serialize_model(model)
        _embed_weights(proto, model)
        return _serialized(proto)
    kinds = "a path, bytes, an onnx.ModelProto or an onnx_ir.Model"
    raise UsageError(f"a model is {kinds}, not {type(model).__module__}.{type(model).__qualname__}")


def _serialized(proto: Any) -> bytes:
    too_large = UsageError("a model of 2 GiB or more has no serialized form; save it and hand over the path")
    try:
        content: bytes = proto.SerializeToString()
    except Exception as error:  # noqa: BLE001 - which one it is depends on the implementation of protobuf
        raise too_large from error
    if len(content) > LARGEST_MESSAGE:
        raise too_large
    return content


def _embed_weights(proto: Any, model: Any) -> None:
    """Puts weights that lie in data files into the message; it does not know the folder of those files."""
    import onnx

    def embed(graph: Any, message: Any) -> None:
        stored = {name: value.const_value for name, value in graph.initializers.items()}
        for tensor in message.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL and stored.get(tensor.name) is not None:
                del tensor.external_data[:]
                tensor.data_location = onnx.TensorProto.DEFAULT
                tensor.raw_data = stored[tensor.name].tobytes()
        for node, described in zip(graph, message.node):
            for attribute in described.attribute:
                held = node.attributes[attribute.name].value
                if attribute.HasField("g"):
                    embed(held, attribute.g)
                for body, part in zip(held if attribute.graphs else (), attribute.graphs):
                    embed(body, part)

    embed(model.graph, proto.graph)


def of_same_kind(like: Any, content: bytes) -> Any:
    """A serialized model in the form of another one; bytes for paths."""
    if not (is_proto(like) or is_ir(like)):
        return content
    import onnx

    proto = onnx.ModelProto.FromString(content)
    if is_proto(like):
        return proto
    import onnx_ir

    return onnx_ir.serde.deserialize_model(proto)


def as_array(value: Any) -> Any:
    """What is given for an input as an array of numpy; memory of other libraries that speak DLPack is not copied."""
    import numpy as np

    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError):
            # Another device, or a type that numpy has no DLPack for: as the object itself can say it.
            pass
    return np.asarray(value)


class Desk:
    """The files of one call that are in memory instead."""

    def __init__(self) -> None:
        self.given: list[tuple[str, bytes]] = []

    def put(self, name: str, content: bytes) -> str:
        """The path under which a command finds this."""
        path = f"{_native.MEMORY}{name}"
        self.given.append((path, content))
        return path

    def model(self, model: Model, name: str = "model.onnx") -> str:
        """The path under which a command finds a model."""
        if isinstance(model, (str, os.PathLike)):
            return os.fspath(model)
        return self.put(name, to_bytes(model))

    def arrays(self, inputs: Optional[Inputs]) -> Optional[str]:
        """The path under which a command finds arrays."""
        if inputs is None or isinstance(inputs, (str, os.PathLike)):
            return None if inputs is None else os.fspath(inputs)
        if not isinstance(inputs, Mapping):
            raise UsageError("inputs are arrays by name, or the path of an .npz archive")
        import numpy as np

        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as files:
            for name, value in inputs.items():
                array = as_array(value)
                if array.dtype.kind == "O":
                    array = array.astype(str)
                elif array.dtype.type.__module__ == "ml_dtypes":
                    # A small type of the package ml_dtypes; commands make the declared type of it again.
                    wider = {"i": np.int8, "u": np.uint8}.get(array.dtype.name[0], np.float32)
                    array = array.astype(wider)
                with files.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
        return self.put("inputs.npz", archive.getvalue())

    def table(self, modules: Optional[Modules]) -> Optional[str]:
        """The path under which a command finds a table of modules."""
        if modules is None or isinstance(modules, (str, os.PathLike)):
            return None if modules is None else os.fspath(modules)
        return self.put("modules.json", json.dumps(modules).encode())


def ask(
    command: str,
    *models: Model,
    before: Optional[str] = None,
    origin: Optional[Model] = None,
    inputs: Optional[Inputs] = None,
    modules: Optional[Modules] = None,
    progress: Optional[ProgressCallback] = None,
    **options: Any,
) -> Answer:
    """Calls a command about models of any kind.

    :param before: a word that stands before the models.
    :param origin: the model that another one was made from.
    """
    if not models:
        raise UsageError("which model?")
    desk = Desk()
    names = ["model.onnx"] if len(models) == 1 else [f"model{place}.onnx" for place in range(len(models))]
    words = [desk.model(model, name) for model, name in zip(models, names)]
    return call(
        command,
        *([] if before is None else [before]),
        *words,
        from_=None if origin is None else desk.model(origin, "original.onnx"),
        inputs=desk.arrays(inputs),
        modules=desk.table(modules),
        given=desk.given,
        progress=progress,
        **options,
    )


def result_path(output: Optional[PathLike], name: str = "result.onnx") -> str:
    """Where a command writes its result: to a file, or to memory."""
    if output is not None and not isinstance(output, (str, os.PathLike)):
        raise UsageError(f"the output is a path, not {type(output).__qualname__}")
    return f"{_native.MEMORY}{name}" if output is None else os.fspath(output)


# What the package ml_dtypes calls the types that numpy lacks.
_SMALL_TYPES = {
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float6e2m3": "float6_e2m3fn",
    "float6e3m2": "float6_e3m2fn",
    "float4e2m1": "float4_e2m1fn",
    "uint4": "uint4",
    "int4": "int4",
    "uint2": "uint2",
    "int2": "int2",
}


def small_type(name: str) -> Any:
    """The type of the package ml_dtypes for an element type that numpy lacks; ``None`` for others, and without that package."""
    if name not in _SMALL_TYPES:
        return None
    try:
        import ml_dtypes  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    return getattr(ml_dtypes, _SMALL_TYPES[name], None)
