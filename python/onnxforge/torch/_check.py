"""Whether a file computes what PyTorch computes, for one sample; and if not quite, whether that is rounding."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Union

import onnxforge

from ..errors import Error
from ._arguments import Call, forward_of, named_tensors, tensors
from ._errors import need
from ._state import preserved

if TYPE_CHECKING:
    import numpy as np

    import torch

FREE, TOLERATED = 0.75, 0.6
"""Differences up to a type's epsilon to this power, as a share of an output's largest magnitude, are rounding:
without asking further (float32: 6e-6, float16: 5e-3), and where no float64 run can be asked (7e-5, 2e-2).
"""

TIMES_PYTORCH = 8.0
"""Where it is asked, a file may be so many times as far from the float64 result as PyTorch itself is."""


@dataclass(frozen=True)
class OutputCheck:
    """One output: its largest difference, as a share of its largest magnitude, and what to think of it.

    `verdict` is `identical` (bit for bit), `rounding`, or `error`; `detail` tells why.
    """

    name: str
    verdict: str
    difference: float
    detail: str = ""


@dataclass(frozen=True)
class Check:
    """What came of it: `good` unless an output is wrong, or right only as far as these arguments go, for the reason
    `undetermined`. `engine` computed the file's results.
    """

    good: bool
    engine: str
    outputs: Sequence[OutputCheck]
    undetermined: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether no output is wrong for these arguments."""
        return all(found.verdict != "error" for found in self.outputs)

    def _doubted(self, why: str) -> Check:
        """The same, of a file that may compute something else for other arguments."""
        return replace(self, good=False, undetermined=why)

    def __bool__(self) -> bool:
        return self.good

    def __str__(self) -> str:
        if self.agrees:
            worst = max((found.difference for found in self.outputs), default=0.0)
            count = "1 output" if len(self.outputs) == 1 else f"{len(self.outputs)} outputs"
            same = f"the same as PyTorch: {count}, largest difference {worst:.1e} of the largest value ({self.engine})"
            return same if self.undetermined is None else f"undetermined: {self.undetermined}; for these, {same}"
        wrong = [found for found in self.outputs if found.verdict == "error"]
        return "; ".join(f"output {found.name!r} differs from PyTorch's: {found.detail}" for found in wrong)


def check(
    model: Any, call: Call, path: Union[str, os.PathLike[str]], *, evaluate: bool, as_given: bool = False
) -> Check:
    """Runs the file at `path` and `model` on the same values and compares.

    `evaluate`: the file was made of the model in evaluation mode, whatever its mode is. `as_given`: its inputs have the
    order in which keyword arguments were given, instead of that of the parameters.
    """
    expected = [_array(value) for value in tensors(_computed(model, call, evaluate))]
    engine = _engine(path)
    results = engine.run(feed(engine.inputs, call.named(forward_of(model), as_given)))
    names = list(results)
    if len(names) != len(expected):
        detail = f"the file has {len(names)} outputs, PyTorch gives {len(expected)} tensors"
        return Check(False, engine.name, [OutputCheck(", ".join(names), "error", float("inf"), detail)])
    outputs = [compared(name, results[name], right) for name, right in zip(names, expected)]
    if any(found.verdict == "error" for found in outputs):
        outputs = _judged(model, call, evaluate, outputs, results, expected)
    return Check(all(found.verdict != "error" for found in outputs), engine.name, outputs)


def compared(name: str, found: np.ndarray[Any, Any], right: np.ndarray[Any, Any], power: float = FREE) -> OutputCheck:
    """One output beside PyTorch's; the epsilon of its type to this power is what counts as rounding."""
    import numpy as np

    if found.shape != right.shape or found.dtype != right.dtype:
        detail = f"{found.dtype}{list(found.shape)} instead of {right.dtype}{list(right.shape)}"
        return OutputCheck(name, "error", float("inf"), detail)
    if found.tobytes() == right.tobytes():
        return OutputCheck(name, "identical", 0.0)
    if not _is_float(right):
        count = int((found != right).sum())
        return OutputCheck(
            name, "error", count / max(found.size, 1), f"{count} of {found.size} values differ, which are no floats"
        )
    ours, theirs = _wide(found), _wide(right)
    if not np.array_equal(ours[~np.isfinite(ours)], theirs[~np.isfinite(theirs)], equal_nan=True):
        return OutputCheck(name, "error", float("inf"), "values that are infinite or no numbers differ")
    if bool((np.isfinite(ours) != np.isfinite(theirs)).any()):
        return OutputCheck(name, "error", float("inf"), "other values are infinite or no numbers")
    difference = _distance(ours, theirs)
    allowed = _epsilon(right) ** power
    if difference <= allowed:
        return OutputCheck(name, "rounding", difference)
    detail = f"by {difference:.1e} of the largest value, where rounding explains {allowed:.1e}"
    return OutputCheck(name, "error", difference, detail)


