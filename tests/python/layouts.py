"""Models that are full of Transposes, as exporters write them, with weights from a seed.

    python tests/python/layouts.py BINARY PEERS [NAME MODEL.onnx]

prints how many Transposes a model has, how many we leave, how many OnnxSlim and onnxsim leave (PEERS is the Python beside them, or -), and
how much faster ONNX Runtime gets, both models in turn on the same inputs; without a model for those that are made here.

The NHWC models are what tf2onnx makes of Keras models: operators that know only channels first stand between Transposes,
everything else works with channels last. `swin` cuts an image into windows and rolls it, as PyTorch exports it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TO_NCHW, TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


class Builder:
    """A graph in the making. Every method adds a node and answers the name of its result."""

    def __init__(self, seed=0, opset=17):
        self.nodes, self.weights, self.opset = [], [], opset
        self.random = np.random.default_rng(seed)

    def op(self, name, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(name, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def floats(self, *shape, scale=1.0):
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def model(self, inputs, outputs):
        def port(name, shape, kind=TensorProto.FLOAT):
            return helper.make_tensor_value_info(name, kind, shape)

        graph = helper.make_graph(
            self.nodes, "g", [port(*each) for each in inputs], [port(*each) for each in outputs], self.weights
        )
        found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.checker.check_model(found, full_check=True)
        return found

    # Channels last, around operators that have them first.

    def first(self, x):
        return self.op("Transpose", x, perm=TO_NCHW)

    def last(self, x):
        return self.op("Transpose", x, perm=TO_NHWC)

    def conv(self, x, channels, to, kernel=3, stride=1, group=1, pad=True):
        weight = self.floats(to, channels // group, kernel, kernel, scale=(kernel * kernel * channels / group) ** -0.5)
        pads = [kernel // 2 if pad else 0] * 4
        y = self.op("Conv", self.first(x), weight, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=group)
        return self.last(y)

    def norm(self, x, channels):
        """A BatchNormalization that the exporter has taken apart, channels last."""
        scaled = self.op("Mul", x, self.constant(self.random.uniform(0.5, 1.5, channels).astype(np.float32)))
        return self.op("Add", scaled, self.floats(channels, scale=0.1))

    def pool(self, x, op="MaxPool", **attributes):
        return self.last(self.op(op, self.first(x), kernel_shape=[2, 2], strides=[2, 2], **attributes))

    def relu6(self, x):
        return self.op("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))

    def dense(self, x, channels, to):
        return self.op("Add", self.op("MatMul", x, self.floats(channels, to, scale=channels**-0.5)), self.floats(to, scale=0.1))


def nhwc_resnet(size=32):
    """Residual blocks, one that changes the number of channels, branches that meet in a Concat, ReduceMean and Softmax."""
    b = Builder(1)
    x = b.op("Relu", b.norm(b.conv("x", 3, 16), 16))
    x = b.pool(x)
    for _ in range(3):
        y = b.op("Relu", b.norm(b.conv(x, 16, 16), 16))
        x = b.op("Relu", b.op("Add", b.norm(b.conv(y, 16, 16), 16), x))
    y = b.op("Relu", b.norm(b.conv(x, 16, 32, stride=2), 32))
    x = b.op("Add", b.norm(b.conv(y, 32, 32), 32), b.norm(b.conv(x, 16, 32, kernel=1, stride=2), 32))
    x = b.op("Relu", x)
    branches = [b.op("Relu", b.conv(x, 32, 16, kernel=kernel)) for kernel in (1, 3, 5)]
    x = b.op("Concat", *branches, b.op("Tanh", x), axis=3)
    x = b.op("Add", b.conv(x, 80, 80), x)
    x = b.op("ReduceMean", x, axes=[1, 2], keepdims=0)
    y = b.op("Softmax", b.dense(x, 80, 10), axis=-1)
    return b.model([("x", ["N", size, size, 3])], [(y, ["N", 10])])


def nhwc_mobilenet(size=32):
    """Depthwise convolutions behind explicit Pads, squeeze and excitation, bottlenecks with residuals, a dense head."""
    b = Builder(2)
    x = b.op("Sub", b.op("Mul", "x", b.constant(np.float32(2))), b.constant(np.float32(1)))
    x = b.op("Pad", x, b.ints(0, 0, 0, 0, 0, 1, 1, 0))
    x = b.relu6(b.norm(b.conv(x, 3, 16, stride=2, pad=False), 16))
    for stride in (1, 2, 1, 1):
        y = b.relu6(b.norm(b.conv(x, 16, 48, kernel=1), 48))
        if stride == 2:
            y = b.op("Pad", y, b.ints(0, 0, 0, 0, 0, 1, 1, 0))
        y = b.norm(b.conv(y, 48, 48, stride=stride, group=48, pad=stride == 1), 48)
        # Hard swish.
        gate = b.op("Mul", b.relu6(b.op("Add", y, b.constant(np.float32(3)))), b.constant(np.float32(1 / 6)))
        y = b.op("Mul", y, gate)
        squeezed = b.op("ReduceMean", y, axes=[1, 2], keepdims=1)
        squeezed = b.op("Relu", b.op("Add", b.conv(squeezed, 48, 12, kernel=1), b.floats(12)))
        squeezed = b.op("Sigmoid", b.op("Add", b.conv(squeezed, 12, 48, kernel=1), b.floats(48)))
        y = b.norm(b.conv(b.op("Mul", y, squeezed), 48, 16, kernel=1), 16)
        x = b.op("Add", x, y) if stride == 1 else y
    x = b.relu6(b.norm(b.conv(x, 16, 64, kernel=1), 64))
    x = b.last(b.op("GlobalAveragePool", b.first(x)))
    x = b.op("Reshape", x, b.ints(-1, 64))
    y = b.op("Softmax", b.dense(x, 64, 10), axis=-1)
    return b.model([("x", ["N", size, size, 3])], [(y, ["N", 10])])


def nhwc_unet(size=32):
    """Down and up again: Resize, Concat with what was before, Split, Slice, and classes of pixels by Softmax and ArgMax."""
    b = Builder(3)
    levels, x, channels = [], "x", 3
    for to in (8, 16):
        x = b.op("LeakyRelu", b.norm(b.conv(x, channels, to), to), alpha=0.1)
        levels.append((x, to))
        x, channels = b.pool(x), to
    x = b.op("Relu", b.conv(x, 16, 16))
    for level, to in reversed(levels):
        scales = b.constant(np.array([1, 2, 2, 1], np.float32))
        mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        x = b.op("Resize", x, "", scales, **mode)
        x = b.op("Concat", x, level, axis=-1)
        x = b.op("Relu", b.norm(b.conv(x, channels + to, to), to))
        channels = to
    left, right = b.op("Split", b.conv(x, 8, 8), axis=3, outputs=2)
    x = b.op("Mul", left, b.op("Sigmoid", right))
    x = b.op("Slice", x, b.ints(1, 1), b.ints(size - 1, size - 1), b.ints(1, 2))
    x = b.conv(x, 4, 5, kernel=1)
    classes = b.op("ArgMax", b.op("Softmax", x, axis=-1), axis=3, keepdims=0)
    mean = b.op("ReduceMax", x, axes=[3], keepdims=0)
    shape = ["N", size - 2, size - 2]
    return b.model([("x", ["N", size, size, 3])], [(classes, shape, TensorProto.INT64), (mean, shape)])


def nhwc_detector(size=32):
    """Heads at several scales: boxes and scores of each become rows, all rows are joined."""
    b = Builder(4)
    x = b.op("Relu", b.norm(b.conv("x", 3, 16, stride=2), 16))
    boxes, scores = [], []
    for _ in range(3):
        x = b.op("Relu", b.op("Add", b.conv(x, 16, 16), x))
        boxes.append(b.op("Reshape", b.op("Add", b.conv(x, 16, 12), b.floats(12)), b.ints(0, -1, 4)))
        scores.append(b.op("Reshape", b.op("Add", b.conv(x, 16, 15), b.floats(15)), b.ints(0, -1, 5)))
        x = b.op("Relu", b.norm(b.conv(x, 16, 16, stride=2), 16))
    rows = sum((size // 2 >> level) ** 2 * 3 for level in range(3))
    y = b.op("Concat", *boxes, axis=1)
    z = b.op("Sigmoid", b.op("Concat", *scores, axis=1))
    return b.model([("x", ["N", size, size, 3])], [(y, ["N", rows, 4]), (z, ["N", rows, 5])])


def swin(size=32, window=4, channels=24, heads=3, blocks=4):
    """Patches, blocks of attention in windows, every other one on a rolled image, one merging of patches."""
    b = Builder(5)

    def norm(x, channels):
        weight = b.constant(b.random.uniform(0.5, 1.5, channels).astype(np.float32))
        return b.op("LayerNormalization", x, weight, b.floats(channels, scale=0.1), axis=-1)

    def rolled(x, by):
        for axis in (1, 2):
            low = b.op("Slice", x, b.ints(by), b.ints(2**62), b.ints(axis))
            high = b.op("Slice", x, b.ints(0), b.ints(by), b.ints(axis))
            x = b.op("Concat", low, high, axis=axis)
        return x

    def attention(x, channels):
        depth, tokens = channels // heads, window * window
        joined = b.op("Reshape", b.dense(x, channels, 3 * channels), b.ints(-1, tokens, 3, heads, depth))
        joined = b.op("Transpose", joined, perm=[2, 0, 3, 1, 4])
        q, k, v = (b.op("Gather", joined, b.constant(np.int64(index)), axis=0) for index in range(3))
        q = b.op("Mul", q, b.constant(np.float32(depth**-0.5)))
        scores = b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = b.op("Softmax", b.op("Add", scores, b.floats(1, heads, tokens, tokens)), axis=-1)
        y = b.op("Transpose", b.op("MatMul", scores, v), perm=[0, 2, 1, 3])
        return b.dense(b.op("Reshape", y, b.ints(-1, tokens, channels)), channels, channels)

    def block(x, size, channels, shift):
        count = size // window
        y = norm(x, channels)
        if shift:
            y = rolled(y, shift)
        y = b.op("Reshape", y, b.ints(-1, count, window, count, window, channels))
        y = b.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
        y = attention(b.op("Reshape", y, b.ints(-1, window * window, channels)), channels)
        y = b.op("Reshape", y, b.ints(-1, count, count, window, window, channels))
        y = b.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
        y = b.op("Reshape", y, b.ints(-1, size, size, channels))
        if shift:
            y = rolled(y, size - shift)
        x = b.op("Add", x, y)
        y = b.dense(b.op("Tanh", b.dense(norm(x, channels), channels, 2 * channels)), 2 * channels, channels)
        return b.op("Add", x, y)

    x = b.op("Conv", "x", b.floats(channels, 3, 2, 2, scale=0.3), kernel_shape=[2, 2], strides=[2, 2])
    x, side = norm(b.op("Transpose", x, perm=TO_NHWC), channels), size // 2
    for index in range(blocks):
        if index == blocks // 2:
            corners = [
                b.op("Slice", x, b.ints(row, column), b.ints(side, side), b.ints(1, 2), b.ints(2, 2))
                for column in (0, 1)
                for row in (0, 1)
            ]
            x = norm(b.op("Concat", *corners, axis=-1), 4 * channels)
            x = b.op("MatMul", x, b.floats(4 * channels, 2 * channels, scale=0.1))
            side, channels = side // 2, 2 * channels
        x = block(x, side, channels, window // 2 * (index % 2))
    x = b.op("Transpose", norm(x, channels), perm=TO_NCHW)
    x = b.op("Flatten", b.op("GlobalAveragePool", x), axis=1)
    return b.model([("x", ["N", 3, size, size])], [(b.dense(x, channels, 10), ["N", 10])])


MODELS = [nhwc_resnet, nhwc_mobilenet, nhwc_unet, nhwc_detector, swin]


def transposes(model):
    return sum(node.op_type == "Transpose" for node in model.graph.node)


def left_by(peer, python, path, folder):
    """What another tool leaves; - if it is not there or fails."""
    out = Path(folder) / f"{peer}.onnx"
    program = Path(python).with_name(peer)
    done = program.exists() and subprocess.run([program, path, out], capture_output=True).returncode == 0
    return transposes(onnx.load(out, load_external_data=False)) if done and out.exists() else "-"


def row(binary, python, name, path, folder):
    import passes

    out = Path(folder) / "out.onnx"
    subprocess.run([binary, "optimize", path, "-o", out, "--quiet", "--verify", "off"], check=True)
    dims = [f"--set-dim={dim}={1 if 'batch' in dim else 4}" for dim in passes.named_dims(path)]
    speed = passes.run(binary, "bench", path, out, *dims, "--json", "-")["models"][1]["against_first"]["speed"]
    before, after = (transposes(onnx.load(model, load_external_data=False)) for model in (path, out))
    slim, sim = (left_by(peer, python, path, folder) for peer in ("onnxslim", "onnxsim"))
    print(f"{name:32} {before:4} → {after:3}  OnnxSlim {slim:>3}  onnxsim {sim:>3}"
          f"  speed {speed['median']:.3f} [{speed['low']:.3f}, {speed['high']:.3f}]", flush=True)  # fmt: skip


def main(binary, python, name=None, path=None):
    with tempfile.TemporaryDirectory() as folder:
        if path:
            return row(binary, python, name, path, folder)
        for make in MODELS:
            path = Path(folder) / f"{make.__name__}.onnx"
            onnx.save(make(), path)
            row(binary, python, make.__name__, path, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
