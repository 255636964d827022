"""Custom rewriters: functions on models that run between the passes, and are verified like these."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional

from ._call import Answer
from ._models import ask, to_bytes
from .errors import Error, UsageError

#: Takes an `onnx.ModelProto` and returns a changed one, `None` where it changed that in place, or `False` where it changed nothing.
Rewriter = Callable[[Any], Any]


@dataclass(frozen=True)
class Rewritten:
    """What one rewriter did."""

    name: str
    changed: bool
    #: Why what it made is left out.
    left_out: Optional[str] = None


def apply_rewriter(model: Any, rewriter: Rewriter, **options: Any) -> tuple[Any, Rewritten]:
    """The model after a rewriter had it, or as it was where that computes something else.

    Args:
        model: An `onnx.ModelProto`, which is not changed.
        rewriter: The function.
        options: Those of `onnxforge.verify`.
    """
    name = str(getattr(rewriter, "__name__", type(rewriter).__name__))
    given = type(model)()
    given.CopyFrom(model)
    answer = rewriter(given)
    made = given if answer is None or isinstance(answer, bool) else answer
    if not isinstance(made, type(model)):
        raise TypeError(f"the rewriter {name} returns an onnx.ModelProto, None or False, not {type(made).__name__}")
    before, after = to_bytes(model), to_bytes(made)
    if answer is False or before == after:
        return model, Rewritten(name, changed=False)
    try:
        found = ask("verify", before, after, **options)
    except UsageError:
        raise
    except Error as error:
        return model, Rewritten(name, changed=False, left_out=str(error))
    if not found.good:
        return model, Rewritten(name, changed=False, left_out=f"it computes something else: {found.report['verdict']}")
    return made, Rewritten(name, changed=True)


def rewritten(content: bytes, rewriters: Sequence[Rewriter], **options: Any) -> tuple[bytes, list[Rewritten]]:
    """A serialized model after each rewriter had it once, and what they did."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError("rewriters take models of the package onnx, which is not installed: pip install onnx") from error
    model, done = onnx.ModelProto.FromString(content), []
    for rewriter in rewriters:
        if not callable(rewriter):
            raise UsageError(f"a rewriter is a function of a model, not {type(rewriter).__name__}")
        model, did = apply_rewriter(model, rewriter, **options)
        done.append(did)
    return model.SerializeToString(), done


def after_rewriters(first: Answer, second: Answer, done: Sequence[Rewritten], allow_revert: bool) -> Answer:
    """One answer for the passes before the rewriters and those after them."""
    report: dict[str, Any] = copy.deepcopy(second.report)
    report["before"] = first.report["before"]
    operators = {name: counts[0] for name, counts in first.report["operators"].items()}
    for name, counts in report["operators"].items():
        operators.setdefault(name, 0)
        counts[0] = operators[name]
    for name, before in operators.items():
        report["operators"].setdefault(name, [before, 0])
    earlier = {each["name"]: each for each in first.report["passes"]}
    for each in report["passes"]:
        for key in ("edits", "nodes", "bytes", "milliseconds"):
            each[key] += earlier.get(each["name"], {}).get(key, 0)
    # Both halves were compared with what they were made from, and what stands between them was verified.
    earlier_proof, proof = first.report["verification"], report["verification"]
    if proof["global"] is None:
        proof["global"] = earlier_proof["global"]
    proof["reverted"] = [*earlier_proof["reverted"], *proof["reverted"]]
    report["rewriters"] = [{"name": did.name, "changed": did.changed, "left_out": did.left_out} for did in done]
    said = [f"{did.name}: " + ("verified" if did.changed else did.left_out or "changed nothing") for did in done]
    wrong = any(did.left_out is not None for did in done)
    text = "\n".join([first.text.rstrip(), *said, second.text.lstrip()])
    return replace(second, good=first.good and second.good and (allow_revert or not wrong), report=report, text=text)