def feed(inputs: Sequence[str], arguments: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The values of a file's inputs: by name where the names are those of arguments, else in their order."""
    given = [pair for name, value in arguments.items() for pair in named_tensors(value, name)]
    known = dict(given)
    if all(name in known for name in inputs):
        return {name: _array(known[name]) for name in inputs}
    if len(inputs) == len(given):
        return {name: _array(value) for name, (_, value) in zip(inputs, given)}
    raise Error(
        f"cannot check: the file has {len(inputs)} inputs ({', '.join(inputs)}), the call has {len(given)} tensors "
        f"({', '.join(known)}); hint: pin_forward=True, which fixes arguments that are no tensors"
    )


def _judged(
    model: Any,
    call: Call,
    evaluate: bool,
    outputs: Sequence[OutputCheck],
    results: dict[str, np.ndarray[Any, Any]],
    expected: Sequence[np.ndarray[Any, Any]],
) -> list[OutputCheck]:
    """The outputs that differ, judged by a float64 run of PyTorch; by a wider tolerance where there is none.

    A model that does not repeat itself, because it draws random numbers or trains, cannot be compared: that is an error, too.
    """
    again = [_array(value) for value in tensors(_computed(model, call, evaluate))]
    repeats = len(again) == len(expected) and all(map(_is_repeated, expected, again))
    if not repeats:
        why = "PyTorch does not repeat itself: it draws random numbers, or is in training mode"
        return [output if output.verdict != "error" else replace(output, detail=f"cannot be compared: {why}") for output in outputs]
    exact = _in_float64(model, call, evaluate)
    known = exact is not None and [value.shape for value in exact] == [value.shape for value in expected]
    judged = []
    for number, (first, right) in enumerate(zip(outputs, expected)):
        output, found = first, results[first.name]
        if output.verdict == "error" and output.difference < float("inf") and _is_float(right):
            if known and exact is not None:
                output = _beside(output, _distance(found, exact[number]), _distance(right, exact[number]), right)
            else:
                output = compared(output.name, found, right, TOLERATED)
        judged.append(output)
    return judged


def _is_repeated(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    """Whether two runs of PyTorch are the same, up to rounding."""
    return compared("", first, second).verdict != "error"


def _beside(output: OutputCheck, distance: float, own: float, right: np.ndarray[Any, Any]) -> OutputCheck:
    """An output at this distance from the float64 result, where PyTorch's own is `own` away."""
    rounding = distance <= TIMES_PYTORCH * own + _epsilon(right) ** FREE
    detail = f"{distance:.1e} of the largest value from the float64 result, where PyTorch itself is {own:.1e} from it"
    return OutputCheck(output.name, "rounding" if rounding else "error", output.difference, detail)


def _in_float64(model: Any, call: Call, evaluate: bool) -> list[np.ndarray[Any, Any]] | None:
    """What a copy of the model computes in float64; None for models that cannot be copied or do not run so."""
    try:
        return [_array(value) for value in tensors(_computed(_doubled(model), _doubled(call), evaluate))]
    except Exception:  # noqa: BLE001 - whatever it is, there is no such run
        return None


def _distance(found: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """The largest difference of finite values, as a share of the largest magnitude."""
    import numpy as np

    ours, theirs = _wide(found), _wide(right)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    scale = float(np.abs(theirs[finite]).max(initial=0.0)) or 1.0
    return float(np.abs(ours[finite] - theirs[finite]).max(initial=0.0)) / scale


def _computed(model: Any, call: Call, evaluate: bool) -> Any:
    """What PyTorch computes; inputs and buffers are as before afterwards."""
    import torch

    called = call.cloned()
    with preserved(model), _same_buffers(model), torch.no_grad():
        if evaluate and isinstance(model, torch.nn.Module):
            model.eval()
        return model(*called.args, **called.kwargs)


@contextlib.contextmanager
def _same_buffers(model: Any) -> Iterator[None]:
    """Restores the values of buffers, which models in training mode update."""
    import torch

    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    before = [(buffer, buffer.detach().clone()) for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, values in before:
                if not torch.equal(buffer, values):
                    buffer.copy_(values)


def _doubled(value: Any) -> Any:
    """A copy in float64, of a model or of what it is called with."""
    import torch
    from torch.utils import _pytree

    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).double()

    def widen(leaf: Any) -> Any:
        return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    args, kwargs = _pytree.tree_map(widen, (value.args, dict(value.kwargs)))
    return Call(args, kwargs)


class _OnnxRuntime:
    """ONNX Runtime, as users run it."""

    name = "ONNX Runtime"

    def __init__(self, path: str) -> None:
        onnxruntime = need("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [port.name for port in self._session.get_inputs()]

    def run(self, values: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        names = [port.name for port in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, values)))


class _Native:
    """onnxforge itself."""

    name = "onnxforge"

    def __init__(self, path: str) -> None:
        import onnx

        self._path = path
        graph = onnx.load(path, load_external_data=False).graph
        weights = {tensor.name for tensor in graph.initializer}
        self.inputs = [port.name for port in graph.input if port.name not in weights]
        self._outputs = [port.name for port in graph.output]

    def run(self, values: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        results = onnxforge.run(self._path, values)
        return {name: results[name] for name in self._outputs}


def _engine(path: Union[str, os.PathLike[str]]) -> Any:
    """ONNX Runtime where it is installed and takes the file, which may be too new for it; else onnxforge."""
    if importlib.util.find_spec("onnxruntime") is not None:
        with contextlib.suppress(Exception):
            return _OnnxRuntime(os.fspath(path))
    return _Native(os.fspath(path))


def _array(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """A tensor for NumPy, bfloat16 and the like as ml_dtypes has them."""
    import torch

    plain = value.detach().cpu().resolve_conj().contiguous()
    if plain.dtype is torch.bfloat16:
        import ml_dtypes

        bits: np.ndarray[Any, Any] = plain.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: np.ndarray[Any, Any] = plain.numpy()
    return array


def _is_float(values: np.ndarray[Any, Any]) -> bool:
    return values.dtype.kind in "fc" or values.dtype.name == "bfloat16"


def _wide(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In 64 bits, or 128 where values are complex."""
    return values.astype("complex128" if values.dtype.kind == "c" else "float64")


def _epsilon(values: np.ndarray[Any, Any]) -> float:
    """The distance from 1 to the next number of the type."""
    import numpy as np

    return 2.0**-7 if values.dtype.name == "bfloat16" else float(np.finfo(values.dtype).eps)
