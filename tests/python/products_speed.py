"""Products of a batch with weights, with a sum: MatMul and Add on all axes, or Reshape, Gemm and Reshape. Time in ONNX Runtime, in the native engine and, where
TensorFlow is installed, in LiteRT; batch and sequence are known at run time only.

    python tests/python/products_speed.py ONNXFORGE [ENGINE...]

Both forms take turns on the same inputs. A ratio is the second form's time by the first's; its interval is that of the median over rounds (95 %, by
resampling rounds).
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROUNDS, REPEATS = 24, 6
HEADS, SIZE = 12, 64
WIDTH = HEADS * SIZE
# What is multiplied: queries, keys and values of which heads are made, and the two products of a perceptron.
SHAPES = {"heads": [WIDTH, WIDTH, WIDTH], "wide": [4 * WIDTH], "narrow": [WIDTH]}
DEPTHS = {"heads": WIDTH, "wide": WIDTH, "narrow": 4 * WIDTH}
LENGTHS = (1, 16, 128, 384)


def weights(kind):
    random = np.random.default_rng(0)
    depth = DEPTHS[kind]
    return [
        (random.standard_normal((depth, width)).astype(np.float32) * 0.02, random.standard_normal(width).astype(np.float32))
        for width in SHAPES[kind]
    ]


def onnx_model(kind, flat):
    from onnx import TensorProto, helper, numpy_helper

    nodes, stored, outputs = [], [], []

    def keep(name, values):
        stored.append(numpy_helper.from_array(values, name))
        return name

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    x, leading = "x", None
    if flat:
        x = node("Reshape", ["x", keep("rows", np.array([-1, DEPTHS[kind]]))], "flat")
        leading = node("Shape", ["x"], "leading", end=2)
    for index, (matrix, bias) in enumerate(weights(kind)):
        ends = [HEADS, SIZE] if kind == "heads" else [matrix.shape[1]]
        w, b, y = keep(f"w{index}", matrix), keep(f"b{index}", bias), f"y{index}"
        if flat:
            product = node("Gemm", [x, w, b], f"p{index}")
            shape = node("Concat", [leading, keep(f"e{index}", np.array(ends))], f"t{index}", axis=0)
            node("Reshape", [product, shape], y)
        else:
            product = node("MatMul", [x, w], f"p{index}")
            total = node("Add", [product, b], f"s{index}" if kind == "heads" else y)
            if kind == "heads":
                node("Reshape", [total, keep(f"e{index}", np.array([0, 0, *ends]))], y)
        outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, ["batch", "length", *ends]))
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", DEPTHS[kind]])
    graph = helper.make_graph(nodes, "g", [port], outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def timed(call):
    # Time of this process: what else runs on the machine does not count.
    start = time.process_time()
    for _ in range(REPEATS):
        call()
    return (time.process_time() - start) / REPEATS * 1e3


def runtime(kind, folder, _):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = [
        onnxruntime.InferenceSession(onnx_model(kind, flat).SerializeToString(), options) for flat in (False, True)
    ]
    return lambda x: [lambda session=session: session.run(None, {"x": x}) for session in sessions]


def native(kind, folder, binary):
    import onnx

    paths = [folder / f"{kind}.{flat}.onnx" for flat in (False, True)]
    for path, flat in zip(paths, (False, True), strict=True):
        onnx.save(onnx_model(kind, flat), path)

    def measure(path, length):
        command = [binary, "run", path, "--set-dim", "batch=1", "--set-dim", f"length={length}"]
        command += ["--repeat", str(REPEATS), "--json", "-"]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["milliseconds"]

    return lambda x: [lambda path=path: measure(path, x.shape[1]) for path in paths]


def litert(kind, folder, _):
    import tensorflow as tf

    def converted(flat):
        stored = weights(kind)

        @tf.function(input_signature=[tf.TensorSpec([None, None, DEPTHS[kind]], tf.float32)])
        def call(x):
            leading, results = tf.shape(x)[:2], []
            rows = tf.reshape(x, [-1, DEPTHS[kind]]) if flat else x
            for matrix, bias in stored:
                ends = [HEADS, SIZE] if kind == "heads" else [matrix.shape[1]]
                product = tf.matmul(rows, matrix) + bias
                reshaped = tf.reshape(product, tf.concat([leading, ends], 0))
                results.append(reshaped if flat or kind == "heads" else product)
            return results

        return tf.lite.TFLiteConverter.from_concrete_functions([call.get_concrete_function()], call).convert()

    interpreters = [tf.lite.Interpreter(model_content=converted(flat), num_threads=1) for flat in (False, True)]

    def calls(x):
        for interpreter in interpreters:
            port = interpreter.get_input_details()[0]["index"]
            interpreter.resize_tensor_input(port, x.shape)
            interpreter.allocate_tensors()
            interpreter.set_tensor(port, x)
        return [interpreter.invoke for interpreter in interpreters]

    return calls


ENGINES = {"ONNX Runtime": runtime, "native": native, "LiteRT": litert}


def interval(ratios):
    random = np.random.default_rng(0)
    medians = np.median(random.choice(ratios, (2000, len(ratios))), axis=1)
    return np.median(ratios), *np.quantile(medians, [0.025, 0.975])


def main():
    binary, *chosen = sys.argv[1:]
    print("| engine | products | length | MatMul and Add, ms | Reshape, Gemm and Reshape, ms | ratio |")
    print("|---|---|---|---|---|---|")
    for engine, make in ENGINES.items():
        if chosen and engine not in chosen:
            continue
        for kind in SHAPES:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    forms = make(kind, Path(folder), binary)
                except ImportError as error:
                    print(f"{engine}: {error}", file=sys.stderr)
                    break
                for length in LENGTHS:
                    x = np.random.default_rng(1).standard_normal((1, length, DEPTHS[kind])).astype(np.float32)
                    calls = forms(x)
                    times = []
                    for turn in range(ROUNDS + 1):
                        # Whoever comes first finds other things in the caches, so they take turns.
                        order = (0, 1) if turn % 2 else (1, 0)
                        row = [0.0, 0.0]
                        for form in order:
                            row[form] = calls[form]() if engine == "native" else timed(calls[form])
                        times.append(row)
                    measured = np.array(times[1:])
                    first, second = np.median(measured, axis=0)
                    ratio, low, high = interval(measured[:, 1] / measured[:, 0])
                    cells = f"{first:.3f} | {second:.3f} | {ratio:.3f} [{low:.3f}, {high:.3f}]"
                    print(f"| {engine} | {kind} | {length} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
