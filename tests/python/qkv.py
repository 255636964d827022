"""Three products of one value as one: what `fuse_attention_qkv` finds in a model, and what it costs or saves in ONNX Runtime.

    python tests/python/qkv.py BINARY NAME MODEL.onnx [OPSET]

Prints how many blocks it finds and their widths; then, for the first block and several numbers of rows, three products against one and a
Split: the largest difference of their results, and the time of one by that of three, the least of many runs in turn on one thread.
"""

import sys
import tempfile
import time
from pathlib import Path

import native
import numpy as np
import onnx
import passes
from onnx import TensorProto, helper, numpy_helper

PASS = "fuse_attention_qkv"
ROWS = (1, 16, 128, 384)


def blocks(model):
    """Depth and widths of each product that is cut by a Split."""
    constants = {constant.name: constant for constant in model.graph.initializer}
    makers = {output: node for node in model.graph.node for output in node.output}
    for node in model.graph.node:
        if node.op_type != "Split" or len(node.output) != 3 or node.input[1] not in constants:
            continue
        product = makers.get(node.input[0])
        if product is not None and product.op_type == "Add":
            product = makers.get(product.input[0])
        if product is not None and product.op_type in ("MatMul", "Gemm") and product.input[1] in constants:
            widths = numpy_helper.to_array(constants[node.input[1]]).tolist()
            shape = constants[product.input[1]].dims
            yield shape[0] if shape[1] == sum(widths) else shape[1], tuple(widths)


def session(folder, depth, widths, together):
    draw = np.random.default_rng(0)
    weights = [(draw.standard_normal((depth, width)) * 0.02).astype(np.float32) for width in widths]
    biases = [draw.standard_normal(width).astype(np.float32) for width in widths]
    constants, nodes = {}, []
    if together:
        constants |= {"w": np.concatenate(weights, 1), "b": np.concatenate(biases), "s": np.array(widths)}
        nodes += [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["a"])]
        nodes += [helper.make_node("Split", ["a", "s"], ["y0", "y1", "y2"], axis=-1)]
    else:
        for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            constants |= {f"w{index}": weight, f"b{index}": bias}
            nodes += [helper.make_node("MatMul", ["x", f"w{index}"], [f"p{index}"])]
            nodes += [helper.make_node("Add", [f"p{index}", f"b{index}"], [f"y{index}"])]
    value = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "rows", width])  # noqa: E731
    outputs = [value(f"y{index}", width) for index, width in enumerate(widths)]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "block", [value("x", depth)], outputs, initializers)
    path = Path(folder) / f"{'one' if together else 'three'}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return native.session(path, 1, optimized=True)


def least(sessions, feeds, rounds):
    times = [float("inf")] * len(sessions)
    for _ in range(rounds):
        for index, runtime in enumerate(sessions):
            start = time.perf_counter()
            runtime.run(None, feeds)
            times[index] = min(times[index], time.perf_counter() - start)
    return times


def main(binary, name, path, opset="keep"):
    every = ",".join([*passes.passes(binary), PASS])
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        out = Path(folder) / "out.onnx"
        report = passes.run(binary, "optimize", path, "-o", out, "--verify", "off", "--opset", opset, "--passes", every, "--json", "-")
        edits = next(entry["edits"] for entry in report["passes"] if entry["name"] == PASS)
        found = sorted(set(blocks(onnx.load(out)))) if edits else []
        print(f"{name:32} {edits:3} blocks  {'; '.join(f'{depth} → {widths}' for depth, widths in found)}", flush=True)
        for depth, widths in found[:1]:
            three, one = (session(folder, depth, widths, together) for together in (False, True))
            for rows in ROWS:
                feeds = {"x": np.random.default_rng(rows).standard_normal((1, rows, depth)).astype(np.float32)}
                pairs = zip(three.run(None, feeds), one.run(None, feeds), strict=True)
                apart = max(float(np.abs(a - b).max()) for a, b in pairs)
                old, new = least((three, one), feeds, max(10, 20000 // rows // 10))
                print(f"  {rows:4} rows  {old * 1e3:8.3f} → {new * 1e3:8.3f} ms  time {new / old:.3f}  off by {apart:.1e}",
                      flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
