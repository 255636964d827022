"""Commands that tell what models are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from .._call import ProgressCallback
from .._models import Model, PathLike, ask
from ..results import AttributeResult, AuditResult, FingerprintResult, InferResult, InspectResult
from ._common import Engine, External, Target


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
