"""What functions answer: the same report as `--json` writes, what people see, and the parts that programs ask for most."""

from __future__ import annotations

import copy
import html
import os
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Optional, TypeVar

from ._call import Answer

M = TypeVar("M")

__all__ = [
    "AnalyzeResult",
    "AttributeResult",
    "AuditResult",
    "BenchResult",
    "CheckResult",
    "CompareResult",
    "ConvertResult",
    "CoverageResult",
    "ExplainResult",
    "ExtractResult",
    "FingerprintResult",
    "Float16Result",
    "InferResult",
    "InspectResult",
    "ModelResult",
    "OptimizeResult",
    "ProfileResult",
    "ReportResult",
    "Result",
    "TagResult",
    "UpgradeResult",
    "VerifyResult",
]


class Result:
    """What a command answers; true where the answer is yes. `print` shows what the command line does, a notebook the same as tables."""

    def __init__(self, answer: Answer) -> None:
        #: The report, as `--json` writes it.
        self.report: dict[str, Any] = answer.report
        #: The report for people.
        self.text = answer.text
        #: Whether the answer is yes: valid, the same, nothing was wrong. The command line exits with 1 otherwise.
        self.ok = answer.good

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<onnxforge {type(self).__name__}: {self._headline()}>"

    def to_dict(self) -> dict[str, Any]:
        """The whole report, as a dictionary of its own that goes into JSON.

        Returns:
            What `--json` writes.

        Example:
            >>> onnxforge.verify("tiny_bert.onnx", "tiny_bert.onnx", samples=1).to_dict()["verdict"]
            'identical'
        """
        return copy.deepcopy(self.report)

    def _headline(self) -> str:
        """The answer in a few words."""
        return "ok" if self.ok else "not ok"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        """Tables for a notebook: heading and rows."""
        return ()

    def _repr_html_(self) -> str:
        tables = "".join(_table(heading, rows) for heading, rows in self._tables())
        body = tables or f"<pre>{html.escape(self.text)}</pre>"
        return f"<div><p><b>{html.escape(self._headline())}</b></p>{body}</div>"


class ModelResult(Result, Generic[M]):
    """The answer of a command that makes a model."""

    def __init__(self, answer: Answer, model: M) -> None:
        super().__init__(answer)
        #: The model: of the kind that was handed over, or the path that was given for it.
        self.model: M = model

    def _headline(self) -> str:
        sizes = [f"{each['bytes']} bytes" for each in self.report.get("files") or [] if "bytes" in each]
        return ", ".join([str(self.model) if isinstance(self.model, str) else "a model", *sizes])


class OptimizeResult(ModelResult[M]):
    """What became of a model. `ok` is false where a faulty rewrite was reverted."""

    @property
    def nodes_before(self) -> int:
        """Nodes of the whole model before."""
        return int(self.report["before"]["all_nodes"])

    @property
    def nodes_after(self) -> int:
        """Nodes of the whole model after."""
        return int(self.report["after"]["all_nodes"])

    @property
    def verified(self) -> Optional[bool]:
        """Whether the result computes what the original does; `None` where that was not, or could not be, compared.

        Where nothing changed, there is nothing to compare: that is true.
        """
        compared = self.report["verification"]["global"]
        if compared is None:
            return None if self.passes or self.report.get("opset") else True
        return bool(compared["verdict"] != "different")

    @property
    def passes(self) -> dict[str, int]:
        """Nodes that each pass that changed something added (or, negative, removed)."""
        return {each["name"]: each["nodes"] for each in self.report["passes"] if each["edits"]}

    def _headline(self) -> str:
        said = {True: "verified", False: "DIFFERENT", None: "not compared"}[self.verified]
        return f"{self.nodes_before} nodes became {self.nodes_after}, {said}"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        operators = self.report["operators"].items()
        changed = [(name, before, after) for name, (before, after) in operators if before != after]
        yield ("operator", "before", "after"), changed
        fired = [each for each in self.report["passes"] if each["edits"]]
        yield ("pass", "edits", "nodes", "bytes"), [
            (each["name"], each["edits"], each["nodes"], each["bytes"]) for each in fired
        ]


class UpgradeResult(ModelResult[M]):
    """A model of a newer operator set."""

    def _headline(self) -> str:
        return f"opset {self.report['from']} became {self.report['to']}"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        steps = self.report["steps"]
        yield ("operator", "changed in opset", "nodes"), [(step["operator"], step["opset"], step["nodes"]) for step in steps]


