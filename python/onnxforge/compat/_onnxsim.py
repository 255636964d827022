"""`simplify`, as onnxsim has it."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import onnxforge

from ._names import FOLDING_ALONE, OPTIMIZERS
from ._shared import (
    is_good,
    is_path,
    make_up,
    passes_of,
    prepare,
    read_structure,
    refuse_unsupported,
    run_optimizer,
    shapes_by_name,
)

if TYPE_CHECKING:
    import numpy
    import onnx

    from ._shared import Model, Shapes


# Parameters that must keep their defaults, and what to use instead.
_NOT_IN_SIMPLIFY = {
    "custom_lib": "libraries of custom operators are not loaded; such operators are kept as they are",
    "initializers_as_constants": "weights are constants here; leave out the passes that compute with them, with "
    "onnxforge.optimize(model, skip=['fold_constants', 'fuse_conv_batchnorm', …])",
    "custom_rewriter": "rewriters do not run between the passes; call yours before or after",
    "function_rewrite_rules": "rules of your own do not run between the passes; apply them before or after, "
    "for example with onnxscript.rewriter",
    "check_rtol": "results are judged by the bounds of the edits and by a float64 run; to judge by a tolerance, use "
    "onnxforge.verify(a, b, tolerance=…)",
    "check_atol": "results are judged by the bounds of the edits and by a float64 run; to judge by a tolerance, use "
    "onnxforge.verify(a, b, tolerance=…)",
    "gemm_fusion_backend": "products are fused for every runtime alike; use skipped_optimizers="
    "['fuse_matmul_add_bias_into_gemm'] or onnxforge.optimize(model, target=…)",
    "profile": "there is no such trace; onnxforge.optimize(model).report has the milliseconds of every pass, and its "
    "trace=… every edit",
    "ort_profile": "constants are not folded in sessions of ONNX Runtime",
    "merge_ort_profile": "constants are not folded in sessions of ONNX Runtime",
    "range_opt": "ranges of values are not used",
    "certify": "there is no solver; every edit and the whole model are verified by running them",
    "check_hazards": "hazards are not looked for",
    "check_gradients": "gradients are not looked at",
    "gradient_precision": "gradients are not looked at",
}


def simplify(
    model: Model,
    check_n: int = 0,
    perform_optimization: bool = True,
    skip_fuse_bn: bool = False,
    overwrite_input_shapes: Shapes | None = None,
    test_input_shapes: Shapes | None = None,
    skipped_optimizers: list[str] | None = None,
    skip_constant_folding: bool = False,
    skip_shape_inference: bool = False,
    input_data: Mapping[str, numpy.ndarray[Any, Any]] | None = None,
    dynamic_input_shape: bool = False,
    custom_lib: str | None = None,
    include_subgraph: bool = False,
    unused_output: Sequence[str] | None = None,
    tensor_size_threshold: str = "1.5GB",
    mutable_initializer: bool = False,
    *,
    initializers_as_constants: bool = True,
    inline_functions: bool = False,
    import_custom_schemas: bool = True,
    input_shapes: Shapes | None = None,
    target_opset_version: int | Literal["latest"] | None = None,
    extra_optimizers: list[str] | None = None,
    custom_rewriter: Callable[..., Any] | None = None,
    function_rewrite_rules: Sequence[tuple[onnx.FunctionProto, onnx.FunctionProto]] | None = None,
    check_rtol: float = 1e-4,
    check_atol: float = 1e-5,
    input_fill: str = "random",
    providers: Sequence[str | tuple[str, dict[str, object]]] | None = None,
    gemm_fusion_backend: Literal["ort_cpu", "unrestricted", "webgpu", "webnn"] = "ort_cpu",
    profile: str | None = None,
    ort_profile: str | None = None,
    merge_ort_profile: bool = False,
    output_path: str | None = None,
    external_data_threshold: str = "100MB",
    range_opt: bool = False,
    certify: bool | None = None,
    check_hazards: bool = False,
    check_gradients: bool = False,
    gradient_precision: str = "fp32",
) -> tuple[onnx.ModelProto, bool]:
    """Makes a model smaller: onnxsim's `simplify`.

    Args:
        model: A path, or a model, which is not changed.
        check_n: How many inputs the comparison with the original tries. 0 leaves it at two, and takes a model that no
            engine can run for good.
        perform_optimization: False folds constants, and nothing else.
        skip_fuse_bn: Keep BatchNormalization beside Conv.
        overwrite_input_shapes: The shapes of inputs from now on, whatever was declared. None stands for the only input.
        test_input_shapes: The shapes of inputs in the comparison.
        skipped_optimizers: Leave these out: names of onnxsim's optimizers, or of passes.
        skip_constant_folding: Fold no constants.
        skip_shape_inference: Changes nothing: shapes are inferred where passes ask for them, and never written.
        input_data: Inputs for the comparison by name.
        dynamic_input_shape: Changes nothing, nor does it in onnxsim: unknown sizes are kept.
        include_subgraph: Changes nothing: bodies of If, Loop and Scan are always simplified.
        unused_output: Cut these outputs off.
        tensor_size_threshold: Constants that are folded make the model grow by no more than this.
        mutable_initializer: Keep initializers that are also inputs as inputs with a default. Otherwise they become
            constants.
        inline_functions: Replace calls of the model's functions by their nodes first.
        import_custom_schemas: Changes nothing: operators that are not of the standard need no schema.
        input_shapes: Deprecated, for overwrite_input_shapes and test_input_shapes at once.
        target_opset_version: Convert the model first; only upwards.
        extra_optimizers: Those of onnxsim's optimizers that run here by default.
        input_fill: What inputs of the comparison are filled with, if check_n is not 0: random, ones, zeros, arange.
        providers: Changes nothing as long as it has CPUExecutionProvider, for constants are folded on the processor.
        output_path: Also save the model here; needs a path as model.
        external_data_threshold: From which size weights go into a file beside output_path.

    The other parameters of onnxsim are refused unless they have their defaults; the message says why.

    Returns:
        The model, and whether it was found to compute the same as the original.

    Raises:
        onnxforge.UsageError: A parameter that is not supported, or that does not fit.
        onnxforge.Error: The file is no model, or the model is not valid or cannot be converted.
        OSError: The file cannot be read.
    """
    refuse_unsupported(simplify, locals(), _NOT_IN_SIMPLIFY)
    _refuse_extra(extra_optimizers or ())
    _refuse_providers(providers)
    if output_path is not None and not is_path(model):
        raise onnxforge.UsageError("simplify(output_path=…) needs a path as model")
    if input_shapes is not None:
        warnings.warn("input_shapes is deprecated; use overwrite_input_shapes", DeprecationWarning, stacklevel=2)
        overwrite_input_shapes = test_input_shapes = input_shapes

    structure = read_structure(model)
    fixed = shapes_by_name(structure, overwrite_input_shapes)
    ready = prepare(model, structure, fixed, mutable_initializer)
    made_up = make_up(structure, fixed, shapes_by_name(structure, test_input_shapes), input_fill, check_n)
    tried = {**made_up, **(input_data or {})}
    options: dict[str, Any] = {
        "opset": "keep" if target_opset_version is None else target_opset_version,
        "set_shape": fixed or None,
        "outputs": _remaining_outputs(structure, unused_output),
        "samples": int(check_n) or 2,
        "inputs": tried or None,
        "allow_revert": True,
    }
    skipped = passes_of(skipped_optimizers, OPTIMIZERS) + ["fuse_conv_batchnorm"] * skip_fuse_bn
    passes = _selected(perform_optimization, not skip_constant_folding, skipped)

    good = True
    if inline_functions and structure.functions:
        flat, inlined = run_optimizer(ready, None, passes=["inline_functions"], allow_revert=True)
        ready, good = flat or ready, is_good(inlined, bool(check_n))
    limit = _bytes("tensor_size_threshold", tensor_size_threshold)
    if limit < _bytes("tensor_size_threshold", "1.5GB") and _growth(ready, **options, **passes) > limit:
        passes = _selected(perform_optimization, False, skipped)
    simplified, result = run_optimizer(ready, output_path, **options, **passes)
    if simplified is None:
        assert output_path is not None
        if os.path.getsize(output_path) > _bytes("external_data_threshold", external_data_threshold):
            onnxforge.save(output_path, output_path, external="split")
        simplified = read_structure(output_path)
    return simplified, is_good(result, bool(check_n)) and good


def _refuse_extra(optimizers: Iterable[str]) -> None:
    for name in optimizers:
        if not OPTIMIZERS.get(name):
            raise onnxforge.UsageError(
                f"simplify(extra_optimizers=[{name!r}]) is not supported: no pass that runs by default does that; "
                "`onnxforge passes` lists those that run on request, for onnxforge.optimize(model, passes=[…])"
            )


def _refuse_providers(providers: Sequence[str | tuple[str, dict[str, object]]] | None) -> None:
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]
    if names and "CPUExecutionProvider" not in names:
        raise onnxforge.UsageError(
            f"simplify(providers={names!r}) is not supported: constants are folded on the processor; "
            "add CPUExecutionProvider"
        )


def _remaining_outputs(structure: onnx.ModelProto, unused: Sequence[str] | None) -> list[str] | None:
    names = [value.name for value in structure.graph.output]
    for name in unused or ():
        if name not in names:
            raise onnxforge.UsageError(f"the model has no output {name!r}; it has {', '.join(names)}")
    return [name for name in names if name not in unused] if unused else None


def _selected(perform_optimization: bool, folding: bool, skipped: list[str]) -> dict[str, Any]:
    """What runs: all but what is left out, what onnxsim does without its optimizers, or nothing."""
    if perform_optimization:
        return {"skip": skipped + ["fold_constants"] * (not folding) or None}
    return {"passes": FOLDING_ALONE if folding else []}


def _bytes(parameter: str, size: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)B", size.strip(), re.IGNORECASE)
    if match is None:
        raise onnxforge.UsageError(f"simplify({parameter}={size!r}): a size such as 100KB or 1.5GB is expected")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def _growth(model: Model, **options: Any) -> int:
    """By how many bytes the constants grow."""
    with tempfile.TemporaryDirectory() as folder:
        _, trial = run_optimizer(model, os.path.join(folder, "trial.onnx"), **options, verify="off")
    return int(trial.report["after"]["constants"] - trial.report["before"]["constants"])
