"""ONNX Runtime's time for attention: decomposed, as the standard operator, and as its own MultiHeadAttention; in turn, on the same inputs.

    python tests/python/attention_speed.py
"""

import statistics
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

HEADS, SIZE = 12, 64
WIDTH = HEADS * SIZE
ROUNDS = 40


def model(nodes, length, masked):
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, length, WIDTH]) for name in "qkv"]
    if masked:
        ports.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, 1, length, length]))
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def spelled_out(masked):
    nodes = []
    for name in "qkv":
        nodes.append(helper.make_node("Constant", [], [f"{name}_shape"], value_ints=[0, 0, HEADS, SIZE]))
        nodes.append(helper.make_node("Reshape", [name, f"{name}_shape"], [f"{name}_apart"]))
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(helper.make_node("Transpose", [f"{name}_apart"], [f"{name}_heads"], perm=perm))
    nodes.append(helper.make_node("MatMul", ["q_heads", "k_heads"], ["product"]))
    nodes.append(helper.make_node("Constant", [], ["scale"], value_float=SIZE**-0.5))
    nodes.append(helper.make_node("Mul", ["product", "scale"], ["scaled"]))
    if masked:
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["masked"]))
    nodes.append(helper.make_node("Softmax", ["masked" if masked else "scaled"], ["weights"]))
    nodes.append(helper.make_node("MatMul", ["weights", "v_heads"], ["mixed"]))
    nodes.append(helper.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]))
    nodes.append(helper.make_node("Constant", [], ["shape"], value_ints=[0, 0, WIDTH]))
    nodes.append(helper.make_node("Reshape", ["back", "shape"], ["y"]))
    return nodes


def standard(masked):
    inputs = ["q", "k", "v", *(["mask"] if masked else [])]
    return [helper.make_node("Attention", inputs, ["y"], q_num_heads=HEADS, kv_num_heads=HEADS)]


def multi_head(masked):
    inputs = ["q", "k", "v", *(["", "", "mask"] if masked else [])]
    return [helper.make_node("MultiHeadAttention", inputs, ["y"], domain="com.microsoft", num_heads=HEADS)]


FORMS = {"decomposed": spelled_out, "Attention": standard, "MultiHeadAttention": multi_head}


def main():
    print("| sequence | mask | decomposed, ms | Attention, ms | MultiHeadAttention, ms |\n|---|---|---|---|---|")
    random = np.random.default_rng(0)
    for length in (32, 128, 384, 1024):
        for masked in (False, True):
            options = ort.SessionOptions()
            options.intra_op_num_threads = 2
            options.log_severity_level = 4
            sessions = {
                name: ort.InferenceSession(model(form(masked), length, masked).SerializeToString(), options)
                for name, form in FORMS.items()
            }
            feeds = {name: random.standard_normal((1, length, WIDTH)).astype(np.float32) for name in "qkv"}
            if masked:
                feeds["mask"] = np.zeros((1, 1, length, length), np.float32)
            times = {name: [] for name in sessions}
            results = {}
            for _ in range(ROUNDS):
                for name, session in sessions.items():
                    start = time.perf_counter()
                    results[name] = session.run(None, feeds)[0]
                    times[name].append((time.perf_counter() - start) * 1e3)
            for name, result in results.items():
                assert np.allclose(result, results["decomposed"], atol=1e-5), name
            medians = [f"{statistics.median(column[2:]):.2f}" for column in times.values()]
            print(f"| {length} | {'yes' if masked else 'no'} | " + " | ".join(medians) + " |", flush=True)


if __name__ == "__main__":
    main()