class Float16Result(ModelResult[M]):
    """A model whose floats have 16 bits, where these are enough."""

    @property
    def converted(self) -> int:
        """Nodes of the graph that compute in 16 bits."""
        return int(self.report["converted"])

    @property
    def kept(self) -> list[dict[str, str]]:
        """Nodes that stay in 32 bits: node, operator and reason."""
        return list(self.report["kept"])

    @property
    def errors(self) -> dict[str, float]:
        """How far each output is from the float64 run of the original, as a share of its largest magnitude."""
        return {each["name"]: float(each["error"]) for each in self.report["outputs"]}

    @property
    def worst(self) -> float:
        """The largest of `errors`; not a number where the model could not be run."""
        return max(self.errors.values(), default=float("nan"))

    def _headline(self) -> str:
        return f"{self.converted} nodes in 16 bits, {len(self.kept)} in 32, outputs within {self.worst:.1e}"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        yield ("output", "error"), [(name, f"{error:.1e}") for name, error in self.errors.items()]
        keys = ("node", "operator", "reason")
        yield keys, [[each[key] for key in keys] for each in self.kept]


class ConvertResult(Result):
    """A model in another format. True where a file was written."""

    @property
    def refused(self) -> list[dict[str, Any]]:
        """Every node that has no place in the format: its name, operator and reason. Nothing was written where there is one."""
        return list(self.report["refused"])

    @property
    def operators(self) -> dict[str, int]:
        """The operators of the file, and how many."""
        return dict((self.report["summary"] or {}).get("operators", {}))

    @property
    def verdict(self) -> Optional[str]:
        """How the file compares with the model; nothing where that was not asked for or could not be found out."""
        found = self.report["comparison"]
        return str(found["verdict"]) if found else None

    def _headline(self) -> str:
        if self.refused:
            return f"{len(self.refused)} nodes cannot be expressed"
        return f"{self.report['bytes']} bytes, {self.verdict or 'not compared'}"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        def row(node: dict[str, Any]) -> Sequence[object]:
            return node["node"], node["operator"], node["reason"]

        yield ("node", "operator", "reason"), map(row, self.refused)
        yield ("operator", "nodes"), self.operators.items()


class VerifyResult(Result):
    """Whether two models compute the same. True where they do, up to rounding."""

    @property
    def equal(self) -> bool:
        """Whether they compute the same, up to rounding."""
        return self.ok

    @property
    def verdict(self) -> str:
        """`identical`, `rounding`, `undetermined` or `different`."""
        return str(self.report["verdict"])

    def _headline(self) -> str:
        return f"{self.verdict}, {self.report['samples']} samples, engine {self.report['engine']}"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        def row(output: dict[str, Any]) -> Sequence[object]:
            found = output["difference"] or {}
            return output["name"], output["verdict"], found.get("max_abs", ""), found.get("max_rel", "")

        yield ("output", "verdict", "max abs", "max rel"), map(row, self.report["outputs"])


class CheckResult(Result):
    """Whether a model is valid. True where it is."""

    @property
    def valid(self) -> bool:
        """Whether the model is valid."""
        return self.ok

    @property
    def problems(self) -> list[dict[str, Any]]:
        """Every problem: its rule, severity, place and message."""
        return list(self.report["problems"])

    def _headline(self) -> str:
        return f"{'valid' if self.ok else 'not valid'}, {len(self.problems)} problems"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        if self.problems:
            keys = ("severity", "place", "message")
            yield keys, [[each[key] for key in keys] for each in self.problems]


class CompareResult(Result):
    """Whether two models have the same topology. True where they do."""

    @property
    def sameness(self) -> str:
        """`identical`, the same up to something, or different."""
        return str(self.report["sameness"])

    def _headline(self) -> str:
        return self.sameness


