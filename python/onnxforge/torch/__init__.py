"""PyTorch models as ONNX files that know their modules.

    import onnxforge.torch

    onnxforge.torch.export(model, (x,), "model.onnx")                        # everything that torch.onnx.export takes
    onnxforge.torch.export(model, (x,), "small.onnx", optimize=True, check=True)
    onnxforge.torch.save_modules(model, "model.modules.json")                # for files that another tool exports

`torch.onnx.export` does the export, untouched; what is added is metadata. This package imports PyTorch only
when it is used.
"""

from __future__ import annotations

from ._check import Check, OutputCheck
from ._errors import CheckError, ExportError, UndeterminedError
from ._export import export
from ._exported import Exported
from ._table import module_table, save_modules

__all__ = [
    "Check",
    "CheckError",
    "ExportError",
    "Exported",
    "OutputCheck",
    "UndeterminedError",
    "export",
    "module_table",
    "save_modules",
]
