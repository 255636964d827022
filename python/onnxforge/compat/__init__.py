"""`simplify` and `slim`: the calls of onnxsim and onnxslim, with this optimizer behind them.

Both take what the originals take, by the same names and in the same order, and give back what those give back. What
this optimizer has is honoured; what it has not is refused by name, with what to use instead. A parameter that can
change nothing here is accepted, and its description says why.

For libraries that import onnxsim or onnxslim themselves, `install()` puts ours in their place, and so does
`python -m onnxforge.compat run script.py` for a whole program.

Models are verified by default, and the caller's model is never changed. Edits that verification finds wrong are left
out of the result, with a `RuntimeWarning`.
"""

from __future__ import annotations

from ._install import install, uninstall
from ._onnxsim import simplify
from ._onnxslim import slim

__all__ = ["install", "simplify", "slim", "uninstall"]
