# PyTorch, where it is not installed: without this, tools that check types take `onnxforge.torch` for it.
from typing import Any

def __getattr__(name: str) -> Any: ...
