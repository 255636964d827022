"""`slim`, as onnxslim has it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import onnxforge

from ._names import OPTIMIZATIONS, PATTERNS
from ._shared import (
    is_good,
    make_up,
    passes_of,
    prepare,
    read_structure,
    refuse_unsupported,
    run_optimizer,
    shapes_by_name,
    true_inputs,
    why_not_compared,
)

if TYPE_CHECKING:
    import numpy
    import onnx

    from ._shared import Model, Path


_NOT_IN_SLIM = {
    "inputs": "inputs are not moved into the graph; cut a part out with `onnxforge extract`, or with "
    "onnx.utils.extract_model",
    "dtype": "numbers keep their types; convert them before, for example with onnxruntime.transformers.float16",
    "size_threshold": "constants are not limited one by one; all together grow by no more than 1 MiB and 5 %. To fold "
    "none, use skip_optimizations=['constant_folding']",
    "inspect": "use `onnxforge inspect MODEL…`",
    "dump_to_disk": "use `onnxforge infer MODEL --json FILE`",
}


def slim(
    model: Model,
    output_model: Path | None = None,
    *,
    model_check: bool = False,
    input_shapes: Iterable[str] | Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Iterable[str] | None = None,
    no_shape_infer: bool = False,
    skip_optimizations: Iterable[str] | Literal[False] | None = None,
    dtype: str | None = None,
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
        model: A path, or a model, which is not changed.
        output_model: Where to save the result; the path of the model replaces it.
        model_check: Insist on the comparison with the original, which takes place in any case: a model that no engine
            can run is an error.
        input_shapes: The shapes of inputs from now on: `"x:1,3,224,224"` each, or shapes by name.
        outputs: Make these values the outputs. A type (`"y:fp32"`) must be the one that the value has.
        no_shape_infer: Changes nothing: shapes are inferred where passes ask for them, and never written.
        skip_optimizations: Leave these out: constant_folding, graph_fusion, dead_node_elimination,
            subexpression_elimination, weight_tying; or passes.
        skip_fusion_patterns: Leave these out: names of onnxslim's patterns, or of passes.
        save_as_external_data: Save the weights into a file beside output_model.
        model_check_inputs: What the comparison takes for inputs: `"x:1,3,224,224"` or `"x:data.npy"` each.
        verbose: Changes nothing: nothing is printed.
        no_constant_folding: Of older versions: fold no constants.

    The parameters inputs, dtype, size_threshold, inspect and dump_to_disk are refused unless they have their defaults.

    Returns:
        The model, or None if it was saved to output_model.

    Raises:
        onnxforge.UsageError: A parameter that is not supported, or that does not fit.
        onnxforge.Error: The file is no model, or the model is not valid, or was to be checked and cannot be run.
        OSError: The file cannot be read.
    """
    if isinstance(model, (list, tuple)):
        raise onnxforge.UsageError("slim() of a list of models is not supported: use `onnxforge inspect MODEL…`")
    refuse_unsupported(slim, locals(), _NOT_IN_SLIM)
    if save_as_external_data and output_model is None:
        raise onnxforge.UsageError("slim(save_as_external_data=True) needs an output_model")

    structure = read_structure(model)
    fixed = shapes_by_name(structure, _parsed_shapes(structure, "input_shapes", input_shapes))
    skipped = passes_of(skip_optimizations, OPTIMIZATIONS) + passes_of(skip_fusion_patterns, PATTERNS)
    tried = _check_inputs(structure, fixed, model_check_inputs) if model_check else {}
    ready = prepare(model, structure, fixed, mutable=False)
    options: dict[str, Any] = {
        "set_shape": fixed or None,
        "outputs": _typed_outputs(structure, outputs),
        "skip": skipped + ["fold_constants"] * no_constant_folding or None,
        "inputs": tried or None,
        "allow_revert": True,
    }
    external: Literal["auto", "split"] = "split" if save_as_external_data else "auto"
    if output_model is None or not model_check:
        slimmed, result = run_optimizer(ready, output_model, external, **options)
        _insist(result, model_check)
        return slimmed
    with tempfile.TemporaryDirectory() as folder:
        unchecked = os.path.join(folder, os.path.basename(output_model))
        _, result = run_optimizer(ready, unchecked, external, **options)
        _insist(result, model_check)
        onnxforge.save(unchecked, os.fspath(output_model), external="keep")
    return None


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
