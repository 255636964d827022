"""The command `onnxforge export`: a PyTorch model as an ONNX file that knows its modules."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import Error, UsageError

if TYPE_CHECKING:
    from .torch import Exported
    from .torch._arguments import Call

GOOD, NO, BAD = 0, 1, 2

_ABOUT = "Export a PyTorch model as an ONNX file in which every node knows the module that it comes from."
_MORE = """\
SOURCE is one of
  package.module:factory   a module of PyTorch, or something that gives one when it is called: alone, as
                           (module, args) or (module, args, kwargs)
  path/to/file.py:factory  the same, in a file
  hf:FOLDER                a model of transformers in a local folder; random weights where it has none;
                           nothing is downloaded
  hf:config.json           the same of a configuration alone
  hf:TYPE                  the default configuration of a type that transformers knows, such as bert

SPEC is one of
  1,3,224,224              random float32 of this shape, by position
  x=float16:1,3,224,224    by name, of another type
  input_ids=int64:1,16%1000    integers from 0 to 999; from 0 to 1 without %
  use_cache=py:False       something that is no tensor
  FILE.npz, FILE.npy, FILE.pt  values from a file
"""
_AXES = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<axes>\d+(?::\w+)?(?:,\d+(?::\w+)?)*)")


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; hint: onnxforge export --help")


def main(argv: list[str]) -> int:
    """Runs the command with these words, and gives the exit code.

    That is 0 for good, 1 where the file computes something else than PyTorch or that cannot be said, and 2 for bad input or usage.
    """
    parser = _parser()
    try:
        options = parser.parse_args(argv)
    except UsageError as error:
        return _failed(error)
    except SystemExit as end:
        return GOOD if end.code in (None, 0) else BAD
    try:
        with _quiet(options):
            exported = _exported(options)
        _tell(options, exported)
        return NO if exported.check is not None and not exported.check.good else GOOD
    except Exception as error:  # noqa: BLE001 - models run code of their own, which may raise anything
        if options.verbose > 0:
            traceback.print_exc()
        return _failed(error)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="onnxforge export",
        description=_ABOUT,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("source", metavar="SOURCE", help="the model, see below")
    parser.add_argument(
        "-o", "--output", metavar="MODEL.onnx", required=True, type=Path, help="where to write the file"
    )
    parser.add_argument(
        "--args",
        metavar="SPEC",
        nargs="+",
        action="extend",
        default=[],
        help="what the model is called with, see below; instead of what the source gives",
    )
    parser.add_argument(
        "--dynamic",
        metavar="NAME=AXIS:SIZE,…",
        nargs="+",
        action="extend",
        default=[],
        help="sizes that may vary, such as input_ids=0:batch,1:sequence",
    )
    parser.add_argument(
        "--strategy",
        choices=("auto", "dynamo", "torchscript"),
        default="auto",
        help="the exporter of PyTorch [default: auto]",
    )
    parser.add_argument("--opset", metavar="N", type=int, help="the version of the standard operators")
    parser.add_argument(
        "--class",
        dest="class_name",
        metavar="NAME",
        help="the class of a model of transformers, instead of the configuration's",
    )
    parser.add_argument("--optimize", action="store_true", help="optimize the file, verified, with modules kept")
    parser.add_argument(
        "--check",
        action="store_true",
        help="run the file and compare with what PyTorch computes; exit with 1 where it differs, or where other arguments may take "
        "a branch that the file does not have",
    )
    parser.add_argument(
        "--strip-traces",
        action="store_true",
        help="remove lines of source code, with paths of this machine, from the file",
    )
    parser.add_argument("--no-sidecar", action="store_true", help="write no <model>_hierarchy.json beside the file")
    parser.add_argument("--seed", type=int, default=0, help="for random weights and inputs [default: 0]")
    parser.add_argument(
        "--json", metavar="FILE", nargs="?", const="-", help="write the result as JSON, to FILE or to standard output"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more: also what PyTorch says")
    return parser


def _exported(options: argparse.Namespace) -> Exported:
    """Does what is asked for. Where the file turns out wrong, its `check` says so."""
    from .torch import CheckError, export
    from .torch._arguments import Call, forward_of, tensors
    from .torch._errors import need
    from .torch._samples import call_of
    from .torch._sources import load

    if not options.output.resolve().parent.is_dir():
        raise UsageError(f"the folder {options.output.parent} does not exist; create it first")
    torch = need("torch")
    torch.manual_seed(options.seed)
    model, call = load(options.source, options.class_name)
    model.eval()
    if options.args:
        given = call_of(options.args)
        # Inputs of a model of transformers are generated one by one, so that one of them can be replaced.
        known = call.kwargs if call is not None and options.source.startswith("hf:") and not given.args else {}
        call = Call(given.args, {**known, **given.kwargs})
    call = call or Call((), {})
    _demand_all(model, call, options.source)
    arguments = call.named(forward_of(model))
    # The same order for both exporters, so that names mean the same inputs.
    call = Call(call.args, {name: value for name, value in arguments.items() if name in call.kwargs})
    more: dict[str, Any] = {"verbose": options.verbose > 0}
    if all(isinstance(value, torch.Tensor) for value in arguments.values()):
        more["input_names"] = list(arguments)
    if options.opset is not None:
        more["opset_version"] = options.opset
    if options.dynamic:
        more["dynamic_shapes"] = _dynamic(
            options.dynamic, {name: value for name, value in arguments.items() if tensors(value)}, torch
        )
    try:
        return export(
            model,
            call.args,
            options.output,
            kwargs=dict(call.kwargs),
            strategy=options.strategy,
            optimize=options.optimize or None,
            check=options.check,
            sidecar=not options.no_sidecar,
            strip_traces=options.strip_traces,
            **more,
        )
    except CheckError as error:
        return error.exported


def _demand_all(model: Any, call: Call, source: str) -> None:
    """Says what a model has to be called with, where that is missing or too much."""
    import inspect

    from .torch._arguments import forward_of

    try:
        signature = inspect.signature(forward_of(model))
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*call.args, **call.kwargs)
    except TypeError as error:
        shown = ", ".join(str(parameter).split(":")[0] for parameter in signature.parameters.values())
        raise UsageError(
            f"{source}: {error}; its forward takes ({shown}); "
            "hint: --args with a type and shape for each, such as x=float32:1,3,224,224"
        ) from None


def _dynamic(words: Sequence[str], arguments: dict[str, Any], torch: Any) -> dict[str, Any]:
    """The sizes that may vary, as torch.export wants them: something for each argument with tensors."""
    shapes: dict[str, Any] = dict.fromkeys(arguments)
    for word in words:
        found = _AXES.fullmatch(word)
        if found is None:
            raise UsageError(f"--dynamic {word}: hint: NAME=AXIS:SIZE,… such as input_ids=0:batch,1:sequence")
        name = found["name"]
        if name not in arguments:
            raise UsageError(
                f"--dynamic {word}: no argument is called {name!r}; there are {', '.join(arguments) or 'none'}"
            )
        value: Any = arguments[name]
        if not isinstance(value, torch.Tensor):
            raise UsageError(
                f"--dynamic {word}: {name!r} is no tensor; hint: onnxforge.torch.export with dynamic_shapes"
            )
        sizes = {}
        for entry in found["axes"].split(","):
            axis, _, label = entry.partition(":")
            if int(axis) >= value.dim():
                raise UsageError(f"--dynamic {word}: {name!r} has the axes 0 to {value.dim() - 1}, so no axis {axis}")
            sizes[int(axis)] = label or f"{name}_{axis}"
        shapes[name] = {**(shapes[name] or {}), **sizes}
    return shapes


def _tell(options: argparse.Namespace, exported: Exported) -> None:
    """Says what came of it, to people and to programs."""
    if exported.fallback is not None and not options.quiet:
        print(
            f"warning: exported with {exported.strategy}, because dynamo failed: {exported.fallback}", file=sys.stderr
        )
    if options.json is not None:
        text = json.dumps(_report(options, exported), indent=1)
        if options.json == "-":
            print(text)
            return
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    if not options.quiet:
        print("\n".join(_lines(exported)))


def _lines(exported: Exported) -> Iterator[str]:
    modules, known = exported.report["modules"], exported.report["coverage"]
    yield (
        f"{exported.path}: exported with {exported.strategy}; {known['nodes']} nodes of {modules} modules, "
        f"{known['coverage']:.1%} of the nodes known"
    )
    sidecar = [file["path"] for file in exported.report["files"] if file["path"].endswith("_hierarchy.json")]
    yield from (f"sidecar: {path}" for path in sidecar)
    yield f"operations: {exported.report['total_operations']}, {exported.report['tagged_operations']} of them tagged"
    yield "Tagging performance by category:"
    for each in known["categories"]:
        mark = "" if each["ok"] else f"  BELOW {each['threshold']:.0f}%"
        yield f"  {each['category']:23}  {each['percentage']:5.1f}% tagged ({each['tagged']}/{each['total']} nodes){mark}"
    if exported.optimization is not None:
        before, after = (exported.optimization[when]["nodes"] for when in ("before", "after"))
        yield f"optimized: {before} nodes became {after}"
    if exported.check is not None:
        yield f"check: {exported.check}"


def _report(options: argparse.Namespace, exported: Exported) -> dict[str, Any]:
    return {
        "schema": 1,
        "source": options.source,
        "output": str(exported.path),
        "strategy": exported.strategy,
        "fallback": exported.fallback,
        "undetermined": exported.undetermined,
        "tag": exported.report,
        "optimize": exported.optimization,
        "check": None if exported.check is None else {**asdict(exported.check), "says": str(exported.check)},
    }


@contextlib.contextmanager
def _quiet(options: argparse.Namespace) -> Iterator[None]:
    """Lets what PyTorch, transformers and models say vanish; with `-v` only where JSON is written."""
    if options.verbose > 0 and options.json != "-":
        yield
        return
    disabled = logging.root.manager.disable
    with contextlib.ExitStack() as undo:
        undo.enter_context(warnings.catch_warnings())
        undo.enter_context(_no_standard_output())
        if options.verbose == 0:
            undo.enter_context(contextlib.redirect_stderr(io.StringIO()))
            warnings.simplefilter("ignore")
            logging.disable(logging.ERROR)
            undo.callback(logging.disable, disabled)
        yield


@contextlib.contextmanager
def _no_standard_output() -> Iterator[None]:
    """Lets what is written to standard output vanish, also what is not written by Python."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _failed(error: BaseException) -> int:
    """One line for whatever went wrong."""
    from .torch._errors import reason

    text = str(error) if isinstance(error, Error) else f"{reason(error)}; hint: -v shows where, or another --strategy"
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    return BAD
