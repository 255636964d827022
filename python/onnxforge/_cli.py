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
    # The first word that is no flag of all commands.
    place = next((place for place, word in enumerate(words) if not word.startswith("-")), None)
    if place is not None and words[place] == "export":
        from ._export import main as export

        return export([*words[:place], *words[place + 1 :]])
    # As in any program: Ctrl-C ends it at once, and a closed pipe is no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    find_runtime()
    return _native.main(["onnxforge", *words], program())
