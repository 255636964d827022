"""Exports of small PyTorch models whose modules are hard to find again, with what each module gave; scripts/make_hierarchy_cases.py makes them."""

import gzip
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

DATA = Path(__file__).with_name("data") / "hierarchy"
NAMES = sorted(path.name.removesuffix(".onnx.gz") for path in DATA.glob("*.onnx.gz"))


def session(model):
    """ONNX Runtime, computing node by node what the file says."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class Case:
    """One export; `name` is that of the model, and how it was exported."""

    name: str

    @property
    def model_name(self):
        return self.name.rsplit(".", 1)[0]

    @property
    def is_script(self):
        return self.name.endswith(".script")

    @property
    def in_bodies(self):
        """The modules whose nodes all stand in one body."""
        branches = ["yes.l", "no"]
        return {"cond": branches, "cond_yes": branches, "scanned": ["step"]}.get(self.model_name, [])

    @cached_property
    def model(self):
        return onnx.load_from_string(gzip.decompress((DATA / f"{self.name}.onnx.gz").read_bytes()))

    @cached_property
    def table(self):
        return json.loads(gzip.decompress((DATA / f"{self.model_name}.modules.json.gz").read_bytes()))

    @cached_property
    def archive(self):
        with np.load(DATA / f"{self.model_name}.npz") as archive:
            return dict(archive)

    @property
    def inputs(self):
        return {key.removeprefix("input."): value for key, value in self.archive.items() if key.startswith("input.")}

    @property
    def calls(self):
        """What each call of a module gave, by its path."""
        calls = {}
        for number, path in enumerate(json.loads(str(self.archive["calls"]))):
            prefix = f"call.{number}."
            outputs = {int(key.removeprefix(prefix)): value for key, value in self.archive.items() if key.startswith(prefix)}
            calls.setdefault(path, []).append([outputs[index] for index in sorted(outputs)])
        return calls

    @cached_property
    def values(self):
        """Every value of the main graph, for the sample."""
        wider = onnx.ModelProto()
        wider.CopyFrom(self.model)
        known = {port.name for port in wider.graph.output}
        made = [name for node in wider.graph.node for name in node.output if name and name not in known]
        wider.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
        running = session(wider)
        names = [port.name for port in running.get_outputs()]
        return self.inputs | dict(zip(names, running.run(names, self.inputs), strict=True))

    def written(self, folder):
        """The model and its table as files."""
        model, table = folder / "model.onnx", folder / "modules.json"
        onnx.save(self.model, model)
        table.write_text(json.dumps(self.table))
        return model, table

    def options(self, table):
        """What tells of the modules: the older exporter's files need the table."""
        return ("--modules", table) if self.is_script else ()
