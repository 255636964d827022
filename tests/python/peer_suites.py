"""The tests of onnxsim and onnxslim, with nothing but `simplify` and `slim` replaced by ours.

    python tests/python/peer_suites.py onnxsim FOLDER [--files PATTERN] [--jobs N] [--json FILE]
    python tests/python/peer_suites.py onnxslim FOLDER

FOLDER has the tests: `tests/` of the source distribution (`pip download --no-deps --no-binary :all: onnxsim==0.8.1`) or of the repository. The
interpreter needs the peer, pytest, pytest-xdist, pytest-timeout, ONNX Runtime and onnxforge. Every test runs twice: as it is, and with `onnxforge.simplify` or `onnxforge.slim` in the place of the
peer's function. Those that call it and pass as they are count; those of them that then fail are listed with their reason. Whatever our function returns is
also run in ONNX Runtime beside the model that it was made from: a result that computes something else is WRONG, whatever the test says of it.

Exits with 1 if a result is wrong, or a regression has no reason in `peer_suites.txt`.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = {"onnxsim": "simplify", "onnxslim": "slim"}
# Set for the tests: which peer, whether ours takes its place, and where each process writes what happened.
PEER, OURS, LOG, ONLY = "ONNXFORGE_PEER", "ONNXFORGE_PEER_OURS", "ONNXFORGE_PEER_LOG", "ONNXFORGE_PEER_ONLY"


# The plugin of pytest


class Watch:
    """Notes what becomes of each test that calls the function, and what the function made."""

    def __init__(self, peer: str, ours: bool) -> None:
        self.name, self.calls, self.wrong = PEERS[peer], 0, []
        module = importlib.import_module(peer)
        original = getattr(module, self.name)
        chosen = getattr(importlib.import_module("onnxforge"), self.name) if ours else original

        def called(*args, **options):
            self.calls += 1
            before = self.copied(args, options) if ours else None
            made = chosen(*args, **options)
            if before is not None:
                self.examine(before, made)
            return made

        # Tests ask for its signature.
        called.__wrapped__ = chosen
        # Modules of the peer that imported the function hold it by name, too.
        for each in [module for name, module in sys.modules.items() if name == peer or name.startswith(peer + ".")]:
            for name, value in list(vars(each).items()):
                if value is original:
                    setattr(each, name, called)

    @staticmethod
    def copied(args, options):
        import onnx

        model = args[0] if args else options.get("model")
        try:
            return onnx.load(model) if isinstance(model, (str, os.PathLike)) else onnx.ModelProto.FromString(model.SerializeToString())
        except Exception:
            return None

    def examine(self, before, made):
        """Runs both in ONNX Runtime."""
        import onnx

        made = made[0] if isinstance(made, tuple) else made
        if not isinstance(made, onnx.ModelProto):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            difference = differs(before, made)
        if difference:
            self.wrong.append(difference)

    def pytest_collection_modifyitems(self, config, items):
        """Of a second run, only what counts."""
        if ONLY in os.environ:
            chosen = set(Path(os.environ[ONLY]).read_text(encoding="utf-8").splitlines())
            items[:] = [item for item in items if item.nodeid in chosen]

    def pytest_runtest_setup(self, item):
        self.calls, self.wrong = 0, []

    def pytest_runtest_makereport(self, item, call):
        if call.when != "call":
            return
        skipped = call.excinfo is not None and call.excinfo.typename == "Skipped"
        state = "passed" if call.excinfo is None else "skipped" if skipped else "failed"
        reason = "" if call.excinfo is None else f"{call.excinfo.typename}: {call.excinfo.value}"
        line = {"test": item.nodeid, "state": state, "calls": self.calls, "wrong": self.wrong, "reason": reason[:2000]}
        with open(f"{os.environ[LOG]}.{os.getpid()}", "a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")


def differs(before, made):
    """What is other about the second model's results; nothing where both cannot be run on the same inputs."""
    import numpy as np
    import onnx

    from peer_results import same, session

    ours = {value.name for value in made.graph.output}
    constants = {tensor.name for tensor in before.graph.initializer}
    random = np.random.default_rng(0)
    if any(node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial", "Dropout") for node in before.graph.node):
        return None
    feeds = {}
    for value in made.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = [dim.dim_value or 2 for dim in tensor.shape.dim]
        try:
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        except KeyError:
            return None
        floats = kind.kind not in "biu"
        feeds[value.name] = np.asarray(random.standard_normal(shape) if floats else random.integers(0, 2, shape)).astype(kind)
    try:
        with tempfile.TemporaryDirectory() as folder:
            first = Path(folder, "before.onnx")
            onnx.save(before, first)
            original = session(first)
            names = [each.name for each in original.get_outputs() if each.name in ours]
            wanted = original.run(names, {each.name: feeds[each.name] for each in original.get_inputs()})
    except Exception:
        return None
    try:
        with tempfile.TemporaryDirectory() as folder:
            second = Path(folder, "made.onnx")
            onnx.save(made, second)
            found = session(second)
            got = found.run(names, {each.name: feeds[each.name] for each in found.get_inputs()})
    except Exception as error:
        return f"does not run: {error}"[:300]
    for name, one, other in zip(names, got, wanted, strict=True):
        if not same(one, other):
            return f"output {name} differs"
    return None


def pytest_configure(config):
    if PEER in os.environ:
        config.pluginmanager.register(Watch(os.environ[PEER], bool(os.environ.get(OURS))), "onnxforge-watch")


# The program


def run(peer, files, jobs, only=None):
    """What became of each test; with ours in the place of the peer's function where tests are chosen."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        env = {**os.environ, PEER: peer, LOG: str(log), "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        if only is not None:
            chosen = Path(folder, "only")
            chosen.write_text("\n".join(sorted(only)), encoding="utf-8")
            env |= {OURS: "1", ONLY: str(chosen)}
            files = [path for path in files if any(test.split("::")[0].endswith(path.name) for test in only)]
        command = [sys.executable, "-m", "pytest", "-p", "peer_suites", "-q", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
        command += ["--tb=no", "--timeout=120", "-n", str(jobs), "--dist=loadfile", "-o", "addopts=", *map(str, files)]
        subprocess.run(command, env=env, cwd=files[0].parent, stdout=sys.stderr, check=False)
        lines = [json.loads(line) for part in Path(folder).glob("log.*") for line in part.read_text(encoding="utf-8").splitlines()]
    return {line["test"]: line for line in lines}


def reasons(peer):
    """Patterns of tests, with why they fail with ours."""
    lines = (HERE / "peer_suites.txt").read_text(encoding="utf-8").splitlines()
    found = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return [(pattern.removeprefix(peer + ":"), reason) for pattern, reason in found if pattern.startswith(peer + ":")]


def reason_for(test, message, known):
    """The first reason whose pattern fits: of the test's name, or with an @ of the parameter that is refused."""
    refused = re.match(r"UsageError: \w+\((\w+)=", message)
    names = [test, f"@{refused[1]}"] if refused else [test]
    return next((reason for pattern, reason in known if any(fnmatch.fnmatchcase(name, pattern) for name in names)), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", default="*", help="only test files whose name matches this pattern")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--plain", type=Path, metavar="JSON", help="take what passes as it is from an earlier run's --json")
    parser.add_argument("--no-ours", action="store_true", help="only the run as it is")
    parser.add_argument("--json", type=Path, help="write every result to this file")
    options = parser.parse_args()
    word = PEERS[options.peer]
    files = [path for path in sorted(options.folder.resolve().glob("test_*.py")) if fnmatch.fnmatch(path.name, options.files)]
    files = [path for path in files if f"{word}(" in path.read_text(encoding="utf-8")]
    if not files:
        parser.error(f"{options.folder} has no tests that call {word}")
    plain = json.loads(options.plain.read_text())["plain"] if options.plain else run(options.peer, files, options.jobs)
    counted = {test for test, line in plain.items() if line["state"] == "passed" and line["calls"]}
    ours = run(options.peer, files, options.jobs, only=counted) if not options.no_ours else {}
    if options.json:
        options.json.write_text(json.dumps({"plain": plain, "ours": ours}, indent=1), encoding="utf-8")
    lost = sorted(test for test in counted if ours.get(test, {}).get("state") != "passed")
    wrong = {test: line["wrong"] for test, line in ours.items() if line["wrong"]}
    known = reasons(options.peer)
    why = {test: reason_for(test, ours.get(test, {}).get("reason", ""), known) for test in lost}
    print(f"{options.peer}: {len(counted)} tests that call {word} pass as they are; {len(lost)} of them do not with ours; {len(wrong)} have wrong results")
    for test, found in sorted(wrong.items()):
        print(f"  WRONG: {test}: {found[0]}")
    for reason, count in collections.Counter(why.values()).most_common():
        print(f"  {count}: {reason or 'NO REASON'}")
    for test in lost:
        if why[test] is None:
            print(f"  NO REASON: {test}: {ours.get(test, {}).get('reason', 'did not run').splitlines()[0][:200] if ours.get(test, {}).get('reason') else 'did not run'}")
    return int(bool(wrong) or None in why.values())


if __name__ == "__main__":
    sys.exit(main())
