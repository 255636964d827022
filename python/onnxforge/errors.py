"""What can go wrong. Every exception names the file, the place in the model and the fix as far as they are known."""

from __future__ import annotations

import errno
import os
import re
from typing import Optional

__all__ = [
    "Error",
    "InvalidModelError",
    "LoadError",
    "ModelNotFoundError",
    "RequestError",
    "RuntimeEngineError",
    "SaveError",
    "UsageError",
]


class Error(Exception):
    """Something that onnxforge could not do, in one line."""

    kind = "error"

    def __init__(self, message: str, path: Optional[str] = None, place: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        #: The file that it is about; `memory:…` for models that were handed over.
        self.path = path
        #: The place in the model that it is about.
        self.place = place


class UsageError(Error, ValueError):
    """An argument that makes no sense."""

    kind = "usage"


class LoadError(Error):
    """A file cannot be read, or is no model."""

    kind = "load"


class ModelNotFoundError(LoadError, FileNotFoundError):
    """There is no file at the path of a model or archive: a `FileNotFoundError`, with its `filename` and `errno`."""

    def __init__(self, message: str, path: Optional[str] = None, place: Optional[str] = None) -> None:
        super().__init__(message, path, place)
        self.errno, self.filename = errno.ENOENT, path

    def __str__(self) -> str:
        return self.message


class InvalidModelError(Error):
    """A model contradicts itself or the standard."""

    kind = "invalid"


class SaveError(Error):
    """A result cannot be written."""

    kind = "save"


class RuntimeEngineError(Error):
    """ONNX Runtime is missing, or refuses a model."""

    kind = "runtime"


class RequestError(Error, ValueError):
    """What was asked for cannot be done with this model."""

    kind = "request"


_KINDS: dict[str, type[Error]] = {
    of_kind.kind: of_kind
    for of_kind in (UsageError, LoadError, InvalidModelError, SaveError, RuntimeEngineError, RequestError)
}


# What messages of the command line say otherwise than Python does.
_BY_NAME = re.compile(r"--(set-dim|set-shape|verify-dim)[ =](\w+)=(\w+(?:,\w+)*)")
_FLAG_VALUE = re.compile(r"--([a-z][a-z-]*[a-z])[ =]([0-9]+|[a-z]+(?=[`'\",;)]|$))")
_FLAG = re.compile(r"--([a-z][a-z-]*[a-z])(?: <[^>]*>|\b)")


def in_python(message: str) -> str:
    """A message of the command line in terms of arguments of functions."""

    def by_name(found: re.Match[str]) -> str:
        value = f"[{found[3].replace(',', ', ')}]" if "," in found[3] else found[3]
        return f"{found[1].replace('-', '_')}={{{found[2]!r}: {value}}}"

    def with_value(found: re.Match[str]) -> str:
        value = found[2] if found[2].isdigit() else repr(found[2])
        return f"{found[1].replace('-', '_')}={value}"

    message = _BY_NAME.sub(by_name, message)
    message = _FLAG_VALUE.sub(with_value, message)
    message = _FLAG.sub(lambda found: found[1].replace("-", "_"), message)
    message = message.replace("inputs= FILE.npz", "inputs={…}")
    return re.sub(r"=(?=[,;:)]|$| (?!\{))", "", message) if "=" in message else message


def of_kind(kind: str, message: str, path: Optional[str], place: Optional[str]) -> Error:
    """The exception for a failure of the native part."""
    found = _KINDS.get(kind, Error)
    if found is LoadError and path is not None and is_missing(path):
        found = ModelNotFoundError
    return found(in_python(message), path, place)


def is_missing(path: str) -> bool:
    """Whether there is nothing at the path of a file."""
    return not path.startswith("memory:") and not os.path.lexists(path)
