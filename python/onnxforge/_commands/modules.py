"""Commands that show and cut out modules of PyTorch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any, Literal, Optional

from .._call import ProgressCallback
from .._models import Inputs, Model, Modules, PathLike, ask, of_same_kind, result_path
from ..results import ExtractResult, ProfileResult, ReportResult
from ._common import Engine, External, as_files, result_model


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
            *as_files(models, folder),
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
        return ExtractResult(answer, result_model(answer, model, output))
    # The model file is the last of those that were written for a part.
    paths = {part["module"]: part["files"][-1]["path"] for part in answer.report["parts"]}
    if output is None:
        made = {path: of_same_kind(model, answer.files[file]) for path, file in paths.items()}
        return ExtractResult(answer, made)
    return ExtractResult(answer, paths)


def report(
    model: Model,
    output: PathLike,
    *,
    modules: Optional[Modules] = None,
    graph: Optional[str] = None,
    set_dim: Optional[Mapping[str, int]] = None,
    follow_links: bool = False,
) -> ReportResult:
    """Write a page (HTML) that shows the modules of a model.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        output: Where to write the page, or the drawing.
        modules: The PyTorch model's modules, as `onnxforge.torch.save_modules` writes them: a path, or what it holds. Not needed where the
            model or a sidecar beside it has them.
        graph: Write one drawing (SVG) instead of the page: what flows between the parts of this module, a path or tag; `/` is the model.
        set_dim: Sizes of named dimensions of the inputs.
        follow_links: Accept external data behind links that leave the model's folder.

    Returns:
        The page, which a notebook shows in place.

    Example:
        >>> onnxforge.report("tiny_bert.onnx", "modules.html").ok
        True
        >>> onnxforge.report("tiny_bert.onnx", "layer.svg", graph="bert.encoder.layer.0").path
        'layer.svg'
    """
    answer = ask("report", model, output=output, modules=modules, graph=graph, set_dim=set_dim, follow_links=follow_links)
    return ReportResult(answer, os.fspath(output))
