"""Exports of the models, each made once: by PyTorch alone, and by the package under test."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import models
import numpy as np
import onnx
import onnxforge.torch
import torch
import truth
from onnxforge.torch import _arguments, _pin, _recorder

STRATEGIES = ("dynamo", "torchscript")
NAMES = [
    (name, strategy) for name, case in models.MODELS.items() for strategy in STRATEGIES if strategy not in case.fails
]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def plain(name: str, strategy: str, path: Path) -> None:
    """PyTorch's own export. Where TorchScript cannot call a model, it gets the same pinned forward."""
    model, kwargs = models.MODELS[name].build()
    options: dict[str, Any] = {"dynamo": strategy == "dynamo", "verbose": False}
    call = _arguments.Call.of((), kwargs)
    with quiet():
        if strategy == "torchscript" and _pin.needs_pin(model.forward, call):
            with _pin.pinned(model, call) as args:
                torch.onnx.export(model, args, str(path), **options)
        else:
            torch.onnx.export(model, (), str(path), kwargs=kwargs, **options)


@dataclass
class Made:
    """One export by the package."""

    name: str
    strategy: str
    path: Path
    exported: onnxforge.torch.Exported

    @cached_property
    def model(self) -> onnx.ModelProto:
        return onnx.load(self.path)

    @cached_property
    def truth(self) -> truth.Truth:
        return observed(self.name)

    @cached_property
    def inputs(self) -> dict[str, np.ndarray]:
        _, kwargs = models.MODELS[self.name].build()
        weights = {tensor.name for tensor in self.model.graph.initializer}
        names = [port.name for port in self.model.graph.input if port.name not in weights]
        return dict(zip(names, (value.numpy() for value in kwargs.values())))

    @cached_property
    def values(self) -> dict[str, np.ndarray]:
        return truth.values_of(self.model, self.inputs)

    def origins(self) -> dict[str, list[str]]:
        """The modules that the file names, by the first result of each node of the main graph."""
        return {node.output[0]: stored(node, "onnxforge.module") for node in self.model.graph.node}

    def evidence(self) -> dict[str, str]:
        """What they are known from, where that is not exact."""
        kept = {
            node.output[0]: [entry.value for entry in node.metadata_props if entry.key == "onnxforge.evidence"]
            for node in self.model.graph.node
        }
        return {name: found[0] for name, found in kept.items() if found}


def stored(node: onnx.NodeProto, key: str) -> Any:
    return next((json.loads(entry.value) for entry in node.metadata_props if entry.key == key), [])


@cache
def observed(name: str) -> truth.Truth:
    model, kwargs = models.MODELS[name].build()
    return truth.observe(model, kwargs)


class Exports:
    """All exports of a test run, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[str, str, bool], Made] = {}

    def plain(self, name: str, strategy: str) -> Path:
        path = self._folder / f"{name}.{strategy}.plain" / "model.onnx"
        if not path.exists():
            path.parent.mkdir()
            plain(name, strategy, path)
        return path

    def made(self, name: str, strategy: str, recorder: bool = True) -> Made:
        key = (name, strategy, recorder)
        if key not in self._made:
            path = self._folder / f"{name}.{strategy}.{'recorded' if recorder else 'named'}" / "model.onnx"
            path.parent.mkdir()
            model, kwargs = models.MODELS[name].build()
            without = patch.object(_recorder, "_NAMING", "_no_such_pass")
            with quiet(), contextlib.nullcontext() if recorder else without:
                exported = onnxforge.torch.export(model, (), path, kwargs=kwargs, strategy=strategy, verbose=False)
            self._made[key] = Made(name, strategy, path, exported)
        return self._made[key]


@dataclass(frozen=True)
class Part:
    """A module that was cut out, beside what PyTorch's module gave."""

    module: str
    outputs: int
    equal: int
    fed_by_pytorch: int
    """Inputs that were given what PyTorch's module was given; the others get the values of the whole file."""
    results: list[np.ndarray]


def cut_out(made: Made, folder: Path) -> tuple[list[Part], dict[str, str]]:
    """Every module that PyTorch called, cut out and run on what it was given there, call by call; and those that
    cannot be cut out, with the reason.
    """
    parts, lost = [], {}
    for path, calls in made.truth.calls.items():
        found: list[np.ndarray] = []
        fed, reason = 0, ""
        for alias in sorted(made.truth.aliases[path]):
            for call in [None] if len(calls) == 1 else range(len(calls)):
                file = folder / "part.onnx"
                options = {} if call is None else {"call_index": call}
                try:
                    onnxforge.extract(made.path, module=alias or "/", output=file, **options)
                except onnxforge.Error as error:
                    reason = str(error)
                    continue
                inputs = [given for one in calls for given in one.inputs]
                results, matched = run_part(file, made.values, inputs)
                found, fed = [*found, *results], fed + matched
        wanted = [output for call in calls for output in call.outputs]
        if found:
            equal = sum(any(truth.close(value, output, 1e-4) for value in found) for output in wanted)
            parts.append(Part(path, len(wanted), equal, fed, found))
        else:
            lost[path] = reason
    return parts, lost


def run_part(file: Path, values: dict[str, np.ndarray], inputs: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """What a part gives. It reads what PyTorch's module read, where the whole file has that value there."""
    running = truth.session(onnx.load(file))
    feed, matched = {}, 0
    for port in running.get_inputs():
        value = values[port.name]
        own = next((given for given in inputs if given.dtype == value.dtype and truth.close(given, value)), None)
        matched += own is not None
        feed[port.name] = value if own is None else own
    return running.run(None, feed), matched
