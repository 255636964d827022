"""Commands that write modules of PyTorch into models, and tell how much of them is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, Union, overload

from .._call import ProgressCallback
from .._models import Model, Modules, PathLike, ask, result_path
from ..results import AnalyzeResult, CoverageResult, ModelResult, TagResult
from ._common import External, Stored, result_model

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._common import M


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
    return TagResult(answer, result_model(answer, model, output))


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
    return ModelResult(answer, result_model(answer, model, output))


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
    return ModelResult(answer, result_model(answer, model, output))
