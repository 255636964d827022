"""Runs a program with onnxforge in the place of onnxsim and onnxslim.

    python -m onnxforge.compat run script.py --its options
    python -m onnxforge.compat run -m module --its options
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Optional

from . import install

USAGE = "usage: python -m onnxforge.compat run (SCRIPT | -m MODULE) [ARGUMENT]..."


def main(words: Optional[list[str]] = None) -> int:
    """Runs the program that a command line names; the exit code where there is none."""
    words = sys.argv[1:] if words is None else words
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    command, *rest = words or [""]
    is_module = rest[:1] == ["-m"]
    rest = rest[1:] if is_module else rest
    if command != "run" or not rest:
        print(USAGE, file=sys.stderr)
        return 2
    program = rest[0]
    if not is_module and not os.path.exists(program):
        print(f"{program}: no such file; to run a module, write -m {program}", file=sys.stderr)
        return 2
    install()
    sys.argv = rest
    if is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        # As for `python script.py`: what lies beside the script can be imported.
        sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
        runpy.run_path(program, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
