"""`simplify` and `slim`: the calls of onnxsim and onnxslim, with this optimizer behind them.

Both take what the originals take, by the same names and in the same order, and give back what those give back. What
this optimizer has is honoured; what it has not is refused by name, with what to use instead. A parameter that can
change nothing here is accepted, and its description says why.

Models are verified by default, and the caller's model is never changed. Edits that verification finds wrong are left
out of the result, with a `RuntimeWarning`.
"""

from __future__ import annotations

import inspect as introspection
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union

import onnxforge

if TYPE_CHECKING:
    import numpy
    import onnx

    Path = Union[str, "os.PathLike[str]"]
    Model = Union[Path, onnx.ModelProto]
    Shapes = Mapping[Any, Sequence[int]]  # by name; None stands for the only input

__all__ = ["simplify", "slim"]

# What merges reshapes in a row.
_RESHAPES = ("merge_reshapes", "cleanup_attention")

# What each optimizer of onnxsim is called here. Those that stand for nothing do what no pass does by default, so that
# there is nothing to skip.
_OPTIMIZERS: dict[str, tuple[str, ...]] = {
    "adjust_add": (),
    "adjust_slice_and_matmul": (),
    "eliminate_common_subexpression": ("eliminate_common_subexpressions",),
    "eliminate_consecutive_idempotent_ops": ("eliminate_idempotent_ops", "simplify_clips", *_RESHAPES),
    "eliminate_deadend": ("eliminate_dead_nodes",),
    "eliminate_duplicate_initializer": ("eliminate_duplicate_constants",),
    "eliminate_identity": ("eliminate_identity_ops",),
    "eliminate_if_with_const_cond": ("inline_constant_if",),
    "eliminate_loop_with_const_trip_count": ("unroll_loops",),
    "eliminate_nop_cast": ("fold_cast_chains",),
    "eliminate_nop_concat": ("eliminate_identity_ops", "merge_concats"),
    "eliminate_nop_dropout": ("eliminate_identity_ops",),
    "eliminate_nop_expand": ("eliminate_expand_identity",),
    "eliminate_nop_flatten": ("eliminate_noop_reshapes", "cleanup_attention"),
    "eliminate_nop_monotone_argmax": (),
    "eliminate_nop_pad": ("eliminate_identity_ops",),
    "eliminate_nop_reduce": ("eliminate_identity_ops",),
    "eliminate_nop_reshape": ("eliminate_noop_reshapes", "cleanup_attention"),
    "eliminate_nop_softmax": (),
    "eliminate_nop_split": ("eliminate_identity_ops",),
    "eliminate_nop_transpose": ("eliminate_noop_transposes",),
    "eliminate_nop_with_unit": ("eliminate_neutral_operands",),
    "eliminate_optional_get_element": ("eliminate_optionals",),
    "eliminate_optional_has_element": ("eliminate_optionals",),
    "eliminate_reshape_around_elementwise": (),
    "eliminate_reshape_family_on_constant": ("fold_constants",),
    "eliminate_sequence_at_construct": ("eliminate_sequences",),
    "eliminate_sequence_length_construct": ("eliminate_sequences",),
    "eliminate_shape_gather": ("simplify_shape_chains",),
    "eliminate_shape_op": ("simplify_shape_chains",),
    "eliminate_slice_after_shape": ("simplify_shape_chains",),
    "eliminate_unused_initializer": ("eliminate_unused_initializers",),
    "extract_constant_to_initializer": (),
    "fuse_add_bias_into_conv": ("fuse_conv_bias",),
    "fuse_attention": ("fuse_attention",),
    "fuse_bn_into_conv": ("fuse_conv_batchnorm",),
    "fuse_concat_into_reshape": ("simplify_shape_chains",),
    "fuse_consecutive_concats": ("merge_concats",),
    "fuse_consecutive_log_softmax": (),
    "fuse_consecutive_mul": ("merge_scalar_arithmetic",),
    "fuse_consecutive_reduce": ("merge_reduces",),
    "fuse_consecutive_reduce_unsqueeze": ("merge_reduces",),
    "fuse_consecutive_reshapes": _RESHAPES,
    "fuse_consecutive_slices": ("merge_slices",),
    "fuse_consecutive_squeeze_unsqueeze": _RESHAPES,
    "fuse_consecutive_squeezes": _RESHAPES,
    "fuse_consecutive_transposes": ("eliminate_redundant_transposes", "cleanup_attention"),
    "fuse_consecutive_unsqueezes": _RESHAPES,
    "fuse_gelu": ("fuse_gelu",),
    "fuse_gqa": ("fuse_attention",),
    "fuse_layer_norm": ("fuse_layer_norm",),
    "fuse_lp_normalization": (),
    "fuse_matmul_add_bias_into_gemm": ("fuse_matmul_add",),
    "fuse_matmul_add_bias_into_gemm_batched": ("fuse_matmul_add_3d",),
    "fuse_mul_into_conv": ("fuse_conv_scale",),
    "fuse_pad_into_conv": ("fuse_pad",),
    "fuse_pad_into_pool": ("fuse_pad",),
    "fuse_preceding_mul_into_conv": (),
    "fuse_qkv": (),
    "fuse_reshape_family": _RESHAPES,
    "fuse_rms_norm": ("fuse_rms_norm",),
    "fuse_rope": ("fuse_rotary_embedding",),
    "fuse_split_gather_concat": (),
    "fuse_transpose_into_gemm": ("fuse_gemm",),
    "lift_lexical_references": (),
    "nop": (),
    "rename_input_output": (),
    "replace_einsum_with_matmul": ("replace_einsum",),
    "rewrite_arg_reduce_select_last_index": (),
    "rewrite_bool_where": (),
    "rewrite_input_dtype": (),
    "rewrite_where": ("simplify_where",),
    "set_unique_name_for_nodes": (),
    "split_init": (),
    "split_predict": (),
}

