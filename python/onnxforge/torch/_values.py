"""Values of tensors that Python looks at during a TorchScript trace.

A trace keeps the operators that were called for these arguments. Where Python asks for the value of a tensor (`if x.sum() > 0`,
`x.max().item()`), the answer is fixed in the file: the other branch is lost, and no comparison on the same arguments shows it.
PyTorch warns of that (`TracerWarning`), but it warns of sizes just as well, which are tensors while it traces (`if x.shape[0] > 1`).
The trace itself tells them apart: what a value is computed from is in its graph.

Conversions of tensors are wrapped for that, for the time of one export. Where this PyTorch does not tell what a value is computed from,
it counts as one that depends on the arguments.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ._arguments import Call, tensors

_CONVERSIONS = {
    "__bool__": "boolean",
    "__int__": "integer",
    "__index__": "index",
    "__float__": "float",
    "__complex__": "complex number",
    "item": "number",
    "tolist": "list",
    "numpy": "NumPy array",
}
"""How Python gets at the value of a tensor, and what it gets."""

_SIZES = ("aten::size", "aten::sym_size", "aten::numel", "aten::dim", "aten::len", "onnx::Shape", "onnx::Size")
"""What tells about a tensor without looking at its elements."""

_RANDOM = ("aten::rand", "aten::bernoulli", "aten::multinomial", "aten::normal")


@contextlib.contextmanager
def watching(model: Any, call: Call) -> Iterator[list[str]]:
    """For the time of a TorchScript export: a list that is filled with the places where the value of a tensor became a value of
    Python.
    """
    import torch

    state_size = _state_size(model)
    scalars = {value.dtype for value in tensors((call.args, dict(call.kwargs))) if value.dim() == 0}
    found: list[str] = []
    thread = threading.get_ident()

    def wrapped(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
            state = torch._C._get_tracing_state()
            if state is None or threading.get_ident() != thread:
                return original(self, *args, **kwargs)
            depends = _depends(self, state, state_size, scalars)
            caller = sys._getframe(1)
            with _warnings_of(caller) as heard:
                result = original(self, *args, **kwargs)
            # Where the trace follows the value into an index, PyTorch does not warn.
            if depends and any(issubclass(warning.category, torch.jit.TracerWarning) for warning in heard):
                frame = _outside(caller)
                place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} ({_CONVERSIONS[name]})"
                if place not in found:
                    found.append(place)
            return result

        return convert

    with contextlib.ExitStack() as undo:
        for name in _CONVERSIONS:
            original = getattr(torch.Tensor, name, None)
            if original is not None:
                undo.callback(_restore, torch.Tensor, name, vars(torch.Tensor).get(name))
                setattr(torch.Tensor, name, wrapped(name, original))
        yield found


@contextlib.contextmanager
def _warnings_of(caller: Any) -> Iterator[list[warnings.WarningMessage]]:
    """Collects warnings, and gives them afterwards as if `caller` had caused them without us."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        yield heard
    for warning in heard:
        ours = warning.filename == __file__
        warnings.warn_explicit(
            warning.message,
            warning.category,
            caller.f_code.co_filename if ours else warning.filename,
            caller.f_lineno if ours else warning.lineno,
            module=caller.f_globals.get("__name__") if ours else None,
            registry=caller.f_globals.setdefault("__warningregistry__", {}),
        )


def _restore(owner: Any, name: str, own: Any) -> None:
    """What the class had itself, or what it inherits."""
    if own is None:
        delattr(owner, name)
    else:
        setattr(owner, name, own)


def _state_size(model: Any) -> int:
    """How many parameters and buffers a trace has as inputs, after the arguments; 0, so that all count as arguments, where that is not known."""
    import torch

    try:
        return len(torch.jit._unique_state_dict(model))
    except Exception:  # noqa: BLE001 - a PyTorch that does not tell must not keep anybody from exporting
        return 0


def _depends(tensor: Any, state: Any, state_size: int, scalars: set[Any]) -> bool:
    """Whether the elements of a tensor follow from elements of the arguments, or from random numbers.

    A number of Python is a tensor without axes in the trace, and fixed in the file as any argument that is no tensor. `scalars` are the
    types of those that were given as tensors.
    """
    import torch

    try:
        inputs = list(state.graph().inputs())
        arguments = {
            value.debugName()
            for value in inputs[: len(inputs) - state_size]
            if value.type().dim() != 0 or value.type().dtype() in scalars
        }
        open_values, seen = [torch._C._get_value_trace(tensor)], set()
        while open_values:
            value = open_values.pop()
            name = value.debugName()
            if name in seen:
                continue
            seen.add(name)
            node = value.node()
            kind = node.kind()
            if name in arguments or kind.startswith(_RANDOM):
                return True
            if not kind.startswith(_SIZES):
                open_values.extend(node.inputs())
    except Exception:  # noqa: BLE001 - a PyTorch that does not tell must not keep anybody from exporting
        return True
    return False


def _outside(frame: Any) -> Any:
    """Where in the model that happens: the innermost frame that is not PyTorch's own."""
    import torch

    own = os.path.dirname(torch.__file__) + os.sep
    here = frame
    while here.f_back is not None and here.f_code.co_filename.startswith(own):
        here = here.f_back
    return here
