"""Converts models of a folder, evaluates the packages, and writes what came out as a table.

    ONNXFORGE_BIN=target/dist/onnxforge python tests/coreml/zoo.py FOLDER [--precision float32] [--name PART …] [--json FILE]
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import oracle

#: Sizes at which models are evaluated.
SIZES = {"batch": 1, "seq": 8, "sequence": 8, "height": 64, "width": 64}


def examine(model, precision, folder):
    """What becomes of one model."""
    out = Path(folder) / "out.mlpackage"
    start = time.perf_counter()
    command = [os.environ["ONNXFORGE_BIN"], "convert", str(model), "-o", str(out), "--precision", precision, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    row = {"model": model.stem, "seconds": round(time.perf_counter() - start, 2), "code": done.returncode}
    if done.returncode != 0 or not out.exists():
        report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        refused = sorted({f"{r['operator']}: {r['reason']}" for r in report.get("refused", [])})
        return {**row, "refused": refused, "error": done.stderr.strip()[-300:], "verdict": (report.get("comparison") or {}).get("verdict")}
    report = json.loads(done.stdout)
    row["verdict"] = (report.get("comparison") or {}).get("verdict") or report.get("unverified")
    try:
        apart = oracle.differences(model, out, oracle.made_up(model, SIZES))
        row["apart"] = max(apart.values())
    except Exception as error:
        row["oracle"] = f"{type(error).__name__}: {str(error)[:300]}"
    return row


def arguments(description):
    """The arguments of a script that tries the models of a folder."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", nargs="*", default=[""])
    parser.add_argument("--json", type=Path)
    return parser


def tabulate(args, rows_of):
    """Prints the rows of every model whose name was asked for, and writes all of them where that was asked for."""
    rows = []
    for model in sorted(args.folder.glob("*.onnx")):
        if any(part in model.name for part in args.name):
            for row in rows_of(model):
                rows.append(row)
                print(json.dumps(row), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


def main():
    parser = arguments(__doc__)
    parser.add_argument("--precision", default="float32")
    args = parser.parse_args()

    def rows_of(model):
        with tempfile.TemporaryDirectory() as folder:
            yield examine(model, args.precision, folder)

    tabulate(args, rows_of)


if __name__ == "__main__":
    main()
