"""ONNX Runtime's time on the processor for attention with a cache and grouped heads, one token at a time: decomposed, as the standard operator, and as its own
GroupQueryAttention, the last two with the rotation of queries and keys; in turn, on the same inputs.

    python tests/python/grouped_attention_speed.py [--threads 1]
"""

import argparse
import statistics
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HEADS, CACHED_HEADS, SIZE, LONGEST = 32, 8, 64, 2048
WIDTH, CACHED_WIDTH = HEADS * SIZE, CACHED_HEADS * SIZE
ROUNDS = 200
LAYERS = 25
ANGLES = np.outer(np.arange(LONGEST), 1e4 ** (-np.arange(SIZE // 2) / (SIZE // 2)))
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
RESULTS = ["y", "present_key", "present_value"]


def rotated(nodes):
    """Queries and keys that positions rotate, as the standard has it."""
    for name, heads in (("q", HEADS), ("k", CACHED_HEADS)):
        nodes.append(helper.make_node("RotaryEmbedding", [name, "cos", "sin"], [f"{name}_turned"], num_heads=heads))
    return nodes


def spelled_out():
    nodes = rotated([])

    def constant(name, values):
        nodes.append(helper.make_node("Constant", [], [name], value_ints=values))
        return name

    for name, source, heads in (("q", "q_turned", HEADS), ("k", "k_turned", CACHED_HEADS), ("v", "v", CACHED_HEADS)):
        shape = constant(f"{name}_shape", [0, 0, heads, SIZE])
        nodes.append(helper.make_node("Reshape", [source, shape], [f"{name}_apart"]))
        nodes.append(helper.make_node("Transpose", [f"{name}_apart"], [f"{name}_heads"], perm=[0, 2, 1, 3]))
    for name, kind in (("k", "key"), ("v", "value")):
        present = f"present_{kind}"
        nodes.append(helper.make_node("Concat", [f"past_{kind}", f"{name}_heads"], [present], axis=2))
        nodes.append(helper.make_node("Unsqueeze", [present, constant(f"{name}_axis", [2])], [f"{name}_one"]))
        times = constant(f"{name}_times", [1, 1, HEADS // CACHED_HEADS, 1, 1])
        nodes.append(helper.make_node("Expand", [f"{name}_one", times], [f"{name}_many"]))
        joined = constant(f"{name}_joined", [0, HEADS, -1, SIZE])
        nodes.append(helper.make_node("Reshape", [f"{name}_many", joined], [f"{name}_all"]))
    nodes.append(helper.make_node("Transpose", ["k_all"], ["k_turned_over"], perm=[0, 1, 3, 2]))
    nodes.append(helper.make_node("MatMul", ["q_heads", "k_turned_over"], ["product"]))
    nodes.append(helper.make_node("Constant", [], ["scale"], value_float=SIZE**-0.5))
    nodes.append(helper.make_node("Mul", ["product", "scale"], ["scaled"]))
    nodes.append(helper.make_node("Add", ["scaled", "mask"], ["masked"]))
    nodes.append(helper.make_node("Softmax", ["masked"], ["weights"]))
    nodes.append(helper.make_node("MatMul", ["weights", "v_all"], ["mixed"]))
    nodes.append(helper.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]))
    nodes.append(helper.make_node("Reshape", ["back", constant("shape", [0, 0, WIDTH])], ["y"]))
    return nodes


def standard():
    inputs = ["q_turned", "k_turned", "v", "mask", "past_key", "past_value"]
    heads = {"q_num_heads": HEADS, "kv_num_heads": CACHED_HEADS}
    return rotated([]) + [helper.make_node("Attention", inputs, RESULTS, **heads)]


def grouped(query):
    inputs = [*query, "past_key", "past_value", "lengths", "total", "all_cos", "all_sin"]
    heads = {"num_heads": HEADS, "kv_num_heads": CACHED_HEADS, "do_rotary": 1}
    return [helper.make_node("GroupQueryAttention", inputs, RESULTS, domain="com.microsoft", **heads)]


FORMS = {
    "decomposed": spelled_out(),
    "Attention": standard(),
    "GroupQueryAttention": grouped(["q", "k", "v"]),
    "GroupQueryAttention, packed": grouped(["packed", "", ""]),
}


def model(nodes, feeds):
    """A model of these nodes, with the inputs that they read."""
    read = {name for node in nodes for name in node.input}
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
        if name in read
    ]
    tables = [numpy_helper.from_array(COS, "all_cos"), numpy_helper.from_array(SIN, "all_sin")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in RESULTS]
    graph = helper.make_graph(nodes, "g", ports, outputs, [table for table in tables if table.name in read])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def inputs(context):
    random = np.random.default_rng(0)
    shapes = {"q": (1, 1, WIDTH), "k": (1, 1, CACHED_WIDTH), "v": (1, 1, CACHED_WIDTH)}
    shapes |= {name: (1, CACHED_HEADS, context, SIZE) for name in ("past_key", "past_value")}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds["packed"] = np.concatenate([feeds[name] for name in "qkv"], 2)
    feeds |= {"cos": COS[None, context : context + 1], "sin": SIN[None, context : context + 1]}
    feeds["mask"] = np.zeros((1, 1, 1, context + 1), np.float32)
    return feeds | {"lengths": np.array([context], np.int32), "total": np.array(context + 1, np.int32)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    print("| context | " + " | ".join(f"{name}, ms" for name in FORMS) + " |\n|---" + "|---" * len(FORMS) + "|")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    # Threads of other sessions must not take time from the one that runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for context in (0, 128, 1024):
        feeds = inputs(context)
        sessions = {name: ort.InferenceSession(model(nodes, feeds), options) for name, nodes in FORMS.items()}
        # As in a model of many layers, no cache is in the processor's own when its turn comes.
        pasts = [{name: feeds[name].copy() for name in ("past_key", "past_value")} for _ in range(LAYERS)]
        read = {name: [port.name for port in session.get_inputs()] for name, session in sessions.items()}
        times = {name: [] for name in sessions}
        results = {}
        for turn in range(ROUNDS):
            for place, (name, session) in enumerate(sessions.items()):
                layer = feeds | pasts[(turn * len(sessions) + place) % LAYERS]
                given = {port: layer[port] for port in read[name]}
                start = time.process_time()
                results[name] = session.run(None, given)
                times[name].append((time.process_time() - start) * 1e3)
        for name, found in results.items():
            for one, other in zip(found, results["decomposed"], strict=True):
                assert np.allclose(one, other, atol=1e-5), name
        medians = [f"{statistics.median(column[2:]):.3f}" for column in times.values()]
        print(f"| {context} | " + " | ".join(medians) + " |", flush=True)


if __name__ == "__main__":
    main()
