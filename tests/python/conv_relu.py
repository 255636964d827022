"""The forms in which a model can say that an activation belongs to a convolution, and what becomes of each.

    python tests/python/conv_relu.py BINARY

(A) the Relu is gone and an attribute of the Conv stands for it; (B) the Relu stays and such an attribute announces it; (C) Clip from 0
to the largest number instead of Relu; (D) two models, the one for the converter as in A, the one for the runtime as it was; (E) ONNX
Runtime's FusedConv; (F) a line in the node's metadata. For each: whether onnx's checker and ONNX Runtime take it, by how much
results differ, and how many nodes ONNX Runtime runs after its own fusions. The table is in docs/targets.md.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import native
import offline
import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]


def pairs(model):
    """Every Relu with the Conv before it."""
    makers = {name: node for node in model.graph.node for name in node.output}
    for node in list(model.graph.node):
        if node.op_type == "Relu" and node.input[0] in makers and makers[node.input[0]].op_type == "Conv":
            yield makers[node.input[0]], node


def attribute_instead(model):
    for conv, relu in list(pairs(model)):
        conv.attribute.append(helper.make_attribute("activation", "Relu"))
        conv.output[0] = relu.output[0]
        model.graph.node.remove(relu)


def attribute_beside(model):
    for conv, _ in pairs(model):
        conv.attribute.append(helper.make_attribute("activation", "Relu"))


def clip(model):
    bounds = {"zero": 0.0, "most": np.finfo(np.float32).max}
    model.graph.initializer.extend(numpy_helper.from_array(np.float32(value), name) for name, value in bounds.items())
    for _, relu in pairs(model):
        relu.op_type = "Clip"
        relu.input.extend(bounds)


def metadata(model):
    for conv, relu in pairs(model):
        entry = conv.metadata_props.add()
        entry.key, entry.value = "activation", relu.op_type


def unchanged(_):
    pass


FORMS = [
    ("A: attribute instead of Relu", attribute_instead),
    ("B: attribute and Relu", attribute_beside),
    ("C: Clip(0, largest)", clip),
    ("D: the runtime's own model", unchanged),
    ("D: the converter's own model", attribute_instead),
    ("E: FusedConv", None),
    ("F: metadata", metadata),
]


def nodes_run(path, folder):
    """How many nodes ONNX Runtime runs after its own fusions."""
    offline.offline(path, Path(folder) / "run.onnx")
    return len(onnx.load(Path(folder) / "run.onnx", load_external_data=False).graph.node)


def verdict(check):
    try:
        check()
    except Exception as problem:
        return "no: " + str(problem).split("\n")[0].split("Error ")[-1][:80].strip()
    return "yes"


def table(binary):
    with tempfile.TemporaryDirectory() as folder:
        plain, fused = Path(folder) / "plain.onnx", Path(folder) / "fused.onnx"
        for out, target in ((plain, "portable"), (fused, "ort")):
            command = [binary, "optimize", ROOT / "examples/small_cnn.onnx", "-o", out, "--target", target, "--quiet"]
            subprocess.run(list(map(str, command)), check=True)
        _, inputs, _ = native.run_ours(binary, plain, folder)
        session = native.session(plain)
        expected = session.run(None, native.feeds_of(session, inputs))
        for title, change in FORMS:
            path = Path(folder) / "form.onnx"
            model = onnx.load(fused if change is None else plain)
            if change:
                change(model)
            onnx.save(model, path)
            checked = verdict(lambda: onnx.checker.check_model(model))
            accepted = verdict(lambda: native.session(path))
            difference, nodes = "-", "-"
            if accepted == "yes":
                session = native.session(path)
                found = session.run(None, native.feeds_of(session, inputs))
                difference = f"{max(float(np.abs(x - y).max()) for x, y in zip(expected, found, strict=True)):.1e}"
                nodes = nodes_run(path, folder)
            yield title, len(model.graph.node), checked, accepted, difference, nodes


def main(binary):
    print("| form | nodes | onnx's checker | ONNX Runtime | largest difference | nodes it runs |\n|---|---|---|---|---|---|")
    for row in table(binary):
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main(sys.argv[1])
