"""The PyTorch modules of a model, to walk through."""

from __future__ import annotations

import copy
import difflib
import html
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any, Optional

from ._commands.modules import extract
from ._commands.tags import coverage
from ._commands.verification import bench
from ._models import Model, Modules, PathLike, ask, result_path
from .errors import RequestError
from .results import BenchResult, CoverageResult, ExtractResult

__all__ = ["Hierarchy", "Module"]

_SIDECAR = result_path(None, "result_hierarchy.json")


class Module:
    """A module of the PyTorch model that a model was exported from."""

    def __init__(self, hierarchy: Hierarchy, path: str, entry: dict[str, Any]) -> None:
        self._hierarchy = hierarchy
        self._entry = entry
        #: Its path in the PyTorch model, such as `encoder.layer.0`; empty for the model itself.
        self.path = path

    @property
    def class_name(self) -> Optional[str]:
        """Its class, where that is known."""
        name = self._entry.get("qualified_class")
        return None if name is None else str(name)

    @property
    def tag(self) -> str:
        """Its tag, such as `/BertModel/BertEncoder/BertLayer.0`."""
        return str(self._entry["tag"])

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """Its nodes and those of the modules inside of it: name, operator, outputs, evidence, confidence."""
        return self._hierarchy._nodes_within(self.path)

    @property
    def children(self) -> list[Module]:
        """The modules directly inside of it."""
        return [each for each in self._hierarchy if each.path and self._hierarchy._parent(each.path) == self.path]

    @property
    def parameters(self) -> list[str]:
        """Names of its parameters and of those of the modules inside of it, where they are known."""
        return list(self._entry.get("parameters") or [])

    def extract(self, output: Optional[PathLike] = None, **options: Any) -> ExtractResult[Any]:
        """Cut this module out, as a model that runs on its own.

        Args:
            output: Where to write the model. Without it the result stays in memory.
            options: Those of `onnxforge.extract`: `verify`, `engine`, `inputs`, `set_dim`, `call_index`, `external`, `follow_links`, `progress`.

        Returns:
            The part as a model.

        Example:
            >>> layer = onnxforge.Hierarchy("tiny_bert.onnx")["bert.encoder.layer.0"].extract(verify=True)
            >>> layer.ok
            True
        """
        options.setdefault("follow_links", self._hierarchy._follow_links)
        return extract(self._hierarchy.model, self.path, output, modules=self._hierarchy.modules, **options)

    def bench(self, **options: Any) -> BenchResult:
        """Measure how long this module takes alone, as a model of its own.

        Args:
            options: Those of `onnxforge.bench`: `sessions`, `seconds`, `rounds`, `threads`, `level`, `inputs`, `set_dim`, `seed`.

        Returns:
            Medians with intervals.

        Example:
            >>> layer = onnxforge.Hierarchy("tiny_bert.onnx")["bert.encoder.layer.0"]
            >>> layer.bench(sessions=6, rounds=1).models[0]["latency_ms"]["median"] > 0
            True
        """
        with tempfile.TemporaryDirectory(prefix="onnxforge-") as folder:
            path = os.path.join(folder, "module.onnx")
            self.extract(path)
            return bench(path, follow_links=self._hierarchy._follow_links, **options)

    def _ends(self, which: str) -> list[dict[str, Any]]:
        hierarchy = self._hierarchy
        answer = ask(
            "extract",
            hierarchy.model,
            module=self.path or "/",
            modules=hierarchy.modules,
            follow_links=hierarchy._follow_links,
        )
        return list(answer.report["parts"][0][which])

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """What it reads: name, type, and the modules that make it."""
        return self._ends("inputs")

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """What others read of it: name, type, and those modules."""
        return self._ends("outputs")

    def to_dict(self) -> dict[str, Any]:
        """What is known of it, as a dictionary that goes into JSON.

        Returns:
            Path, class, tag, parameters, and the names of its nodes.

        Example:
            >>> onnxforge.Hierarchy("tiny_bert.onnx")["bert.encoder.layer.0"].to_dict()["path"]
            'bert.encoder.layer.0'
        """
        return {
            **copy.deepcopy(self._entry),
            "path": self.path,
            "class": self.class_name,
            "tag": self.tag,
            "nodes": [node["name"] for node in self.nodes],
        }

    def __repr__(self) -> str:
        return f"<onnxforge Module {self.path or '(the model)'}: {self.class_name or 'class unknown'}, {len(self.nodes)} nodes>"

    def _repr_html_(self) -> str:
        counts: dict[str, int] = {}
        for node in self.nodes:
            counts[str(node["op"])] = counts.get(str(node["op"]), 0) + 1
        rows = "".join(f"<tr><td>{html.escape(op)}</td><td>{count}</td></tr>" for op, count in sorted(counts.items()))
        table = f"<table><thead><tr><th>operator</th><th>nodes</th></tr></thead><tbody>{rows}</tbody></table>"
        return f"<div><p><b>{html.escape(repr(self)[1:-1])}</b></p>{table}</div>"


