"""Programs that import onnxsim or onnxslim themselves get `simplify` and `slim` of this package."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Iterable, Sequence
from email.message import Message
from types import ModuleType
from typing import Any, Optional, Union

from ..errors import UsageError
from ._onnxsim import simplify
from ._onnxslim import slim

#: The versions that the calls are those of.
VERSIONS = {"onnxsim": "0.8.1", "onnxslim": "0.1.98"}
# What each module has, wherever programs import it from.
_CALLS: dict[str, dict[str, Any]] = {
    "onnxsim": {"simplify": simplify},
    "onnxsim.onnx_simplifier": {"simplify": simplify},
    "onnxslim": {"slim": slim},
    "onnxslim.cli": {"slim": slim},
}


def install(*names: str) -> None:
    """Let every later `import onnxsim` and `import onnxslim` of this process find onnxforge.

    Libraries that call them get `onnxforge.simplify` and `onnxforge.slim`, also where neither is installed: `importlib.metadata.version("onnxslim")`
    answers, too. Where one was imported before, its function is replaced. What onnxforge does not have is an `AttributeError`.

    Args:
        names: `"onnxsim"`, `"onnxslim"`; both unless told otherwise.

    Raises:
        onnxforge.UsageError: Another name.

    Example:
        >>> import onnxforge.compat
        >>> onnxforge.compat.install()
        >>> import onnxslim
        >>> onnxslim.slim is onnxforge.slim
        True
        >>> onnxforge.compat.uninstall()
    """
    for name in names or VERSIONS:
        if name not in VERSIONS:
            raise UsageError(f"install({name!r}): {' or '.join(VERSIONS)} is expected")
        _FINDER.names.add(name)
        _replace(name)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def uninstall() -> None:
    """Undo `install`: later imports find what is installed.

    Example:
        >>> import onnxforge.compat
        >>> onnxforge.compat.uninstall()
    """
    _FINDER.names.clear()
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    for module, attribute, original in _REPLACED:
        setattr(module, attribute, original)
    _REPLACED.clear()
    for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
        del sys.modules[name]


class _StandIn(ModuleType):
    """A module with the calls of the original, and nothing else."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        peer = self.__name__.partition(".")[0]
        has = ", ".join(_CALLS[self.__name__])
        raise AttributeError(
            f"{self.__name__} is onnxforge here, which has {has} and no {name!r}; "
            f"to get {peer} itself, do not call onnxforge.compat.install()"
        )


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the stand-ins, and says that they are installed."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name not in _CALLS or name.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package="." not in name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return _StandIn(spec.name, "onnxforge in the place of this package.")

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        vars(module).update(_CALLS[name])
        vars(module).update(__all__=list(_CALLS[name]), __version__=VERSIONS[name.partition(".")[0]])

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        wanted = None if context is None else context.name
        return [_Distribution(name) for name in sorted(self.names) if wanted in (None, name)]


class _Distribution(importlib.metadata.Distribution):
    """What a program that asks for the installed version is told."""

    def __init__(self, name: str) -> None:
        self._peer = name

    def read_text(self, filename: Any) -> Optional[str]:
        if filename != "METADATA":
            return None
        message = Message()
        message["Metadata-Version"] = "2.1"
        message["Name"] = self._peer
        message["Version"] = VERSIONS[self._peer]
        return message.as_string()

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{self._peer} is onnxforge here, which has no {path}")


_FINDER = _Finder()
_REPLACED: list[tuple[ModuleType, str, Any]] = []


def _replace(name: str) -> None:
    """Puts our function into a package that was imported before."""
    package = sys.modules.get(name)
    if package is None or isinstance(package, _StandIn):
        return
    for call, ours in _CALLS[name].items():
        original: Union[Any, None] = getattr(package, call, None)
        if original is None or original is ours:
            continue
        own = [each for each, module in sys.modules.items() if each == name or each.startswith(f"{name}.")]
        for module in map(sys.modules.__getitem__, own):
            for attribute, value in list(vars(module).items()):
                if value is original:
                    _REPLACED.append((module, attribute, original))
                    setattr(module, attribute, ours)
