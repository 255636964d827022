"""How often, how fast and how well models become .tflite files: onnx2tf, onnx2tf after `onnxforge optimize --target tflite`, and `onnxforge convert`.

    python tests/python/onnx2tf_rates.py BINARY FOLDER --onnx2tf PROGRAM [NAME ...] [--results FILE.json] [--latency]

PROGRAM is onnx2tf's, in an environment of its own (Python 3.12). A file is right where LiteRT computes what ONNX Runtime does, up to 1e-4 of the scale;
inputs and outputs may have their channels last. onnx2tf gets a copy of each model, for it rewrites what it reads. `--latency` runs the files that are right in
turns, one thread, with XNNPACK. `--results` keeps what was measured; models of earlier runs stay in the file and in the table that is printed.
"""

import argparse
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import litert
import numpy as np

BOUND = 1e-4
LONGEST = 900


def feed(loaded, theirs, inputs):
    """Hands inputs over, by name or place, in the layout that the file wants; how each input's axes go."""
    details = loaded.get_input_details()
    named = {detail["name"].removeprefix("serving_default_").split(":")[0]: detail for detail in details}
    ports = [port.name for port in theirs.get_inputs()]
    given = []
    for index, name in enumerate(ports):
        detail = named.get(name) or details[index]
        array = inputs[name]
        wanted = [int(size) for size in detail["shape_signature"]] if len(detail["shape_signature"]) else [int(size) for size in detail["shape"]]
        if array.ndim == len(wanted) and array.ndim > 2:
            fits = [order for order in (tuple(range(array.ndim)), (0, *range(2, array.ndim), 1)) if all(want in (-1, array.shape[axis]) for want, axis in zip(wanted, order))]
            if fits:
                array = np.ascontiguousarray(array.transpose(fits[0]))
        if array.dtype == np.int64 and detail["dtype"] == np.int32:
            array = array.astype(np.int32)
        given.append((detail["index"], array))
    for index, array in given:
        loaded.resize_tensor_input(index, array.shape)
    loaded.allocate_tensors()
    for index, array in given:
        loaded.set_tensor(index, array)


def matches(found, expected):
    """How far the closest layout of a result is from what is expected; infinite where none fits."""
    best = float("inf")
    orders = itertools.permutations(range(found.ndim)) if found.ndim <= 4 else [tuple(range(found.ndim))]
    for order in orders:
        turned = found.transpose(order)
        if turned.shape == expected.shape:
            best = min(best, litert.apart(turned.astype(expected.dtype), expected))
    return best


def judged(file, model):
    """How far a file is from ONNX Runtime on its model: each output by its closest result."""
    theirs = litert.session(model)
    inputs = litert.sample(theirs, litert.SIZES[0])
    expected = theirs.run(None, inputs)
    loaded = litert.interpreter(file)
    feed(loaded, theirs, inputs)
    loaded.invoke()
    found = [loaded.get_tensor(detail["index"]) for detail in loaded.get_output_details()]
    return max(min((matches(result, array) for result in found), default=float("inf")) for array in expected)


def served():
    """Judges one file in a process of its own."""
    file, model = sys.argv[2:4]
    try:
        print(json.dumps({"apart": judged(file, model), "transposes": litert.operators(file).get("TRANSPOSE", 0)}))
    except Exception as error:  # noqa: BLE001
        print(json.dumps({"error": str(error)[:200]}))


