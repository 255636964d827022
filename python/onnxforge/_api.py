"""The functions of the package. Each is a command of the same name, with models and arrays instead of files where that is handy."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from ._call import Answer, ProgressCallback, call, listed
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
    ExtractResult,
    FingerprintResult,
    InspectResult,
    ModelResult,
    OptimizeResult,
    ProfileResult,
    Result,
    TagResult,
    UpgradeResult,
    VerifyResult,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Arrays = dict[str, npt.NDArray[np.generic]]
else:
    Arrays = dict

External = Literal["auto", "keep", "share", "inline", "split"]
Engine = Literal["auto", "native", "ort", "ort-all", "oracle"]
Target = Literal["portable", "ort", "tflite", "coreml"]
Shape = Sequence[int]


def optimize(
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
    trace: Optional[PathLike] = None,
    report: Optional[PathLike] = None,
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> OptimizeResult:
    """Make a model smaller without changing what it computes.

    Every edit is checked where it happens, and the result is compared with the original; what is found wrong is left out.

    :param model: a path, bytes, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
    :param output: where to write the result, in a folder that exists; the model's own path replaces it. Without it the result stays in
        memory: ``result.model`` is of the kind that was handed over, and bytes for a path.
    :param target: what the model is made for: ``portable``, unless told otherwise.
    :param opset: the version of the standard operators from now on; only upwards. ``latest`` is the newest that ONNX Runtime loads; so is a
        number for the target ``ort``, up to that.
    :param accuracy: ``exact`` makes only rewrites that keep every bit, and its comparison demands identical bits; by default rewrites may
        round, each as much as it declares.
    :param modules: rewrite only inside of these modules (paths, tags or patterns such as ``encoder.*``), and leave all other nodes as they
        are.
    :param passes: run only these passes, none if there are none in it; ``onnxforge passes`` lists them.
    :param skip: leave these passes out.
    :param set_dim: sizes of named dimensions of the inputs, from now on.
    :param set_shape: shapes of inputs, from now on.
    :param outputs: make these values the outputs, and cut off what they do not need.
    :param verify: compare in the end, after each pass, or check nothing.
    :param samples: how many inputs the comparison tries.
    :param engine: what computes for the comparison.
    :param inputs: inputs for the comparison by name, as arrays or as the path of an ``.npz`` archive; others are made up.
    :param seed: other seeds make up other inputs.
    :param external: where weights go: ``keep`` leaves external weights external, in a data file of the result's own; ``share`` reads the
        original's data file instead, where that lies in the same folder; ``inline``, ``split`` and ``auto`` move them.
    :param stop_after: stop after so many edits.
    :param allow_revert: ``ok`` stays true when something wrong was found and left out.
    :param trace: write every edit to this file, one JSON object per line.
    :param report: write a page (HTML) that shows the modules of the result.
    :param follow_links: accept external data behind links that leave the model's folder.
    :param progress: called with how far the work is; an exception in it ends the work.
    """
    chosen = listed(passes)
    answer = ask(
        "optimize",
        model,
        output=result_path(output),
        target=target,
        opset=opset,
        accuracy=accuracy,
        modules_=modules,
        passes=chosen,
        skip=skip,
        set_dim=set_dim,
        set_shape=set_shape,
        outputs=outputs,
        verify=verify,
        samples=samples,
        engine=engine,
        inputs=inputs,
        seed=seed,
        external=external,
        stop_after=0 if chosen == [] else stop_after,
        allow_revert=allow_revert,
        trace=trace,
        report=report,
        follow_links=follow_links,
        progress=progress,
    )
    return OptimizeResult(answer, _made(answer, model, output))


def upgrade(
    model: Model,
    output: Optional[PathLike] = None,
    *,
    opset: Union[int, Literal["latest"]] = "latest",
    external: External = "keep",
    follow_links: bool = False,
    progress: Optional[ProgressCallback] = None,
) -> UpgradeResult:
    """Convert a model to a newer version of the standard operators without changing what it computes."""
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

    :param model: a path, bytes, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
    :param output: where to write the result: a name that ends in ``.tflite`` or ``.mlpackage``.
    :param set_dim: sizes of named dimensions of the inputs, from now on.
    :param set_shape: shapes of inputs, from now on.
    :param weights: how weights are stored; ``float16`` halves the file, and results differ by what that rounds.
    :param layout: the layout of inputs and outputs that are images: that of the model, or channels last.
    :param litert: also run the result in LiteRT (package ``ai-edge-litert``) before it is written.
    :param verify: ``off`` checks nothing.
    :param samples: how many inputs the comparison tries.
    :param engine: what computes for the comparison.
    :param inputs: inputs for the comparison by name, as arrays or as the path of an ``.npz`` archive; others are made up.
    :param seed: other seeds make up other inputs.
    :param ios: Core ML: the first iOS version that runs the package, 15 to 18.
    :param precision: Core ML: the precision in which floats are computed; ``float16`` unless told otherwise.
    :param range: Core ML: sizes that symbolic dimensions may have, as in ``{"seq": "1..512"}``.
    :param shapes: Core ML: the shapes that inputs may have, as in ``{"x": "1,3,224,224;1,3,256,256"}``.
    :param image: Core ML: inputs that are images, as in ``["x=0.0078,-1,-1,-1"]``: pixel × scale + bias.
    :param author: Core ML: the author of the model.
    :param license: Core ML: its license.
    :param summary: Core ML: what it does.
    :param model_version: Core ML: its version.
    :param follow_links: accept external data behind links that leave the model's folder.
    :param progress: called with how far the work is; an exception in it ends the work.
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

    :param samples: how many inputs are tried.
    :param sweep: try so many, and recommend a tolerance.
    :param tolerance: relative differences up to this are good, instead of those that rounding explains.
    :param engine: what computes.
    :param inputs: inputs by name, as arrays or as the path of an ``.npz`` archive; others are made up.
    :param set_dim: sizes of named dimensions.
    :param blocks: compare block by block, in little memory.
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

    :param exact: names count, too: only metadata may differ.
    """
    return CompareResult(ask("compare", first, second, exact=exact, follow_links=follow_links))


