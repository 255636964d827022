"""Models, named by words: what `onnxforge export` takes.

    package.module:factory     an attribute of a module that Python finds, or that of a file: path/to/file.py:factory
    hf:FOLDER                  a model of transformers in a local folder; random weights where it has none
    hf:config.json             the same of a configuration alone
    hf:TYPE                    the default configuration of a type that transformers knows, such as bert

A factory is a module, or something that gives one when it is called: alone, as (module, args) or
(module, args, kwargs).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import Error, UsageError
from ._arguments import Call
from ._errors import need, reason

if TYPE_CHECKING:
    import torch

_TRANSFORMERS = "hf:"


def load(source: str, class_name: str | None = None) -> tuple[torch.nn.Module, Call | None]:
    """The model that a source means, and what it is called with where the source tells."""
    need("torch")
    if source.startswith(_TRANSFORMERS):
        from ._transformers import model_of, sample_of

        model = model_of(source[len(_TRANSFORMERS) :], class_name)
        return model, sample_of(model)
    if class_name is not None:
        raise UsageError(f"--class {class_name}: only models of transformers (hf:…) have a choice of classes")
    return _made(_attribute(source), source)


def _attribute(source: str) -> Any:
    """What stands behind `module:name`."""
    place, colon, name = source.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{source}: names no model; hint: package.module:factory, file.py:factory or hf:FOLDER")
    found: Any = _module(place, source)
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{source}: {place} has no {name!r}; {_offer(found)}")
        found = getattr(found, part)
    return found


def _module(place: str, source: str) -> ModuleType:
    """A module by its name or the path of its file. The current folder is searched first."""
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise UsageError(f"{source}: there is no file {place}")
    folder = str(Path(place).resolve().parent) if is_file else str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        return _of_file(Path(place)) if is_file else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if not is_file and error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"{source}: there is no module {error.name}, neither here nor installed") from None
        raise Error(f"{source}: {place} cannot be imported: {reason(error)}") from error
    except Exception as error:
        raise Error(f"{source}: {place} cannot be imported: {reason(error)}") from error


def _of_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Classes find the module that they are defined in under this name.
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)  # pyright: ignore[reportAttributeAccessIssue]
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _offer(holder: Any) -> str:
    """What could have been meant."""
    import torch

    def fits(value: Any) -> bool:
        return isinstance(value, torch.nn.Module) or (isinstance(value, type) and issubclass(value, torch.nn.Module))

    names = (
        [name for name, value in vars(holder).items() if fits(value) and not name.startswith("_")]
        if hasattr(holder, "__dict__")
        else []
    )
    return f"it has {', '.join(sorted(names)[:8])}" if names else "it has no modules of PyTorch at all"


def _made(found: Any, source: str) -> tuple[torch.nn.Module, Call | None]:
    """The model that was found, or that calling it gives."""
    import torch

    if not isinstance(found, torch.nn.Module):
        if not callable(found):
            raise UsageError(
                f"{source}: of type {type(found).__name__} is neither a module nor something that makes one"
            )
        try:
            found = found()
        except Exception as error:
            raise Error(f"{source}: calling it without arguments failed: {reason(error)}") from error
    parts = found if isinstance(found, tuple) else (found,)
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], torch.nn.Module):
        given = (
            f"({', '.join(type(part).__name__ for part in parts)})"
            if isinstance(found, tuple)
            else type(found).__name__
        )
        raise UsageError(f"{source}: gave {given}; hint: a module, (module, args) or (module, args, kwargs)")
    model, *rest = parts
    if not rest:
        return model, None
    args, kwargs = rest[0], rest[1] if len(rest) == 2 else None
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise UsageError(
            f"{source}: the third thing that it gave is a {type(kwargs).__name__}, not a dictionary of arguments"
        )
    if isinstance(args, Mapping):
        return model, Call((), {**args, **(kwargs or {})})
    return model, Call.of(args, kwargs)
