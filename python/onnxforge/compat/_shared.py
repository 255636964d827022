"""What both calls have in common."""

from __future__ import annotations

import inspect as introspection
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union

import onnxforge

from .._models import LARGEST_MESSAGE

if TYPE_CHECKING:
    import numpy
    import onnx

    Path = Union[str, "os.PathLike[str]"]
    Model = Union[Path, onnx.ModelProto]
    Shapes = Mapping[Any, Sequence[int]]  # by name; None stands for the only input


def refuse_unsupported(function: Callable[..., Any], given: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Every parameter in `reasons` must have its default, or be off like that."""
    for name, parameter in introspection.signature(function).parameters.items():
        value = given[name]
        off = not value and not parameter.default and not isinstance(value, str)
        if name in reasons and value != parameter.default and not off:
            raise onnxforge.UsageError(f"{function.__name__}({name}={value!r}) is not supported: {reasons[name]}")


def is_path(model: Model) -> bool:
    return isinstance(model, (str, os.PathLike))


def require_onnx(call: str) -> None:
    """Says what to install where the package `onnx` is missing, whose models the calls give back."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"onnxforge.{call} gives models of the package onnx, which is not installed: pip install onnx; "
            "onnxforge.optimize works without it"
        ) from error


def changed_copy(model: Model) -> onnx.ModelProto:
    """A copy of a model, to be changed; of a file with its weights."""
    import onnx

    if isinstance(model, (str, os.PathLike)):
        return onnx.load(os.fspath(model))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def read_structure(model: Model) -> onnx.ModelProto:
    """The model; of a file, without the weights that lie beside it."""
    import onnx

    if isinstance(model, (str, os.PathLike)):
        try:
            return onnx.load(os.fspath(model), load_external_data=False)
        except OSError:
            raise
        except Exception as error:  # of protobuf, which comes in several versions
            raise onnxforge.Error(f"{os.fspath(model)} is no ONNX model: {error}") from error
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"a path or an onnx.ModelProto is expected, not {type(model).__name__}")
    return model


def true_inputs(structure: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """The inputs that have no default."""
    constants = {tensor.name for tensor in structure.graph.initializer}
    return {value.name: value for value in structure.graph.input if value.name not in constants}


def sizes_of(value: onnx.ValueInfoProto) -> list[int]:
    """The sizes that an input is declared with; 0 where it is open."""
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def prepare(model: Model, structure: onnx.ModelProto, shapes: Mapping[str, list[int]], mutable: bool) -> Model:
    """A model whose inputs are as meant; a changed copy where they are not.

    Initializers that are also inputs can be given by callers if they are to be `mutable`, and cannot otherwise; before
    version 4 of the format all of them were inputs, and the optimizer takes them for constants. Declared sizes that
    contradict `shapes` become open, and so do those of outputs, which follow from them.
    """
    inputs = {value.name: value for value in structure.graph.input}
    constants = {tensor.name for tensor in structure.graph.initializer}
    defaults = inputs.keys() & constants if mutable == (structure.ir_version < 4) else set()
    contradicted = {
        name
        for name, shape in shapes.items()
        if name in inputs and any(old not in (0, new) for old, new in zip(sizes_of(inputs[name]), shape))
    }
    if not defaults and not contradicted:
        return model

    changed = changed_copy(model)
    if defaults and mutable:
        changed.ir_version = 4
    elif defaults:
        kept = [value for value in changed.graph.input if value.name not in defaults]
        del changed.graph.input[:]
        changed.graph.input.extend(kept)
    if contradicted:
        del changed.graph.value_info[:]
        for value in [*changed.graph.output, *(each for each in changed.graph.input if each.name in contradicted)]:
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
    return changed


def shapes_by_name(structure: onnx.ModelProto, shapes: Shapes | None, least: int = 1) -> dict[str, list[int]]:
    """Shapes by name, with no size below `least`; None stands for the only input."""
    named: dict[str, list[int]] = {}
    for name, shape in (shapes or {}).items():
        if name is None:
            if len(true_inputs(structure)) != 1:
                raise onnxforge.UsageError("a shape without a name is for models of one input; this one has more")
            (name,) = true_inputs(structure)
        named[name] = [int(size) for size in shape]
        if min(named[name], default=least) < least:
            raise onnxforge.UsageError(f"the shape {named[name]} of {name!r} has a size below {least}")
    return named


def make_array(value: onnx.ValueInfoProto, shape: Sequence[int], fill: str) -> numpy.ndarray[Any, Any]:
    """Made-up numbers in an input's type: floats from 0 to 1, integers 0 and 1, which are masks and words too."""
    import numpy
    import onnx

    kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    random = numpy.random.default_rng(0)
    if fill == "ones":
        made: Any = numpy.ones(shape)
    elif fill == "zeros":
        made = numpy.zeros(shape)
    elif fill == "arange":
        made = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape)
    else:
        made = random.random(shape) if kind.kind not in "biu" else random.integers(0, 2, shape)
    return numpy.asarray(made, dtype=kind)


