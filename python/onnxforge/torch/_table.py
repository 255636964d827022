"""The modules of a PyTorch model as a table: what `onnxforge tag --modules` reads.

All of it is found by inspection: nothing is called, hooked or changed.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Table = dict[str, dict[str, Any]]
"""What is known of each module, by its path; the model itself has the path `""`."""


def module_table(model: torch.nn.Module) -> Table:
    """The modules of `model` by their paths, in the order in which they were registered.

    Each has its `class`, the names of its `forward_args` with the `forward_defaults` of those that have one (as
    `repr` where JSON has no such value), its own `direct_parameters` and `direct_buffers`, and the classes of its
    `children` by name. A module that is registered under several paths is listed under all of them; all but the first
    say which that is (`alias_of`).

    Args:
        model: The PyTorch model.

    Returns:
        One entry for each path.

    Example:
        >>> sorted(onnxforge.torch.module_table(torch.nn.Sequential(torch.nn.ReLU())))
        ['', '0']
    """
    table: Table = {}
    first: dict[int, str] = {}
    for path, module in named_modules(model):
        entry = _entry(module)
        if id(module) in first:
            entry["alias_of"] = first[id(module)]
        else:
            first[id(module)] = path
        table[path] = entry
    return table


def save_modules(model: torch.nn.Module, path: str | os.PathLike[str]) -> Path:
    """Writes the table of `model`'s modules, for a file that another tool exports: `onnxforge tag other.onnx
    --modules FILE`.

    Args:
        model: The PyTorch model.
        path: Where to write the table.

    Returns:
        The path.

    Example:
        >>> onnxforge.torch.save_modules(torch.nn.ReLU(), "model.json").name
        'model.json'
    """
    written = Path(path)
    written.write_text(json.dumps(recorded(module_table(model)), indent=1), encoding="utf-8")
    return written


def recorded(table: Table, origins: Mapping[str, list[str]] | None = None) -> dict[str, Any]:
    """The table with the `origins` of nodes (paths by the name of each), as onnxforge reads it."""
    import torch

    told: dict[str, Any] = {"modules": table, "torch": str(torch.__version__)}
    if origins:
        told["origins"] = dict(origins)
    return told


def named_modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every path of every module, parents first. A module inside of itself is not entered again."""
    around: list[torch.nn.Module] = []

    def walk(path: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
        yield path, module
        around.append(module)
        for name, child in children(module):
            if not any(child is outer for outer in around):
                yield from walk(f"{path}.{name}" if path else name, child)
        around.pop()

    yield from walk("", model)


def children(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules that are registered in a module; unlike `named_children`, also those that are there under another
    name already.
    """
    return ((name, child) for name, child in module._modules.items() if child is not None)


def class_name(value: object) -> str:
    """The class of a value, with the module that defines it."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _entry(module: torch.nn.Module) -> dict[str, Any]:
    arguments, defaults = _forward(module)
    return {
        "class": class_name(module),
        "forward_args": arguments,
        "forward_defaults": defaults,
        "direct_parameters": [name for name, _ in module.named_parameters(recurse=False, remove_duplicate=False)],
        "direct_buffers": [name for name, _ in module.named_buffers(recurse=False, remove_duplicate=False)],
        "children": {name: type(child).__name__ for name, child in children(module)},
    }


def _forward(module: torch.nn.Module) -> tuple[list[str], dict[str, Any]]:
    """Names of the arguments of `forward`, and the defaults among them; nothing where Python cannot tell, as for
    compiled methods.
    """
    try:
        parameters = inspect.signature(module.forward).parameters
    except (TypeError, ValueError, AttributeError):
        return [], {}
    defaults = {
        name: found.default for name, found in parameters.items() if found.default is not inspect.Parameter.empty
    }
    return list(parameters), {name: _json(value) for name, value in defaults.items()}


def _json(value: object) -> Any:
    """The value where JSON has it, else its `repr`."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return repr(value)
