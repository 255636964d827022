"""The functions of the package. Each is a command of the same name, with models and arrays instead of files where that is handy."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, Union, overload

from ._call import Answer, ProgressCallback, call, listed
from ._rewriters import Rewriter, after_rewriters, rewritten
from ._models import Inputs, Model, Modules, PathLike, ask, of_same_kind, result_path, small_type, to_bytes
from .results import (
    AnalyzeResult,
    AttributeResult,
    AuditResult,
    BenchResult,
    CheckResult,
    CompareResult,
    ConvertResult,
    CoverageResult,
    ExplainResult,
    ExtractResult,
    FingerprintResult,
    Float16Result,
    InferResult,
    InspectResult,
    ModelResult,
    OptimizeResult,
    ProfileResult,
    ReportResult,
    TagResult,
    UpgradeResult,
    VerifyResult,
)

if TYPE_CHECKING:
    from typing import Protocol, TypeVar

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Unpack

    class ModelObject(Protocol):
        """A model of `onnx` or `onnx_ir`: the result comes as the same."""

        ir_version: int

    M = TypeVar("M", bound=ModelObject)

    Arrays = dict[str, npt.NDArray[np.generic]]
else:
    Arrays = dict

External = Literal["auto", "keep", "share", "inline", "split"]
Engine = Literal["auto", "native", "ort", "ort-all", "oracle"]
Target = Literal["portable", "ort", "tflite", "coreml"]
Shape = Sequence[int]
#: A model that is not an object: the result comes as bytes.
Stored = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]


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
        return OptimizeResult(answer, _made(answer, model, output))
    # In memory, then the callbacks and the passes by turns; the files are written in the end.
    first = ask("optimize", model, output=result_path(None), external="auto", **options, **interface)
    comparison = {"inputs": inputs, "samples": samples, "seed": seed, "engine": engine}
    made, done = rewritten(first.files[result_path(None)], listed(rewriters), **comparison)
    answer = after_rewriters(first, ask("optimize", made, **options, **files), done, allow_revert)
    return OptimizeResult(answer, _made(answer, model, output))


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
    return UpgradeResult(answer, _made(answer, model, output))


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
    return Float16Result(answer, _made(answer, model, output))


def convert(
    model: Model,
    output: PathLike,
    *,
    set_dim: Optional[Mapping[str, int]] = None,
    set_shape: Optional[Mapping[str, Shape]] = None,
    weights: Literal["float32", "float16"] = "float32",
    layout: Literal["keep", "nhwc"] = "keep",
    litert: bool = False,
    verify: Literal["off", "final", "each"] = "final",
    samples: int = 2,
    engine: Engine = "auto",
    inputs: Optional[Inputs] = None,
    seed: int = 0,
    ios: Optional[int] = None,
    precision: Optional[Literal["float16", "float32"]] = None,
    range: Optional[Mapping[str, str]] = None,
    shapes: Optional[Mapping[str, str]] = None,
    image: Optional[Sequence[str]] = None,
    author: Optional[str] = None,
    license: Optional[str] = None,
    summary: Optional[str] = None,
    model_version: Optional[str] = None,
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> ConvertResult:
    """Convert a model to TensorFlow Lite or Core ML, and compare what was written with it.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the result: a name that ends in `.tflite` or `.mlpackage`.
        set_dim: Sizes of named dimensions of the inputs.
        set_shape: Shapes of inputs, by name.
        weights: How weights are stored; `float16` halves the file, and results differ by what that rounds.
        layout: The layout of inputs and outputs that are images: that of the model, or channels last.
        litert: Also run the result in LiteRT (package `ai-edge-litert`) before it is written.
        verify: `off` checks nothing.
        samples: How many inputs are tried.
        engine: What computes: `native` is this library, `ort` and `ort-all` ONNX Runtime without and with its optimizations, `oracle` this
            library with every float in 64 bits, `auto` what fits.
        inputs: Inputs by name, as arrays or as the path of an `.npz` archive; others are synthetic.
        seed: Seed for synthetic inputs.
        ios: Core ML: the first iOS version that runs the package, 15 to 18.
        precision: Core ML: the precision in which floats are computed, `float16` (default) or `float32`.
        range: Core ML: sizes that symbolic dimensions may have, as in `{"seq": "1..512"}`.
        shapes: Core ML: the shapes that inputs may have, as in `{"x": "1,3,224,224;1,3,256,256"}`.
        image: Core ML: inputs that are images, as in `["x=0.0078,-1,-1,-1"]`: pixel × scale + bias.
        author: Core ML: the author of the model.
        license: Core ML: its license.
        summary: Core ML: what it does.
        model_version: Core ML: its version.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        What was written, how it compares, and the nodes that have no place in the format.

    Example:
        >>> result = onnxforge.convert("small_cnn.onnx", "small.tflite", set_dim={"batch": 1})
        >>> bool(result), result.refused
        (True, [])
    """
    answer = ask(
        "convert",
        model,
        output=os.fspath(output),
        set_dim=set_dim,
        set_shape=set_shape,
        weights=weights,
        layout=layout,
        litert=litert,
        verify=verify,
        samples=samples,
        engine=engine,
        inputs=inputs,
        seed=seed,
        ios=ios,
        precision=precision,
        range=range,
        shapes=shapes,
        image=image,
        author=author,
        license=license,
        summary=summary,
        model_version=model_version,
        follow_links=follow_links,
        progress=progress,
    )
    return ConvertResult(answer)


def verify(
    first: Model,
    second: Model,
    *,
    samples: Optional[int] = None,
    sweep: Optional[int] = None,
    tolerance: Optional[float] = None,
    engine: Engine = "auto",
    inputs: Optional[Inputs] = None,
    set_dim: Optional[Mapping[str, int]] = None,
    seed: int = 0,
    blocks: bool = False,
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> VerifyResult:
    """Tell whether two models compute the same, and whether a difference is rounding or error.

    Args:
        first: The reference: a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        second: The model that is compared with it.
        samples: How many inputs are tried.
        sweep: Try so many inputs, and recommend a tolerance.
        tolerance: Accept relative differences up to this, instead of those that rounding explains.
        engine: What computes: `native` is this library, `ort` and `ort-all` ONNX Runtime without and with its optimizations, `oracle` this
            library with every float in 64 bits, `auto` what fits.
        inputs: Inputs by name, as arrays or as the path of an `.npz` archive; others are synthetic.
        set_dim: Sizes of named dimensions of the inputs.
        seed: Seed for synthetic inputs.
        blocks: Compare block by block, in little memory.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        The verdict; true where the models compute the same.

    Example:
        >>> small = onnxforge.optimize("tiny_bert.onnx").model
        >>> bool(onnxforge.verify("tiny_bert.onnx", small, samples=1))
        True
    """
    answer = ask(
        "verify",
        first,
        second,
        samples=samples,
        sweep=sweep,
        tolerance=tolerance,
        engine=engine,
        inputs=inputs,
        set_dim=set_dim,
        seed=seed,
        blocks=blocks,
        follow_links=follow_links,
        progress=progress,
    )
    return VerifyResult(answer)


def compare(first: Model, second: Model, *, exact: bool = False, follow_links: bool = False) -> CompareResult:
    """Tell whether two models have the same topology, and where they first differ.

    Args:
        first: The reference: a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        second: The model that is compared with it.
        exact: Names count, too: only metadata may differ.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        True where the topology is the same.

    Example:
        >>> onnxforge.compare("tiny_bert.onnx", "tiny_bert.onnx").sameness
        'identical'
    """
    return CompareResult(ask("compare", first, second, exact=exact, follow_links=follow_links))


def check(model: Model, *, strict: bool = False, follow_links: bool = False) -> CheckResult:
    """Check that a model is valid, and list every problem with its place.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        strict: Count warnings as errors.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        The problems; true where the model is valid.

    Example:
        >>> onnxforge.check("tiny_bert.onnx").valid
        True
    """
    return CheckResult(ask("check", model, strict=strict, follow_links=follow_links))


def inspect(
    *models: Model,
    set_dim: Optional[Mapping[str, int]] = None,
    passes: bool = False,
    jobs: Optional[int] = None,
    follow_links: bool = False,
) -> InspectResult:
    """Show what models are made of: interface, operators, weights, operations and memory; several of them side by side.

    Args:
        models: Models: paths, bytes, `onnx.ModelProto` or `onnx_ir.Model`.
        set_dim: Sizes of named dimensions, for FLOPs and memory; others are 1.
        passes: Report for each pass in how many places it would fire, alone.
        jobs: How many models at a time; as many as the machine has threads unless given.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        One entry for each model.

    Example:
        >>> result = onnxforge.inspect("small_cnn.onnx", "tiny_bert.onnx")
        >>> len(result.models)
        2
    """
    answer = ask("inspect", *models, set_dim=set_dim, passes=passes, jobs=jobs, follow_links=follow_links)
    return InspectResult(answer)


def audit(*models: Model, jobs: Optional[int] = None, follow_links: bool = False) -> AuditResult:
    """Find what passes are about: shape chains, casts, attention, norms, constants and more.

    What a finding is worth is measured: its pass runs, alone, on a copy of the model.

    Args:
        models: Models: paths, bytes, `onnx.ModelProto` or `onnx_ir.Model`.
        jobs: How many models at a time; as many as the machine has threads unless given.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        The findings for each model.

    Example:
        >>> len(onnxforge.audit("tiny_bert.onnx").models)
        1
    """
    return AuditResult(ask("audit", *models, jobs=jobs, follow_links=follow_links))


def fingerprint(*models: Model, jobs: Optional[int] = None, follow_links: bool = False) -> FingerprintResult:
    """Tell what kind of network models are, how sure that is, and why. Names decide nothing.

    Args:
        models: Models: paths, bytes, `onnx.ModelProto` or `onnx_ir.Model`.
        jobs: How many models at a time; as many as the machine has threads unless given.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        Class, confidence and reasons for each model.

    Example:
        >>> onnxforge.fingerprint("tiny_bert.onnx").classes
        ['transformer']
    """
    return FingerprintResult(ask("fingerprint", *models, jobs=jobs, follow_links=follow_links))


def attribute(
    *models: Model,
    passes: Optional[Sequence[str]] = None,
    skip: Optional[Sequence[str]] = None,
    target: Optional[Target] = None,
    verify: bool = False,
    samples: int = 2,
    engine: Engine = "auto",
    seed: int = 0,
    jobs: Optional[int] = None,
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> AttributeResult:
    """Count the nodes that each pass removes: alone on the model as it is, and as one of all.

    Args:
        models: Models: paths, bytes, `onnx.ModelProto` or `onnx_ir.Model`.
        passes: Run only these passes.
        skip: Skip these passes; `PASS.RULE` skips one rule of a pass.
        target: What the model is made for: `portable` unless given, `ort`, `tflite` or `coreml`.
        verify: Compare results with those of the original after each pass.
        samples: How many inputs are tried.
        engine: What computes: `native` is this library, `ort` and `ort-all` ONNX Runtime without and with its optimizations, `oracle` this
            library with every float in 64 bits, `auto` what fits.
        seed: Seed for synthetic inputs.
        jobs: How many models at a time; as many as the machine has threads unless given.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        The nodes that each pass removes.

    Example:
        >>> result = onnxforge.attribute("small_cnn.onnx")
        >>> result.models[0]["after"] < result.models[0]["nodes"]
        True
    """
    answer = ask(
        "attribute",
        *models,
        passes=passes,
        skip=skip,
        target=target,
        verify=verify,
        samples=samples,
        engine=engine,
        seed=seed,
        jobs=jobs,
        follow_links=follow_links,
        progress=progress,
    )
    return AttributeResult(answer)


def bench(
    *models: Model,
    sessions: int = 9,
    seconds: float = 10.0,
    rounds: Optional[int] = None,
    warmup: int = 2,
    threads: int = 1,
    level: Literal["off", "basic", "extended", "all"] = "all",
    inputs: Optional[Inputs] = None,
    set_dim: Optional[Mapping[str, int]] = None,
    seed: int = 0,
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> BenchResult:
    """Measure how long ONNX Runtime takes to load and to run models; tell which is faster than the first.

    Sessions run in processes of their own, so models that are no paths are written to temporary files.

    Args:
        models: Models: paths, bytes, `onnx.ModelProto` or `onnx_ir.Model`.
        sessions: How many sessions of each model there are.
        seconds: How long to measure, all sessions together.
        rounds: How often each session runs, instead of `seconds`.
        warmup: Runs of each session that do not count.
        threads: Threads within an operator and between operators.
        level: How much ONNX Runtime rewrites.
        inputs: Inputs by name, as arrays or as the path of an `.npz` archive; others are synthetic.
        set_dim: Sizes of named dimensions of the inputs.
        seed: Seed for synthetic inputs.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        Medians with intervals, and the comparison with the first model.

    Example:
        >>> result = onnxforge.bench("small_cnn.onnx", sessions=6, rounds=1)
        >>> result.models[0]["latency_ms"]["median"] > 0
        True
    """
    with tempfile.TemporaryDirectory(prefix="onnxforge-") as folder:
        answer = ask(
            "bench",
            *_as_files(models, folder),
            sessions=sessions,
            seconds=seconds,
            rounds=rounds,
            warmup=warmup,
            threads=threads,
            level=level,
            inputs=inputs,
            set_dim=set_dim,
            seed=seed,
            follow_links=follow_links,
            progress=progress,
        )
    return BenchResult(answer)


def profile(
    *models: Model,
    modules: Optional[Modules] = None,
    engine: Literal["auto", "ort", "native"] = "auto",
    sessions: int = 6,
    seconds: float = 10.0,
    warmup: int = 2,
    threads: int = 1,
    level: Literal["off", "basic", "extended", "all"] = "all",
    inputs: Optional[Inputs] = None,
    set_dim: Optional[Mapping[str, int]] = None,
    seed: int = 0,
    flame: Optional[PathLike] = None,
    trace: Optional[PathLike] = None,
    report: Optional[PathLike] = None,
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> ProfileResult:
    """Measure how long each PyTorch module takes in ONNX Runtime, or in the native engine where that is not installed.

    ONNX Runtime reads files, so models that are no paths are written to temporary ones.

    Args:
        models: Models: paths, bytes, `onnx.ModelProto` or `onnx_ir.Model`.
        modules: The PyTorch model's modules, where neither the models nor sidecars beside them have them.
        engine: What runs the models; `auto` is ONNX Runtime where that is installed.
        sessions: How many sessions of each model there are with the profiler; there are as many without.
        seconds: How long to measure each model.
        warmup: Runs of each session that do not count.
        threads: Threads within an operator and between operators.
        level: How much ONNX Runtime rewrites.
        inputs: Inputs by name, as arrays or as the path of an `.npz` archive; others are synthetic.
        set_dim: Sizes of named dimensions of the inputs.
        seed: Seed for synthetic inputs.
        flame: Write a flame graph (SVG) of the first model's modules.
        trace: Write a run of the first model for Perfetto, with modules as nested slices.
        report: Write a page (HTML) that shows the modules of the first model with their times.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        Times of modules, operators, classes and nodes.

    Example:
        >>> result = onnxforge.profile("tiny_bert.onnx", engine="native", sessions=6, seconds=0.1)
        >>> "bert.encoder.layer.0" in result.modules
        True
    """
    with tempfile.TemporaryDirectory(prefix="onnxforge-") as folder:
        answer = ask(
            "profile",
            *_as_files(models, folder),
            modules=modules,
            engine=engine,
            sessions=sessions,
            seconds=seconds,
            warmup=warmup,
            threads=threads,
            level=level,
            inputs=inputs,
            set_dim=set_dim,
            seed=seed,
            flame=flame,
            trace=trace,
            report=report,
            follow_links=follow_links,
            progress=progress,
        )
    return ProfileResult(answer)


def _as_files(models: Sequence[Model], folder: str) -> list[str]:
    """Paths of models; those that are none are written into a folder."""
    words = []
    for place, model in enumerate(models):
        if isinstance(model, (str, os.PathLike)):
            words.append(os.fspath(model))
            continue
        words.append(os.path.join(folder, f"model{place}.onnx"))
        with open(words[-1], "wb") as file:
            file.write(to_bytes(model))
    return words


def run(
    model: Model,
    inputs: Optional[Inputs] = None,
    *,
    outputs: Optional[Sequence[str]] = None,
    engine: Literal["native", "oracle"] = "native",
    set_dim: Optional[Mapping[str, int]] = None,
    set_shape: Optional[Mapping[str, Shape]] = None,
    seed: int = 0,
    memory: float = 16,
    timeout: Optional[float] = None,
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> Arrays:
    """Run a model with the operators of this library; arrays in, arrays out by name.

    Types that numpy lacks (bfloat16, the small floats and integers) come as those of the package `ml_dtypes` where it is installed, and as
    the next wider type of numpy otherwise; as inputs both are accepted. So is an array of objects that are strings.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        inputs: Inputs by name, as arrays or as the path of an `.npz` archive; others are synthetic.
        outputs: These values of the graph instead of the model's outputs.
        engine: In the declared types, or every float in 64 bits (`oracle`).
        set_dim: Sizes of named dimensions of the inputs.
        set_shape: Shapes of inputs, by name.
        seed: Seed for synthetic inputs.
        memory: Gigabytes that values may take.
        timeout: Seconds after which the work ends.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        Arrays by name.

    Example:
        >>> import numpy as np
        >>> outputs = onnxforge.run("small_cnn.onnx", {"image": np.zeros((1, 3, 16, 16), np.float32)})
        >>> sorted(outputs)
        ['logits']
    """
    import io

    import numpy as np

    archive = result_path(None, "outputs.npz")
    answer = ask(
        "run",
        model,
        inputs=inputs,
        output=archive,
        outputs=outputs,
        engine=engine,
        set_dim=set_dim,
        set_shape=set_shape,
        seed=seed,
        memory=memory,
        timeout=timeout,
        follow_links=follow_links,
        progress=progress,
    )
    types = {entry["name"]: small_type(entry["type"]) for entry in answer.report["outputs"]}
    with np.load(io.BytesIO(answer.files[archive]), allow_pickle=False) as arrays:
        named = {name: (arrays[name], types.get(name)) for name in arrays.files}
    return {name: array if dtype is None else array.astype(dtype) for name, (array, dtype) in named.items()}


def save(
    model: Model,
    output: PathLike,
    *,
    external: External = "keep",
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> ModelResult[str]:
    """Save a model, with its weights where you want them; nothing else changes.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the model.
        external: Where weights go: `keep` leaves external weights external, in a data file of the result's own; `share` reads the
            original's data file instead, where that lies in the same folder; `inline`, `split` and `auto` move them.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        The path as `model`, and the files that were written.

    Example:
        >>> onnxforge.save("tiny_bert.onnx", "split.onnx", external="split").model
        'split.onnx'
    """
    answer = ask(
        "save",
        model,
        output=output,
        external=external,
        follow_links=follow_links,
        progress=progress,
    )
    return ModelResult(answer, os.fspath(output))


class TagOptions(TypedDict, total=False):
    """The keywords of `tag`, for the signatures below."""

    modules: Optional[Modules]
    keep: Optional[Sequence[str]]
    all: bool
    no_torch_nn: bool
    consumers: Union[bool, Literal['direct', 'transitive']]
    operations: bool
    strip_traces: bool
    sidecar: bool
    threshold: Optional[Mapping[str, float]]
    external: External
    follow_links: bool
    progress: Optional[ProgressCallback]


@overload
def tag(model: Model, output: PathLike, **options: Unpack[TagOptions]) -> TagResult[str]: ...
@overload
def tag(model: M, output: None = None, **options: Unpack[TagOptions]) -> TagResult[M]: ...
@overload
def tag(model: Stored, output: None = None, **options: Unpack[TagOptions]) -> TagResult[bytes]: ...
def tag(  # pyright: ignore[reportInconsistentOverload]
    model: Model,
    output: Optional[PathLike] = None,
    *,
    modules: Optional[Modules] = None,
    keep: Optional[Sequence[str]] = None,
    all: bool = False,
    no_torch_nn: bool = False,
    consumers: Union[bool, Literal["direct", "transitive"]] = False,
    operations: bool = False,
    strip_traces: bool = False,
    sidecar: bool = True,
    threshold: Optional[Mapping[str, float]] = None,
    external: External = "keep",
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> TagResult[Any]:
    """Write into a model which PyTorch module every node comes from, and a sidecar beside the file.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the result, in a folder that exists; the model's own path replaces it. Without it the result stays in memory:
            `result.model` is of the kind that was handed over, and bytes for a path.
        modules: The PyTorch model's modules, as `onnxforge.torch.save_modules` writes them: a path, or what it holds. Not needed where the
            model or a sidecar beside it has them.
        keep: Classes of `torch.nn` that have tags of their own.
        all: Every module has a tag of its own.
        no_torch_nn: No class of `torch.nn` has.
        consumers: Write, at each node, which modules read its results, too; `transitive` also lists those after them in the sidecar.
        operations: Write `module_to_operations` and `operation_hierarchy` into the model, too.
        strip_traces: Leave out stack traces: lines of source code, with paths of the machine that exported.
        sidecar: Write `<model>_hierarchy.json` beside the file.
        threshold: Percentages of nodes that should be known, by category, instead of the usual ones.
        external: Where weights go: `keep` leaves external weights external, in a data file of the result's own; `share` reads the
            original's data file instead, where that lies in the same folder; `inline`, `split` and `auto` move them.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        The tagged model.

    Example:
        >>> onnxforge.tag("tiny_bert.onnx", "tagged.onnx").coverage > 0.9
        True
    """
    answer = ask(
        "tag",
        model,
        output=result_path(output),
        modules=modules,
        keep=keep,
        all=all,
        no_torch_nn=no_torch_nn,
        consumers="direct" if consumers is True else consumers,
        operations=operations,
        strip_traces=strip_traces,
        threshold=threshold,
        no_sidecar=not sidecar or output is None,
        external=external,
        follow_links=follow_links,
        progress=progress,
    )
    return TagResult(answer, _made(answer, model, output))


def coverage(
    model: Model,
    *,
    modules: Optional[Modules] = None,
    category: Optional[str] = None,
    threshold: Optional[Mapping[str, float]] = None,
    fail_under: Optional[float] = None,
    follow_links: bool = False,
) -> CoverageResult:
    """Tell how many nodes are known to come from a module, by what their operators are for.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        modules: The PyTorch model's modules, as `onnxforge.torch.save_modules` writes them: a path, or what it holds. Not needed where the
            model or a sidecar beside it has them.
        category: Only this category, such as `neural_network_layers`; part of its name is enough.
        threshold: Percentages of nodes that should be known, by category, instead of the usual ones.
        fail_under: `ok` is false below this percentage.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        The share of nodes that are known, by category.

    Example:
        >>> onnxforge.coverage("tiny_bert.onnx").coverage > 0.9
        True
    """
    answer = ask(
        "coverage",
        model,
        modules=modules,
        category=category,
        threshold=threshold,
        fail_under=fail_under,
        follow_links=follow_links,
    )
    return CoverageResult(answer)


def analyze(
    model: Model,
    *,
    modules: Optional[Modules] = None,
    category: Optional[str] = None,
    threshold: Optional[Mapping[str, float]] = None,
    fail_under: Optional[float] = None,
    follow_links: bool = False,
) -> AnalyzeResult:
    """Tell what `coverage` tells, and how many nodes each tag has.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        modules: The PyTorch model's modules, as `onnxforge.torch.save_modules` writes them: a path, or what it holds. Not needed where the
            model or a sidecar beside it has them.
        category: Only this category, such as `neural_network_layers`; part of its name is enough.
        threshold: Percentages of nodes that should be known, by category, instead of the usual ones.
        fail_under: `ok` is false below this percentage.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        The share of nodes that are known, nodes by tag, and warnings.

    Example:
        >>> result = onnxforge.analyze("tiny_bert.onnx")
        >>> len(result.tags) > 10
        True
    """
    answer = ask(
        "analyze",
        model,
        modules=modules,
        category=category,
        threshold=threshold,
        fail_under=fail_under,
        follow_links=follow_links,
    )
    return AnalyzeResult(answer)


def extract(
    model: Model,
    module: str,
    output: Optional[PathLike] = None,
    *,
    modules: Optional[Modules] = None,
    call_index: Optional[int] = None,
    verify: bool = False,
    engine: Engine = "auto",
    inputs: Optional[Inputs] = None,
    set_dim: Optional[Mapping[str, int]] = None,
    external: External = "auto",
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> ExtractResult[Any]:
    """Cut a module out of a model, as a model that runs on its own.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        module: A path such as `encoder.layer.0`, a tag such as `/BertModel/BertEncoder`, or a pattern (`*` for one level, `**` for any
            number).
        output: Where to write the model; for a pattern an existing folder. Without it the result stays in memory.
        modules: The PyTorch model's modules, as `onnxforge.torch.save_modules` writes them: a path, or what it holds. Not needed where the
            model or a sidecar beside it has them.
        call_index: Only this call of a module that is called several times, counted from 0.
        verify: Run the whole model and what was cut out on the same values, and compare bit for bit.
        engine: What computes: `native` is this library, `ort` and `ort-all` ONNX Runtime without and with its optimizations, `oracle` this
            library with every float in 64 bits, `auto` what fits.
        inputs: Inputs by name, as arrays or as the path of an `.npz` archive; others are synthetic.
        set_dim: Sizes of named dimensions of the inputs.
        external: Where weights go: `keep` leaves external weights external, in a data file of the result's own; `share` reads the
            original's data file instead, where that lies in the same folder; `inline`, `split` and `auto` move them.
        follow_links: Accept external data behind links that leave the model's folder.
        progress: Called with how far the work is; an exception in it ends the work.

    Returns:
        The part as a model; for a pattern, models by module.

    Example:
        >>> part = onnxforge.extract("tiny_bert.onnx", "bert.encoder.layer.0", "layer.onnx", verify=True)
        >>> bool(part)
        True
    """
    several = "*" in module
    answer = ask(
        "extract",
        model,
        module=module or "/",
        output=result_path(output, "parts" if several else "result.onnx"),
        modules=modules,
        call=call_index,
        verify=verify,
        engine=None if engine == "auto" and not verify else engine,
        inputs=inputs,
        set_dim=set_dim,
        external=external,
        follow_links=follow_links,
        progress=progress,
    )
    if not several:
        return ExtractResult(answer, _made(answer, model, output))
    # The model file is the last of those that were written for a part.
    paths = {part["module"]: part["files"][-1]["path"] for part in answer.report["parts"]}
    if output is None:
        made = {path: of_same_kind(model, answer.files[file]) for path, file in paths.items()}
        return ExtractResult(answer, made)
    return ExtractResult(answer, paths)


class RestoreOptions(TypedDict, total=False):
    """The keywords of `restore`, for the signatures below."""

    modules: Optional[Modules]
    external: External
    follow_links: bool


@overload
def restore(model: Model, output: PathLike, *, original: Model, **options: Unpack[RestoreOptions]) -> ModelResult[str]: ...
@overload
def restore(model: M, output: None = None, *, original: Model, **options: Unpack[RestoreOptions]) -> ModelResult[M]: ...
@overload
def restore(model: Stored, output: None = None, *, original: Model, **options: Unpack[RestoreOptions]) -> ModelResult[bytes]: ...
def restore(  # pyright: ignore[reportInconsistentOverload]
    model: Model,
    output: Optional[PathLike] = None,
    *,
    original: Model,
    modules: Optional[Modules] = None,
    external: External = "keep",
    follow_links: bool = False,
) -> ModelResult[Any]:
    """Tag a model that another tool made from one whose modules are known, by the names of results that both have.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the result, in a folder that exists; the model's own path replaces it. Without it the result stays in memory:
            `result.model` is of the kind that was handed over, and bytes for a path.
        original: The model that it was made from.
        modules: The PyTorch model's modules, as `onnxforge.torch.save_modules` writes them: a path, or what it holds. Not needed where the
            model or a sidecar beside it has them.
        external: Where weights go: `keep` leaves external weights external, in a data file of the result's own; `share` reads the
            original's data file instead, where that lies in the same folder; `inline`, `split` and `auto` move them.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        The tagged model.

    Example:
        >>> small = onnxforge.optimize("tiny_bert.onnx").model
        >>> bool(onnxforge.restore(small, original="tiny_bert.onnx"))
        True
    """
    answer = ask(
        "restore",
        model,
        origin=original,
        output=result_path(output),
        modules=modules,
        external=external,
        follow_links=follow_links,
    )
    return ModelResult(answer, _made(answer, model, output))


class StripOptions(TypedDict, total=False):
    """The keywords of `strip`, for the signatures below."""

    all: bool
    traces: bool
    external: External
    follow_links: bool


@overload
def strip(model: Model, output: PathLike, **options: Unpack[StripOptions]) -> ModelResult[str]: ...
@overload
def strip(model: M, output: None = None, **options: Unpack[StripOptions]) -> ModelResult[M]: ...
@overload
def strip(model: Stored, output: None = None, **options: Unpack[StripOptions]) -> ModelResult[bytes]: ...
def strip(  # pyright: ignore[reportInconsistentOverload]
    model: Model,
    output: Optional[PathLike] = None,
    *,
    all: bool = False,
    traces: bool = False,
    external: External = "keep",
    follow_links: bool = False,
) -> ModelResult[Any]:
    """Remove what `tag` wrote into a model.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the result, in a folder that exists; the model's own path replaces it. Without it the result stays in memory:
            `result.model` is of the kind that was handed over, and bytes for a path.
        all: Remove also what exporters wrote: nothing names modules any more.
        traces: Remove only lines of source code and paths of the machine that exported.
        external: Where weights go: `keep` leaves external weights external, in a data file of the result's own; `share` reads the
            original's data file instead, where that lies in the same folder; `inline`, `split` and `auto` move them.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        The model without tags.

    Example:
        >>> onnxforge.strip("tiny_bert.onnx", "plain.onnx", all=True).model
        'plain.onnx'
    """
    answer = ask(
        "strip",
        model,
        output=result_path(output),
        all=all,
        traces=traces,
        external=external,
        follow_links=follow_links,
    )
    return ModelResult(answer, _made(answer, model, output))


def infer(
    model: Model,
    output: Optional[PathLike] = None,
    *,
    all: bool = False,
    timeout: Optional[float] = None,
    external: External = "keep",
    follow_links: bool = False,
) -> InferResult:
    """Infer the type and shape of every value, with unknown sizes as expressions of the inputs' dimensions.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Also write the model, with what was found declared in it.
        all: List every value in the report, those in bodies and functions, too.
        timeout: Seconds after which the work ends.
        external: Where weights go: `keep` leaves external weights external, in a data file of the result's own; `share` reads the
            original's data file instead, where that lies in the same folder; `inline`, `split` and `auto` move them.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        The values with their types and shapes in `report`.

    Example:
        >>> onnxforge.infer("small_cnn.onnx").report["total"] > 0
        True
    """
    return InferResult(
        ask(
            "infer",
            model,
            output=output,
            all=all,
            timeout=timeout,
            external=external if output is not None else None,
            follow_links=follow_links,
        )
    )


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


def report(
    model: Model,
    output: PathLike,
    *,
    modules: Optional[Modules] = None,
    set_dim: Optional[Mapping[str, int]] = None,
    follow_links: bool = False,
) -> ReportResult:
    """Write a page (HTML) that shows the modules of a model.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the page.
        modules: The PyTorch model's modules, as `onnxforge.torch.save_modules` writes them: a path, or what it holds. Not needed where the
            model or a sidecar beside it has them.
        set_dim: Sizes of named dimensions of the inputs.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        The page, which a notebook shows in place.

    Example:
        >>> onnxforge.report("tiny_bert.onnx", "modules.html").ok
        True
    """
    answer = ask("report", model, output=output, modules=modules, set_dim=set_dim, follow_links=follow_links)
    return ReportResult(answer, os.fspath(output))


def _made(answer: Answer, like: Any, output: Optional[PathLike]) -> Any:
    """The model that a command made: the path that was given for it, or of the same kind as the one it was made from."""
    if output is not None:
        return os.fspath(output)
    return of_same_kind(like, answer.files[result_path(None)])
