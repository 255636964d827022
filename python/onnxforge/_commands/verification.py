"""Commands that hold models against each other."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Literal, Optional

from .._call import ProgressCallback
from .._models import Inputs, Model, ask
from ..results import BenchResult, CompareResult, VerifyResult
from ._common import Engine, as_files


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
            *as_files(models, folder),
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