def check(model: Model, *, strict: bool = False, follow_links: bool = False) -> CheckResult:
    """Check that a model is valid, and list every problem with its place.

    :param strict: count warnings as errors.
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

    :param set_dim: sizes of named dimensions, for operations and memory; others are 1.
    :param passes: tell for each pass in how many places it would fire, alone.
    :param jobs: how many models at a time; as many as the machine has threads unless told.
    """
    answer = ask("inspect", *models, set_dim=set_dim, passes=passes, jobs=jobs, follow_links=follow_links)
    return InspectResult(answer)


def audit(*models: Model, jobs: Optional[int] = None, follow_links: bool = False) -> AuditResult:
    """Find what passes are about: shape chains, casts, attention, norms, constants and more.

    What a finding is worth is measured: its pass runs, alone, on a copy of the model.

    :param jobs: how many models at a time; as many as the machine has threads unless told.
    """
    return AuditResult(ask("audit", *models, jobs=jobs, follow_links=follow_links))


def fingerprint(*models: Model, jobs: Optional[int] = None, follow_links: bool = False) -> FingerprintResult:
    """Tell what kind of network models are, how sure that is, and why. Names decide nothing.

    :param jobs: how many models at a time; as many as the machine has threads unless told.
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

    :param verify: compare results with those of the original after each pass.
    :param jobs: how many models at a time; as many as the machine has threads unless told.
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

    :param sessions: how many sessions of each model there are.
    :param seconds: how long to measure, all sessions together.
    :param rounds: how often each session runs, instead of ``seconds``.
    :param threads: threads within an operator and between operators.
    :param level: how much ONNX Runtime rewrites.
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

    :param modules: the PyTorch model's modules, where neither the models nor sidecars beside them tell.
    :param sessions: how many sessions of each model there are with the profiler; there are as many without.
    :param seconds: how long to measure each model.
    :param threads: threads within an operator and between operators.
    :param level: how much ONNX Runtime rewrites.
    :param flame: write a flame graph (SVG) of the first model's modules.
    :param trace: write a run of the first model for Perfetto, with modules as nested slices.
    :param report: write a page (HTML) that shows the modules of the first model with their times.
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

    Types that numpy lacks (bfloat16, the small floats and integers) come as those of the package ``ml_dtypes`` where it is installed, and as
    the next wider type of numpy otherwise; as inputs both are accepted. So is an array of objects that are strings.

    :param inputs: inputs by name; those that are not given are made up.
    :param outputs: these values of the graph instead of the model's outputs.
    :param engine: in the declared types, or every float in 64 bits (``oracle``).
    :param memory: gigabytes that values may take.
    :param timeout: seconds.
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
) -> ModelResult:
    """Save a model, with its weights where you want them; nothing else changes."""
    answer = ask(
        "save",
        model,
        output=output,
        external=external,
        follow_links=follow_links,
        progress=progress,
    )
    return ModelResult(answer, os.fspath(output))


def tag(
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
) -> TagResult:
    """Write into a model which PyTorch module every node comes from, and a sidecar beside the file.

    :param output: where to write the model; the same path replaces it. Without it the result stays in memory.
    :param modules: the PyTorch model's modules, as :func:`onnxforge.torch.save_modules` writes them: a path, or what it holds.
    :param keep: classes of ``torch.nn`` that have tags of their own.
    :param all: every module has a tag of its own.
    :param no_torch_nn: no class of ``torch.nn`` has.
    :param consumers: write, at each node, which modules read its results, too; ``transitive`` also lists those after them in the sidecar.
    :param operations: write ``module_to_operations`` and ``operation_hierarchy`` into the model, too.
    :param strip_traces: remove lines of source code, with paths of the machine that exported.
    :param sidecar: write ``<model>_hierarchy.json`` beside the file.
    :param threshold: percentages of nodes that should be known, by category, instead of the usual ones.
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

    :param category: only this category, such as ``neural_network_layers``; part of its name is enough.
    :param threshold: percentages of nodes that should be known, by category, instead of the usual ones.
    :param fail_under: ``ok`` is false below this percentage.
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
    """Tell what :func:`coverage` tells, and how many nodes each tag has.

    :param category: only this category, such as ``neural_network_layers``; part of its name is enough.
    :param threshold: percentages of nodes that should be known, by category, instead of the usual ones.
    :param fail_under: ``ok`` is false below this percentage.
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
) -> ExtractResult:
    """Cut a module out of a model, as a model that runs on its own.

    :param module: a path such as ``encoder.layer.0``, a tag such as ``/BertModel/BertEncoder``, or a pattern (``*`` for one level, ``**``
        for any number).
    :param output: where to write the model; for a pattern an existing folder. Without it the result stays in memory.
    :param call_index: only this call of a module that is called several times, counted from 0.
    :param verify: run the whole model and what was cut out on the same values, and compare bit for bit.
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


