"""`simplify` and `slim`: the calls of onnxsim and onnxslim, with this optimizer behind them.

Both take what the originals take, by the same names and in the same order, and give back what those give back. What
this optimizer has is honoured; what it has not is refused by name, with what to use instead. A parameter that can
change nothing here is accepted, and its description says why.

Models are verified by default, and the caller's model is never changed. Edits that verification finds wrong are left
out of the result, with a `RuntimeWarning`.
"""

from __future__ import annotations

from ._onnxsim import simplify
from ._onnxslim import slim

__all__ = ["simplify", "slim"]