class InspectResult(Result):
    """What models are made of."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """One entry for each model: interface, operators, weights, effort."""
        return list(self.report["models"])

    def _headline(self) -> str:
        return ", ".join(f"{each['nodes_total']} nodes, {each['parameters']} parameters" for each in self.models)

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        counts = [{each["op"]: each["count"] for each in model["operators"]} for model in self.models]
        names = sorted(set().union(*counts), key=lambda name: (-max(each.get(name, 0) for each in counts), name))
        heading = ["operator", *(model["path"] or "model" for model in self.models)]
        yield heading, [[name, *(each.get(name, "") for each in counts)] for name in names]


class AttributeResult(Result):
    """Nodes that each pass removes: alone, and as one of all."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """One entry for each model."""
        return list(self.report["models"])

    def _headline(self) -> str:
        def said(model: dict[str, Any]) -> str:
            unverified = model.get("unverified")
            return f"{model['nodes']} nodes become {model['after']}" + (f" (not compared: {unverified})" if unverified else "")

        return ", ".join(map(said, self.models))

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        accuracies = ("accuracy_isolated", "accuracy_cumulative")

        def results(share: dict[str, Any]) -> Sequence[object]:
            found = [share.get(which) for which in accuracies]
            return ["-" if each is None else f"{each['verdict']} ({each['difference']})" for each in found]

        for model in self.models:
            compared = any(which in each for each in model["passes"] for which in accuracies)
            heading = (model["model"], "alone", "among all", *(("results alone", "after it, among all") if compared else ()))
            changes = ("isolated", "cumulative", *accuracies)
            rows = [each for each in model["passes"] if any(each.get(which) for which in changes)]
            yield heading, [
                (each["pass"], each["isolated"], each["cumulative"], *(results(each) if compared else ())) for each in rows
            ]


class AuditResult(Result):
    """What models have that passes are about."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """One entry for each model, with all its findings."""
        return list(self.report["models"])

    def finding(self, id: str, model: int = 0) -> dict[str, Any]:
        """The finding of this name.

        Args:
            id: The name of a kind, such as `cast_chains`; `KeyError` if there is no such kind.
            model: Which of the models.

        Returns:
            Places, what handles them, and what that is worth.

        Example:
            >>> onnxforge.audit("tiny_bert.onnx").finding("cast_chains")["count"] >= 0
            True
        """
        for each in self.models[model]["findings"]:
            if each["id"] == id:
                return dict(each)
        raise KeyError(id)

    def _headline(self) -> str:
        found = ([each for each in model["findings"] if each["count"]] for model in self.models)
        return ", ".join(f"{len(findings)} kinds of findings" for findings in found)

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        for model in self.models:
            found = [each for each in model["findings"] if each["count"]]
            yield (model["model"], "places", "handled", "nodes that go", "pass"), [
                (each["text"], each["count"], each["handled"], each["worth"], ", ".join(each["passes"]))
                for each in found
            ]


class FingerprintResult(Result):
    """What kind of network models are."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """One entry for each model: class, confidence, reasons, features, and the passes that matter."""
        return list(self.report["models"])

    @property
    def classes(self) -> list[str]:
        """The class of each model: vision, transformer, hybrid, llm, audio or other."""
        return [model["class"] for model in self.models]

    def _headline(self) -> str:
        return ", ".join(f"{each['class']} ({each['confidence']:.0%})" for each in self.models)

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        for model in self.models:
            yield (model["model"], model["class"]), [("because", reason) for reason in model["reasons"]]


class BenchResult(Result):
    """How long ONNX Runtime takes for models."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """One entry for each model: medians with intervals, and the comparison with the first one."""
        return list(self.report["models"])

    def _headline(self) -> str:
        return ", ".join(f"{each['latency_ms']['median']:.3g} ms" for each in self.models)

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        def row(model: dict[str, Any]) -> Sequence[object]:
            against = model.get("against_first") or {}
            shown = [f"{model[key]['median']:.4g}" for key in ("load_ms", "latency_ms")]
            return model["model"], model["nodes"], *shown, against.get("verdict", "")

        yield ("model", "nodes", "load, ms", "run, ms", "against the first"), map(row, self.models)


class ProfileResult(Result):
    """How long each PyTorch module takes."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """One entry for each model: the times of a run, and of its modules, operators, classes and nodes."""
        return list(self.report["models"])

    @property
    def modules(self) -> dict[str, dict[str, Any]]:
        """The modules of the first model by path: `self_ms`, `total_ms` and `share`."""
        return {each["module"]: each for each in self.models[0]["modules"]}

    @property
    def engine(self) -> str:
        """What ran: `ort` or `native`."""
        return str(self.report["engine"])

    def _headline(self) -> str:
        return ", ".join(f"{each['total_ms']['median']:.3g} ms" for each in self.models)

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        def row(module: dict[str, Any]) -> Sequence[object]:
            times = [f"{module[key]['median']:.4g}" for key in ("total_ms", "self_ms")]
            return module["module"] or ".", *times, f"{module['share']:.1%}"

        for model in self.models:
            longest = sorted(model["modules"], key=lambda module: -module["total_ms"]["median"])
            yield (model["model"], "total, ms", "self, ms", "share"), map(row, longest[:30])


class TagResult(ModelResult[M]):
    """A model whose nodes know their modules."""

    @property
    def coverage(self) -> float:
        """The share of nodes that are known to come from a module."""
        return float(self.report["coverage"]["coverage"])

    def _headline(self) -> str:
        return f"{self.report['modules']} modules, {self.coverage:.1%} of the nodes are known"


class CoverageResult(Result):
    """How many nodes are known to come from a module."""

    @property
    def coverage(self) -> float:
        """The share of nodes that are known to come from a module."""
        return float(self.report["coverage"])

    def _headline(self) -> str:
        return f"{self.coverage:.1%} of {self.report['nodes']} nodes are known"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        keys = ("category", "nodes", "exact", "inferred", "root")
        yield keys, [[each[key] for key in keys] for each in self.report["categories"]]


class AnalyzeResult(CoverageResult):
    """How many nodes are known to come from a module, and how many each tag has."""

    @property
    def tags(self) -> dict[str, int]:
        """Nodes by tag."""
        return dict(self.report["tag_distribution"])

    @property
    def warnings(self) -> list[str]:
        """Categories of which too little is known."""
        return list(self.report["warnings"])

    def _headline(self) -> str:
        return f"{self.report['unique_tags']} tags, {super()._headline()}"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        most_first = sorted(self.tags.items(), key=lambda entry: -entry[1])
        yield ("tag", "nodes"), most_first
        yield from super()._tables()


class InferResult(Result):
    """Types and shapes of values."""

    @property
    def values(self) -> list[dict[str, Any]]:
        """Values with their types; without `all=True` those whose shape is not an expression of the inputs' dimensions."""
        return list(self.report["values"])

    def _headline(self) -> str:
        return f"{self.report['expressed']} of {self.report['total']} shapes are known"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        yield ("value", "operator", "type"), [(each["name"], each["op"], each["type"]) for each in self.values]
        conflicts = self.report["conflicts"]
        if conflicts:
            yield ("node", "problem"), [(each["node"], each["problem"]) for each in conflicts]


