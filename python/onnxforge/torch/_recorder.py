"""The modules that nodes of a TorchScript export come from, as PyTorch's own tracer knew them.

While it traces, PyTorch keeps the scopes of the modules that are being called, each as `Class::variable`. Names of
nodes are made of the variables alone, and are ambiguous; the classes reach no file. So a mark with the number of the
module is put behind the class, and read again, from each node, right after PyTorch named it. The exported file has
the same bytes as without.

Before it names nodes, PyTorch merges normalizations into the convolutions before them. Those are noted, too: what is
left computes for both.

Private functions of PyTorch are wrapped for that, for the time of one export. Where this PyTorch does not have them,
or anything else here fails, the export goes on and origins are absent: onnxforge then resolves names.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_EXPORTERS = ("torch.onnx._internal.torchscript_exporter.utils", "torch.onnx.utils")
_SETUP = "_setup_trace_module_map"
_NAMING = "_jit_pass_onnx_assign_scoped_names_for_node_and_value"
_MERGING = "_jit_pass_onnx_eval_peephole"
_NORMALIZATION = "onnx::BatchNormalization"
_NAME = "onnx_name"
_MARK = ".onnxforge_module_"
_MARKED = re.compile(rf"{re.escape(_MARK)}(\d+)::")

Origins = dict[str, list[str]]
"""Paths of modules, by the names of nodes. The first is the one that a node stands for."""

_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def recording(model: Any) -> Iterator[Origins]:
    """For the time of an export of `model`: a dictionary that is filled with the paths of the modules of each node,
    by the name of the node.

    One recording at a time: others wait. Exports of other models, or in other threads, are not recorded.
    """
    with _one_at_a_time, contextlib.ExitStack() as undo:
        recorder = _Recorder(model)
        try:
            recorder.wrap(undo)
        except Exception:  # noqa: BLE001 - a PyTorch that works differently must not keep anybody from exporting
            recorder.give_up()
        yield recorder.origins


class _Recorder:
    def __init__(self, model: Any) -> None:
        self.origins: Origins = {}
        self._model = model
        self._paths: list[str] = []
        # For each module (by number) and kind of operator, the normalizations behind its nodes, in the order of these.
        self._followers: dict[tuple[int, str], list[int | None]] = {}
        self._thread = threading.get_ident()
        self._given_up = False

    def give_up(self) -> None:
        """Half of the origins would be taken for all of them."""
        self._given_up = True
        self.origins.clear()

    def wrap(self, undo: contextlib.ExitStack) -> None:
        """Wraps the functions of PyTorch until `undo` is closed."""
        import torch

        exporter = _exporter()
        setup, naming = getattr(exporter, _SETUP), getattr(torch._C, _NAMING)
        merging = getattr(torch._C, _MERGING, None)
        _replace(undo, exporter, _SETUP, self._wrapped(setup, after=self._mark))
        _replace(undo, torch._C, _NAMING, self._wrapped(naming, after=self._read))
        if merging is not None:
            _replace(undo, torch._C, _MERGING, self._wrapped(merging, before=self._note_normalizations))

    def _wrapped(
        self,
        function: Callable[..., Any],
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
    ) -> Callable[..., Any]:
        """The function, and what is done before and after it with the same arguments; what fails there does no harm."""

        def also(step: Callable[..., None] | None, args: Any, kwargs: Any) -> None:
            if step is None or self._given_up or threading.get_ident() != self._thread:
                return
            try:
                step(*args, **kwargs)
            except Exception:  # noqa: BLE001 - as above
                self.give_up()

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            also(before, args, kwargs)
            result = function(*args, **kwargs)
            also(after, args, kwargs)
            return result

        return wrapped

    def _mark(self, model: Any, as_functions: object = False) -> None:
        """Puts the numbers of modules behind their classes."""
        import torch

        scopes: dict[torch.nn.Module, str] | None = torch.jit._trace._trace_module_map
        if model is not self._model or not scopes:
            return
        if as_functions:
            # PyTorch looks for classes in the scopes then.
            self.give_up()
            return
        paths = {module: path for path, module in self._model.named_modules()}
        marked = {}
        for number, (module, scope) in enumerate(scopes.items()):
            kind, variable = scope.split("::", 1)
            if _MARK in scope:
                raise ValueError("a module has the name of a mark")
            marked[module] = f"{kind}{_MARK}{number}::{variable}"
        self._paths = [paths[module] for module in scopes]
        torch.jit._trace._trace_module_map = marked

    def _note_normalizations(self, graph: Any, *_: Any) -> None:
        """Notes which normalization stands behind each node, before they may be merged."""
        behind = {
            node.inputsAt(0).debugName(): _number(node) for node in _nodes(graph) if node.kind() == _NORMALIZATION
        }
        for node in _nodes(graph):
            number = _number(node)
            if number is not None and node.outputsSize() == 1:
                followers = self._followers.setdefault((number, node.kind()), [])
                followers.append(behind.get(node.output().debugName()))

    def _read(self, graph: Any) -> None:
        """Collects the modules of all nodes of a graph that was named."""
        if not self._paths:
            return
        nodes = [(node, _number(node)) for node in _nodes(graph)]
        remaining = {number for node, number in nodes if node.kind() == _NORMALIZATION}
        counts = Counter((number, node.kind()) for node, number in nodes)
        seen: Counter[tuple[int, str]] = Counter()
        for node, number in nodes:
            if number is None or not node.hasAttribute(_NAME):
                continue
            key = (number, node.kind())
            followers = self._followers.get(key, [])
            follower = followers[seen[key]] if len(followers) == counts[key] else None
            seen[key] += 1
            merged = [follower] if follower is not None and follower not in remaining else []
            # The node gives what the normalization gave, so that stands first.
            self.origins[node.s(_NAME)] = [self._paths[found] for found in [*merged, number]]


def _nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of all bodies in it."""
    for node in graph.nodes():
        yield node
        for body in node.blocks():
            yield from _nodes(body)


def _number(node: Any) -> int | None:
    """The number of the module that was running when a node was made."""
    marks = _MARKED.findall(node.scopeName())
    return int(marks[-1]) if marks else None


def _exporter() -> Any:
    """The module of PyTorch that traces for the export."""
    for name in _EXPORTERS:
        with contextlib.suppress(ImportError):
            found = importlib.import_module(name)
            if hasattr(found, _SETUP):
                return found
    raise AttributeError(_SETUP)


def _replace(undo: contextlib.ExitStack, holder: Any, name: str, value: object) -> None:
    """Sets an attribute until `undo` is closed."""
    before = getattr(holder, name)
    setattr(holder, name, value)
    undo.callback(setattr, holder, name, before)
