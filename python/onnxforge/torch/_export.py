"""`export`: PyTorch's own export, with the modules of every node written into the file afterwards."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union

import onnxforge

from ..errors import RequestError, SaveError, UsageError
from ._arguments import Call, forward_of, named_tensors
from ._check import check as compared
from ._dynamic import axes_of
from ._errors import CheckError, ExportError, UndeterminedError, need, reason
from ._exported import Exported
from ._pin import Pinning, needs_pin, pinned
from ._recorder import Origins, recording
from ._state import preserved
from ._table import module_table, recorded
from ._values import watching

DYNAMO, TORCHSCRIPT = "dynamo", "torchscript"
STRATEGIES = ("auto", DYNAMO, TORCHSCRIPT)
_SHOWN = 3

Target = Union[str, "os.PathLike[str]", io.BytesIO, None]


def export(
    model: Any,
    args: Any = (),
    f: Target = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    strategy: str = "auto",
    optimize: bool | Mapping[str, Any] | None = None,
    torch_optimize: bool | None = None,
    check: bool | str = False,
    pin_forward: Pinning = "auto",
    sidecar: bool = True,
    strip_traces: bool = False,
    **torch_onnx_kwargs: Any,
) -> Exported:
    """Exports a model as `torch.onnx.export` does, and writes into the file which module every node comes from.

    `torch.onnx.export` is called as it is, with the same arguments: without the metadata that is added, as
    `onnxforge.strip` leaves it, the file has the bytes that PyTorch writes. The model is inspected, never hooked, and
    comes back as it was.

    Args:
        model: The model, or whatever else `torch.onnx.export` takes.
        args: What it is called with. Arguments that are no tensors are fixed in the file.
        f: Where to write the file; `None` for `Exported.model` alone, or a `BytesIO`.
        kwargs: What it is called with by name.
        strategy: `dynamo` (torch.export), `torchscript`, or `auto`: torch.export where this PyTorch has it, and
            TorchScript when that fails, with a warning and the reason in `Exported.fallback`. `dynamo=True` or
            `False` says the same in PyTorch's words.
        optimize: `True` optimizes the file with onnxforge, verified and with the modules kept; a dictionary does
            so with options of `onnxforge.optimize`, such as `{"opset": "latest"}`. `False` means what it does for
            PyTorch: nothing is optimized, not by PyTorch either. If not given, PyTorch does what it does by
            itself, and onnxforge nothing.
        torch_optimize: PyTorch's own `optimize`, where it has that and it is to differ: `optimize=True,
            torch_optimize=False` leaves all of it to onnxforge, so that modules which PyTorch would merge without
            a trace remain known.
        check: Run the file on the very arguments and compare with what PyTorch computes. A difference that is no
            rounding raises `CheckError`, or is only a warning with `check="warn"`. So does `UndeterminedError`, a
            `CheckError`, where a TorchScript trace kept one path of Python for a value of these arguments: that
            the file agrees on them says nothing about others. `Exported.undetermined` tells where, also without a
            check.
        pin_forward: Whether TorchScript sees a `forward` with exactly the inputs that are traced; `auto`: where
            it would call the model's own otherwise than you do.
        sidecar: Write `<model>_hierarchy.json` beside the file.
        strip_traces: Remove lines of source code, with paths of this machine, from the file.
        torch_onnx_kwargs: Everything else that `torch.onnx.export` takes; `dynamic_shapes` are translated for
            TorchScript.

    Returns:
        What came of it: file, exporter, report, and the comparison if it was asked for.

    Raises:
        onnxforge.UsageError: The arguments contradict each other.
        ExportError: Neither exporter could; tells both reasons. With one strategy, PyTorch's own error comes
            through.
        CheckError: The file computes something else than PyTorch.
        UndeterminedError: It computes the same for these arguments, and may not for others.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        >>> onnxforge.torch.export(model, (torch.zeros(1, 4),), "model.onnx", strategy="torchscript", check=True).ok
        True
    """
    need("torch")
    options = dict(torch_onnx_kwargs)
    tried = _strategies(strategy, options)
    _one_of("check", check, (True, False, "warn"))
    _one_of("pin_forward", pin_forward, (True, False, "auto"))
    if not isinstance(optimize, Mapping):
        _one_of("optimize", optimize, (True, False, None))
    if optimize is False and torch_optimize is None:
        torch_optimize = False
    if torch_optimize is not None and _takes("optimize"):
        options["optimize"] = torch_optimize
    optimizes = optimize is not None and optimize is not False
    wants_sidecar = sidecar and not isinstance(f, io.BytesIO) and f is not None
    with _path(f) as path, preserved(model):
        exporter = _Exporter(model, args, kwargs, f, path, pin_forward, options)
        exported = exporter.first_of(tried)
        # The table that optimizing needs is in the file; the sidecar tells of the file as it is in the end.
        exported.report = _tagged(
            path, _modules(model, exporter.origins), wants_sidecar and not optimizes, strip_traces
        )
        if optimizes:
            wanted = {"verify": "final", **(optimize if isinstance(optimize, Mapping) else {})}
            exported.optimization = dict(onnxforge.optimize(path, path, **wanted).report)
            exported.report = _tagged(path, None, wants_sidecar, False)
        if check:
            evaluate = exported.strategy == TORCHSCRIPT and not _trains(options)
            as_given = exported.strategy == DYNAMO
            found = compared(model, Call.of(args, kwargs), path, evaluate=evaluate, as_given=as_given)
            exported.check = found if exported.undetermined is None else found._doubted(exported.undetermined)
        _hand_over(f, path, exported)
    if exported.check is not None and not exported.check.good:
        message = f"{exported.path or 'the exported model'}: {exported.check}"
        if check != "warn":
            raise (CheckError if exported.ok is False else UndeterminedError)(message, exported)
        warnings.warn(message, stacklevel=2)
    return exported


class _Exporter:
    """One model on its way to a file, by one exporter or the other."""

    def __init__(
        self,
        model: Any,
        args: Any,
        kwargs: Mapping[str, Any] | None,
        f: Target,
        path: Path,
        pin_forward: Pinning,
        options: Mapping[str, Any],
    ) -> None:
        self.origins: Origins = {}
        self.values: list[str] = []
        self._model, self._args, self._kwargs = model, args, kwargs
        self._call = Call.of(args, kwargs)
        self._f, self._path = f, path
        self._pin_forward, self._options = pin_forward, options

    def first_of(self, strategies: tuple[str, ...]) -> Exported:
        """What the first exporter writes that can."""
        path = None if self._f is None or isinstance(self._f, io.BytesIO) else self._path
        if len(strategies) == 1:
            program = self.write(strategies[0])
            return Exported(path, strategies[0], program=program, undetermined=self.undetermined())
        first, second = strategies
        try:
            return Exported(path, first, program=self.write(first))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other exporter may do
            failed, why = error, reason(error)
        try:
            program = self.write(second)
        except Exception as error:
            raise ExportError(
                f"no exporter could write the model; {first}: {why}; {second}: {reason(error)}; "
                f"hint: strategy={first!r} shows all that PyTorch says of the first"
            ) from failed
        warnings.warn(
            f"exported with {second}, because {first} failed: {why}. TorchScript keeps one path through Python's "
            f"conditions and loops, that of these arguments; strategy={second!r} asks for it without this warning",
            stacklevel=3,
        )
        return Exported(path, second, fallback=why, program=program, undetermined=self.undetermined())

    def undetermined(self) -> str | None:
        """Why results for other arguments cannot be told from those for these, where that is so."""
        if not self.values:
            return None
        shown = ", ".join(self.values[:_SHOWN]) + (", …" if len(self.values) > _SHOWN else "")
        return f"the TorchScript trace keeps what Python did for the values of these arguments: {shown}"

    def write(self, strategy: str) -> Any:
        """Writes the file; what PyTorch returns."""
        if strategy == DYNAMO:
            return self._call_torch(self._args, self._kwargs, {**self._options, **_dynamo(True)})
        options = {**self._options, **_dynamo(False)}
        if options.get("dynamic_shapes"):
            self._name_axes(options)
        with contextlib.ExitStack() as stack:
            args, kwargs = self._args, self._kwargs
            if self._pins():
                args, kwargs = stack.enter_context(pinned(self._model, self._call)), None
            self.origins = stack.enter_context(recording(self._model))
            self.values = stack.enter_context(watching(self._model, self._call))
            return self._call_torch(args, kwargs, options)

    def _pins(self) -> bool:
        import torch

        if not isinstance(self._model, torch.nn.Module) or isinstance(self._model, torch.jit.ScriptModule):
            return False
        return needs_pin(self._model.forward, self._call) if self._pin_forward == "auto" else bool(self._pin_forward)

    def _name_axes(self, options: dict[str, Any]) -> None:
        """TorchScript knows dynamic sizes by axes of named inputs."""
        shapes = options.pop("dynamic_shapes")
        arguments = self._call.named(forward_of(self._model))
        inputs = [name for argument, value in arguments.items() for name, _ in named_tensors(value, argument)]
        axes = axes_of(shapes, list(arguments))
        names = options.setdefault("input_names", inputs)
        renamed = dict(zip(inputs, names))
        options.setdefault("dynamic_axes", {renamed.get(name, name): sizes for name, sizes in axes.items()})

    def _call_torch(self, args: Any, kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]) -> Any:
        import torch

        buffer = io.BytesIO() if isinstance(self._f, io.BytesIO) else None
        target: Any = buffer if buffer is not None else self._path if self._f is None else self._f
        if kwargs is not None:
            # Before it had `kwargs`, PyTorch took them at the end of `args`.
            if _takes("kwargs"):
                options = {**options, "kwargs": kwargs}
            else:
                args = (*self._call.args, dict(self._call.kwargs))
        program = torch.onnx.export(self._model, args, target, **options)
        if buffer is not None:
            self._path.write_bytes(buffer.getvalue())
        return program


def _strategies(strategy: str, options: dict[str, Any]) -> tuple[str, ...]:
    """The exporters to try, in their order. Takes `dynamo` out of the options."""
    _one_of("strategy", strategy, STRATEGIES)
    dynamo = options.pop("dynamo", None)
    told = {True: DYNAMO, False: TORCHSCRIPT}.get(dynamo)
    if told is not None:
        if strategy not in ("auto", told):
            raise UsageError(f"strategy={strategy!r} contradicts dynamo={dynamo!r}; hint: give one of them")
        strategy = told
    if strategy == DYNAMO and not _takes("dynamo"):
        raise UsageError(
            "this PyTorch has no dynamo exporter; hint: pip install 'torch>=2.5', or strategy='torchscript'"
        )
    if strategy == "auto":
        # Without shapes, `dynamo` is an earlier exporter, which writes modules as functions.
        return (DYNAMO, TORCHSCRIPT) if _takes("dynamo") and _takes("dynamic_shapes") else (TORCHSCRIPT,)
    return (strategy,)


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if not any(value is known or (value == known and isinstance(known, str)) for known in allowed):
        raise UsageError(f"{name}={value!r} is none of {', '.join(map(repr, allowed))}")


def _takes(parameter: str) -> bool:
    """Whether this PyTorch's export has a parameter."""
    import torch

    return parameter in inspect.signature(torch.onnx.export).parameters


def _dynamo(wanted: bool) -> dict[str, bool]:
    return {"dynamo": wanted} if _takes("dynamo") else {}


def _trains(options: Mapping[str, Any]) -> bool:
    """Whether TorchScript was told to leave the model in its mode, or to train."""
    return getattr(options.get("training"), "name", "EVAL") != "EVAL"


@contextlib.contextmanager
def _path(f: Target) -> Iterator[Path]:
    """The file to work on: the one that is wanted, or one that goes away again."""
    if f is not None and not isinstance(f, io.BytesIO):
        path = Path(f)
        if not path.parent.exists():
            raise SaveError(f"the folder {path.parent} does not exist; create it first", str(path))
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="onnxforge-") as folder:
        yield Path(folder) / "model.onnx"


def _modules(model: Any, origins: Mapping[str, list[str]]) -> dict[str, Any] | None:
    """What is told of the model's modules; nothing of programs and functions, which have none."""
    import torch

    return recorded(module_table(model), origins) if isinstance(model, torch.nn.Module) else None


def _tagged(path: Path, modules: dict[str, Any] | None, sidecar: bool, strip_traces: bool) -> dict[str, Any]:
    """Writes modules into a file, in place; the report. Without the table where the file calls modules otherwise: some
    versions of torch.export name them after Python expressions if `forward` has another name for `self`.
    """
    options: dict[str, Any] = {"output": path, "sidecar": sidecar, "strip_traces": strip_traces}
    try:
        result = onnxforge.tag(path, modules=modules, **options)
    except RequestError:
        if modules is None:
            raise
        result = onnxforge.tag(path, **options)
        warnings.warn("modules have the names that the file gives them, not those of the model", stacklevel=3)
    return dict(result.report)


def _hand_over(f: Target, path: Path, exported: Exported) -> None:
    """Gives the file to who asked for something else than a path."""
    if isinstance(f, io.BytesIO):
        f.write(path.read_bytes())
    if f is None or isinstance(f, io.BytesIO):
        import onnx

        exported._model = onnx.load(str(path))
