"""Models as PyTorch's exporter writes them: nodes that say which module made them."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
LINEAR = "torch.nn.modules.linear.Linear"
CLASSES = {
    "": "demo.Net",
    "stem": LINEAR,
    "blocks.0": "demo.Block",
    "blocks.0.act": "torch.nn.modules.activation.ReLU",
    "blocks.1": "demo.Block",
    "blocks.1.act": "torch.nn.modules.activation.ReLU",
    "shared": "demo.Twice",
    "choice": "demo.Choice",
    "gate": "demo.Gate",
    "head": "torch.nn.modules.normalization.LayerNorm",
}
TRACE = 'File "/home/somebody/model.py", line 7, in forward\n    return self.stem(x)'


def stack(path, classes=CLASSES):
    """The modules around a path and itself, as the exporter lists them."""
    parts = path.split(".") if path else []
    around = [".".join(parts[:count]) for count in range(len(parts) + 1)]
    return [(one, classes[one]) for one in around if one in classes]


def stamp(node, path, classes=CLASSES, trace=True):
    """Writes at a node what the exporter does."""
    levels = [*stack(path, classes), ("op", f"aten.{node.op_type.lower()}.default")]
    namespace = "/".join(f"{one}: {kind}" for one, kind in levels)
    entries = {
        "namespace": namespace,
        "pkg.torch.onnx.class_hierarchy": repr([kind for _, kind in levels]),
        "pkg.torch.onnx.name_scopes": repr([one for one, _ in levels]),
        "pkg.torch.onnx.fx_node": f"%op : call_function[target={levels[-1][1]}]",
    }
    if trace:
        entries["pkg.torch.onnx.stack_trace"] = TRACE
    for key, value in entries.items():
        node.metadata_props.add(key=key, value=value)
    return node


def node(op, inputs, output, path, classes=CLASSES, **attributes):
    """A node of a module; no path is none that the exporter knows."""
    outputs = output if isinstance(output, list) else [output]
    made = helper.make_node(op, inputs, outputs, name=f"node_{outputs[0]}", **attributes)
    return made if path is None else stamp(made, path, classes)


def port(name, *shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, list(shape))


def weight(name, *shape, seed=None):
    values = np.random.default_rng(sum(map(ord, name)) if seed is None else seed).standard_normal(shape)
    return numpy_helper.from_array(values.astype(np.float32), name)


def model(nodes, inputs, outputs, weights=(), functions=(), opset=20, signature=()):
    """A model; `signature` lists parameters."""
    graph = helper.make_graph(nodes, "main_graph", inputs, outputs, list(weights))
    if signature:
        lines = [f"    p_{name.replace('.', '_')}: PARAMETER target={name!r}" for name in signature]
        text = "\n".join(["# inputs", *lines])
        graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=text)
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid("demo", 1)] * bool(functions)
    made = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)
    made.producer_name, made.producer_version = "pytorch", "2.15.0"
    onnx.checker.check_model(made)
    return made


def net():
    """Linear, two blocks, a module that is called twice, an If that captures, a function, a LayerNorm."""
    branch = lambda op, name: helper.make_graph(
        [helper.make_node(op, ["twice_b", "choice.weight"], [name])], name, [], [port(name, "batch", 4)]
    )
    gate = helper.make_function(
        "demo", "gate", ["a"], ["b"],
        [helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])],
        [helper.make_opsetid("", 20)],
    )  # fmt: skip
    nodes = [
        node("MatMul", ["x", "stem.weight"], "stem_mm", "stem"),
        node("Add", ["stem_mm", "stem.bias"], "stem_out", "stem"),
        node("Mul", ["stem_out", "blocks.0.scale"], "b0_mul", "blocks.0"),
        node("Relu", ["b0_mul"], "b0_out", "blocks.0.act"),
        node("Mul", ["b0_out", "blocks.1.scale"], "b1_mul", "blocks.1"),
        node("Relu", ["b1_mul"], "b1_out", "blocks.1.act"),
        node("Mul", ["b0_out", "shared.scale"], "mul_a", "shared"),
        node("Tanh", ["mul_a"], "twice_a", "shared"),
        node("Mul", ["b1_out", "shared.scale"], "mul_b", "shared"),
        node("Tanh", ["mul_b"], "twice_b", "shared"),
        node("If", ["c"], "chosen", "choice", then_branch=branch("Add", "then_out"), else_branch=branch("Sub", "else_out")),
        node("gate", ["chosen"], "gated", "gate", domain="demo"),
        node("Add", ["gated", "twice_a"], "sum", ""),
        node("LayerNormalization", ["sum", "head.weight", "head.bias"], "y", "head"),
    ]  # fmt: skip
    weights = [weight("stem.weight", 4, 4)]
    vectors = ["stem.bias", "blocks.0.scale", "blocks.1.scale", "shared.scale", "choice.weight", "head.weight", "head.bias"]
    weights += [weight(name, 4) for name in vectors]
    inputs = [port("x", "batch", 4), port("c", kind=TensorProto.BOOL)]
    signature = [tensor.name for tensor in weights]
    return model(nodes, inputs, [port("y", "batch", 4)], weights, [gate], signature=signature)


def write(model, path):
    path.write_bytes(model.SerializeToString())
    return path


def metadata(node):
    """The metadata of a node; no key may be there twice."""
    keys = [entry.key for entry in node.metadata_props]
    assert len(keys) == len(set(keys)), keys
    return {entry.key: entry.value for entry in node.metadata_props}
