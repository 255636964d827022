"""The models that other tools' tests optimize, and beside each what the tool made of it: what `cargo xtask bench results` compares with.

    python tests/python/peer_models.py onnxsim|onnxslim|onnxoptimizer|onnxscript FOLDER TEST… [-- OPTION-OF-PYTEST…]

TEST are files or folders of the tool's own tests (of its source distribution, or of its repository). The interpreter needs the tool, pytest, and what the
tests import. Written are FOLDER/NAME.onnx and FOLDER/NAME.TOOL.onnx, where NAME is the test and the number of its call. Calls that ask for another model
than they give (other shapes, inputs or types) are left out; so are steps between two of a tool's own rewrites, results that the test does not accept, tests that fail, and models above --largest.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

# What each tool calls its optimizer. All of a tool's are watched, the outermost call counts.
OPTIMIZERS = {
    "onnxsim": [("onnxsim", "simplify")],
    "onnxslim": [("onnxslim", "slim")],
    "onnxoptimizer": [("onnxoptimizer", "optimize")],
    "onnxscript": [
        ("onnxscript.rewriter", "rewrite"),
        ("onnxscript.rewriter._rewrite_rule", "RewriteRuleSet.apply_to_model"),
        ("onnxscript.rewriter._rewrite_rule", "RewriteRule.apply_to_model"),
        ("onnxscript.optimizer", "optimize"),
        ("onnxscript.optimizer", "optimize_ir"),
        ("onnxscript.optimizer", "fold_constants"),
        ("onnxscript.optimizer._constant_folding", "fold_constants"),
    ],
}
# Options that make another model than the one that is given.
OTHER_MODEL = {
    "overwrite_input_shapes", "test_input_shapes", "input_shapes", "inputs", "outputs", "dtype", "unused_output", "custom_lib",
    "include_subgraph", "mutable_initializer", "skip_fusion_patterns", "skip_optimization_node_types",
}  # fmt: skip
# Domains of operators that exist only between two steps of a tool: what has them is no model that anybody has.
BETWEEN_STEPS = {"ai.onnxruntime._fusion"}
TOOL, FOLDER, LARGEST = "ONNXFORGE_PEER_TOOL", "ONNXFORGE_PEER_FOLDER", "ONNXFORGE_PEER_LARGEST"


def as_proto(model):
    """The model as a message, of whatever the tool takes or gives; a copy."""
    import onnx

    if isinstance(model, tuple):
        model = model[0]
    if isinstance(model, (str, os.PathLike)):
        return onnx.load(model)
    if isinstance(model, onnx.ModelProto):
        return onnx.ModelProto.FromString(model.SerializeToString())
    if type(model).__module__.startswith("onnx_ir"):
        import onnx_ir

        return onnx_ir.to_proto(model)
    return None


class Watch:
    """A plugin of pytest that keeps what goes into the optimizer and what comes out of it."""

    def __init__(self, tool: str, folder: Path, largest: int) -> None:
        self.tool, self.folder, self.largest = tool, folder, largest
        self.depth, self.pairs = 0, []
        for module, path in OPTIMIZERS[tool]:
            try:
                owner = importlib.import_module(module)
            except ImportError:
                continue
            *outer, name = path.split(".")
            for part in outer:
                owner = getattr(owner, part)
            original = getattr(owner, name)
            watched = self.watched(original, method=bool(outer))
            setattr(owner, name, watched)
            # Modules of the tool that imported the function hold it by name, too.
            for other in [each for key, each in list(sys.modules.items()) if key.split(".")[0] == tool]:
                for key, value in list(vars(other).items()):
                    if value is original:
                        setattr(other, key, watched)

    def watched(self, original, method: bool):
        @functools.wraps(original)
        def called(*arguments, **options):
            model = arguments[int(method)] if len(arguments) > int(method) else options.get("model")
            before, self.depth = self.copied(model) if self.depth == 0 else None, self.depth + 1
            try:
                made = original(*arguments, **options)
            finally:
                self.depth -= 1
            asks = {name for name, value in options.items() if value}
            if before is not None and not asks & OTHER_MODEL:
                # Rules change models of onnx_ir in place, and give a number.
                after = self.copied(made)
                after = self.copied(model) if after is None else after
                if after is not None:
                    self.pairs.append((before, after))
            return made

        return called

    @staticmethod
    def copied(model):
        try:
            return as_proto(model)
        except Exception:
            return None

    def pytest_runtest_setup(self, item):
        self.depth, self.pairs = 0, []

    def pytest_runtest_makereport(self, item, call):
        if call.when != "call" or call.excinfo is not None:
            return
        name = re.sub(r"[^A-Za-z0-9_\-]+", "_", "-".join(item.nodeid.split("::")[1:]))[:150]
        for number, pair in enumerate(self.pairs):
            before, after = (message.SerializeToString() for message in pair)
            is_step = any(node.domain in BETWEEN_STEPS for message in pair for node in message.graph.node)
            if max(len(before), len(after)) <= self.largest and pair[0].graph.node and not is_step:
                stem = f"{name}-{number}"
                (self.folder / f"{stem}.onnx").write_bytes(before)
                (self.folder / f"{stem}.{self.tool}.onnx").write_bytes(after)
        self.pairs = []


def pytest_configure(config):
    if tool := os.environ.get(TOOL):
        config.pluginmanager.register(Watch(tool, Path(os.environ[FOLDER]), int(os.environ[LARGEST])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", choices=OPTIMIZERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--largest", type=int, default=64 << 20, help="the largest model, in bytes")
    own, options = sys.argv[1:], []
    if "--" in own:
        own, options = own[: own.index("--")], own[own.index("--") + 1 :]
    arguments = parser.parse_args(own)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    environment |= {TOOL: arguments.tool, FOLDER: str(arguments.folder.resolve()), LARGEST: str(arguments.largest)}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-p", "peer_models", "-q", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
    tried = subprocess.run([*command, *arguments.tests, *options], env=environment, check=False)
    pairs = len(list(arguments.folder.glob(f"*.{arguments.tool}.onnx")))
    print(f"{pairs} models of {arguments.tool}'s tests in {arguments.folder} (pytest: exit code {tried.returncode})")
    return int(pairs == 0)


if __name__ == "__main__":
    sys.exit(main())