def make_up(
    structure: onnx.ModelProto, fixed: Mapping[str, list[int]], tried: Mapping[str, list[int]], fill: str, check_n: int
) -> dict[str, numpy.ndarray[Any, Any]]:
    """Inputs for the comparison. Those not asked for are left to the optimizer, which knows what they select from."""
    if fill not in ("random", "ones", "zeros", "arange"):
        raise onnxforge.UsageError(f"simplify(input_fill={fill!r}): random, ones, zeros or arange is expected")
    values = true_inputs(structure)
    for name in tried:
        if name not in values:
            raise onnxforge.UsageError(f"the model has no input {name!r}; it has {', '.join(values)}")
    if fill == "random" or check_n == 0:
        asked = {name: shape for name, shape in tried.items() if fixed.get(name) != shape}
        return {name: make_array(values[name], shape, "random") for name, shape in asked.items()}
    shapes = {**{name: sizes_of(value) for name, value in values.items()}, **fixed, **tried}
    for name, shape in shapes.items():
        if min(shape, default=1) < 1:
            raise onnxforge.UsageError(f"simplify(input_fill={fill!r}) needs test_input_shapes of {name!r}")
    return {name: make_array(values[name], shape, fill) for name, shape in shapes.items()}


def passes_of(given: Iterable[str] | Literal[False] | None, catalogue: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The passes that names of the original stand for. Others are passes; the optimizer refuses those it has not."""
    if isinstance(given, bool) and given:
        raise onnxforge.UsageError(f"True stands for none of {', '.join(catalogue)}: name what is to be left out")
    names = [given] if isinstance(given, str) else given or ()
    return [each for name in names for each in catalogue.get(name, (name,))]


def run_optimizer(
    model: Model, output: Path | None, external: Literal["auto", "split"] = "auto", **options: Any
) -> tuple[onnx.ModelProto | None, Any]:
    """The optimized model unless it is saved to `output`, and what the optimizer says of it."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        source = within_reach(model, folder)
        if output is not None:
            saved = onnxforge.optimize(source, os.fspath(output), external=external, **options)
            return None, saved
        if isinstance(source, onnx.ModelProto):
            result = onnxforge.optimize(source, **options)
            return result.model, result
        file = os.path.join(folder, "result.onnx")
        result = onnxforge.optimize(source, file, external=external, **options)
        return onnx.load(file), result


def within_reach(model: Model, folder: str) -> Model:
    """The model; one that is too large for a message as a file in `folder`, with its weights beside it."""
    import onnx

    if not isinstance(model, onnx.ModelProto) or weight_bytes(model) <= LARGEST_MESSAGE:
        return model
    file = os.path.join(folder, "model.onnx")
    parts = onnx.ModelProto()
    parts.CopyFrom(model)
    onnx.save(parts, file, save_as_external_data=True, location="model.onnx.data")
    return file


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of a model's weights; protobuf cannot tell the size of what is larger than a message."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def why_not_compared(result: Any) -> str | None:
    """Why the whole was not compared with the original; None if it was, or if nothing was changed."""
    reason = (result.report.get("verification") or {}).get("unverified")
    return None if result.verified is not None or reason is None else str(reason)


def is_good(result: Any, asked: bool) -> bool:
    """Whether the model is the same as the original. What no engine can run is good unless a check was asked for."""
    wrong = {each["pass"] for each in (result.report.get("verification") or {}).get("reverted") or ()}
    if wrong:
        warnings.warn(f"found wrong and reverted: {', '.join(sorted(wrong))}", RuntimeWarning, stacklevel=3)
    reason = why_not_compared(result)
    if reason is not None and asked:
        warnings.warn(f"not compared with the original: {reason}", RuntimeWarning, stacklevel=3)
    return result.verified is not False and not (reason is not None and asked)
