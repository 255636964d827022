"""Models that are damaged in one place, by chance and by seed."""

import collections
import random

import onnx
from onnx import TensorProto, helper

import corpus


def sparse_model():
    linear = helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]),
        helper.make_tensor("i", TensorProto.INT64, [3], [1, 5, 7]),
        [3, 4],
    )
    pairs = helper.make_sparse_tensor(
        helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("j", TensorProto.INT64, [2, 2], [0, 1, 2, 3]),
        [3, 4],
    )
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "s"], ["u"]), helper.make_node("Add", ["u", "t"], ["y"])],
        "sparse",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        sparse_initializer=[linear, pairs],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


def function_model():
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    leak = helper.make_node("LeakyRelu", ["x"], ["y"])
    leak.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    inner = helper.make_function("local", "Inner", ["x"], ["y"], [leak], opsets[:1], attributes=["slope"])
    outer = helper.make_function(
        "local",
        "Outer",
        ["a", "b"],
        ["c"],
        [helper.make_node("Add", ["a", "b"], ["t"]), helper.make_node("Inner", ["t"], ["c"], domain="local")],
        opsets,
        attributes=["unused"],
        attribute_protos=[helper.make_attribute("count", 3)],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Outer", ["x", "w"], ["u"], domain="local", unused=1.0),
            helper.make_node("Inner", ["u"], ["y"], domain="local", slope=0.5),
        ],
        "calls",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])],
    )
    return helper.make_model(graph, functions=[outer, inner], ir_version=9, opset_imports=opsets)


class Damage:
    """Changes one thing in a message, chosen so that rare fields are hit as often as frequent ones."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def __call__(self, model):
        places = collections.defaultdict(list)
        texts = []
        for message in corpus.messages(model):
            for field, value in message.ListFields():
                places[message.DESCRIPTOR.name, field.name].append((message, field))
                if field.type == field.TYPE_STRING:
                    texts.extend(value if field.is_repeated else [value])
        message, field = self.random.choice(places[self.random.choice(sorted(places))])
        if self.random.random() < 0.1:
            self.fill(message, texts)
        elif field.is_repeated:
            self.change_list(message, field, texts)
        elif field.type == field.TYPE_MESSAGE or self.random.random() < 0.3:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, self.other(field, getattr(message, field.name), texts))
        return f"{message.DESCRIPTOR.name}.{field.name}"

    def fill(self, message, texts):
        """Gives a value to a field that has none."""
        present = {field.name for field, _ in message.ListFields()}
        absent = [field for field in message.DESCRIPTOR.fields if field.name not in present]
        if not absent:
            return message.Clear()
        field = self.random.choice(absent)
        empty = {field.TYPE_STRING: "", field.TYPE_BYTES: b"", field.TYPE_FLOAT: 0.0}.get(field.type, 1)
        if field.type == field.TYPE_MESSAGE:
            value = getattr(message, field.name)
            value.add() if field.is_repeated else value.SetInParent()
        elif field.is_repeated:
            getattr(message, field.name).append(self.other(field, empty, texts))
        else:
            setattr(message, field.name, self.other(field, empty, texts))

    def change_list(self, message, field, texts):
        values = getattr(message, field.name)
        index, other = self.random.randrange(len(values)), self.random.randrange(len(values))
        action = self.random.choice(["remove", "repeat", "swap", "edit", "clear"])
        if action == "clear" and len(values) < 4:
            message.ClearField(field.name)
        elif action == "repeat":
            values.extend([values[index]])
        elif action == "swap" and index != other:
            kept = [type(value).FromString(value.SerializeToString()) for value in values] \
                if field.type == field.TYPE_MESSAGE else list(values)  # fmt: skip
            kept[index], kept[other] = kept[other], kept[index]
            del values[:]
            values.extend(kept)
        elif action == "edit" and field.type != field.TYPE_MESSAGE:
            values[index] = self.other(field, values[index], texts)
        else:
            del values[index]

    def other(self, field, value, texts):
        """A value that is near the old one, or that means something."""
        if field.type == field.TYPE_STRING:
            return self.random.choice(["", value + "x", self.random.choice(texts)])
        if field.type == field.TYPE_BYTES:
            return self.random.choice([b"", value[:-1], value + b"\1", b"\xff" + value])
        if field.type == field.TYPE_ENUM:
            return self.random.choice([known.number for known in field.enum_type.values])
        if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE, field.TYPE_UINT64):
            return value + 1
        return self.random.choice([0, 1, 2, -1, -5, 100, value + 1, value - 1, value * 2])
