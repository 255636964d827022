"""`slim`, as onnxslim has it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import onnxforge

from ._edits import start_at
from ._names import ARITHMETIC, OPTIMIZATIONS, PATTERNS
from ._shared import (
    is_good,
    make_up,
    passes_of,
    prepare,
    read_structure,
    refuse_unsupported,
    require_onnx,
    run_optimizer,
    shapes_by_name,
    true_inputs,
    why_not_compared,
)

if TYPE_CHECKING:
    import numpy
    import onnx
    from typing_extensions import Unpack

    from ._shared import Model, Path


_NOT_IN_SLIM = {
    "dump_to_disk": "use `onnxforge infer MODEL --json FILE`",
}


class Options(TypedDict, total=False):
    """The keywords of `slim`, for the signatures below."""

    model_check: bool
    input_shapes: Iterable[str] | Mapping[str, Sequence[int]] | None
    inputs: Sequence[str] | None
    outputs: Iterable[str] | None
    no_shape_infer: bool
    skip_optimizations: Iterable[str] | Literal[False] | None
    dtype: Literal["fp16", "fp32"] | None
    skip_fusion_patterns: Iterable[str] | Literal[False] | None
    size_threshold: int | None
    inspect: bool
    dump_to_disk: bool
    save_as_external_data: bool
    model_check_inputs: Iterable[str] | None
    verbose: bool
    no_constant_folding: bool


@overload
def slim(model: Model, output_model: None = None, **options: Unpack[Options]) -> onnx.ModelProto: ...
@overload
def slim(model: Model, output_model: Path, **options: Unpack[Options]) -> None: ...
@overload
def slim(  # pyright: ignore[reportOverlappingOverload] - only where the package onnx has no types
    model: list[Any] | tuple[Any, ...], output_model: None = None, **options: Unpack[Options]
) -> None: ...
def slim(
    model: Model | list[Any] | tuple[Any, ...],
    output_model: Path | None = None,
    *,
    model_check: bool = False,
    input_shapes: Iterable[str] | Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Iterable[str] | None = None,
    no_shape_infer: bool = False,
    skip_optimizations: Iterable[str] | Literal[False] | None = None,
    dtype: Literal["fp16", "fp32"] | None = None,
    skip_fusion_patterns: Iterable[str] | Literal[False] | None = None,
    size_threshold: int | None = None,
    inspect: bool = False,
    dump_to_disk: bool = False,
    save_as_external_data: bool = False,
    model_check_inputs: Iterable[str] | None = None,
    verbose: bool = False,
    no_constant_folding: bool = False,
) -> onnx.ModelProto | None:
    """Makes a model smaller: onnxslim's `slim`.

    Args:
        model: A path, or a model, which is not changed. What a list of models is made of is printed.
        output_model: Where to save the result; the path of the model replaces it.
        model_check: Insist on the comparison with the original, which takes place in any case: a model that no engine
            can run is an error.
        input_shapes: The shapes of inputs from now on: `"x:1,3,224,224"` each, or shapes by name.
        inputs: Make these values of the graph the inputs, and cut off what computes them; a type as for `outputs`.
        outputs: Make these values the outputs. A type (`"y:fp32"`) must be the one that the value has.
        no_shape_infer: Write no inferred shapes into the model. Passes ask for them all the same.
        skip_optimizations: Leave these out: constant_folding, graph_fusion, dead_node_elimination,
            subexpression_elimination, weight_tying; or passes.
        dtype: `fp16` converts inputs, outputs and whatever 16 bits are enough for to float16, verified; for keep lists and
            inputs that stay as they are use `onnxforge.float16`. `fp32` is for models that are that already.
        skip_fusion_patterns: Leave these out: names of onnxslim's patterns, or of passes.
        size_threshold: If folding makes a constant of more bytes than this, no constants are computed.
        inspect: Print what the model and the result are made of.
        dump_to_disk: Refused; use `onnxforge infer MODEL --json FILE`.
        save_as_external_data: Save the weights into a file beside output_model. Without that it changes nothing.
        model_check_inputs: What the comparison takes for inputs: `"x:1,3,224,224"` or `"x:data.npy"` each.
        verbose: Changes nothing: nothing is printed.
        no_constant_folding: Of older versions: fold no constants.

    Returns:
        The model, or None if it was saved to output_model, or a list of models was shown.

    Raises:
        onnxforge.UsageError: A parameter that is not supported, or that does not fit.
        onnxforge.Error: The file is no model, or the model is not valid, or was to be checked and cannot be run.
        FileNotFoundError: There is no such file.

    Example:
        >>> model = onnxforge.slim("tiny_bert.onnx", input_shapes={"input_ids": [1, 8]})
        >>> len(model.graph.node) < 288
        True
    """
    refuse_unsupported(slim, locals(), _NOT_IN_SLIM)
    require_onnx("slim")
    if isinstance(model, (list, tuple)):
        print(onnxforge.inspect(*model))
        return None
    if dtype is not None and dtype not in ("fp16", "fp32"):
        raise onnxforge.UsageError(f"slim(dtype={dtype!r}): fp16 or fp32 is expected")

    structure = read_structure(model)
    given = model
    if inputs:
        model = structure = start_at(model, [inputs] if isinstance(inputs, str) else list(inputs))
    if dtype == "fp32" and _has_halves(structure):
        raise onnxforge.UsageError("slim(dtype='fp32'): a model of float16 is not widened; export it in float32")
    fixed = shapes_by_name(structure, _parsed_shapes(structure, "input_shapes", input_shapes))
    skipped = passes_of(skip_optimizations, OPTIMIZATIONS) + passes_of(skip_fusion_patterns, PATTERNS)
    tried = _check_inputs(structure, fixed, model_check_inputs) if model_check else {}
    ready = prepare(model, structure, fixed, mutable=False)
    if size_threshold and _grows(ready, int(size_threshold), skipped):
        skipped.append(ARITHMETIC)
    options: dict[str, Any] = {
        "set_shape": fixed or None,
        "outputs": _typed_outputs(structure, outputs),
        "skip": skipped + [ARITHMETIC] * no_constant_folding or None,
        "inputs": tried or None,
        "allow_revert": True,
        "declare_shapes": not no_shape_infer,
    }
    external: Literal["auto", "split"] = "split" if save_as_external_data else "auto"
    if dtype == "fp16" or output_model is None:
        slimmed, result = run_optimizer(ready, None, **options)
        _insist(result, model_check)
        assert slimmed is not None
        if dtype == "fp16":
            slimmed = onnxforge.float16(slimmed, interface=True, inputs=tried or None).model
        if inspect:
            print(onnxforge.inspect(given, slimmed))
        if output_model is None:
            return slimmed
        onnxforge.save(slimmed, output_model, external=external)
        return None
    if not model_check:
        _, result = run_optimizer(ready, output_model, external, **options)
        _insist(result, model_check)
        if inspect:
            print(onnxforge.inspect(given, output_model))
        return None
    with tempfile.TemporaryDirectory() as folder:
        unchecked = os.path.join(folder, os.path.basename(output_model))
        _, result = run_optimizer(ready, unchecked, external, **options)
        _insist(result, model_check)
        onnxforge.save(unchecked, os.fspath(output_model), external="keep")
    if inspect:
        print(onnxforge.inspect(given, output_model))
    return None


def _has_halves(structure: onnx.ModelProto) -> bool:
    """Whether something in the graph is declared as float16."""
    import onnx

    values = [*structure.graph.input, *structure.graph.output, *structure.graph.value_info]
    kinds = [value.type.tensor_type.elem_type for value in values]
    kinds += [tensor.data_type for tensor in structure.graph.initializer]
    return onnx.TensorProto.FLOAT16 in kinds


def _grows(model: Model, limit: int, skipped: list[str]) -> bool:
    """Whether folding makes a constant of more bytes than this."""
    trial, _ = run_optimizer(model, None, skip=skipped or None, verify="off")
    assert trial is not None
    before = {tensor.name for tensor in read_structure(model).graph.initializer}
    return any(len(tensor.raw_data) > limit for tensor in trial.graph.initializer if tensor.name not in before)


def _parsed(structure: onnx.ModelProto, parameter: str, texts: Iterable[str] | None) -> dict[str, str]:
    """What stands behind `NAME:` in each text, by name. Names and what stands behind them may have colons too."""
    values = sorted(true_inputs(structure), key=len, reverse=True)
    parsed = {}
    for text in [texts] if isinstance(texts, str) else texts or ():
        name = next((name for name in values if text.startswith(name + ":")), None)
        if name is None:
            names = ", ".join(values)
            raise onnxforge.UsageError(f"slim({parameter}=[{text!r}]) names no input; the model has {names}")
        parsed[name] = text[len(name) + 1 :]
    return parsed


def _parsed_shapes(
    structure: onnx.ModelProto, parameter: str, shapes: Iterable[str] | Mapping[str, Sequence[int]] | None
) -> dict[str | None, Sequence[int]]:
    if isinstance(shapes, Mapping):
        return dict(shapes.items())
    parsed: dict[str | None, Sequence[int]] = {}
    for name, text in _parsed(structure, parameter, shapes).items():
        try:
            parsed[name] = [int(size) for size in text.split(",")]
        except ValueError:
            raise onnxforge.UsageError(f"slim({parameter}=…): {text!r} is no shape such as 1,3,224,224") from None
    return parsed


def _check_inputs(
    structure: onnx.ModelProto, fixed: Mapping[str, list[int]], descriptions: Iterable[str] | None
) -> dict[str, numpy.ndarray[Any, Any]]:
    """What `model_check_inputs` stands for: arrays in files, and shapes."""
    import numpy

    texts = [descriptions] if isinstance(descriptions, str) else list(descriptions or ())
    files = [text for text in texts if text.endswith(".npy")]
    loaded = {name: numpy.load(file) for name, file in _parsed(structure, "model_check_inputs", files).items()}
    shapes = _parsed_shapes(structure, "model_check_inputs", [text for text in texts if text not in files])
    return {**make_up(structure, fixed, shapes_by_name(structure, shapes), "random", 0), **loaded}


def _typed_outputs(structure: onnx.ModelProto, outputs: Iterable[str] | None) -> list[str] | None:
    """Names of outputs. Types, where given, must be those that the values have."""
    import onnx

    kinds = {
        "fp16": onnx.TensorProto.FLOAT16,
        "fp32": onnx.TensorProto.FLOAT,
        "int32": onnx.TensorProto.INT32,
        "bool": onnx.TensorProto.BOOL,
    }
    declared = [*structure.graph.value_info, *structure.graph.output]
    types = {value.name: value.type.tensor_type.elem_type for value in declared}
    names = []
    for text in [outputs] if isinstance(outputs, str) else outputs or ():
        name, _, kind = text.rpartition(":")
        if kind not in kinds or not name:
            name = text
        elif types.get(name) != kinds[kind]:
            raise onnxforge.UsageError(
                f"slim(outputs=[{text!r}]) is not supported: numbers keep their types, "
                f"and {name!r} is not declared as {kind}"
            )
        names.append(name)
    return names or None


def _insist(result: Any, asked: bool) -> None:
    """Nothing that differs, and with a check asked for nothing that was not compared, is handed out."""
    reason = why_not_compared(result) if asked else None
    if reason is not None:
        raise onnxforge.Error(f"not compared with the original: {reason}")
    if not is_good(result, asked=False):
        raise onnxforge.Error("the result is not the same as the original")
