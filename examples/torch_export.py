# %% [markdown]
# # From PyTorch to a small, verified ONNX file that knows its modules
#
# Open this file as a notebook, or run it: `python examples/torch_export.py`. It needs `onnxforge`, `torch`, `onnx`, `onnxscript` and
# `onnxruntime`. The tests run it, too.

# %%
import tempfile
from pathlib import Path

import onnxforge
import torch
from torch import nn

folder = Path(tempfile.mkdtemp())
torch.manual_seed(0)

# %% [markdown]
# Any model will do; this one has a part that is used twice.


# %%
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(16) for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model, example = Model().eval(), torch.randn(1, 5, 16)

# %% [markdown]
# ## Export
#
# The arguments are those of `torch.onnx.export`, which does the export, untouched. What is added is metadata. `optimize=True` makes the file
# small, `check=True` compares what it computes with what PyTorch computes.

# %%
exported = onnxforge.torch.export(model, (example,), folder / "model.onnx", optimize=True, check=True)
print(exported.strategy, exported.check)
assert exported.check.good

# %% [markdown]
# ## Modules
#
# Every node knows the module that it came from, although passes have changed the graph. Any module can be cut out, and computes the same.

# %%
hierarchy = onnxforge.Hierarchy(folder / "model.onnx")
for module in hierarchy:
    if module.path and len(module.nodes) > 0:
        print(f"{module.path:32} {module.class_name or '':40} {len(module.nodes)} nodes")
block = hierarchy["blocks.1"].extract(folder / "block.onnx", verify=True)
assert block.ok

# %% [markdown]
# ## Files of other tools
#
# Whoever exports with something else writes the modules down beside it.

# %%
onnxforge.torch.save_modules(model, folder / "modules.json")
torch.onnx.export(model, (example,), str(folder / "plain.onnx"), dynamo=False)
tagged = onnxforge.tag(folder / "plain.onnx", folder / "tagged.onnx", modules=folder / "modules.json")
print(f"{tagged.coverage:.0%} of the nodes are known")
assert onnxforge.compare(folder / "plain.onnx", folder / "tagged.onnx", exact=True)
