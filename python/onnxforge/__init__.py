"""Makes ONNX models smaller, faster and understandable, and verifies that nothing changed.

Every function takes a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`, and answers with the same kind. The functions are the
commands of the command line, in process: what they report is what `--json` writes. They release the interpreter's lock, end on Ctrl-C, and
call `progress=` with how far they are. Warnings go to the logger `onnxforge`.

Example:
    >>> import onnxforge
    >>> onnxforge.optimize("tiny_bert.onnx", "small.onnx").verified
    True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import compat, errors, results
from ._call import Progress
from ._commands.conversion import convert
from ._commands.files import check, run, save
from ._commands.modules import extract, profile, report
from ._commands.optimization import explain, float16, optimize, passes, upgrade
from ._commands.tags import analyze, coverage, restore, strip, tag
from ._commands.understanding import attribute, audit, fingerprint, infer, inspect
from ._commands.verification import bench, compare, verify
from ._native import __version__
from .compat import simplify, slim
from .errors import (
    Error,
    InvalidModelError,
    LoadError,
    ModelNotFoundError,
    RequestError,
    RuntimeEngineError,
    SaveError,
    UsageError,
)
from .hierarchy import Hierarchy, Module

if TYPE_CHECKING:
    from . import corpus, torch

__all__ = [
    "Error",
    "Hierarchy",
    "InvalidModelError",
    "LoadError",
    "ModelNotFoundError",
    "Module",
    "Progress",
    "RequestError",
    "RuntimeEngineError",
    "SaveError",
    "UsageError",
    "__version__",
    "analyze",
    "attribute",
    "audit",
    "bench",
    "check",
    "compare",
    "compat",
    "convert",
    "corpus",
    "coverage",
    "errors",
    "explain",
    "extract",
    "fingerprint",
    "float16",
    "infer",
    "inspect",
    "optimize",
    "passes",
    "profile",
    "report",
    "restore",
    "results",
    "run",
    "save",
    "simplify",
    "slim",
    "strip",
    "tag",
    "torch",
    "upgrade",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Parts that most programs do not need are imported when they are."""
    if name in ("corpus", "torch"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
