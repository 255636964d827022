# %% [markdown]
# # A tour of onnxforge in Python
#
# Open this file as a notebook (Jupyter with jupytext, VS Code, PyCharm), or run it: `python examples/tour.py`. It needs `onnxforge`, `onnx`
# and `onnxruntime`. The tests run it, too.

# %%
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxforge

here = Path(__file__).parent if "__file__" in globals() else Path("examples")
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Smaller, and the same
#
# A path goes in, a path comes out. Weights never pass through Python, so models may be of any size.

# %%
result = onnxforge.optimize(here / "tiny_bert.onnx", folder / "small.onnx")
print(result)
assert result.verified and result.nodes_after < result.nodes_before

# %% [markdown]
# In a notebook, the last expression of a cell shows the result as tables. Everything that the command line writes with `--json` is in `report`.

# %%
for name, nodes in sorted(result.passes.items(), key=lambda item: item[1]):
    print(f"{name:30} {nodes:+}")
assert sum(result.passes.values()) == result.nodes_after - result.nodes_before

# %% [markdown]
# Models in memory work the same way: bytes, an `onnx.ModelProto` or an `onnx_ir.Model` in, the same kind out.

# %%
proto = onnx.load(here / "tiny_bert.onnx")
small = onnxforge.optimize(proto, opset=23, set_dim={"batch": 1}).model
assert isinstance(small, onnx.ModelProto)
print(len(proto.graph.node), "->", len(small.graph.node))

# %% [markdown]
# ## Is it really the same?
#
# `verify` compares any two models, whoever made them, and tells rounding from error.

# %%
found = onnxforge.verify(here / "tiny_bert.onnx", folder / "small.onnx", samples=5)
print(found.verdict)
assert found

# %% [markdown]
# ## What is in it
#
# Every node knows the PyTorch module that it came from, also after optimization, and any module can be cut out.

# %%
hierarchy = onnxforge.Hierarchy(folder / "small.onnx")
layer = hierarchy["bert.encoder.layer.0"]
print(layer.path, len(layer.nodes), "nodes, reads", [port["name"] for port in layer.inputs])
layer.extract(folder / "layer.onnx", verify=True)
print(onnxforge.inspect(folder / "layer.onnx"))

# %% [markdown]
# ## Run it
#
# Arrays in, arrays out, without an outside runtime; `engine="oracle"` computes every float in 64 bits.

# %%
image = np.random.default_rng(0).random((1, 3, 16, 16), dtype=np.float32)
outputs = onnxforge.run(here / "small_cnn.onnx", {"image": image})
exact = onnxforge.run(here / "small_cnn.onnx", {"image": image}, engine="oracle")
print({name: float(np.abs(outputs[name] - exact[name]).max()) for name in outputs})

# %% [markdown]
# ## When something is wrong
#
# Errors are exceptions that tell the file, the place and the fix.

# %%
try:
    onnxforge.optimize(here / "tiny_bert.onnx", skip=["fuse_gelus"])
except onnxforge.RequestError as error:
    print(error)
else:
    raise AssertionError("there is no such pass")

broken = onnx.load(here / "small_cnn.onnx")
broken.graph.node[1].input[0] = "nobody"
for problem in onnxforge.check(broken).problems:
    print(problem["place"], problem["message"])

# %% [markdown]
# ## How far is it?
#
# Long work tells a function how far it is; Ctrl-C, or an exception in that function, ends it.

# %%
onnxforge.optimize(here / "tiny_bert.onnx", progress=lambda at: print(f"{at.what}: {at.done}/{at.total} {at.unit}"))