def judge(file, model):
    done = subprocess.run([sys.executable, __file__, "judge", str(file), str(model)], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": f"the runtime ended with {done.returncode}"}


def by_onnx2tf(program, model, folder):
    """The file that onnx2tf makes, if it says that it made one, and what that took."""
    folder.mkdir()
    copy = folder / model.name
    shutil.copy(model, copy)
    for data in model.parent.glob(f"{model.stem}.*"):
        if data != model and data.suffix != ".tflite":
            (folder / data.name).symlink_to(data.resolve())
    environment = {"PATH": f"{Path(program).parent}:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "", "HOME": str(folder)}
    command = [program, "-i", copy, "-o", folder / "saved", "-n"]
    start = time.monotonic()
    try:
        done = litert.Watched(["timeout", str(LONGEST), "env", *(f"{key}={value}" for key, value in environment.items()), *command])
    except OSError as error:
        return None, {"error": str(error)}
    seconds = time.monotonic() - start
    files = sorted((folder / "saved").glob("*float32.tflite"))
    said = {"seconds": seconds, "exit": done.code}
    if done.code != 0 or not files:
        return None, {**said, "error": (done.out + done.err).strip()[-200:]}
    return files[0], said


def by_us(binary, model, folder, *options):
    folder.mkdir()
    file = folder / "out.tflite"
    done = litert.Watched([binary, "convert", model, "-o", file, "-q", "--json", "-", *options])
    said = {"seconds": done.seconds, "exit": done.code, "anonymous": done.anonymous}
    return (file, said) if done.code == 0 and file.exists() else (None, {**said, "error": (done.err or done.out)[:200]})


def prepared(binary, model, folder):
    """The model after our passes for converters."""
    folder.mkdir()
    result = folder / model.name
    done = subprocess.run([binary, "optimize", model, "-o", result, "--target", "tflite", "-q"], capture_output=True, text=True)
    return result if done.returncode == 0 else None


def latency(files, model, seconds=6.0):
    """Median milliseconds of each file, in turns."""
    theirs = litert.session(model)
    inputs = litert.sample(theirs, litert.SIZES[0])
    loaded = []
    for file in files:
        loaded.append(litert.interpreter(file))
        feed(loaded[-1], theirs, inputs)
        loaded[-1].invoke()
    times = [[] for _ in files]
    start = time.monotonic()
    for round_ in itertools.count():
        if round_ >= 5 and time.monotonic() - start > seconds:
            break
        for place in range(len(files)):
            which = (round_ + place) % len(files)
            begun = time.perf_counter()
            loaded[which].invoke()
            times[which].append((time.perf_counter() - begun) * 1e3)
    return [statistics.median(of) for of in times]


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "judge":
        return served()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--onnx2tf", required=True)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--layout", default="nhwc", help="layout of ours that is compared with onnx2tf's, which is nhwc")
    args = parser.parse_intermixed_args()
    names = args.names or sorted(path.stem for path in args.folder.glob("*.onnx"))
    rows = json.loads(args.results.read_text()) if args.results and args.results.exists() else {}
    for name in names:
        model = args.folder / f"{name}.onnx"
        rows[name] = {}
        with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
            scratch, files = Path(scratch), {}
            after = prepared(args.binary, model, scratch / "prepared")
            ways = {
                "onnx2tf": lambda: by_onnx2tf(args.onnx2tf, model, scratch / "raw"),
                "onnx2tf, prepared": lambda: by_onnx2tf(args.onnx2tf, after, scratch / "after") if after else (None, {"error": "not optimized"}),
                "convert": lambda: by_us(args.binary, model, scratch / "ours", "--layout", args.layout),
            }
            for way, make in ways.items():
                file, said = make()
                if file is not None:
                    said |= judge(file, model)
                    said["bytes"] = file.stat().st_size
                outcome = "right" if said.get("apart", float("inf")) <= BOUND else "broken" if file is not None else "refused"
                if outcome == "right":
                    files[way] = file
                rows[name][way] = {**said, "outcome": outcome}
                why = said.get("error") or f"{said['apart']:.1e}, {said['transposes']} transposes"
                print(f"{name:28} {way:18} {outcome:8} {said.get('seconds', 0):7.2f} s  {str(why).strip()[-120:]!r}", flush=True)
            if args.latency and len(files) > 1:
                for way, found in zip(files, latency(list(files.values()), model)):
                    rows[name][way]["milliseconds"] = found
                print(f"{name:28} " + ", ".join(f"{way} {rows[name][way]['milliseconds']:.2f} ms" for way in files), flush=True)
        if args.results:
            args.results.write_text(json.dumps(rows, indent=1))
    summary(rows)


def summary(rows):
    """All models, those of earlier runs too, as a table, and how often each way succeeds."""
    ways = ("onnx2tf", "onnx2tf, prepared", "convert")
    print("| model | " + " | ".join(ways) + " |\n|---|" + "---|" * len(ways))
    for name, row in rows.items():
        cells = []
        for way in ways:
            said = row[way]
            cell = [said["outcome"], f"{said['seconds']:.1f} s"]
            cell += [f"{said['transposes']} transposes"] if "transposes" in said else []
            cell += [f"{said['milliseconds']:.2f} ms"] if "milliseconds" in said else []
            cells.append(", ".join(cell))
        print(f"| {name} | " + " | ".join(cells) + " |")
    for way in ways:
        count = Counter(row[way]["outcome"] for row in rows.values())
        print(f"{way}: {count['right']} right, {count['broken']} broken files with exit 0, {count['refused']} refused, of {len(rows)}")


if __name__ == "__main__":
    sys.exit(main())