class ExplainResult(Result):
    """Where a pass fires, and why not elsewhere."""

    def _headline(self) -> str:
        fired, left = len(self.report["fired"]), len(self.report["skipped"])
        return f"{self.report['pass']} fired {fired} times and left {left} matches"

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        yield ("skipped", "because"), [(each["node"], each["reason"]) for each in self.report["skipped"]]


class ReportResult(Result):
    """A page about the modules of a model. A notebook shows it in place."""

    def __init__(self, answer: Answer, path: str) -> None:
        super().__init__(answer)
        #: Where the page is.
        self.path = path

    def _headline(self) -> str:
        return self.path

    def _repr_html_(self) -> str:
        with open(self.path, encoding="utf-8") as file:
            page = html.escape(file.read(), quote=True)
        name = html.escape(os.path.basename(self.path), quote=True)
        # Its scripts run, but see nothing of the notebook around it.
        return f'<iframe title="{name}" sandbox="allow-scripts" style="width:100%;height:640px;border:0" srcdoc="{page}"></iframe>'


class ExtractResult(ModelResult[M]):
    """A module as a model of its own. For a pattern, `model` is a dictionary: module path → model."""

    @property
    def parts(self) -> list[dict[str, Any]]:
        """One entry for each module: inputs, outputs, nodes, and whether it computes the same."""
        return list(self.report["parts"])

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """Inputs of the first module: name, type, and the modules that make them."""
        return list(self.parts[0]["inputs"])

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """Outputs of the first module: name, type, and the modules that read them."""
        return list(self.parts[0]["outputs"])

    @property
    def operations(self) -> list[str]:
        """Names of the nodes of the first module."""
        return list(self.parts[0]["operations"])

    @property
    def external_inputs(self) -> list[str]:
        """Names of the tensors that the first module takes."""
        return list(self.parts[0]["external_inputs"])

    @property
    def internal_tensors(self) -> list[str]:
        """Names of the tensors that only nodes of the first module read."""
        return list(self.parts[0]["internal_tensors"])

    @property
    def boundary_operations(self) -> list[str]:
        """Names of the nodes of the first module that read an input or compute an output."""
        return list(self.parts[0]["boundary_operations"])

    def _headline(self) -> str:
        return ", ".join(f"{each['module'] or 'the model'}: {each['nodes']} nodes" for each in self.parts)


def _table(heading: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    def line(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(heading, 'th')}</thead><tbody>{body}</tbody></table>"
