"""The command that writes models in other formats."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, Optional

from .._call import ProgressCallback
from .._models import Inputs, Model, PathLike, ask
from ..results import ConvertResult
from ._common import Engine, Shape


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
