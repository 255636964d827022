"""A `forward` with exactly the inputs that are traced, for the time of an export with TorchScript.

TorchScript passes every parameter of `forward` by position: what was given by keyword is moved to its place, and
defaults are filled in between. That fails where `forward` takes arguments by keyword only, and where a decorator
hands on some of them itself (all models of transformers). A pinned `forward` takes the tensors alone, by position,
and calls the model's own just as the caller would have done.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Union

from ._arguments import POSITIONAL, Call, parameters_of, tensors

if TYPE_CHECKING:
    import torch

Pinning = Union[bool, str]
"""`"auto"`, or whether to pin."""


def needs_pin(forward: Any, call: Call) -> bool:
    """Whether TorchScript, passing everything by position, would call `forward` otherwise than the caller meant.

    By inspection alone, that is where

    - a keyword argument, or a default, belongs to no parameter that can be given by position, or
    - something has to be filled in (a default or a keyword argument) and `forward` is decorated, so that the
      parameters which it shows are not those of the function that is called.
    """
    parameters = parameters_of(forward)
    by_position = [found.name for found in parameters if found.kind in POSITIONAL]
    only_by_name = [found for found in parameters if found.kind is inspect.Parameter.KEYWORD_ONLY]
    if any(name not in by_position for name in call.kwargs):
        return True
    if any(found.default is not inspect.Parameter.empty for found in only_by_name):
        return True
    filled = by_position[len(call.args) :]
    return bool(filled) and hasattr(forward, "__wrapped__")


@contextlib.contextmanager
def pinned(model: torch.nn.Module, call: Call) -> Iterator[tuple[Any, ...]]:
    """Gives `model` a pinned `forward`, and yields the arguments to export with; those without a tensor are fixed.

    Afterwards `model` is as it was.
    """
    forward = model.forward
    inputs = {name: value for name, value in call.named(forward).items() if tensors(value)}
    positions = [index for index, value in enumerate(call.args) if tensors(value)]
    keywords = list(inputs)[len(positions) :]

    def pinned_forward(*values: Any) -> Any:
        args, kwargs = list(call.args), dict(call.kwargs)
        for index, value in zip(positions, values):
            args[index] = value
        kwargs.update(zip(keywords, values[len(positions) :]))
        return forward(*args, **kwargs)

    kind = inspect.Parameter.POSITIONAL_ONLY
    vars(pinned_forward)["__signature__"] = inspect.Signature([inspect.Parameter(name, kind) for name in inputs])
    values = tuple(inputs.values())
    before = {key: value for key, value in vars(model).items() if key == "forward"}
    model.forward = pinned_forward
    try:
        # PyTorch takes a dictionary at the end for keyword arguments.
        yield (*values, {}) if values and isinstance(values[-1], dict) else values
    finally:
        vars(model).pop("forward", None)
        vars(model).update(before)
