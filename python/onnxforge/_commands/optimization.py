"""Commands that make models smaller, newer or narrower, and what tells about passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, Union, overload

from .._call import ProgressCallback, call, listed
from .._models import Inputs, Model, PathLike, ask, result_path
from .._rewriters import Rewriter, after_rewriters, rewritten
from ..results import ExplainResult, Float16Result, OptimizeResult, UpgradeResult
from ._common import Engine, External, Shape, Stored, Target, result_model

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._common import M


class OptimizeOptions(TypedDict, total=False):
    """The keywords of `optimize`, for the signatures below."""

    target: Optional[Target]
    opset: Union[int, Literal['keep', 'latest']]
    accuracy: Literal['exact', 'default']
    modules: Optional[Sequence[str]]
    passes: Optional[Sequence[str]]
    skip: Optional[Sequence[str]]
    set_dim: Optional[Mapping[str, int]]
    set_shape: Optional[Mapping[str, Shape]]
    outputs: Optional[Sequence[str]]
    verify: Literal['off', 'final', 'each']
    samples: int
    engine: Engine
    inputs: Optional[Inputs]
    seed: int
    external: External
    stop_after: Optional[int]
    allow_revert: bool
    declare_shapes: bool
    name_nodes: bool
    rewriters: Optional[Sequence[Rewriter]]
    trace: Optional[PathLike]
    report: Optional[PathLike]
    follow_links: bool
    progress: Optional[ProgressCallback]


@overload
def optimize(model: Model, output: PathLike, **options: Unpack[OptimizeOptions]) -> OptimizeResult[str]: ...
@overload
def optimize(model: M, output: None = None, **options: Unpack[OptimizeOptions]) -> OptimizeResult[M]: ...
@overload
def optimize(model: Stored, output: None = None, **options: Unpack[OptimizeOptions]) -> OptimizeResult[bytes]: ...
def optimize(  # pyright: ignore[reportInconsistentOverload]
    model: Model,
    output: Optional[PathLike] = None,
    *,
    target: Optional[Target] = None,
    opset: Union[int, Literal["keep", "latest"]] = "keep",
    accuracy: Literal["exact", "default"] = "default",
    modules: Optional[Sequence[str]] = None,
    passes: Optional[Sequence[str]] = None,
    skip: Optional[Sequence[str]] = None,
    set_dim: Optional[Mapping[str, int]] = None,
    set_shape: Optional[Mapping[str, Shape]] = None,
    outputs: Optional[Sequence[str]] = None,
    verify: Literal["off", "final", "each"] = "final",
    samples: int = 2,
    engine: Engine = "auto",
    inputs: Optional[Inputs] = None,
    seed: int = 0,
    external: External = "keep",
    stop_after: Optional[int] = None,
    allow_revert: bool = False,
    declare_shapes: bool = False,
    name_nodes: bool = False,
    rewriters: Optional[Sequence[Rewriter]] = None,
    trace: Optional[PathLike] = None,
    report: Optional[PathLike] = None,
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> OptimizeResult[Any]:
    """Make a model smaller without changing what it computes.

    Every edit is checked where it happens, and the result is compared with the original; what is found wrong is reverted.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the result, in a folder that exists; the model's own path replaces it. Without it the result stays in memory:
            `result.model` is of the kind that was handed over, and bytes for a path.
        target: What the model is made for: `portable` unless given, `ort`, `tflite` or `coreml`.
        opset: The version of the standard operators to convert to, only upwards: a number, `latest`, or `keep`.
        accuracy: `exact` makes only rewrites that keep every bit; by default rewrites may round, each as much as it declares.
        modules: Rewrite only inside of these modules (paths, tags or patterns such as `encoder.*`), and leave all other nodes as they are.
        passes: Run only these passes, none if the list is empty; `onnxforge.passes()` lists them.
        skip: Skip these passes; `PASS.RULE` skips one rule of a pass.
        set_dim: Sizes of named dimensions of the inputs.
        set_shape: Shapes of inputs, by name.
        outputs: Make these values the outputs, and cut off what they do not need.
        verify: When to compare with the original: `final`, after `each` pass, or `off`.
        samples: How many inputs the comparison tries.
        engine: What computes: `native` is this library, `ort` and `ort-all` ONNX Runtime without and with its optimizations, `oracle` this
            library with every float in 64 bits, `auto` what fits.
        inputs: Inputs for the comparison by name, as arrays or as the path of an `.npz` archive; others are synthetic.
        seed: Seed for synthetic inputs.
        external: Where weights go: `keep` leaves external weights external, in a data file of the result's own; `share` reads the
            original's data file instead, where that lies in the same folder; `inline`, `split` and `auto` move them.
        stop_after: Stop after so many edits.
        allow_revert: `ok` stays true when a faulty rewrite was reverted.
        declare_shapes: Declare inferred types and shapes in `value_info` and of outputs.
        name_nodes: Name nodes that have no name.
        rewriters: Functions that take an `onnx.ModelProto` and return a changed one, or `None` where they changed it in place. They run
            after the passes, and the passes once more after them. What they make is verified like a pass: a result that computes something
            else is left out, and `ok` is false.
        trace: Write every edit to this file, one JSON object per line.
        report: Write a page (HTML) that shows the modules of the result.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        The model and what was done to it.

    Example:
        >>> result = onnxforge.optimize("tiny_bert.onnx", "small.onnx")
        >>> result.nodes_after < result.nodes_before, result.verified
        (True, True)
    """
    chosen = listed(passes)
    options: dict[str, Any] = {
        "target": target,
        "accuracy": accuracy,
        "modules_": modules,
        "passes": chosen,
        "skip": skip,
        "verify": verify,
        "samples": samples,
        "engine": engine,
        "inputs": inputs,
        "seed": seed,
        "stop_after": 0 if chosen == [] else stop_after,
        "allow_revert": allow_revert,
        "declare_shapes": declare_shapes,
        "name_nodes": name_nodes,
        "progress": progress,
    }
    interface: dict[str, Any] = {
        "opset": opset,
        "set_dim": set_dim,
        "set_shape": set_shape,
        "outputs": outputs,
        "follow_links": follow_links,
    }
    files: dict[str, Any] = {
        "output": result_path(output),
        "external": external,
        "trace": trace,
        "report": report,
    }
    if not rewriters:
        answer = ask("optimize", model, **options, **interface, **files)
        return OptimizeResult(answer, result_model(answer, model, output))
    # In memory, then the callbacks and the passes by turns; the files are written in the end.
    first = ask("optimize", model, output=result_path(None), external="auto", **options, **interface)
    comparison = {"inputs": inputs, "samples": samples, "seed": seed, "engine": engine}
    made, done = rewritten(first.files[result_path(None)], listed(rewriters), **comparison)
    answer = after_rewriters(first, ask("optimize", made, **options, **files), done, allow_revert)
    return OptimizeResult(answer, result_model(answer, model, output))


class UpgradeOptions(TypedDict, total=False):
    """The keywords of `upgrade`, for the signatures below."""

    opset: Union[int, Literal['latest']]
    external: External
    follow_links: bool
    progress: Optional[ProgressCallback]


@overload
def upgrade(model: Model, output: PathLike, **options: Unpack[UpgradeOptions]) -> UpgradeResult[str]: ...
@overload
def upgrade(model: M, output: None = None, **options: Unpack[UpgradeOptions]) -> UpgradeResult[M]: ...
@overload
def upgrade(model: Stored, output: None = None, **options: Unpack[UpgradeOptions]) -> UpgradeResult[bytes]: ...
def upgrade(  # pyright: ignore[reportInconsistentOverload]
    model: Model,
    output: Optional[PathLike] = None,
    *,
    opset: Union[int, Literal["latest"]] = "latest",
    external: External = "keep",
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> UpgradeResult[Any]:
    """Convert a model to a newer version of the standard operators without changing what it computes.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the result, in a folder that exists; the model's own path replaces it. Without it the result stays in memory:
            `result.model` is of the kind that was handed over, and bytes for a path.
        opset: The version of the standard operators to convert to, only upwards: a number, `latest`, or `keep`.
        external: Where weights go: `keep` leaves external weights external, in a data file of the result's own; `share` reads the
            original's data file instead, where that lies in the same folder; `inline`, `split` and `auto` move them.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        The converted model.

    Example:
        >>> onnxforge.upgrade("small_cnn.onnx", "newer.onnx", opset=21).model
        'newer.onnx'
    """
    answer = ask(
        "upgrade",
        model,
        output=result_path(output),
        opset=opset,
        external=external,
        follow_links=follow_links,
        progress=progress,
    )
    return UpgradeResult(answer, result_model(answer, model, output))


class Float16Options(TypedDict, total=False):
    """The keywords of `float16`, for the signatures below."""

    keep: Optional[Sequence[str]]
    keep_ops: Optional[Sequence[str]]
    interface: bool
    tolerance: float
    samples: int
    inputs: Optional[Inputs]
    verify_dim: Optional[Mapping[str, int]]
    seed: int
    external: External
    follow_links: bool
    progress: Optional[ProgressCallback]


@overload
def float16(model: Model, output: PathLike, **options: Unpack[Float16Options]) -> Float16Result[str]: ...
@overload
def float16(model: M, output: None = None, **options: Unpack[Float16Options]) -> Float16Result[M]: ...
@overload
def float16(model: Stored, output: None = None, **options: Unpack[Float16Options]) -> Float16Result[bytes]: ...
def float16(  # pyright: ignore[reportInconsistentOverload]
    model: Model,
    output: Optional[PathLike] = None,
    *,
    keep: Optional[Sequence[str]] = None,
    keep_ops: Optional[Sequence[str]] = None,
    interface: bool = False,
    tolerance: float = 0.01,
    samples: int = 2,
    inputs: Optional[Inputs] = None,
    verify_dim: Optional[Mapping[str, int]] = None,
    seed: int = 0,
    external: External = "keep",
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> Float16Result[Any]:
    """Convert a model to float16, where 16 bits are enough.

    Nodes stay in 32 bits where their operator takes no float16, where values would overflow or vanish, and where you say so. The result
    runs beside the original, whose floats have 64 bits for this. Where an output differs by more than `tolerance`, that is a
    `RequestError`.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the result, in a folder that exists; the model's own path replaces it. Without it the result stays in memory:
            `result.model` is of the kind that was handed over, and bytes for a path.
        keep: Names of nodes that stay in 32 bits; `*` stands for anything.
        keep_ops: Operators that stay in 32 bits.
        interface: Convert inputs and outputs, too.
        tolerance: Largest accepted difference of an output, as a share of its largest magnitude.
        samples: How many inputs are tried.
        inputs: Inputs by name, as arrays or as the path of an `.npz` archive; others are synthetic. Real ones show the ranges of values
            better.
        verify_dim: Sizes of named dimensions in synthetic inputs; the model does not change.
        seed: Seed for synthetic inputs.
        external: Where weights go: `keep` leaves external weights external, in a data file of the result's own; `share` reads the
            original's data file instead, where that lies in the same folder; `inline`, `split` and `auto` move them.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        The converted model, the nodes that stay in 32 bits, and how far outputs are from the original's.

    Example:
        >>> result = onnxforge.float16("small_cnn.onnx", "half.onnx", keep_ops=["Gemm"])
        >>> result.worst < 0.01
        True
    """
    answer = ask(
        "float16",
        model,
        output=result_path(output),
        keep=keep,
        keep_ops=keep_ops,
        interface=interface,
        tolerance=tolerance,
        samples=samples,
        inputs=inputs,
        verify_dim=verify_dim,
        seed=seed,
        external=external,
        follow_links=follow_links,
        progress=progress,
    )
    return Float16Result(answer, result_model(answer, model, output))


def passes(name: Optional[str] = None) -> list[dict[str, Any]]:
    """The passes, or one of them: name, accuracy class, when it runs, and what it does.

    Args:
        name: Only this pass.

    Returns:
        One dictionary for each pass.

    Example:
        >>> onnxforge.passes("fuse_gelu")[0]["name"]
        'fuse_gelu'
    """
    answer = call("passes", *([] if name is None else [name]))
    found: Any = answer.report
    return list(found)


def explain(
    name: str,
    model: Model,
    *,
    target: Optional[Target] = None,
    opset: Union[int, Literal["keep", "latest"]] = "keep",
    accuracy: Literal["exact", "default"] = "default",
    passes: Optional[Sequence[str]] = None,
    skip: Optional[Sequence[str]] = None,
    set_dim: Optional[Mapping[str, int]] = None,
    set_shape: Optional[Mapping[str, Shape]] = None,
    outputs: Optional[Sequence[str]] = None,
    alone: bool = False,
    follow_links: bool = False,
) -> ExplainResult:
    """Tell where a pass fires in a model, and why not elsewhere.

    The pass runs among the others, as `optimize` with the same options runs them; `alone` runs it on the model as it is in the file.

    Args:
        name: The pass; one that would not run is added.
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        target: What the model is made for: `portable` unless given, `ort`, `tflite` or `coreml`.
        opset: The version of the standard operators to convert to, only upwards: a number, `latest`, or `keep`.
        accuracy: `exact` makes only rewrites that keep every bit; by default rewrites may round, each as much as it declares.
        passes: Run only these passes.
        skip: Skip these passes; `PASS.RULE` skips one rule of a pass.
        set_dim: Sizes of named dimensions of the inputs.
        set_shape: Shapes of inputs, by name.
        outputs: Make these values the outputs, and cut off what they do not need.
        alone: Run the pass alone, on the model as it is in the file.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        Where it fired and what it left, in `report`.

    Example:
        >>> result = onnxforge.explain("fuse_conv_batchnorm", "small_cnn.onnx")
        >>> result.ok
        True
    """
    return ExplainResult(
        ask(
            "explain",
            model,
            before=name,
            target=target,
            opset=opset,
            accuracy=accuracy,
            passes=listed(passes),
            skip=skip,
            set_dim=set_dim,
            set_shape=set_shape,
            outputs=outputs,
            alone=alone,
            follow_links=follow_links,
        )
    )