class Hierarchy:
    """The PyTorch modules of a model: `hierarchy["encoder.layer.0"]`, in the order of the PyTorch model.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        modules: The PyTorch model's modules, where neither the model nor a sidecar beside it has them.
        follow_links: Accept external data behind links that leave the model's folder.

    Example:
        >>> hierarchy = onnxforge.Hierarchy("tiny_bert.onnx")
        >>> len(hierarchy["bert.encoder.layer.0"].nodes) > 10
        True
    """

    def __init__(self, model: Model, modules: Optional[Modules] = None, *, follow_links: bool = False) -> None:
        #: The model.
        self.model = model
        #: What was said of its modules.
        self.modules = modules
        self._follow_links = follow_links
        answer = ask("tag", model, sidecar=_SIDECAR, modules=modules, follow_links=follow_links)
        #: Everything, as the sidecar of `onnxforge tag` holds it.
        self.sidecar: dict[str, Any] = json.loads(answer.files[_SIDECAR])
        self._modules = {path: Module(self, path, entry) for path, entry in self.sidecar["modules"].items()}

    @classmethod
    def load(cls, model: Model, modules: Optional[Modules] = None, *, follow_links: bool = False) -> Hierarchy:
        """The same as the constructor, for those who look for a function that loads.

        Args:
            model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
            modules: The PyTorch model's modules, where neither the model nor a sidecar beside it has them.
            follow_links: Accept external data behind links that leave the model's folder.

        Returns:
            The hierarchy.

        Example:
            >>> len(onnxforge.Hierarchy.load("tiny_bert.onnx")) > 10
            True
        """
        return cls(model, modules, follow_links=follow_links)

    def __getitem__(self, name: str) -> Module:
        """A module by its path or its tag."""
        found = self._modules.get(name)
        if found is None:
            found = next((each for each in self if each.tag == name), None)
        if found is None:
            near = difflib.get_close_matches(name, self._modules, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise RequestError(f"no module is called {name!r}{hint}")
        return found

    def __contains__(self, name: object) -> bool:
        if isinstance(name, Module):
            return name._hierarchy is self
        return name in self._modules or any(each.tag == name for each in self)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def coverage(self) -> CoverageResult:
        """How many nodes are known to come from a module.

        Returns:
            The share of nodes that are known, by category.

        Example:
            >>> onnxforge.Hierarchy("tiny_bert.onnx").coverage().coverage > 0.9
            True
        """
        return coverage(self.model, modules=self.modules, follow_links=self._follow_links)

    def __repr__(self) -> str:
        name = os.fspath(self.model) if isinstance(self.model, (str, os.PathLike)) else type(self.model).__name__
        return f"<onnxforge Hierarchy of {name}: {len(self)} modules>"

    def to_dict(self) -> dict[str, Any]:
        """Everything that is known, as the sidecar of `onnxforge tag` holds it.

        Returns:
            Modules and nodes, as a dictionary of its own that goes into JSON.

        Example:
            >>> "bert.encoder.layer.0" in onnxforge.Hierarchy("tiny_bert.onnx").to_dict()["modules"]
            True
        """
        return copy.deepcopy(self.sidecar)

    def _repr_html_(self) -> str:
        counts: dict[str, int] = {}
        for node in self.sidecar["nodes"].values():
            around = {ancestor for path in node["modules"] for ancestor in self._around(path)}
            for path in around:
                counts[path] = counts.get(path, 0) + 1
        return f"<div><p><b>{html.escape(repr(self)[1:-1])}</b></p>{self._shown('', counts, 0)}</div>"

    def _around(self, path: str) -> Iterator[str]:
        """A module and those around it."""
        yield path
        while path:
            path = self._parent(path)
            yield path

    def _shown(self, path: str, counts: dict[str, int], depth: int) -> str:
        """A module as a part of a page, with those inside of it folded away below the first levels."""
        inside = [each for each in self._modules if each and self._parent(each) == path]
        module = self._modules.get(path)
        name = html.escape(path.rpartition(".")[2] or "(the model)")
        kind = html.escape((module and module.class_name) or "")
        line = f"<code>{name}</code> {kind} · {counts.get(path, 0)} nodes"
        if not inside:
            return f"<div style='margin-left:1.2em'>{line}</div>"
        children = "".join(self._shown(each, counts, depth + 1) for each in inside)
        opened = " open" if depth < 2 else ""
        return f"<details style='margin-left:1.2em'{opened}><summary>{line}</summary>{children}</details>"

    def _parent(self, path: str) -> str:
        """The closest module around another one."""
        while "." in path:
            path = path.rpartition(".")[0]
            if path in self._modules:
                return path
        return ""

    def _nodes_within(self, path: str) -> list[dict[str, Any]]:
        def inside(module: str) -> bool:
            return not path or module == path or module.startswith(f"{path}.")

        return [node for node in self.sidecar["nodes"].values() if any(map(inside, node["modules"]))]
