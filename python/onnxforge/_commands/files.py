"""Commands about files: whether they are valid, what they compute, where weights go."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, Optional

from .._call import ProgressCallback
from .._models import Inputs, Model, PathLike, ask, result_path, small_type
from ..results import CheckResult, ModelResult
from ._common import Arrays, External, Shape


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