# What each fusion pattern of onnxslim is called here.
_PATTERNS: dict[str, tuple[str, ...]] = {
    "EliminationConcat": ("merge_concats",),
    "EliminationReshape": _RESHAPES,
    "EliminationReshapeAs": ("simplify_shape_chains",),
    "EliminationSlice": ("merge_slices",),
    "EliminationTranspose": ("eliminate_redundant_transposes", "cleanup_attention"),
    "EliminationTransposeAsReshape": ("eliminate_noop_transposes", "merge_transposes"),
    "EliminationTransposeViewTranspose": ("merge_transposes",),
    "EliminationUnsqueeze": _RESHAPES,
    "FusionConcatReshape": ("simplify_shape_chains",),
    "FusionConvAdd": ("fuse_conv_bias",),
    "FusionConvBN": ("fuse_conv_batchnorm",),
    "FusionConvMul": ("fuse_conv_scale",),
    "FusionConvTransposeAdd": ("fuse_conv_bias",),
    "FusionConvTransposeBN": ("fuse_conv_batchnorm",),
    "FusionConvTransposeMul": ("fuse_conv_scale",),
    "FusionGelu": ("fuse_gelu",),
    "FusionGemm": ("fuse_matmul_add", "fuse_matmul_add_3d"),
    "FusionGemmAdd": ("fuse_conv_bias", "fuse_gemm"),
    "FusionGemmMul": ("fuse_conv_scale", "fuse_scale_into_weights"),
    "FusionPadConv": ("fuse_pad",),
    "FusionReduce": ("merge_reduces",),
}

