"""What goes wrong, said so that one can do something about it."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from ..errors import Error

if TYPE_CHECKING:
    from ._exported import Exported

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LENGTH = 300


class ExportError(Error):
    """No exporter of PyTorch could write the model; tells why for each that was tried."""


class CheckError(Error):
    """The exported file computes something else than PyTorch does. The file is there, and `exported` tells of it."""

    def __init__(self, message: str, exported: Exported) -> None:
        super().__init__(message)
        self.exported = exported

    def __reduce__(self) -> tuple[type[CheckError], tuple[str, Exported]]:
        return type(self), (self.message, self.exported)


class UndeterminedError(CheckError):
    """The exported file computes what PyTorch does for the very arguments, and that says nothing about others: Python looked at the
    value of a tensor during a TorchScript trace, which keeps one path. `exported.undetermined` tells where.
    """


def reason(error: BaseException) -> str:
    """Why something failed, in one line: the first cause, which PyTorch wraps into several others."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines()]
    text = next((line for line in lines if line), "")
    text = text if len(text) <= _LENGTH else text[: _LENGTH - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def need(name: str) -> Any:
    """A package that only exports need; a hint where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).split(".")[0]
        raise Error(f"exporting needs {missing}, which is not installed here; hint: pip install {missing}") from error
