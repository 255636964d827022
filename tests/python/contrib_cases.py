"""Writes test cases for operators whose reference is ONNX Runtime, as folders that any tool can read.

    python tests/python/contrib_cases.py DIR

DIR/contrib/CASE/ has the operators of the domain com.microsoft, DIR/ml/CASE/ those of ai.onnx.ml and DIR/quant/CASE/
the quantized ones of the standard domain; the folders are laid out as backend_cases.py lays them out. Expected outputs
are what the installed onnxruntime computes. What it cannot run is an error: the cases are written for one version.
"""

import shutil
import sys
from pathlib import Path

import onnxruntime

from backend_cases import write_case
from contrib_kinds import contrib_cases
from ml_kinds import ml_cases
from one_node import CannotRun, expected, model_of
from quant_kinds import quant_cases


def write_suite(folder, cases):
    names, refused = set(), []
    for case in cases:
        assert case.name not in names, f"two cases are called {case.name}"
        names.add(case.name)
        try:
            outputs = expected(case)
        except CannotRun as error:
            refused.append(f"{case.name}: {error}")
            continue
        write_case(folder / case.name, model_of(case, outputs), [(case.given(), outputs)], case.rtol, case.atol)
    if refused:
        raise SystemExit("\n".join(refused))


def write_all(folder):
    write_suite(folder / "ml", ml_cases())
    write_suite(folder / "quant", quant_cases())
    write_suite(folder / "contrib", contrib_cases())


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(3)
    target = Path(sys.argv[1])
    # A half-written folder is of no use to anybody.
    shutil.rmtree(target, ignore_errors=True)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    write_all(partial)
    partial.rename(target)
