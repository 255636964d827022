"""What PyTorch really computes in each module, recorded while a model runs: the other side of every comparison here.

Nothing of the package under test is used. Hooks tell which module is running, and a dispatch mode sees every operator
that PyTorch executes with its results. A node of a file is then known by the values that it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

# Operators that only hand on what they are given, in another layout or as another type, on either side.
HAND_ON = {
    "Cast",
    "Concat",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}
# Operators whose results one module may share with others, as sizes and constants are.
FROM_NOTHING = {"Constant", "ConstantOfShape", "Range", "Shape", "Size"}
HANDS_ON = {
    "_reshape_alias",
    "_to_copy",
    "_unsafe_view",
    "alias",
    "as_strided",
    "cat",
    "clone",
    "copy",
    "detach",
    "dropout",
    "embedding",
    "expand",
    "index_select",
    "lift_fresh",
    "permute",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "stack",
    "t",
    "transpose",
    "unsqueeze",
    "view",
    "chunk",
    "native_dropout",
    "unbind",
    "split_with_sizes_copy",
    "index",
}


def arrays(value: Any) -> list[np.ndarray]:
    """The tensors in a value."""
    return [leaf.detach().cpu().numpy().copy() for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def paths_of(model: nn.Module) -> dict[nn.Module, set[str]]:
    """All paths of each module."""
    paths: dict[nn.Module, set[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(module, set()).add(path)
    return paths


@dataclass(frozen=True)
class Executed:
    """One result of one operator, and the paths of the module that called it."""

    operator: str
    paths: frozenset[str]
    value: np.ndarray

    @property
    def computes(self) -> bool:
        return self.operator not in HANDS_ON


@dataclass(frozen=True)
class ModuleCall:
    """What one call of a module was given, and gave."""

    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


@dataclass
class Truth:
    """One run of a model."""

    executed: list[Executed] = field(default_factory=list)
    calls: dict[str, list[ModuleCall]] = field(default_factory=dict)
    """By the first path of each module."""
    aliases: dict[str, set[str]] = field(default_factory=dict)
    outputs: list[np.ndarray] = field(default_factory=list)


@contextmanager
def conditions_in_python() -> Iterator[None]:
    """PyTorch's own condition compiles what it runs, and hooks with it."""
    with patch.object(
        torch, "cond", lambda predicate, yes, no, operands: yes(*operands) if predicate else no(*operands)
    ):
        yield


def observe(model: nn.Module, kwargs: dict[str, Any]) -> Truth:
    """Runs the model once, and removes every hook again."""
    truth, paths = Truth(), paths_of(model)
    running: list[nn.Module] = []
    given: list[list[np.ndarray]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            name = func._schema.name.split("::")[1].rstrip("_")
            where = frozenset(paths[running[-1]] if running else {""})
            truth.executed.extend(Executed(name, where, value) for value in arrays(result))
            return result

    def entered(module: nn.Module, args: Any, kwargs: Any) -> None:
        running.append(module)
        given.append(arrays((args, kwargs)))

    def left(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        running.pop()
        truth.calls.setdefault(firsts[module], []).append(ModuleCall(given.pop(), arrays(output)))

    firsts = {module: path for path, module in model.named_modules()}
    truth.aliases = {firsts[module]: known for module, known in paths.items()}
    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(entered, with_kwargs=True))
        handles.append(module.register_forward_hook(left, with_kwargs=True, always_call=True))
    with torch.no_grad(), conditions_in_python(), Watch():
        truth.outputs = arrays(model(**kwargs))
    for handle in handles:
        handle.remove()
    return truth


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime, computing node by node what the file says."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def values_of(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every value of the main graph."""
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    known = {port.name for port in wider.graph.output}
    made = [name for node in wider.graph.node for name in node.output if name and name not in known]
    wider.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    running = session(wider)
    names = [port.name for port in running.get_outputs()]
    return {**inputs, **dict(zip(names, running.run(names, inputs)))}


def close(one: np.ndarray, other: np.ndarray, share: float = 1e-5) -> bool:
    """The same values, up to rounding; types count only as far as they are exact or not."""
    if one.shape != other.shape or (one.dtype.kind == "f") != (other.dtype.kind == "f"):
        return False
    if one.dtype.kind != "f":
        return bool((one == other).all())
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return False
    finite = np.isfinite(one)
    scale = max(float(np.abs(other[finite]).max(initial=0.0)), 1e-6)
    return float(np.abs(one[finite] - other[finite]).max(initial=0.0)) <= share * scale


class Oracle:
    """Which modules a value may come from."""

    def __init__(self, truth: Truth) -> None:
        self._by_size: dict[int, list[tuple[Executed, np.ndarray]]] = {}
        for found in truth.executed:
            if not trivial(found.value):
                self._by_size.setdefault(found.value.size, []).append((found, np.sort(found.value, axis=None)))

    def modules(self, operator: str, value: np.ndarray) -> set[str]:
        """The paths of the modules in which PyTorch computed (or, for nodes that hand on, laid out) the very value;
        none where it did not.
        """
        if trivial(value):
            return set()
        candidates = self._by_size.get(value.size, [])
        hands_on = operator in HAND_ON
        alike = [
            found
            for found, _ in candidates
            if found.computes != hands_on and close(value.reshape(found.value.shape), found.value)
        ]
        if hands_on:
            alike = [found for found in alike if found.value.shape == value.shape]
        elif not alike:
            ordered = np.sort(value, axis=None)
            alike = [found for found, sorted_values in candidates if found.computes and close(ordered, sorted_values)]
        return {path for found in alike for path in found.paths}

    def of_nodes(
        self, graph: onnx.GraphProto, values: dict[str, np.ndarray]
    ) -> tuple[dict[str, set[str]], dict[str, str]]:
        """What must be said of nodes, by their first result: the modules of which one has to be named, from the
        values that a node computes; and the module of nodes that compute inside of one operator of PyTorch: no value
        of theirs is known, but all that is computed from them is, and belongs to one module.
        """
        seen: dict[str, set[str]] = {}
        for node in graph.node:
            # PyTorch does nothing where a tensor has the type and layout already.
            if (
                node.op_type in HAND_ON
                and node.input[0] in values
                and close(values[node.input[0]], values[node.output[0]])
            ):
                continue
            found = {
                path for name in node.output if name in values for path in self.modules(node.op_type, values[name])
            }
            if found:
                seen[node.output[0]] = found
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        ahead: dict[str, set[str] | None] = {}
        inside: dict[str, str] = {}
        for node in reversed(graph.node):
            sets = [
                seen.get(reader.output[0], ahead.get(reader.output[0]))
                for name in node.output
                for reader in readers.get(name, [])
            ]
            united: set[str] | None = set.union(*sets) if sets and None not in sets else None  # type: ignore[arg-type]
            ahead[node.output[0]] = united
            if (
                node.output[0] not in seen
                and node.op_type not in HAND_ON | FROM_NOTHING
                and united is not None
                and len(united) == 1
            ):
                inside[node.output[0]] = next(iter(united))
        return seen, inside


def trivial(value: np.ndarray) -> bool:
    """Values that may come from anywhere: none, few of them, or all the same."""
    return value.size < 4 or bool((value == value.flat[0]).all())
