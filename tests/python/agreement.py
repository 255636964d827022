"""Whether `onnxforge check` agrees with `onnx.checker` (with shape inference) and with ONNX Runtime.

    python tests/python/agreement.py --binary PATH [--damaged 2000] [--seed 7] [MODEL-OR-FOLDER …]

Two things must never happen, whatever the model: it is valid although both of the others refuse it, or it is refused although
both accept it. Damaged models are those of `test_check.py`, changed in one place; models that are named are taken as they are.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx

import corpus
from damage import Damage, function_model, sparse_model

# Rules that both others break by not looking, and why we keep them: what they forbid has no single meaning, or the model
# fails once it runs.
STRICTER = {
    "call": "our own: the call fails whenever it runs; the others do not follow shapes into loops",
    "missing-name": "onnx.proto: names of the defaults of functions",
    "attribute-form": "onnx.proto: one value of the declared type; the others read the field that they expect",
    "attribute-reference": "onnx.proto, ref_attr_name: outside of a function there is nothing to refer to",
    "device-configuration": "onnx.proto: the others do not look at it",
    "dimension": "IR.md, Static tensor shapes: sizes are not negative",
    "external-data": "our own: tensors share all bytes or none",
    "function-identity": "onnx.proto: of two functions of one name nobody knows which one is called",
    "function-parameter": "IR.md, Functions: the others do not look at functions that nothing calls",
    "ir-feature": "onnx.proto, Version: functions came with IR version 8",
    "sparse-tensor": "onnx.proto, SparseTensorProto: in the defaults of functions too",
    "tensor": "IR.md, Tensor Definition: as many elements as the dimensions say, in the field of the type",
    "training": "IR.md, Training: the others do not look at it",
    "utf8": "onnx.proto: texts are UTF-8",
}

# Refusals of ONNX Runtime that are no statement about the model.
NOT_ABOUT_THE_MODEL = (
    "NOT_IMPLEMENTED", "Could not find an implementation", "not currently registered or supported", "opset", "IR version",
)  # fmt: skip


# Where both others refuse and we do not: words of the refusal, all of which must be there, and why what the model computes is defined
# all the same.
LAXER = [
    (("ShapeInferenceError] Dimension mismatch", "op_type:Loop"),
     "sizes that the body of a loop declares for what it carries are not believed, and bind nobody"),
    (("TypeInferenceError] Inferred elem type differs", "op_type:Loop"),
     "a loop that appends to an empty sequence gives what it appends, whatever type the empty one was made with"),
    (("expected to have rank", "op_type:Loop"), "the same holds for the number of axes"),
    (("differ in rank", "op_type:Scan"), "and for the body of a scan"),
    (("Attribute dilations has incorrect size",), "an empty list is the default, as for other attributes"),
    (("Invalid value of attribute 'axis'", "op_type:SplitToSequence"),
     "that elements of a sequence that comes in have the rank that is declared is not believed"),
    (("expect a float",), "writers of proto3 leave out a 0, so an attribute of a type without a value is 0"),
]  # fmt: skip


def is_laxer(why):
    return any(all(word in why for word in words) for words, _ in LAXER)


def calls_custom_operators(path):
    """Whether nodes call what neither the standard nor the model defines: nobody else can judge such a model."""
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:
        return False
    local = {(function.domain, function.name) for function in model.functions}
    nodes = [message for message in corpus.messages(model) if isinstance(message, onnx.NodeProto)]
    named = {(node.domain, node.op_type) for node in nodes} - local
    return any(domain not in ("", "ai.onnx") and not domain.startswith("ai.onnx.") for domain, _ in named)

OTHERS = """
import json, sys
import onnx, onnxruntime
onnxruntime.set_default_logger_severity(4)
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
options.log_severity_level, options.intra_op_num_threads = 4, 1

def why(act):
    try:
        act()
    except Exception as error:
        return str(error)[:400] or "refused"

for line in sys.stdin:
    path = line.strip()
    print(json.dumps([
        why(lambda: onnx.checker.check_model(path, full_check=True)),
        why(lambda: onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])),
    ]), flush=True)
