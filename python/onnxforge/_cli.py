"""The command ``onnxforge``: the same as the program of that name, in process."""

from __future__ import annotations

import signal
import sys
from typing import Optional

from . import _native
from ._call import find_runtime, program


def main(words: Optional[list[str]] = None) -> int:
    """Runs a command line, by default that of this process; the exit code."""
    words = sys.argv[1:] if words is None else words
    if words[:1] == ["export"]:
        from ._export import main as export

        return export(words[1:])
    # As in any program: Ctrl-C ends it at once, and a closed pipe is no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    find_runtime()
    return _native.main(["onnxforge", *words], program())
