"""`simplify`, as onnxsim has it."""

from __future__ import annotations

import errno
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import onnxforge

from ._edits import MOST_TURNS, agree, bind_weights, free_weights, keep_sizes, rewrite
from ._names import ARITHMETIC, FOLDING_ALONE, OPTIMIZERS
from ._shared import (
    is_good,
    is_path,
    make_up,
    passes_of,
    prepare,
    read_structure,
    refuse_unsupported,
    require_onnx,
    run_optimizer,
    shapes_by_name,
)

if TYPE_CHECKING:
    import numpy
    import onnx

    from ._shared import Model, Shapes


# The tolerances of onnxsim's comparison.
_RTOL, _ATOL = 1e-4, 1e-5

# The backends of onnxsim's fusion into Gemm.
BACKENDS = ("ort_cpu", "unrestricted", "webgpu", "webnn")

# Parameters that must keep their defaults, and what to use instead.
_NOT_IN_SIMPLIFY = {
    "function_rewrite_rules": "rules of your own do not run between the passes; apply them before or after, "
    "for example with onnxscript.rewriter",
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
    check_rtol: float = _RTOL,
    check_atol: float = _ATOL,
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

    Parameters without a meaning here are refused unless they have their defaults; the message says why.

    Args:
        model: A path, or a model, which is not changed.
        check_n: How many inputs the comparison with the original tries. 0 leaves it at two, and takes a model that no
            engine can run for good.
        perform_optimization: False folds constants, and nothing else.
        skip_fuse_bn: Keep BatchNormalization beside Conv.
        overwrite_input_shapes: The shapes of inputs from now on, whatever was declared. None stands for the only
            input, and a size of 0 for what is declared.
        test_input_shapes: The shapes of inputs in the comparison.
        skipped_optimizers: Leave these out: names of onnxsim's optimizers, or of passes.
        skip_constant_folding: Compute no constants. Those that are only reshaped or transposed become what they are
            read as.
        skip_shape_inference: Write no inferred shapes into the model. Passes ask for them all the same.
        input_data: Inputs for the comparison by name.
        dynamic_input_shape: Changes nothing, nor does it in onnxsim: unknown sizes are kept.
        custom_lib: Must be a file. Its operators are kept as they are; a model that has some cannot be compared.
        include_subgraph: Changes nothing: bodies of If, Loop and Scan are always simplified.
        unused_output: Cut these outputs off.
        tensor_size_threshold: Constants that are folded make the model grow by no more than this.
        mutable_initializer: Keep initializers that are also inputs as inputs with a default. Otherwise they become
            constants.
        initializers_as_constants: False leaves weights alone: nothing is computed from initializers of floats.
        inline_functions: Replace calls of the model's functions by their nodes first.
        import_custom_schemas: Changes nothing: operators that are not of the standard need no schema.
        input_shapes: Deprecated, for overwrite_input_shapes and test_input_shapes at once.
        target_opset_version: Convert the model first; only upwards.
        extra_optimizers: Those of onnxsim's optimizers that run here by default.
        custom_rewriter: A function that takes an `onnx.ModelProto` and returns a changed one, None where it changed it
            in place, or False where it changed nothing. It takes turns with the passes. What it makes is compared with
            what it was given, and left out with a `RuntimeWarning` where that computes something else.
        function_rewrite_rules: Refused; use `custom_rewriter`, for example with onnxscript.rewriter.
        check_rtol: With another value than the default, outputs are compared with `numpy.allclose`, too.
        check_atol: As `check_rtol`.
        input_fill: What inputs of the comparison are filled with, if check_n is not 0: random, ones, zeros, arange.
        providers: Must be names that ONNX Runtime knows, if that is installed. Constants are folded by this library, on
            the processor, whose results are the same everywhere.
        gemm_fusion_backend: Changes nothing: Gemm computes the same in every runtime.
        profile: Refused; `onnxforge.optimize(model).report` has the milliseconds of every pass.
        ort_profile: Refused: constants are not folded in sessions of ONNX Runtime.
        merge_ort_profile: Refused, for the same reason.
        output_path: Also save the model here; needs a path as model.
        external_data_threshold: From which size weights go into a file beside output_path.
        range_opt: Refused: ranges of values are not used.
        certify: True is refused: edits and models are verified by running them, without a solver.
        check_hazards: Refused.
        check_gradients: Refused.
        gradient_precision: Refused unless it is the default.

    Returns:
        The model, and whether it was found to compute the same as the original.

    Raises:
        onnxforge.UsageError: A parameter that is not supported, or that does not fit.
        onnxforge.Error: The file is no model, or the model is not valid or cannot be converted.
        FileNotFoundError: There is no such file.

    Example:
        >>> model, ok = onnxforge.simplify("tiny_bert.onnx", check_n=1)
        >>> ok, len(model.graph.node) < 288
        (True, True)
    """
    refuse_unsupported(simplify, locals(), _NOT_IN_SIMPLIFY)
    require_onnx("simplify")
    _refuse_extra(extra_optimizers or ())
    if gemm_fusion_backend not in BACKENDS:
        raise onnxforge.UsageError(f"simplify(gemm_fusion_backend={gemm_fusion_backend!r}): {', '.join(BACKENDS)} is expected")
    _check_providers(providers)
    if custom_lib is not None and not os.path.exists(custom_lib):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), custom_lib)
    rewriters = [custom_rewriter] if custom_rewriter is not None else []
    if output_path is not None and not is_path(model):
        raise onnxforge.UsageError("simplify(output_path=…) needs a path as model")
    if input_shapes is not None:
        warnings.warn("input_shapes is deprecated; use overwrite_input_shapes", DeprecationWarning, stacklevel=2)
        overwrite_input_shapes = test_input_shapes = input_shapes

    structure = read_structure(model)
    shapes = shapes_by_name(structure, overwrite_input_shapes, least=0)
    sized, fixed = keep_sizes(model, shapes)
    ready = prepare(sized, structure, fixed, mutable_initializer)
    freed: list[str] = []
    if not initializers_as_constants:
        ready, freed = free_weights(ready)
    made_up = make_up(structure, fixed, shapes_by_name(structure, test_input_shapes), input_fill, check_n)
    tried = {**made_up, **(input_data or {})}
    options: dict[str, Any] = {
        "opset": "keep" if target_opset_version is None else target_opset_version,
        "set_shape": fixed or None,
        "outputs": _remaining_outputs(structure, unused_output),
        "samples": int(check_n) or 2,
        "inputs": tried or None,
        "allow_revert": True,
        "declare_shapes": not skip_shape_inference,
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
    in_memory = bool(rewriters or freed)
    simplified, result = run_optimizer(ready, None if in_memory else output_path, **options, **passes)
    good = is_good(result, bool(check_n)) and good
    # What fixes the interface was done; the passes go on with what the rewriter made.
    again = {**options, "opset": "keep", "set_shape": None, "outputs": None, **passes}
    for _ in range(MOST_TURNS if rewriters and simplified is not None else 0):
        assert simplified is not None
        simplified, changed, right = rewrite(simplified, rewriters, tried)
        good = good and right
        if not changed:
            break
        simplified, result = run_optimizer(simplified, None, **again)
        good = is_good(result, bool(check_n)) and good
    if simplified is not None and freed:
        bind_weights(simplified, freed)
    if check_n and (check_rtol, check_atol) != (_RTOL, _ATOL):
        found = simplified if simplified is not None else os.fspath(output_path or "")
        good = agree(ready, found, int(check_n), tried, fixed, check_rtol, check_atol) and good
    if output_path is not None:
        if simplified is not None:
            onnxforge.save(simplified, output_path, external="auto")
        if os.path.getsize(output_path) > _bytes("external_data_threshold", external_data_threshold):
            onnxforge.save(output_path, output_path, external="split")
        simplified = read_structure(output_path)
    assert simplified is not None
    return simplified, good


def _refuse_extra(optimizers: Iterable[str]) -> None:
    for name in optimizers:
        if not OPTIMIZERS.get(name):
            raise onnxforge.UsageError(
                f"simplify(extra_optimizers=[{name!r}]) is not supported: no pass that runs by default does that; "
                "`onnxforge passes` lists those that run on request, for onnxforge.optimize(model, passes=[…])"
            )


def _check_providers(providers: Sequence[str | tuple[str, dict[str, object]]] | None) -> None:
    """Constants are folded by this library, whatever would have folded them; a name that nobody knows is a mistake all the same."""
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]
    if not names:
        return
    try:
        from onnxruntime import get_all_providers  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError:
        return
    known = get_all_providers()
    for name in names:
        if name not in known:
            raise onnxforge.UsageError(f"simplify(providers={names!r}): ONNX Runtime has no {name}; it has {', '.join(known)}")


def _remaining_outputs(structure: onnx.ModelProto, unused: Sequence[str] | None) -> list[str] | None:
    names = [value.name for value in structure.graph.output]
    for name in unused or ():
        if name not in names:
            raise onnxforge.UsageError(f"the model has no output {name!r}; it has {', '.join(names)}")
    return [name for name in names if name not in unused] if unused else None


def _selected(perform_optimization: bool, folding: bool, skipped: list[str]) -> dict[str, Any]:
    """What runs: all but what is left out, what onnxsim does without its optimizers, or nothing."""
    if perform_optimization:
        return {"skip": skipped + [ARITHMETIC] * (not folding) or None}
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
