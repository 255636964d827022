"""The PyTorch modules of a model, to walk through."""

from __future__ import annotations

import difflib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any, Optional

from ._api import bench, coverage, extract
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
        #: Its path in the PyTorch model, such as ``encoder.layer.0``; empty for the model itself.
        self.path = path

    @property
    def class_name(self) -> Optional[str]:
        """Its class, where that is known."""
        name = self._entry.get("qualified_class")
        return None if name is None else str(name)

    @property
    def tag(self) -> str:
        """Its tag, such as ``/BertModel/BertEncoder/BertLayer.0``."""
        return str(self._entry["tag"])

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """Its nodes and those of the modules inside of it: name, operator, outputs, evidence."""
        return self._hierarchy._nodes_within(self.path)

    @property
    def children(self) -> list[Module]:
        """The modules directly inside of it."""
        return [each for each in self._hierarchy if each.path and self._hierarchy._parent(each.path) == self.path]

    @property
    def parameters(self) -> list[str]:
        """Names of its parameters and of those of the modules inside of it, where they are known."""
        return list(self._entry.get("parameters") or [])

    def extract(self, output: Optional[PathLike] = None, **options: Any) -> ExtractResult:
        """This module as a model of its own; see :func:`onnxforge.extract`."""
        options.setdefault("follow_links", self._hierarchy._follow_links)
        return extract(self._hierarchy.model, self.path, output, modules=self._hierarchy.modules, **options)

    def bench(self, **options: Any) -> BenchResult:
        """How long this module takes alone, as a model of its own; see :func:`onnxforge.bench`."""
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

    def __repr__(self) -> str:
        return f"<onnxforge Module {self.path or '(the model)'}: {self.class_name or 'class unknown'}>"


class Hierarchy:
    """The PyTorch modules of a model: ``hierarchy["encoder.layer.0"]``, in the order of the PyTorch model."""

    def __init__(self, model: Model, modules: Optional[Modules] = None, *, follow_links: bool = False) -> None:
        """:param modules: the PyTorch model's modules, where neither the model nor a sidecar beside it tells.
        :param follow_links: accept external data behind links that leave the model's folder.
        """
        #: The model.
        self.model = model
        #: What was said of its modules.
        self.modules = modules
        self._follow_links = follow_links
        answer = ask("tag", model, sidecar=_SIDECAR, modules=modules, follow_links=follow_links)
        #: Everything, as the sidecar of ``onnxforge tag`` holds it.
        self.sidecar: dict[str, Any] = json.loads(answer.files[_SIDECAR])
        self._modules = {path: Module(self, path, entry) for path, entry in self.sidecar["modules"].items()}

    @classmethod
    def load(cls, model: Model, modules: Optional[Modules] = None, *, follow_links: bool = False) -> Hierarchy:
        """The same as the constructor, for who looks for a function that loads."""
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
        """How many nodes are known to come from a module."""
        return coverage(self.model, modules=self.modules, follow_links=self._follow_links)

    def __repr__(self) -> str:
        name = os.fspath(self.model) if isinstance(self.model, (str, os.PathLike)) else type(self.model).__name__
        return f"<onnxforge Hierarchy of {name}: {len(self)} modules>"

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
