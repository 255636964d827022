"""What came of an export."""

from __future__ import annotations

import copy
import html
from dataclasses import asdict, dataclass, field
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
        report: What `onnxforge tag` reports: modules, nodes, and how much of them is known.
        optimization: What `onnxforge optimize` reports, if that was asked for.
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

    def to_dict(self) -> dict[str, Any]:
        """All of it but the model, as a dictionary that goes into JSON.

        Returns:
            Path, strategy, report, optimization and check.

        Example:
            >>> exported = onnxforge.torch.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),), "linear.onnx", strategy="torchscript")
            >>> exported.to_dict()["strategy"]
            'torchscript'
        """
        return {
            "path": None if self.path is None else str(self.path),
            "strategy": self.strategy,
            "fallback": self.fallback,
            "ok": self.ok,
            "undetermined": self.undetermined,
            "check": None if self.check is None else asdict(self.check),
            "report": copy.deepcopy(self.report),
            "optimization": copy.deepcopy(self.optimization),
        }

    def _repr_html_(self) -> str:
        said = {True: "agrees with PyTorch", False: "DIFFERS from PyTorch", None: "not compared with PyTorch"}[self.ok]
        known = self.report.get("coverage", {}).get("coverage")
        rows = [
            ("file", self.path),
            ("exporter", self.strategy),
            ("fallback", self.fallback),
            ("modules", self.report.get("modules")),
            ("nodes known", None if known is None else f"{known:.1%}"),
            ("comparison", said if self.undetermined is None else f"{said}: {self.undetermined}"),
        ]
        rows += [(f"output {each.name}", f"{each.verdict}, {each.difference:.1e}") for each in (self.check.outputs if self.check else ())]
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows if value is not None
        )
        return f"<table><tbody>{cells}</tbody></table>"

    @property
    def model(self) -> onnx.ModelProto:
        """The model; read from the file, with its weights, when it is first asked for."""
        if self._model is None:
            import onnx

            self._model = onnx.load(str(self.path))
        loaded: onnx.ModelProto = self._model
        return loaded
