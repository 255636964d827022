"""What `onnxforge convert` writes, in LiteRT, beside ONNX Runtime on the model that it was made of.

    python tests/python/litert.py models BINARY FOLDER [NAME ...] [-- OPTION-OF-CONVERT ...]
    python tests/python/litert.py cases BINARY CASES
    python tests/python/litert.py graphs FOLDER
    python tests/python/litert.py quantized BINARY FOLDER [NAME ...]

`models` converts every NAME.onnx of a folder and runs it at two sizes where sizes are open. `quantized` has ONNX Runtime's static quantizer make
integers of models first (QDQ, int8, weights by channel), and allows one step, or as many as ONNX Runtime is from itself without its optimizations. CASES is what `backend_cases.py` writes;
the folder of `graphs` is what `ONNXFORGE_KEEP=FOLDER cargo test -p onnxforge-convert random` writes. `--old PYTHON` names an environment with
tflite-runtime, which then loads every file, too. Exits with 1 where a result differs or a file is refused.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

#: The sizes of named dimensions at which models run.
SIZES = ({"batch": 1, "seq": 7}, {"batch": 2, "seq": 12})
#: The largest difference, as a share of the largest magnitude of an output.
BOUND = 1e-5
#: Operators of a case may be less accurate alone: a few units in the last place of another library's functions.
CASE_BOUND = 1e-4


def interpreter(path, threads=1, delegate=True):
    """LiteRT, or the older runtime where that is installed."""
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError:
        from tflite_runtime.interpreter import Interpreter, OpResolverType
    resolver = OpResolverType.AUTO if delegate else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return Interpreter(str(path), num_threads=threads, experimental_op_resolver_type=resolver)


def run(path, inputs, delegate=True):
    """The outputs of a file by their names."""
    return dict(interpreter(path, delegate=delegate).get_signature_runner("serving_default")(**inputs))


def operators(path):
    """How many operators of each kind a file has."""
    loaded = interpreter(path, delegate=False)
    return Counter(operator["op_name"] for operator in loaded._get_ops_details())


def session(model, optimized=True):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def sample(theirs, sizes, seed=0):
    """Inputs of a session, with these sizes of named dimensions."""
    import numpy as np

    rng = np.random.default_rng(seed)
    inputs = {}
    for port in theirs.get_inputs():
        shape = [size if isinstance(size, int) else sizes.get(size, 2) for size in port.shape]
        if "int" in port.type:
            kind = np.int64 if "64" in port.type else np.int32
            inputs[port.name] = rng.integers(0, 2 if "mask" in port.name or "type" in port.name else 50, shape).astype(kind)
            if "mask" in port.name:
                inputs[port.name][:, :3] = 1
        else:
            inputs[port.name] = rng.standard_normal(shape).astype(np.float32)
    return inputs


def apart(found, expected):
    """How far an output is from what it should be, as a share of its largest magnitude; infinite where it is of another kind."""
    import numpy as np

    found, expected = np.asarray(found), np.asarray(expected)
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return float("inf")
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(found, expected) else float("inf")
    odd = ~np.isfinite(expected)
    if not np.array_equal(found[odd], expected[odd], equal_nan=True) or not np.isfinite(found[~odd]).all():
        return float("inf")
    wide = expected[~odd].astype(np.float64)
    scale = max(np.abs(wide).max(initial=0.0), 1e-30)
    return float(np.abs(found[~odd].astype(np.float64) - wide).max(initial=0.0) / scale)


def furthest(found, expected):
    if sorted(found) != sorted(expected):
        return float("inf")
    return max((apart(found[name], array) for name, array in expected.items()), default=0.0)


class Watched:
    """A program, its time, and the most memory of its own."""

    def __init__(self, command):
        start = time.monotonic()
        child = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.anonymous = 0
        done = threading.Event()
        watcher = threading.Thread(target=self.watch, args=(child.pid, done))
        watcher.start()
        self.out, self.err = child.communicate()
        self.seconds, self.code = time.monotonic() - start, child.returncode
        done.set()
        watcher.join()

    def watch(self, pid, done):
        while not done.wait(0.003):
            try:
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("RssAnon:"):
                        self.anonymous = max(self.anonymous, int(line.split()[1]) * 1024)
            except OSError:
                return


class Apart:
    """A process that runs files, so that a crash of the runtime is one file's and not the end."""

    def __init__(self, python=sys.executable):
        self.python, self.child = python, None

    def ask(self, **question):
        if self.child is None:
            command = [self.python, __file__, "serve"]
            self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            self.child.stdin.write(json.dumps(question) + "\n")
            self.child.stdin.flush()
            answer = self.child.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        code, self.child = self.child.wait(), None
        return {"error": f"the runtime ended with {code}"}


