"""Small graphs as the two exporters of PyTorch write them, for what the zoo does not have."""

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

END = np.iinfo(np.int64).max


class Writer:
    """Writes down nodes one after the other."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"{kind}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value, dtype=np.float32):
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values):
        return self.constant(values, np.int64)

    def size(self, x, axis):
        """The size of an axis, as a vector."""
        size = self.op("Gather", self.op("Shape", x), self.constant(axis, np.int64), axis=0)
        return self.op("Unsqueeze", size, self.ints(0))

    def flattened(self, x, rank, script):
        """x without its last axis but one: how TorchScript writes it, or the other exporter."""
        if script:
            rest = self.op("Slice", self.op("Shape", x), self.ints(0), self.ints(rank - 2), self.ints(0))
            return self.op("Reshape", x, self.op("Concat", rest, self.ints(-1), axis=0))
        rest = [self.size(x, axis) for axis in range(rank - 2)]
        return self.op("Reshape", x, self.op("Concat", *rest, self.ints(-1), axis=0))

    def model(self, output, inputs, shape, opset=18):
        self.nodes.append(helper.make_node("Identity", [output], ["y"]))
        ports = [helper.make_tensor_value_info(name, kind, of) for name, (kind, of) in inputs.items()]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "export", ports, [result], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        checker.check_model(model, full_check=True)
        return model


def turned(w, x, script):
    """Neighbours (a, b) as (−b, a)."""
    even, odd = (w.op("Slice", x, w.ints(start), w.ints(END), w.ints(3), w.ints(2)) for start in (0, 1))
    parts = [w.op("Unsqueeze", part, w.ints(-1)) for part in (w.op("Neg", odd), even)]
    return w.flattened(w.op("Concat", *parts, axis=-1), 5, script)


def repeated(w, x, rank, script):
    """repeat_interleave(x, 2, −1)."""
    single, twice = w.op("Unsqueeze", x, w.ints(rank)), w.ints(*[1] * rank, 2)
    return w.flattened(w.op("Tile" if script else "Expand", single, twice), rank + 1, script)


def stacked(w, x, like):
    """stack([x, x], −1).reshape_as(like)."""
    single = w.op("Unsqueeze", x, w.ints(-1))
    return w.op("Reshape", w.op("Concat", single, single, axis=-1), w.op("Shape", like))


def rotated(w, x, cos, sin, script):
    return w.op("Add", w.op("Mul", x, cos), w.op("Mul", turned(w, x, script), sin))


def table(size):
    """Sines and cosines of 64 places, one behind the other."""
    angles = np.outer(np.arange(64), 10000.0 ** (-np.arange(0, size, 2) / size))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def rotary(family, script, layers=2, heads=2, size=8):
    """Self-attention whose queries and keys are rotated by neighbours, as these families of models do it."""
    w, draw = Writer(), np.random.default_rng(0)
    x, width, part = "x", heads * size, size // 2
    if family == "roformer":
        count = w.op("Gather", w.op("Shape", x), w.constant(1, np.int64), axis=0)
        places = w.op("Range", w.constant(0, np.int64), count, w.constant(1, np.int64))
        both = w.op("Unsqueeze", w.op("Gather", w.constant(table(size)), places, axis=0), w.ints(0, 1))
    elif family == "cohere":
        inverse = w.constant(10000.0 ** (-np.arange(0, size, 2) / size).reshape(1, -1, 1))
        places = w.op("Unsqueeze", w.op("Cast", "positions", to=TensorProto.FLOAT), w.ints(1))
        angles = repeated(w, w.op("Transpose", w.op("MatMul", inverse, places), perm=[0, 2, 1]), 3, script)
        whole = [w.op(function, angles) for function in ("Cos", "Sin")]
    for _ in range(layers):
        if family == "roformer":
            sin, cos = (stacked(w, half, both) for half in w.op("Split", both, outputs=2, axis=-1, num_outputs=2))
        elif family == "cohere":
            cos, sin = (w.op("Unsqueeze", one, w.ints(1)) for one in whole)
        else:
            at = w.op("Gather", w.constant(table(part)), "positions", axis=0)
            halves = w.op("Split", at, outputs=2, axis=-1, num_outputs=2)
            sin, cos = (repeated(w, w.op("Unsqueeze", half, w.ints(2)), 4, script) for half in halves)
        operands = []
        for index in range(3):
            y = w.op("MatMul", x, w.constant(draw.standard_normal((width, width)) * 0.3))
            target = w.op("Concat", w.size(y, 0), w.size(y, 1), w.ints(heads), w.ints(size), axis=0)
            y = w.op("Reshape", y, target)
            if index < 2 and family == "gptj":
                first, rest = (
                    w.op("Slice", y, w.ints(a), w.ints(b), w.ints(3)) for a, b in ((0, part), (part, END))
                )
                y = w.op("Concat", rotated(w, first, cos, sin, script), rest, axis=-1)
            y = w.op("Transpose", y, perm=[0, 2, 1, 3])
            operands.append(rotated(w, y, cos, sin, script) if index < 2 and family != "gptj" else y)
        q, k, v = operands
        scores = w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2]))
        weights = w.op("Softmax", w.op("Div", scores, w.constant(size**0.5)), axis=-1)
        mixed = w.op("Transpose", w.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = w.op("Add", x, w.op("Reshape", mixed, w.ints(0, 0, width)))
    inputs = {"x": (TensorProto.FLOAT, ["batch", "seq", width])}
    if family != "roformer":
        inputs["positions"] = (TensorProto.INT64, ["batch", "seq"])
    return w.model(x, inputs, ["batch", "seq", width])


def hard_swish(layers=4):
    """Convolutions with x · Clip(x + 3, 0, 6) / 6 behind them, in the order in which exports of MobileNetV3 have the factors."""
    w, draw = Writer(), np.random.default_rng(0)
    zero, three, six = (w.constant(number) for number in (0, 3, 6))
    x = "x"
    for layer in range(layers):
        weights = w.constant(draw.standard_normal((4, 4, 3, 3)) * 0.3)
        x = w.op("Conv", x, weights, w.constant(draw.standard_normal(4)), pads=[1, 1, 1, 1])
        line = w.op("Add", x, three)
        if layer % 2:
            held = w.op("Min", w.op("Max", line, zero), six)
            x = w.op("Mul", x, w.op("Div", held, six))
        else:
            x = w.op("Div", w.op("Mul", x, w.op("Clip", line, zero, six)), six)
    return w.model(x, {"x": (TensorProto.FLOAT, ["batch", 4, "height", "width"])}, ["batch", 4, "height", "width"])


def instance_norm(sizes, opset, layers=3):
    """Convolutions whose channels are normalized behind them, decomposed."""
    w, draw = Writer(), np.random.default_rng(0)
    x = "x"

    def mean(x):
        if opset < 18:
            return w.op("ReduceMean", x, axes=[2, 3])
        return w.op("ReduceMean", x, w.ints(2, 3))

    for layer in range(layers):
        x = w.op("Conv", x, w.constant(draw.standard_normal((4, 4, 3, 3)) * 0.3), pads=[1, 1, 1, 1])
        deviation = w.op("Sub", x, mean(x))
        square = w.op("Pow", deviation, w.constant(2)) if layer else w.op("Mul", deviation, deviation)
        root = w.op("Sqrt", w.op("Add", mean(square), w.constant(1e-5)))
        x = w.op("Div", deviation, root) if layer else w.op("Mul", deviation, w.op("Reciprocal", root))
        x = w.op("Mul", x, w.constant(draw.standard_normal((1, 4, 1, 1))))
        x = w.op("Relu", w.op("Add", x, w.constant(draw.standard_normal((4, 1, 1)))))
    return w.model(x, {"x": (TensorProto.FLOAT, ["batch", 4, *sizes])}, ["batch", 4, *sizes], opset)
