"""What several commands take and give."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from .._call import Answer
from .._models import Model, PathLike, of_same_kind, result_path, to_bytes

if TYPE_CHECKING:
    from typing import Protocol, TypeVar

    import numpy as np
    import numpy.typing as npt

    class ModelObject(Protocol):
        """A model of `onnx` or `onnx_ir`: the result comes as the same."""

        ir_version: int

    M = TypeVar("M", bound=ModelObject)

    Arrays = dict[str, npt.NDArray[np.generic]]
else:
    Arrays = dict

External = Literal["auto", "keep", "share", "inline", "split"]
Engine = Literal["auto", "native", "ort", "ort-all", "oracle"]
Target = Literal["portable", "ort", "tflite", "coreml"]
Shape = Sequence[int]
#: A model that is not an object: the result comes as bytes.
Stored = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]


def as_files(models: Sequence[Model], folder: str) -> list[str]:
    """Paths of models; those that are none are written into a folder."""
    words = []
    for place, model in enumerate(models):
        if isinstance(model, (str, os.PathLike)):
            words.append(os.fspath(model))
            continue
        words.append(os.path.join(folder, f"model{place}.onnx"))
        with open(words[-1], "wb") as file:
            file.write(to_bytes(model))
    return words


def result_model(answer: Answer, like: Any, output: Optional[PathLike]) -> Any:
    """The model that a command made: the path that was given for it, or of the same kind as the one it was made from."""
    if output is not None:
        return os.fspath(output)
    return of_same_kind(like, answer.files[result_path(None)])