def serve():
    """Answers questions, one a line: load a file, or run it and compare."""
    import numpy as np

    # What the runtime prints itself does not belong among the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        question, answer = json.loads(line), {}
        try:
            if "graph" in question:
                answer = graph(question["graph"])
            elif "inputs" in question:
                inputs, expected = (dict(np.load(question[which], allow_pickle=False)) for which in ("inputs", "expected"))
                # Names of archives are not those of arrays where these have slashes.
                inputs, expected = (dict(zip(question[names], arrays.values())) for names, arrays in (("names", inputs), ("outputs", expected)))
                answer["apart"] = furthest(run(question["file"], inputs), expected)
                if answer["apart"] > question["bound"]:
                    answer["plain"] = furthest(run(question["file"], inputs, delegate=False), expected)
            else:
                interpreter(question["file"]).allocate_tensors()
        except Exception as error:  # noqa: BLE001
            answer["error"] = str(error)[:300]
        out.write(json.dumps(answer) + "\n")
        out.flush()


def compared(runtime, folder, file, inputs, expected, bound):
    import numpy as np

    np.savez(folder / "inputs.npz", *inputs.values())
    np.savez(folder / "expected.npz", *expected.values())
    paths = {"inputs": str(folder / "inputs.npz"), "expected": str(folder / "expected.npz")}
    return runtime.ask(file=str(file), names=list(inputs), outputs=list(expected), bound=bound, **paths)


def results(theirs, inputs):
    return dict(zip([port.name for port in theirs.get_outputs()], theirs.run(None, inputs)))


