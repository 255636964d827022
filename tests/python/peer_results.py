"""Our results beside those of other tools, on the same models: node counts, and whether ONNX Runtime computes the same.

A folder holds models, NAME.onnx, and beside each what a tool made of it, NAME.TOOL.onnx (for one, dumped from the tests of that tool). Ours is the
default run, verified in the end; with the operator set of the other result where that is newer, and for ONNX Runtime where that calls operators
of com.microsoft. Nodes are those of the graph, its bodies, and of local functions at every call, but for Constant nodes.

Where we have more nodes, there must be a reason: that the other result is wrong (ONNX Runtime gets other values from it, or does not load it, or onnx.checker
refuses it but not the model), that the model itself is not valid, or one that peer_reasons.txt gives. Exits with 1 if a result of ours is wrong, a reason is missing,
or a tool has fewer nodes, rightly, on more than 3 % of its models.

    python tests/python/peer_results.py BINARY FOLDER
"""

import collections
import concurrent.futures
import fnmatch
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

STANDARD = ("", "ai.onnx")
CONTRIB = "com.microsoft"
# The most that results may differ, relative to the largest number of an output.
TOLERANCE = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}
BAR = 0.03
SAID = {"other": "gives other values", "does not load": "does not load", "not valid": "is not valid"}


def count(model):
    """The nodes of a model, and the domains of their operators."""
    functions = {(each.domain, each.name, each.overload): each.node for each in model.functions}
    domains = set()

    def nodes(listed):
        total = 0
        for node in listed:
            called = functions.get((node.domain, node.op_type, node.overload))
            if called is not None:
                total += nodes(called)
            elif node.op_type != "Constant" or node.domain not in STANDARD:
                domains.add(node.domain)
                bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
                bodies += [body for attribute in node.attribute for body in attribute.graphs]
                total += 1 + sum(nodes(body.node) for body in bodies)
        return total

    return nodes(model.graph.node), domains


def opset(model):
    return max((each.version for each in model.opset_import if each.domain in STANDARD), default=0)


def session(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(binary, *arguments):
    command = [str(part) for part in (binary, *arguments, "--json", "-")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")
    return json.loads(done.stdout)


def same(ours, theirs):
    """Whether two results of one output are the same but for rounding."""
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    if theirs is None or ours is None:
        return ours is theirs
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if ours.dtype not in TOLERANCE:
        return np.array_equal(ours, theirs)
    tolerance = TOLERANCE[ours.dtype]
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return False
    theirs = theirs[finite].astype(np.float64)
    distance = np.abs(ours[finite].astype(np.float64) - theirs)
    return bool(np.all(distance <= tolerance * np.abs(theirs).max(initial=1)))


def is_valid(path):
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception:
        return False
    return True


def negative(feeds):
    """The same inputs, with no float above 0."""
    floats = lambda array: isinstance(array, np.ndarray) and array.dtype in TOLERANCE
    return {name: -np.abs(array) if floats(array) else array for name, array in feeds.items()}


def compare(binary, given, candidates, folder):
    """What ONNX Runtime says of each candidate, beside the model itself: same, other, does not load; or nothing where that cannot be tried."""
    inputs = folder / "inputs.npz"
    try:
        original = session(given)
        run(binary, "run", given, "--save-inputs", inputs)
        feeds = dict(np.load(inputs)) if inputs.exists() else {}
        trials = [(each, original.run(None, each)) for each in (feeds, negative(feeds))]
    except Exception:
        accepts = {name: is_valid(path) for name, path in {"given": given, **candidates}.items()}
        if not accepts.pop("given"):
            return {"given": "not valid"}
        refused = {name: "not valid" for name, accepted in accepts.items() if not accepted}
        # What folded constants show of a model was wrong with it before: an axis that it does not have, for one.
        if "ours" in refused and subprocess.run([str(binary), "check", str(given)], capture_output=True).returncode:
            return {"given": "not valid"}
        return refused

    def judge(path):
        try:
            found = session(path)
            results = [found.run(None, each) for each, _ in trials]
        except Exception:
            return "does not load"
        return "same" if all(same(got, wanted) for got, (_, wanted) in zip(results, trials)) else "other"

    return {name: judge(path) for name, path in candidates.items()}


def examine(binary, given, other):
    before, after = onnx.load(given), onnx.load(other)
    theirs, domains = count(after)
    flags = ["--target", "ort"] if CONTRIB in domains else []
    flags += ["--opset", opset(after)] if opset(after) > opset(before) > 0 else []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        made = folder / "ours.onnx"
        try:
            report = run(binary, "optimize", given, "-o", made, "--verify", "final", *flags)
        except RuntimeError as error:
            return {"refused": str(error), "theirs": theirs}
        ours, _ = count(onnx.load(made))
        said = compare(binary, given, {"ours": made, "theirs": other}, folder)
    verdict = ((report.get("verification") or {}).get("global") or {}).get("verdict")
    return {"ours": ours, "theirs": theirs, "said": said, "verdict": verdict}


def reasons():
    """Patterns of names, with why we have more nodes there."""
    lines = Path(__file__).with_name("peer_reasons.txt").read_text().splitlines()
    return [line.split(None, 1) for line in lines if line and not line.startswith("#")]


def why(name, found, known):
    if "given" in found["said"]:
        return "WRONG: the model itself is not valid"
    if found["said"].get("theirs", "same") != "same":
        return f"WRONG: the other result {SAID[found['said']['theirs']]}"
    return next((reason for pattern, reason in known if fnmatch.fnmatchcase(name, pattern)), None)


def main(binary, folder):
    pairs = []
    for other in sorted(Path(folder).rglob("*.*.onnx")):
        stem, tool = other.name.removesuffix(".onnx").rsplit(".", 1)
        if (given := other.with_name(f"{stem}.onnx")).exists():
            pairs.append((tool, given, other))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda pair: examine(binary, *pair[1:]), pairs))
    known, failed = reasons(), False
    tools = collections.defaultdict(list)
    for (tool, given, _), found in zip(pairs, results, strict=True):
        tools[tool].append((given.stem, found))
    for tool, models in tools.items():
        taken = [(name, found) for name, found in models if "ours" in found]
        more = [(name, found) for name, found in taken if found["ours"] > found["theirs"]]
        fewer = sum(found["ours"] < found["theirs"] for _, found in taken)
        wrong = [name for name, found in taken if found["said"].get("ours", "same") != "same"]
        explained = {name: why(name, found, known) for name, found in more}
        lost = [name for name in explained if not (explained[name] or "").startswith("WRONG")]
        print(
            f"{tool}: {len(models)} models, {len(models) - len(taken)} refused; {fewer} with fewer nodes, "
            f"{len(taken) - fewer - len(more)} with as many, {len(more)} with more ({len(more) - len(lost)} of them where the other result or the model is wrong); "
            f"{sum('ours' in found['said'] for _, found in taken)} compared, {len(wrong)} wrong"
        )
        for name, found in models:
            if "refused" in found:
                print(f"  refused: {name}: {found['refused']}")
        for name in wrong:
            print(f"  WRONG: {name}")
        for name, found in more:
            print(f"  {found['ours']} against {found['theirs']}: {name}: {explained[name] or 'NO REASON'}")
        failed |= bool(wrong) or None in explained.values() or len(lost) > BAR * len(models)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