# The five optimizations of onnxslim. Every pass that runs by default belongs to one of them.
_OPTIMIZATIONS: dict[str, tuple[str, ...]] = {
    "constant_folding": ("fold_constants", "fold_constant_of_shape_cast", "simplify_shape_chains"),
    "dead_node_elimination": (
        "clean_up_qdq",
        "eliminate_dead_nodes",
        "eliminate_expand_identity",
        "eliminate_idempotent_ops",
        "eliminate_identity_ops",
        "eliminate_neutral_operands",
        "eliminate_noop_reshapes",
        "eliminate_noop_transposes",
        "eliminate_optionals",
        "eliminate_scatter_overwrite",
        "eliminate_sequences",
        "eliminate_unused_initializers",
        "eliminate_zero_bias",
        "eliminate_zero_rnn_state",
        "fold_cast_chains",
        "inline_constant_if",
        "simplify_where",
        "unroll_loops",
    ),
    "graph_fusion": (
        "cancel_transposes",
        "cleanup_attention",
        "eliminate_redundant_transposes",
        "fuse_attention",
        "fuse_conv_batchnorm",
        "fuse_conv_bias",
        "fuse_conv_relu",
        "fuse_conv_scale",
        "fuse_gelu",
        "fuse_gemm",
        "fuse_hard_sigmoid",
        "fuse_instance_norm",
        "fuse_layer_norm",
        "fuse_matmul_add",
        "fuse_matmul_add_3d",
        "fuse_pad",
        "fuse_rms_norm",
        "fuse_rotary_embedding",
        "fuse_scale_into_weights",
        "merge_concats",
        "merge_reduces",
        "merge_reshapes",
        "merge_scalar_arithmetic",
        "merge_slices",
        "merge_transposes",
        "replace_einsum",
        "simplify_clips",
        "split_from_slices",
    ),
    "subexpression_elimination": ("eliminate_common_subexpressions",),
    "weight_tying": ("eliminate_duplicate_constants",),
}

# What onnxsim does without its optimizers.
_FOLDING_ALONE = ["fold_constants", "simplify_shape_chains", "eliminate_dead_nodes", "eliminate_unused_initializers"]

