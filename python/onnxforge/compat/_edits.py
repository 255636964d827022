"""What is done to an `onnx.ModelProto` before and after the optimizer sees it."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnxforge

from .._models import ask
from .._rewriters import Rewriter, apply_rewriter
from ._shared import changed_copy

if TYPE_CHECKING:
    import numpy
    import onnx

    from ._shared import Model

#: How often the custom rewriters and the optimizer take turns at most.
MOST_TURNS = 4
#: Element types by the names that onnxslim has for them.
KINDS = {"fp16": "FLOAT16", "fp32": "FLOAT", "int32": "INT32", "bool": "BOOL"}


def keep_sizes(model: Model, shapes: Mapping[str, list[int]]) -> tuple[Model, dict[str, list[int]]]:
    """The model with the sizes of `shapes` that are not 0, and the shapes that have none.

    A 0 keeps what is declared, a number or a name.
    """
    partial = {name: shape for name, shape in shapes.items() if 0 in shape}
    if not partial:
        return model, dict(shapes)
    changed = changed_copy(model)
    del changed.graph.value_info[:]
    for value in changed.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_value")
    for value in changed.graph.input:
        shape = partial.get(value.name)
        if shape is None:
            continue
        dims = value.type.tensor_type.shape.dim
        if len(dims) != len(shape):
            raise onnxforge.UsageError(f"{value.name!r} has {len(dims)} dimensions, and {shape} has {len(shape)}")
        for dim, size in zip(dims, shape):
            if size:
                dim.dim_value = size
    return changed, {name: shape for name, shape in shapes.items() if name not in partial}


def free_weights(model: Model) -> tuple[Model, list[str]]:
    """The model with its float weights as inputs that have defaults, which no pass computes with; and which ones these are."""
    import onnx

    floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16}
    changed = changed_copy(model)
    graph = changed.graph
    taken = {value.name for value in graph.input}
    freed = [tensor for tensor in graph.initializer if tensor.data_type in floats and tensor.name not in taken]
    for tensor in freed:
        graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    changed.ir_version = max(changed.ir_version, 4)
    return changed, [tensor.name for tensor in freed]


def bind_weights(model: onnx.ModelProto, freed: Iterable[str]) -> None:
    """Undoes `free_weights` in what came of the model."""
    gone = set(freed)
    kept = [value for value in model.graph.input if value.name not in gone]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def start_at(model: Model, inputs: Sequence[str]) -> onnx.ModelProto:
    """The model with these values as its inputs: what computes them goes. A type stands behind a colon."""
    import onnx

    changed = changed_copy(model)
    graph = changed.graph
    inferred = onnx.shape_inference.infer_shapes(changed).graph
    known = {value.name: value for value in [*inferred.input, *inferred.value_info, *inferred.output]}
    made = {name for node in graph.node for name in node.output if name}
    wanted: dict[str, onnx.ValueInfoProto] = {}
    for text in inputs:
        name, _, kind = text.rpartition(":")
        if kind not in KINDS or not name:
            name, kind = text, ""
        if name not in made and name not in known:
            raise onnxforge.UsageError(f"slim(inputs=[{text!r}]): no value of the graph is called {name!r}")
        value = onnx.ValueInfoProto()
        value.CopyFrom(known.get(name, onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)))
        declared = value.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
        asked = getattr(onnx.TensorProto, KINDS[kind]) if kind else declared
        if asked != declared:
            raise onnxforge.UsageError(f"slim(inputs=[{text!r}]): {name!r} is not declared as {kind}")
        value.type.tensor_type.elem_type = declared
        wanted[name] = value
    for node in graph.node:
        for place, name in enumerate(node.output):
            if name in wanted:
                node.output[place] = ""
    constants = {tensor.name for tensor in graph.initializer}
    needed = _needed(graph, [value.name for value in graph.output])
    dangling = [
        value.name for value in graph.input if value.name in needed and value.name not in {*wanted, *constants}
    ]
    if dangling:
        raise onnxforge.UsageError(f"slim(inputs=…): the outputs also need {', '.join(map(repr, dangling))}; name these, too")
    kept = [node for node in graph.node if any(name in needed for name in node.output)]
    del graph.node[:], graph.input[:]
    graph.node.extend(kept)
    graph.input.extend(wanted.values())
    return changed


def _needed(graph: onnx.GraphProto, names: Iterable[str]) -> set[str]:
    """Everything that these values are computed from, and they themselves."""
    makers = {name: node for node in graph.node for name in node.output if name}
    needed: set[str] = set()
    open_ = list(names)
    while open_:
        name = open_.pop()
        if name in needed or not name:
            continue
        needed.add(name)
        if name in makers:
            open_ += _read(makers[name])
    return needed


def _read(node: onnx.NodeProto) -> list[str]:
    """What a node reads, also in its bodies."""
    read = list(node.input)
    for attribute in node.attribute:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            read += [name for inner in body.node for name in _read(inner)]
            read += [value.name for value in body.output]
    return read


def rewrite(
    model: onnx.ModelProto,
    rewriters: Sequence[Rewriter],
    inputs: Mapping[str, numpy.ndarray[Any, Any]] | None,
) -> tuple[onnx.ModelProto, bool, bool]:
    """The model after each rewriter has had it once; whether something changed, and whether all of it is right.

    What a rewriter makes is compared with what it was given. Something that computes another thing is left out.
    """
    changed, good = False, True
    for rewriter in rewriters:
        model, did = apply_rewriter(model, rewriter, samples=2, inputs=inputs or None)
        if did.left_out is not None:
            warnings.warn(f"what {did.name} made is left out: {did.left_out}", RuntimeWarning, stacklevel=4)
            good = False
        changed = changed or did.changed
    return model, changed, good


def agree(
    original: Model,
    simplified: Model,
    samples: int,
    given: Mapping[str, numpy.ndarray[Any, Any]],
    shapes: Mapping[str, list[int]],
    rtol: float,
    atol: float,
) -> bool:
    """Whether no element of an output is further apart than `numpy.allclose` allows."""
    import numpy

    for seed in range(samples):
        try:
            inputs, expected = run_on_made_up(original, dict(given), dict(shapes), seed)
            found = onnxforge.run(simplified, inputs)
        except onnxforge.UsageError:
            raise
        except onnxforge.Error as error:
            warnings.warn(f"not compared with the original: {error}", RuntimeWarning, stacklevel=3)
            return False
        for name in expected.keys() & found.keys():
            one, other = expected[name], found[name]
            if one.shape != other.shape:
                return False
            same = numpy.allclose(other, one, rtol, atol, equal_nan=True) if one.dtype.kind in "fcV" else numpy.array_equal(one, other)
            if not same:
                return False
    return True


def run_on_made_up(
    model: Model, given: dict[str, Any], shapes: dict[str, list[int]], seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of a run, synthetic where they are not given, and its outputs."""
    with tempfile.TemporaryDirectory() as folder:
        archives = [os.path.join(folder, name) for name in ("inputs.npz", "outputs.npz")]
        asked = {name: shape for name, shape in shapes.items() if name not in given}
        ask("run", model, inputs=given or None, set_shape=asked or None, seed=seed, save_inputs=archives[0], output=archives[1])
        return tuple(_loaded(path) for path in archives)  # type: ignore[return-value]


def _loaded(path: str) -> dict[str, Any]:
    import numpy

    if not os.path.exists(path):
        return {}
    with numpy.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