def models(binary, folder, names, old, options):
    names = names or sorted(path.stem for path in Path(folder).glob("*.onnx"))
    runtime, older, failed = Apart(), Apart(old) if old else None, []
    print(f"{'model':28} {'seconds':>8} {'MB own':>7} {'operators':>9} {'transposes':>10}  furthest from ONNX Runtime", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        scratch = Path(scratch)
        for name in names:
            model, file = Path(folder) / f"{name}.onnx", scratch / "out.tflite"
            file.unlink(missing_ok=True)
            done = Watched([binary, "convert", model, "-o", file, "--json", "-", "-q", *options])
            report = json.loads(done.out) if done.out.strip().startswith("{") else {}
            if done.code != 0 or not file.exists():
                why = [f"{it['operator']} {it['node']}: {it['reason']}" for it in report.get("refused", [])] or [done.err.strip()[-300:]]
                failed.append(name)
                print(f"{name:28} {done.seconds:8.2f} not written: {len(why)} {why[0]}", flush=True)
                continue
            theirs = session(model)
            is_open = any(not isinstance(size, int) for port in theirs.get_inputs() for size in port.shape)
            found = []
            for sizes in SIZES if is_open else SIZES[:1]:
                inputs = sample(theirs, sizes)
                answer = compared(runtime, scratch, file, inputs, results(theirs, inputs), BOUND)
                plain = f" ({answer['plain']:.1e} without XNNPACK)" if "plain" in answer else ""
                found.append(answer.get("error") or f"{answer['apart']:.1e}{plain}")
                if answer.get("apart", 1) > BOUND:
                    failed.append(name)
            if older is not None:
                found.append("tflite-runtime " + older.ask(file=str(file)).get("error", "loads"))
            summary = report["summary"]
            print(
                f"{name:28} {done.seconds:8.2f} {done.anonymous / 1e6:7.0f} {sum(summary['operators'].values()):9} {summary['transposes']:10}  {', '.join(found)}",
                flush=True,
            )
    print(f"{len(names) - len(set(failed))} of {len(names)} are right")
    return bool(failed)


def quantize(model, target, unsigned=False):
    """What ONNX Runtime's static quantizer makes of a model: QDQ, weights by channel, calibrated on random inputs."""
    import warnings

    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self, theirs):
            self.inputs = iter([sample(theirs, SIZES[0], seed) for seed in range(4)])

        def get_next(self):
            return next(self.inputs, None)

    prepared = target.with_suffix(".prepared.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The quantizer wants weights in the file itself.
        onnx.save(onnx.load(model), prepared)
        quant_pre_process(str(prepared), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(target),
            Reader(session(prepared)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8 if unsigned else QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )
    prepared.unlink()


def quantized(binary, folder, names):
    """Steps between LiteRT and ONNX Runtime, what is computed in floats, and the size."""
    import numpy as np
    import onnx

    bad = False
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        scratch = Path(scratch)
        for name in names or ["resnet50.torchscript", "mobilenet_v2.torchscript"]:
            model, target, file = Path(folder) / f"{name}.onnx", scratch / "qdq.onnx", scratch / "out.tflite"
            whole = sum(path.stat().st_size for path in Path(folder).glob(f"{name}.*") if path.suffix in (".onnx", ".weights", ".data"))
            for unsigned in (False, True):
                file.unlink(missing_ok=True)
                quantize(model, target, unsigned)
                done = Watched([binary, "convert", target, "-o", file, "--json", "-", "-q"])
                if done.code != 0:
                    print(f"{name}: not written: {done.out[:500]} {done.err[-300:]}")
                    bad = True
                    continue
                summary = json.loads(done.out)["summary"]
                message = onnx.load(target)
                scales = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in message.graph.initializer}
                ends = {node.output[0]: float(scales[node.input[1]]) for node in message.graph.node if node.op_type == "DequantizeLinear" and node.output[0] in {port.name for port in message.graph.output}}
                theirs, plain, steps, own, same = session(target), session(target, optimized=False), 0.0, 0.0, []
                for seed in range(10, 14):
                    inputs = sample(theirs, SIZES[0], seed)
                    expected, unfused, found = results(theirs, inputs), results(plain, inputs), run(file, inputs)
                    for output, scale in ends.items():
                        apart_by = np.abs(found[output] - expected[output]) / scale
                        steps = max(steps, float(apart_by.max()))
                        own = max(own, float((np.abs(unfused[output] - expected[output]) / scale).max()))
                        same.append(float((apart_by < 0.5).mean()))
                floats = [f"{it['operator']}: {it['reason']}" for it in summary.get("floats", [])]
                left = {name: count for name, count in summary["operators"].items() if name in ("QUANTIZE", "DEQUANTIZE")}
                print(
                    f"{name} {'uint8' if unsigned else 'int8'}: {steps:.0f} steps at most (ONNX Runtime without its optimizations {own:.0f}), {100 * np.mean(same):.1f} % equal; {file.stat().st_size / whole:.3f} of the float model; {left}; "
                    f"XNNPACK takes {summary['delegate']['taken']}, leaves {summary['delegate']['left']}; in floats: {floats or 'nothing'}",
                    flush=True,
                )
                bad |= round(steps) > max(1, round(own)) or bool(floats)
    return bad


#: Element types of tensors that the format has.
TYPES = {"float32", "int64", "int32", "bool", "uint8", "int8", "int16", "uint32", "uint16"}


def cases(binary, folder):
    """Node cases with the format's types: how many are converted, and whether LiteRT gives what they say."""
    import onnx

    runtime, wrong, refused, counts, reasons = Apart(), [], {}, Counter(), Counter()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        for case in sorted(Path(folder).glob("*/*/model.onnx")):
            name, message = case.parent.name, onnx.load(case)
            data = case.parent / "test_data_set_0"
            sides = []
            for side, ports in (("input", message.graph.input), ("output", message.graph.output)):
                arrays = {}
                for index, port in enumerate(ports):
                    path = data / f"{side}_{index}.pb"
                    if port.type.WhichOneof("value") == "tensor_type" and path.is_file():
                        arrays[port.name] = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
                sides.append(arrays)
            inputs, expected = sides
            complete = len(inputs) == len(message.graph.input) and len(expected) == len(message.graph.output)
            kinds = {str(array.dtype) for array in (*inputs.values(), *expected.values())}
            if not complete or not kinds <= TYPES:
                counts["of other types"] += 1
                continue
            counts["cases"] += 1
            file = scratch / "out.tflite"
            file.unlink(missing_ok=True)
            done = subprocess.run([binary, "convert", case, "-o", file, "--json", "-", "-q"], capture_output=True, text=True)
            if done.returncode != 0 or not file.exists():
                report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
                first = next(iter(report.get("refused", [])), None)
                why = f"{first['operator']}: {first['reason']}" if first else (done.stderr.strip() or "differs")[:160]
                refused[name] = why
                reasons[why] += 1
                continue
            answer = compared(runtime, scratch, file, inputs, expected, CASE_BOUND)
            if answer.get("apart", float("inf")) > CASE_BOUND:
                wrong.append(f"{name}: {answer}")
            else:
                counts["right"] += 1
    for why, count in reasons.most_common():
        print(f"{count:5} {why}")
    for line in wrong:
        print("wrong:", line)
    print(f"{counts['cases']} cases of the format's types ({counts['of other types']} of others): {counts['right']} right, {len(wrong)} wrong, {len(refused)} refused")
    return bool(wrong)


def graph(stem):
    """How far LiteRT is from ONNX Runtime on a random graph. Where numbers are quantized, runtimes round ties in their own ways, so a step is allowed."""
    import numpy as np
    import onnx

    inputs = dict(np.load(f"{stem}.npz"))
    try:
        expected = results(session(f"{stem}.onnx"), inputs)
    except Exception as error:  # noqa: BLE001
        return {"unjudged": f"ONNX Runtime: {error}"[:200]}
    if any(array.size == 0 for array in expected.values()):
        return {"unjudged": "a result without elements"}
    nodes = {output: node for node in onnx.load(f"{stem}.onnx").graph.node for output in node.output}
    found, furthest_of_all = run(f"{stem}.tflite", inputs), 0.0
    for name, array in expected.items():
        node, step = nodes.get(name), 0.0
        if node is not None and node.op_type == "DequantizeLinear" and node.input[1] in nodes:
            scale = onnx.numpy_helper.to_array(nodes[node.input[1]].attribute[0].t)
            step = 1.001 * float(scale.max()) / max(float(np.abs(array).max()), 1e-30)
        apart_by = apart(found[name], array)
        furthest_of_all = max(furthest_of_all, 0.0 if apart_by <= step else apart_by)
    return {"apart": furthest_of_all}


def graphs(folder):
    runtime, wrong, stems = Apart(), 0, sorted(path.with_suffix("") for path in Path(folder).glob("*.tflite"))
    unjudged = Counter()
    for stem in stems:
        answer = runtime.ask(graph=str(stem))
        if "unjudged" in answer:
            unjudged[answer["unjudged"].split(":")[0]] += 1
        elif answer.get("apart", float("inf")) > CASE_BOUND:
            wrong += 1
            print(f"{stem.name}: {answer}", flush=True)
    print(f"{len(stems)} files, {wrong} wrong or refused by LiteRT; not judged: {dict(unjudged)}")
    return bool(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["models", "quantized", "cases", "graphs", "serve"])
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--old", help="Python of an environment with tflite-runtime")
    given, options = sys.argv[1:], []
    if "--" in given:
        given, options = given[: given.index("--")], given[given.index("--") + 1 :]
    args = parser.parse_args(given)
    if args.what == "serve":
        return serve()
    if args.what == "models":
        return models(args.arguments[0], args.arguments[1], args.arguments[2:], args.old, options)
    if args.what == "quantized":
        return quantized(args.arguments[0], args.arguments[1], args.arguments[2:])
    return (cases if args.what == "cases" else graphs)(*args.arguments)


if __name__ == "__main__":
    sys.exit(main())