# The most bytes that a model can have as one message.
_LARGEST_MESSAGE = 2**31 - 1

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
_NOT_IN_SLIM = {
    "inputs": "inputs are not moved into the graph; cut a part out with `onnxforge extract`, or with "
    "onnx.utils.extract_model",
    "dtype": "numbers keep their types; convert them before, for example with onnxruntime.transformers.float16",
    "size_threshold": "constants are not limited one by one; all together grow by no more than 1 MiB and 5 %. To fold "
    "none, use skip_optimizations=['constant_folding']",
    "inspect": "use `onnxforge inspect MODEL…`",
    "dump_to_disk": "use `onnxforge infer MODEL --json FILE`",
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
    _refuse_unsupported(simplify, locals(), _NOT_IN_SIMPLIFY)
    _refuse_extra(extra_optimizers or ())
    _refuse_providers(providers)
    if output_path is not None and not _is_path(model):
        raise onnxforge.UsageError("simplify(output_path=…) needs a path as model")
    if input_shapes is not None:
        warnings.warn("input_shapes is deprecated; use overwrite_input_shapes", DeprecationWarning, stacklevel=2)
        overwrite_input_shapes = test_input_shapes = input_shapes

    structure = _structure(model)
    fixed = _by_name(structure, overwrite_input_shapes)
    ready = _prepared(model, structure, fixed, mutable_initializer)
    made_up = _made_up(structure, fixed, _by_name(structure, test_input_shapes), input_fill, check_n)
    tried = {**made_up, **(input_data or {})}
    options: dict[str, Any] = {
        "opset": "keep" if target_opset_version is None else target_opset_version,
        "set_shape": fixed or None,
        "outputs": _remaining_outputs(structure, unused_output),
        "samples": int(check_n) or 2,
        "inputs": tried or None,
        "allow_revert": True,
    }
    skipped = _names(skipped_optimizers, _OPTIMIZERS) + ["fuse_conv_batchnorm"] * skip_fuse_bn
    passes = _selected(perform_optimization, not skip_constant_folding, skipped)

    good = True
    if inline_functions and structure.functions:
        flat, inlined = _optimized(ready, None, passes=["inline_functions"], allow_revert=True)
        ready, good = flat or ready, _is_good(inlined, bool(check_n))
    limit = _bytes("tensor_size_threshold", tensor_size_threshold)
    if limit < _bytes("tensor_size_threshold", "1.5GB") and _growth(ready, **options, **passes) > limit:
        passes = _selected(perform_optimization, False, skipped)
    simplified, result = _optimized(ready, output_path, **options, **passes)
    if simplified is None:
        assert output_path is not None
        if os.path.getsize(output_path) > _bytes("external_data_threshold", external_data_threshold):
            onnxforge.save(output_path, output_path, external="split")
        simplified = _structure(output_path)
    return simplified, _is_good(result, bool(check_n)) and good


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
    _refuse_unsupported(slim, locals(), _NOT_IN_SLIM)
    if save_as_external_data and output_model is None:
        raise onnxforge.UsageError("slim(save_as_external_data=True) needs an output_model")

    structure = _structure(model)
    fixed = _by_name(structure, _parsed_shapes(structure, "input_shapes", input_shapes))
    skipped = _names(skip_optimizations, _OPTIMIZATIONS) + _names(skip_fusion_patterns, _PATTERNS)
    tried = _check_inputs(structure, fixed, model_check_inputs) if model_check else {}
    ready = _prepared(model, structure, fixed, mutable=False)
    options: dict[str, Any] = {
        "set_shape": fixed or None,
        "outputs": _typed_outputs(structure, outputs),
        "skip": skipped + ["fold_constants"] * no_constant_folding or None,
        "inputs": tried or None,
        "allow_revert": True,
    }
    if {name for passes in _OPTIMIZATIONS.values() for name in passes} <= set(skipped):
        options["stop_after"] = 0
    external: Literal["auto", "split"] = "split" if save_as_external_data else "auto"
    if output_model is None or not model_check:
        slimmed, result = _optimized(ready, output_model, external, **options)
        _insist(result, model_check)
        return slimmed
    with tempfile.TemporaryDirectory() as folder:
        unchecked = os.path.join(folder, os.path.basename(output_model))
        _, result = _optimized(ready, unchecked, external, **options)
        _insist(result, model_check)
        onnxforge.save(unchecked, os.fspath(output_model), external="keep")
    return None


def _refuse_unsupported(function: Callable[..., Any], given: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Every parameter in `reasons` must have its default, or be off like that."""
    for name, parameter in introspection.signature(function).parameters.items():
        value = given[name]
        off = not value and not parameter.default and not isinstance(value, str)
        if name in reasons and value != parameter.default and not off:
            raise onnxforge.UsageError(f"{function.__name__}({name}={value!r}) is not supported: {reasons[name]}")


def _refuse_extra(optimizers: Iterable[str]) -> None:
    for name in optimizers:
        if not _OPTIMIZERS.get(name):
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


def _is_path(model: Model) -> bool:
    return isinstance(model, (str, os.PathLike))


def _structure(model: Model) -> onnx.ModelProto:
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


def _true_inputs(structure: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """The inputs that have no default."""
    constants = {tensor.name for tensor in structure.graph.initializer}
    return {value.name: value for value in structure.graph.input if value.name not in constants}


def _sizes_of(value: onnx.ValueInfoProto) -> list[int]:
    """The sizes that an input is declared with; 0 where it is open."""
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _prepared(model: Model, structure: onnx.ModelProto, shapes: Mapping[str, list[int]], mutable: bool) -> Model:
    """A model whose inputs are as meant; a changed copy where they are not.

    Initializers that are also inputs can be given by callers if they are to be `mutable`, and cannot otherwise; before
    version 4 of the format all of them were inputs, and the optimizer takes them for constants. Declared sizes that
    contradict `shapes` become open, and so do those of outputs, which follow from them.
    """
    import onnx

    inputs = {value.name: value for value in structure.graph.input}
    constants = {tensor.name for tensor in structure.graph.initializer}
    defaults = inputs.keys() & constants if mutable == (structure.ir_version < 4) else set()
    contradicted = {
        name
        for name, shape in shapes.items()
        if name in inputs and any(old not in (0, new) for old, new in zip(_sizes_of(inputs[name]), shape))
    }
    if not defaults and not contradicted:
        return model

    changed = onnx.ModelProto()
    changed.CopyFrom(onnx.load(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else model)
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


def _by_name(structure: onnx.ModelProto, shapes: Shapes | None) -> dict[str, list[int]]:
    """Shapes by name; None stands for the only input."""
    named: dict[str, list[int]] = {}
    for name, shape in (shapes or {}).items():
        if name is None:
            if len(_true_inputs(structure)) != 1:
                raise onnxforge.UsageError("a shape without a name is for models of one input; this one has more")
            (name,) = _true_inputs(structure)
        named[name] = [int(size) for size in shape]
        if min(named[name], default=1) < 1:
            raise onnxforge.UsageError(f"the shape {named[name]} of {name!r} has a size below 1")
    return named


def _parsed(structure: onnx.ModelProto, parameter: str, texts: Iterable[str] | None) -> dict[str, str]:
    """What stands behind `NAME:` in each text, by name. Names and what stands behind them may have colons too."""
    values = sorted(_true_inputs(structure), key=len, reverse=True)
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


def _array(value: onnx.ValueInfoProto, shape: Sequence[int], fill: str) -> numpy.ndarray[Any, Any]:
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


def _made_up(
    structure: onnx.ModelProto, fixed: Mapping[str, list[int]], tried: Mapping[str, list[int]], fill: str, check_n: int
) -> dict[str, numpy.ndarray[Any, Any]]:
    """Inputs for the comparison. Those not asked for are left to the optimizer, which knows what they select from."""
    if fill not in ("random", "ones", "zeros", "arange"):
        raise onnxforge.UsageError(f"simplify(input_fill={fill!r}): random, ones, zeros or arange is expected")
    values = _true_inputs(structure)
    for name in tried:
        if name not in values:
            raise onnxforge.UsageError(f"the model has no input {name!r}; it has {', '.join(values)}")
    if fill == "random" or check_n == 0:
        asked = {name: shape for name, shape in tried.items() if fixed.get(name) != shape}
        return {name: _array(values[name], shape, "random") for name, shape in asked.items()}
    shapes = {**{name: _sizes_of(value) for name, value in values.items()}, **fixed, **tried}
    for name, shape in shapes.items():
        if min(shape, default=1) < 1:
            raise onnxforge.UsageError(f"simplify(input_fill={fill!r}) needs test_input_shapes of {name!r}")
    return {name: _array(values[name], shape, fill) for name, shape in shapes.items()}


def _check_inputs(
    structure: onnx.ModelProto, fixed: Mapping[str, list[int]], descriptions: Iterable[str] | None
) -> dict[str, numpy.ndarray[Any, Any]]:
    """What `model_check_inputs` stands for: arrays in files, and shapes."""
    import numpy

    texts = [descriptions] if isinstance(descriptions, str) else list(descriptions or ())
    files = [text for text in texts if text.endswith(".npy")]
    loaded = {name: numpy.load(file) for name, file in _parsed(structure, "model_check_inputs", files).items()}
    shapes = _parsed_shapes(structure, "model_check_inputs", [text for text in texts if text not in files])
    return {**_made_up(structure, fixed, _by_name(structure, shapes), "random", 0), **loaded}


def _remaining_outputs(structure: onnx.ModelProto, unused: Sequence[str] | None) -> list[str] | None:
    names = [value.name for value in structure.graph.output]
    for name in unused or ():
        if name not in names:
            raise onnxforge.UsageError(f"the model has no output {name!r}; it has {', '.join(names)}")
    return [name for name in names if name not in unused] if unused else None


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


def _names(given: Iterable[str] | Literal[False] | None, catalogue: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The passes that names of the original stand for. Others are passes; the optimizer refuses those it has not."""
    if isinstance(given, bool) and given:
        raise onnxforge.UsageError(f"True stands for none of {', '.join(catalogue)}: name what is to be left out")
    names = [given] if isinstance(given, str) else given or ()
    return [each for name in names for each in catalogue.get(name, (name,))]


def _selected(perform_optimization: bool, folding: bool, skipped: list[str]) -> dict[str, Any]:
    """What runs: all but what is left out, what onnxsim does without its optimizers, or nothing."""
    if perform_optimization:
        return {"skip": skipped + ["fold_constants"] * (not folding) or None}
    return {"passes": _FOLDING_ALONE} if folding else {"stop_after": 0}


def _bytes(parameter: str, size: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)B", size.strip(), re.IGNORECASE)
    if match is None:
        raise onnxforge.UsageError(f"simplify({parameter}={size!r}): a size such as 100KB or 1.5GB is expected")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def _growth(model: Model, **options: Any) -> int:
    """By how many bytes the constants grow."""
    _, trial = _optimized(model, None, **options, verify="off")
    return int(trial.report["after"]["constants"] - trial.report["before"]["constants"])


def _optimized(
    model: Model, output: Path | None, external: Literal["auto", "split"] = "auto", **options: Any
) -> tuple[onnx.ModelProto | None, Any]:
    """The optimized model unless it is saved to `output`, and what the optimizer says of it."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        source = _within_reach(model, folder)
        if output is not None:
            return None, onnxforge.optimize(source, os.fspath(output), external=external, **options)
        if not _is_path(source):
            result = onnxforge.optimize(source, **options)
            return result.model, result
        file = os.path.join(folder, "result.onnx")
        result = onnxforge.optimize(source, file, external=external, **options)
        return onnx.load(file), result


def _within_reach(model: Model, folder: str) -> Model:
    """The model; one that is too large for a message as a file in `folder`, with its weights beside it."""
    import onnx

    if not isinstance(model, onnx.ModelProto) or _size(model) <= _LARGEST_MESSAGE:
        return model
    file = os.path.join(folder, "model.onnx")
    parts = onnx.ModelProto()
    parts.CopyFrom(model)
    onnx.save(parts, file, save_as_external_data=True, location="model.onnx.data")
    return file


def _size(model: onnx.ModelProto) -> int:
    """Bytes of a model's weights; protobuf cannot tell the size of what is larger than a message."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def _not_compared(result: Any) -> str | None:
    """Why the whole was not compared with the original; None if it was, or if nothing was changed."""
    reason = (result.report.get("verification") or {}).get("unverified")
    return None if result.verified is not None or reason is None else str(reason)


def _is_good(result: Any, asked: bool) -> bool:
    """Whether the model is the same as the original. What no engine can run is good unless a check was asked for."""
    wrong = {each["pass"] for each in (result.report.get("verification") or {}).get("reverted") or ()}
    if wrong:
        warnings.warn(f"found wrong and left out: {', '.join(sorted(wrong))}", RuntimeWarning, stacklevel=3)
    reason = _not_compared(result)
    if reason is not None and asked:
        warnings.warn(f"not compared with the original: {reason}", RuntimeWarning, stacklevel=3)
    return result.verified is not False and not (reason is not None and asked)


def _insist(result: Any, asked: bool) -> None:
    """Nothing that differs, and with a check asked for nothing that was not compared, is handed out."""
    reason = _not_compared(result) if asked else None
    if reason is not None:
        raise onnxforge.Error(f"not compared with the original: {reason}")
    if not _is_good(result, asked=False):
        raise onnxforge.Error("the result is not the same as the original")
