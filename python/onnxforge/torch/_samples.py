"""Arguments of a model, written as words: what `onnxforge export --args` takes.

1,3,224,224                float32 of this shape, random; as many as there are positions
x=float16:1,3,224,224      by name, of another type
input_ids=int64:1,16%1000  integers from 0 to 999; from 0 to 1 without `%`
scale=float32:             a single number
use_cache=py:False         something that is no tensor: numbers, strings, None, lists of them
FILE.npz, FILE.npy         arrays: by their names, or by position where they have none (arr_0, arr_1, …)
FILE.pt                    what torch.save wrote: a tensor, a list of them, or a dictionary with names
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ._arguments import Call

if TYPE_CHECKING:
    import torch

_NAMED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_TENSOR = re.compile(r"(?:(?P<type>[A-Za-z]\w*):)?(?P<shape>\d+(?:,\d+)*)?(?:%(?P<limit>\d+))?")
_LITERAL = "py:"
_NUMBERED = re.compile(r"arr_\d+")
_HINT = "hint: a shape such as 1,3,224,224, NAME=TYPE:SHAPE such as input_ids=int64:1,16, or a file .npz, .npy or .pt"


def call_of(words: Sequence[str]) -> Call:
    """The call that words describe."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        if _is_file(word):
            read = _read(Path(word))
            args.extend(read.args)
            _add(kwargs, read.kwargs, word)
            continue
        named = _NAMED.fullmatch(word)
        value = _value(named["value"] if named else word, word)
        if named is None:
            args.append(value)
        else:
            _add(kwargs, {named["name"]: value}, word)
    return Call(tuple(args), kwargs)


def tensor_of(dtype: torch.dtype, shape: Sequence[int], limit: int | None = None) -> torch.Tensor:
    """Random values: from a normal distribution, or integers from 0 up to below the limit, which is 2 if not given."""
    import torch

    if dtype.is_floating_point or dtype.is_complex:
        if limit is not None:
            raise UsageError(f"%{limit} is for integers, not for {dtype}")
        wide = torch.randn(tuple(shape), dtype=torch.complex64 if dtype.is_complex else torch.float32)
        return wide.to(dtype)
    return torch.randint(0, limit or 2, tuple(shape)).to(dtype)


def _add(kwargs: dict[str, Any], more: Mapping[str, Any], word: str) -> None:
    twice = [name for name in more if name in kwargs]
    if twice:
        raise UsageError(f"--args {word}: {twice[0]!r} is given twice")
    kwargs.update(more)


def _value(text: str, word: str) -> Any:
    """A tensor of a type and shape, or something that Python writes so."""
    import torch

    if text.startswith(_LITERAL):
        try:
            return ast.literal_eval(text[len(_LITERAL) :])
        except (ValueError, SyntaxError):
            raise UsageError(
                f"--args {word}: {text[len(_LITERAL) :]!r} is no number, string, None or list of them"
            ) from None
    found = _TENSOR.fullmatch(text)
    if found is None or not text or (found["shape"] is None and found["type"] is None):
        raise UsageError(f"--args {word}: no type and shape; {_HINT}")
    name = found["type"] or "float32"
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"--args {word}: {name!r} is no type of PyTorch; such are float32, float16, int64, int32, bool"
        )
    shape = [int(size) for size in found["shape"].split(",")] if found["shape"] else []
    try:
        return tensor_of(dtype, shape, int(found["limit"]) if found["limit"] else None)
    except (RuntimeError, OverflowError) as error:
        raise UsageError(f"--args {word}: {str(error).splitlines()[0]}") from None


def _is_file(word: str) -> bool:
    return word.endswith((".npz", ".npy", ".pt", ".pth"))


def _read(path: Path) -> Call:
    """Values from a file. Nothing in it is run."""
    if not path.is_file():
        raise UsageError(f"--args {path}: there is no such file")
    try:
        return _arrays(path) if path.suffix in (".npz", ".npy") else _saved(path)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - anything may be wrong with a file
        raise UsageError(f"--args {path}: cannot be read: {str(error).splitlines()[0]}") from error


def _arrays(path: Path) -> Call:
    import numpy as np

    import torch

    loaded = np.load(path, allow_pickle=False)
    if path.suffix == ".npy":
        return Call((torch.from_numpy(loaded),), {})
    with loaded:
        arrays = {name: torch.from_numpy(loaded[name]) for name in loaded.files}
    if all(_NUMBERED.fullmatch(name) for name in arrays):
        return Call(tuple(arrays.values()), {})
    return Call((), arrays)


def _saved(path: Path) -> Call:
    import torch

    value = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(value, torch.Tensor):
        return Call((value,), {})
    if isinstance(value, Mapping):
        return Call((), dict(value))
    if isinstance(value, (list, tuple)):
        return Call.of(tuple(value), None)
    raise UsageError(f"--args {path}: holds a {type(value).__name__}, not a tensor, a list or a dictionary")