"""


def others(paths):
    """Why `onnx.checker` and ONNX Runtime refuse each model; a crash is a refusal of the latter."""
    answers, left = [], list(paths)
    while left:
        done = subprocess.run(
            [sys.executable, "-c", OTHERS], input="\n".join(map(str, left)), capture_output=True, text=True, timeout=1800
        )
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        answers += told
        left = left[len(told):]  # fmt: skip
        if left:
            answers.append([refused_by_checker(left.pop(0)), "crash"])
    return answers


def refused_by_checker(path):
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:
        return str(error)
    return None


def ours(binary, paths):
    """The errors that `onnxforge check` reports of each model."""

    def one(path):
        done = subprocess.run([str(binary), "check", str(path), "--json"], capture_output=True, text=True, timeout=60)
        if done.returncode == 2:
            return [{"rule": "unreadable", "message": done.stderr.strip()}]
        assert done.returncode in (0, 1), f"{path}: {done.returncode} {done.stderr}"
        return [problem for problem in json.loads(done.stdout)["problems"] if problem["severity"] == "error"]

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(one, paths))


def damaged(sound, folder, count, seed):
    """Writes models that are damaged in one place; their paths, and what was done to each."""
    damage, cases = Damage(seed), []
    for path in corpus.ROOT.glob("tests/data/*.data"):
        (folder / path.name).write_bytes(path.read_bytes())
    while len(cases) < count:
        name = damage.random.choice(sorted(sound))
        model = onnx.ModelProto.FromString(sound[name])
        try:
            what = damage(model)
        except (ValueError, OverflowError):  # a value that the field does not take
            continue
        path = folder / f"{len(cases)}.onnx"
        path.write_bytes(model.SerializeToString())
        cases.append((path, f"{name}: {what}"))
    return cases


def small_models():
    """Small models of every kind, as bytes by name."""
    models = {path.name: path.read_bytes() for path in corpus.repository_models() if path.stat().st_size < 30_000}
    models["sparse"] = sparse_model().SerializeToString()
    models["functions"] = function_model().SerializeToString()
    return models


def disagreements(binary, cases):
    """Models that are valid although both others refuse them, and the other way round; and how often all agree."""
    paths = [path for path, _ in cases]
    too_lax, too_strict, agreed = [], [], {"refused": 0, "accepted": 0}
    for (path, what), (checker, runtime), errors in zip(cases, others(paths), ours(binary, paths)):
        if runtime and any(words in runtime for words in NOT_ABOUT_THE_MODEL):
            runtime = None
        if checker and runtime:
            agreed["refused"] += bool(errors)
            if not errors and not is_laxer(checker) and not calls_custom_operators(path):
                too_lax.append(f"{path.name} ({what}): {checker.splitlines()[0]} | {runtime.splitlines()[0]}")
        if not checker and not runtime:
            agreed["accepted"] += not errors
            if {error["rule"] for error in errors} - set(STRICTER):
                too_strict.append(f"{path.name} ({what}): {errors[:2]}")
    return too_lax, too_strict, agreed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=corpus.ROOT / "target/release/onnxforge")
    parser.add_argument("--damaged", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("models", nargs="*", type=Path)
    args = parser.parse_args()
    named = [path for given in args.models for path in (sorted(given.rglob("*.onnx")) if given.is_dir() else [given])]
    with tempfile.TemporaryDirectory() as folder:
        cases = damaged(small_models(), Path(folder), args.damaged, args.seed) if args.damaged else []
        lax, strict, agreed = disagreements(args.binary, cases + [(path, "as it is") for path in named])
    for title, found in (("valid, refused by both others", lax), ("refused, accepted by both others", strict)):
        print(f"{title}: {len(found)}")
        print("".join(f"  {line}\n" for line in found), end="")
    print(f"all three agree on {agreed['refused']} refused and {agreed['accepted']} accepted of {len(cases) + len(named)}")
    return bool(lax or strict)


if __name__ == "__main__":
    sys.exit(main())
