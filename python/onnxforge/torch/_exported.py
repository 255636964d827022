"""What came of an export."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._check import Check

if TYPE_CHECKING:
    import onnx


@dataclass
class Exported:
    """An exported model, with the modules of its nodes.

    Attributes:
        path: The file; None where none was asked for, or something like a file was given.
        strategy: The exporter that wrote it, `dynamo` or `torchscript`.
        fallback: Why the first exporter could not, where another one was used.
        program: What `torch.onnx.export` returned.
        report: What `onnxforge tag` tells: modules, nodes, and how much of them is known.
        optimization: What `onnxforge optimize` tells, if that was asked for.
        check: The comparison with PyTorch's own results, if that was asked for.
        undetermined: Why the file may compute something else than PyTorch for other arguments: where the value of a
            tensor decided what a TorchScript trace keeps. None where there is no such place.
    """

    path: Path | None
    strategy: str
    fallback: str | None = None
    program: Any = field(default=None, repr=False)
    report: dict[str, Any] = field(default_factory=dict, repr=False)
    optimization: dict[str, Any] | None = field(default=None, repr=False)
    check: Check | None = None
    undetermined: str | None = None
    _model: Any = field(default=None, repr=False)

    @property
    def ok(self) -> bool | None:
        """Whether the file computes what PyTorch does: None where that was not checked, or cannot be said."""
        if self.check is None or (self.check.agrees and self.undetermined is not None):
            return None
        return self.check.agrees

    @property
    def model(self) -> onnx.ModelProto:
        """The model; read from the file, with its weights, when it is first asked for."""
        if self._model is None:
            import onnx

            self._model = onnx.load(str(self.path))
        loaded: onnx.ModelProto = self._model
        return loaded