def restore(
    model: Model,
    output: Optional[PathLike] = None,
    *,
    original: Model,
    modules: Optional[Modules] = None,
    external: External = "keep",
    follow_links: bool = False,
) -> ModelResult:
    """Tag a model that another tool made from one whose modules are known, by the names of results that both have.

    :param original: the model that it was made from.
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


def strip(
    model: Model,
    output: Optional[PathLike] = None,
    *,
    all: bool = False,
    traces: bool = False,
    external: External = "keep",
    follow_links: bool = False,
) -> ModelResult:
    """Remove what :func:`tag` wrote into a model.

    :param all: also what exporters wrote: nothing tells of modules any more.
    :param traces: only lines of source code and paths of the machine that exported.
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
) -> Result:
    """Infer the type and shape of every value, with unknown sizes as expressions of the inputs' dimensions.

    :param output: also write the model, with what was found declared in it.
    :param all: list every value in the report, those in bodies and functions, too.
    :param timeout: seconds.
    """
    return Result(
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
    """The passes, or one of them: name, accuracy class, when it runs, and what it does."""
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
) -> Result:
    """Tell where a pass fires in a model, and why not elsewhere.

    The pass runs among the others, as :func:`optimize` with the same options runs them; ``alone`` runs it on the model as it is in the file.

    :param name: the pass; one that would not run is added.
    """
    return Result(
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
) -> Result:
    """Write a page (HTML) that shows the modules of a model."""
    return Result(
        ask(
            "report",
            model,
            output=output,
            modules=modules,
            set_dim=set_dim,
            follow_links=follow_links,
        )
    )


def _made(answer: Answer, like: Any, output: Optional[PathLike]) -> Any:
    """The model that a command made: the path that was given for it, or of the same kind as the one it was made from."""
    if output is not None:
        return os.fspath(output)
    return of_same_kind(like, answer.files[result_path(None)])
