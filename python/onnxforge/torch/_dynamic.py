"""Dynamic sizes for TorchScript, from what `torch.export` is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def axes_of(dynamic_shapes: Any, names: Sequence[str]) -> dict[str, dict[int, str]]:
    """The `dynamic_axes` that say the same as `dynamic_shapes` of the arguments with these names.

    ValueError where that cannot be said: TorchScript knows axes of tensors only, not of tensors inside of other
    arguments.
    """
    listed = dynamic_shapes.items() if isinstance(dynamic_shapes, Mapping) else zip(names, dynamic_shapes)
    axes: dict[str, dict[int, str]] = {}
    for name, sizes in listed:
        if name not in names:
            raise ValueError(f"dynamic_shapes names {name!r}, which is no argument that is a tensor")
        if sizes is None:
            continue
        entries = sizes.items() if isinstance(sizes, Mapping) else enumerate(sizes)
        for axis, size in entries:
            if not isinstance(axis, int) or isinstance(size, (Mapping, list, tuple)):
                raise ValueError(f"dynamic_shapes of {name!r} tells of tensors inside of it")
            label = _label(size, f"{name}_{axis}")
            if label is not None:
                axes.setdefault(name, {})[axis] = label
    return axes


def _label(size: Any, otherwise: str) -> str | None:
    """The name of a size, or None if it is fixed."""
    if size is None or isinstance(size, int) or "STATIC" in repr(size):
        return None
    if isinstance(size, str):
        return size
    # A `Dim` has a name of its own; the hints AUTO and DYNAMIC have none.
    name = getattr(size, "__name__", None)
    return name if isinstance(name, str) else otherwise
