"""The one door to the native part: a command in the words of the command line, called in process."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _native, errors

_LOG = logging.getLogger("onnxforge")
#: Options that have a value for each name.
_BY_NAME = ("set_dim", "set_shape", "verify_dim")
_LEVELS = {"error": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO}


class Progress(NamedTuple):
    """How far a piece of work is."""

    what: str
    done: int
    total: int
    #: What it is counted in: ``bytes``, ``nodes``, ``passes``, …
    unit: str


#: Called with how far the work is, on the thread that asked for it. An exception in it ends the work.
ProgressCallback = Callable[[Progress], Any]


@dataclass(frozen=True)
class Answer:
    """What a command answers."""

    good: bool
    report: dict[str, Any]
    text: str
    files: dict[str, bytes]


class _Listener:
    """Passes progress to the caller and what is said to the log."""

    def __init__(self, progress: Optional[ProgressCallback]) -> None:
        self._progress = progress
        self._state = Progress("", 0, 0, "")

    def __call__(self, kind: str, *values: Any) -> None:
        if kind == "said":
            level, text = values
            _LOG.log(_LEVELS.get(level, logging.DEBUG), text)
            return
        if kind == "begin":
            what, total, unit = values
            self._state = Progress(what, 0, total, unit)
        elif kind == "advance":
            self._state = self._state._replace(done=self._state.done + values[0])
        elif kind == "end":
            self._state = self._state._replace(done=max(self._state.done, self._state.total))
        if self._progress is not None:
            self._progress(self._state)


def program() -> list[str]:
    """How to start the command line in another process."""
    return [sys.executable, "-m", "onnxforge"]


@lru_cache(maxsize=None)
def find_runtime() -> None:
    """Tells the native part where this interpreter's package ``onnxruntime`` is; it is located, not imported."""
    try:
        spec = importlib.util.find_spec("onnxruntime")
    except (ImportError, ValueError):
        return
    if spec is not None and spec.submodule_search_locations:
        _native.prefer_runtime(os.fspath(spec.submodule_search_locations[0]))


def call(
    command: str,
    *words: Union[str, os.PathLike[str]],
    given: Sequence[tuple[str, bytes]] = (),
    progress: Optional[ProgressCallback] = None,
    **options: Any,
) -> Answer:
    """Calls a command. Options that are ``None``, ``False`` or empty are left out."""
    find_runtime()
    line = [command, *flags(options), "--", *(os.fspath(word) for word in words)]
    try:
        good, report, text, made = _native.call(line, given, program(), _Listener(progress))
    except _native.Failed as failed:
        kind, message, path, place = failed.args
        path = None if path is None else os.fspath(path)
        raise errors.of_kind(kind, message, path, place) from None
    files = {os.fspath(path): content for path, content in made}
    return Answer(good, json.loads(report) if report else {}, text, files)


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options as the command line spells them."""
    words: list[str] = []
    for name, given in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if name in _BY_NAME and given is not None and not isinstance(given, Mapping):
            raise errors.UsageError(f"{name} is a dictionary, such as {{'batch': 1}}")
        value: Any = listed(given)
        if value is None or value is False or value == [] or value == {}:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, Mapping):
            words.extend(f"{flag}={key}={_text(item)}" for key, item in value.items())
        else:
            words.append(f"{flag}={_text(value)}")
    return words


def listed(value: Any) -> Any:
    """Several values as a list; anything else as it is."""
    if isinstance(value, (str, bytes, os.PathLike, Mapping)) or not isinstance(value, Iterable):
        return value
    return list(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise errors.UsageError(f"{value!r} is no text")
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    several = listed(value)
    return ",".join(map(_text, several)) if isinstance(several, list) else str(value)
