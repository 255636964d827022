"""What can go wrong. Every exception tells the file, the place in the model and the cure as far as they are known."""

from __future__ import annotations

from typing import Optional

__all__ = [
    "Error",
    "InvalidModelError",
    "LoadError",
    "RequestError",
    "RuntimeEngineError",
    "SaveError",
    "UsageError",
]


class Error(Exception):
    """Something that onnxforge could not do, told in one line."""

    kind = "error"

    def __init__(self, message: str, path: Optional[str] = None, place: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        #: The file that it is about; ``memory:…`` for models that were handed over.
        self.path = path
        #: The place in the model that it is about.
        self.place = place


class UsageError(Error, ValueError):
    """An argument that makes no sense."""

    kind = "usage"


class LoadError(Error):
    """A file cannot be read, or is no model."""

    kind = "load"


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


def of_kind(kind: str, message: str, path: Optional[str], place: Optional[str]) -> Error:
    """The exception for a failure of the native part."""
    return _KINDS.get(kind, Error)(message, path, place)
