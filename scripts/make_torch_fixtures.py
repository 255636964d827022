#!/usr/bin/env python3
"""Makes the folder of one PyTorch version under tests/python/data/torch: five small models, as each of its exporters writes them.

    python -m venv torch-2.6 && . torch-2.6/bin/activate
    pip install torch==2.6.0 'numpy<2.3' onnx==1.17.0 onnxscript==0.2.0 onnxruntime==1.20.1 'protobuf<6'
    PYTHONPATH=python python scripts/make_torch_fixtures.py       # writes tests/python/data/torch/2.6.0

Run it once in an environment of each version; `versions.json` in a folder tells what it was last made with. The folder has

    versions.json          the packages, and the exports that this version cannot do, each with the reason
    MODEL.npz              the truth: inputs (`input.NAME`), what every call of every module gave (`call.N.I`), and under
                           `calls` the JSON list of the modules that were called, in the order of N
    MODEL.EXPORTER.onnx    the plain export: `script` (TorchScript), `dynamo` (`dynamo=True`), or `fx` (`dynamo_export`,
                           which some older versions have)
    MODEL.EXPORTER.json    `told`: the modules and, of TorchScript, the recorded origins, as `onnxforge tag --modules`
                           reads them; `expected`: by the first result of each node for which that is known, the modules
                           of which one has to be named; `input` and `output`: names in the file; `identical`: whether
                           `onnxforge.torch.export` writes the bytes of the plain export but for its metadata, with and
                           without the recorder (for `fx`: whether `tag` and `strip` leave them); `evidence`: how many
                           nodes are known from what; `wrong`: nodes that are attributed to other modules than PyTorch ran

Weights are random but seeded. Lines of source code, with paths of the machine, are removed from the files, and a few
long entries that nothing reads.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import inspect
import io
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnxforge.torch
import torch
from google.protobuf.message import Message
from onnxforge.torch import _export, _recorder
from onnxforge.torch._errors import reason
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/torch"))

import truth  # noqa: E402

OUT = ROOT / "tests/python/data/torch"
EXPORTERS = ("script", "dynamo", "fx")
# Of files whose modules are functions, one shows the form; others are large, and not all of them are valid.
OF_FX = ("shared",)
PACKAGES = ("torch", "numpy", "onnx", "onnxscript", "onnx_ir", "protobuf")
SEED = 7
# Long, and nothing that onnxforge reads.
DROPPED = ("pkg.torch.onnx.fx_node", "pkg.torch.export.ExportedProgram.graph_signature")
# What nobody else's machine has.
PRIVATE = (str(ROOT), str(Path.home()), sys.prefix, tempfile.gettempdir(), "site-packages")


class Residual(nn.Module):
    """Convolutions and normalizations, with one activation for two places."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class Stage(nn.Module):
    """A block in a block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Residual(channels), nn.Tanh())
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(self.blocks(x))


class Cnn(nn.Module):
    """Normalizations behind convolutions, which exporters merge, and one that stands alone."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.stages = nn.ModuleList([Stage(4), Stage(4)])
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(4, 5)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(self.dropout(self.pool(x).flatten(1)))


class Scaled(nn.Module):
    """A Linear of its own, and something functional."""

    def __init__(self, size: int, factor: float) -> None:
        super().__init__()
        self.l, self.factor = nn.Linear(size, size), factor

    def forward(self, x):
        return torch.tanh(self.l(x)) * self.factor


class Shared(nn.Module):
    """A module that is called twice, beside one that has the name of the second call; one module under two names;
    two dictionaries with the same keys.
    """

    def __init__(self) -> None:
        super().__init__()
        self.proj, self.proj_1 = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm_a = nn.LayerNorm(6)
        self.norm_b = self.norm_a
        self.d1 = nn.ModuleDict({"a": Scaled(6, 2.0), "b": Scaled(6, 3.0)})
        self.d2 = nn.ModuleDict({"a": Scaled(6, 4.0), "b": nn.Linear(6, 3)})

    def forward(self, x):
        x = torch.tanh(self.proj(torch.tanh(self.proj(self.norm_a(x)))))
        x = self.norm_b(self.proj_1(x) + x)
        return self.d2["b"](self.d2["a"](self.d1["a"](x) + self.d1["b"](x)))


class Lstm(nn.Module):
    """Both directions of a short sequence; some exporters write every step on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 4, batch_first=True, bidirectional=True), nn.Linear(4, 2)

    def forward(self, x):
        y, (last, _) = self.lstm(x)
        return self.head(y[:, -1, :4]) + self.head(last[1] * 0.5)


class Attention(nn.Module):
    """Self-attention with two heads."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(size, size) for _ in range(4))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, n, size = x.shape
        q, k, v = (layer(x).view(b, n, 2, size // 2).transpose(1, 2) for layer in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / (size // 2) ** 0.5, -1)
        return self.out((self.drop(weights) @ v).transpose(1, 2).reshape(b, n, size))


class Layer(nn.Module):
    """Attention and two Linears, with normalizations before them."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(size), Attention(size), nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    """Words and places, layers, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Parameter(torch.randn(1, 5, 8))
        self.layers = nn.ModuleList([Layer(8)])
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 11, bias=False)

    def forward(self, x):
        x = self.words(x) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Mix(nn.Module):
    """No parameters, no modules."""

    def forward(self, a, b):
        return torch.where(a > b, a, torch.sin(b)) - F.softplus(a) * 0.5


class Control(nn.Module):
    """Loops and conditions that Python decides, and modules without parameters or nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.same = Mix(), nn.Identity()
        self.steps = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.scale = nn.Parameter(torch.randn(4))
        self.register_buffer("offset", torch.randn(4))

    def forward(self, x):
        rows = []
        for number, step in enumerate(reversed(self.steps)):
            x = F.silu(step(x)) if number % 2 else self.mix(step(x), x)
            if x.shape[0] > 1:
                x = x * self.scale
            rows.append(F.softmax(x, -1))
        return self.same(torch.cat(rows, -1)) + self.offset.repeat(3)


def numbers(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape)


# What makes each model, and what makes its input `x`.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "cnn": (Cnn, numbers(1, 3, 6, 6)),
    "shared": (Shared, numbers(2, 6)),
    "lstm": (Lstm, numbers(1, 2, 3)),
    "encoder": (Encoder, lambda: torch.randint(0, 11, (1, 5))),
    "control": (Control, numbers(2, 4)),
}


def build(name: str) -> tuple[Any, Any]:
    """The same model, in evaluation mode, and the same input each time; no two parameters hold the same numbers."""
    torch.manual_seed(SEED)
    make, given = MODELS[name]
    model = make().eval()
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
            module.weight.data, module.bias.data = torch.randn_like(module.weight), torch.randn_like(module.bias)
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.data = torch.randn_like(module.running_mean)
            module.running_var.data = torch.rand_like(module.running_var) + 0.5
    return model, given()


def options_of(exporter: str) -> dict[str, Any] | None:
    """What this version's `torch.onnx.export` is told for an exporter; None where it does not have it."""
    takes = inspect.signature(torch.onnx.export).parameters
    if exporter == "script":
        return {"input_names": ["x"], **({"dynamo": False} if "dynamo" in takes else {})}
    if exporter == "fx" or not {"dynamo", "dynamic_shapes"} <= set(takes):
        return None
    return {"dynamo": True, **({"external_data": False} if "external_data" in takes else {})}


def has(exporter: str) -> bool:
    """Whether this version has an exporter. `dynamo=True` without `dynamic_shapes` is `dynamo_export`; where both are
    there, `dynamo_export` is the same as `dynamo=True`, or was left behind.
    """
    if exporter == "fx":
        return options_of("dynamo") is None and hasattr(torch.onnx, "dynamo_export")
    return options_of(exporter) is not None


def plain(name: str, exporter: str, path: Path) -> None:
    """PyTorch's own export."""
    model, x = build(name)
    if exporter == "fx":
        torch.onnx.dynamo_export(model, x).save(str(path))
    else:
        torch.onnx.export(model, (x,), str(path), **(options_of(exporter) or {}))


def ours(name: str, exporter: str, path: Path) -> dict[str, Any]:
    """The package's export, checked against PyTorch's outputs; what it told of the modules."""
    told: list[Any] = []

    def kept(*args: Any) -> Any:
        told.append(modules(*args))
        return told[-1]

    modules = _export._modules
    model, x = build(name)
    if exporter == "fx":
        onnxforge.tag(path, output=path, modules=_export._modules(model, {}), sidecar=False)
        return dict(_export._modules(model, {}) or {})
    with patch.object(_export, "_modules", kept):
        onnxforge.torch.export(model, (x,), str(path), check=True, sidecar=False, **(options_of(exporter) or {}))
    return dict(told[0])


def made(name: str, exporter: str, out: Path) -> dict[str, Any]:
    """Writes the files of one export; what is said of it."""
    with tempfile.TemporaryDirectory() as folder:
        one, other, third = (Path(folder) / kind / "model.onnx" for kind in ("plain", "ours", "names"))
        for path in (one, other, third):
            path.parent.mkdir()
        plain(name, exporter, one)
        if exporter == "fx":
            other.write_bytes(one.read_bytes())
        told = ours(name, exporter, other)
        identical = bare(other) == one.read_bytes()
        if exporter == "script":
            # A version whose private functions have other names exports all the same.
            with patch.object(_recorder, "_NAMING", "_no_such_pass"):
                assert "origins" not in ours(name, exporter, third)
            identical = identical and bare(third) == one.read_bytes()
        tagged = onnx.load(other)
        model, x = build(name)
        seen = truth.observe(model, {"x": x})
        port = tagged.graph.input[0].name
        values = truth.values_of(tagged, {port: x.numpy()})
        known, inside = truth.Oracle(seen).of_nodes(tagged.graph, values)
        expected = {**{key: sorted(paths) for key, paths in known.items()}, **{key: [path] for key, path in inside.items()}}
        named = {node.output[0]: stored(node) for node in tagged.graph.node}
        # The oracle cannot tell whether a call of a function computes or only hands on; and where the exporter took an
        # operator of PyTorch apart, what is handed on inside of it may look like something outside.
        for node in tagged.graph.node:
            if node.domain or node.op_type in truth.HAND_ON:
                expected.pop(node.output[0], None)
        file = out / f"{name}.{exporter}.onnx"
        onnxforge.tag(one, output=file, strip_traces=True, sidecar=False)
        onnxforge.strip(file, output=file)
        shorter = onnx.load(file)
        forget(shorter)
        file.write_bytes(shorter.SerializeToString(deterministic=True))
        held = [word for word in PRIVATE if word.encode() in file.read_bytes()]
        assert not held, f"{file.name} holds {held}"
        facts = {
            "told": told,
            "input": port,
            "output": [found.name for found in tagged.graph.output],
            "opset": {entry.domain: entry.version for entry in tagged.opset_import},
            "identical": identical,
            "evidence": onnxforge.coverage(one, modules=told).report["evidence"],
            "wrong": sorted(key for key, paths in expected.items() if not set(paths) & set(named[key])),
            "expected": dict(sorted(expected.items())),
        }
    file.with_suffix(".json").write_text(json.dumps(facts, separators=(",", ":")) + "\n", encoding="utf-8")
    return facts


def bare(path: Path) -> bytes:
    """The bytes of a file without the package's metadata."""
    stripped = path.with_name("stripped.onnx")
    onnxforge.strip(path, output=stripped)
    return stripped.read_bytes()


def forget(message: Any) -> None:
    """Removes entries that nothing reads from a message and all messages in it."""
    for field, value in message.ListFields():
        if field.name == "metadata_props":
            for entry in [found for found in value if found.key in DROPPED]:
                value.remove(entry)
        elif field.message_type is not None:
            for part in [value] if isinstance(value, Message) else value:
                forget(part)


def stored(node: Any) -> list[str]:
    """The modules that a tagged node names."""
    return next((json.loads(entry.value) for entry in node.metadata_props if entry.key == "onnxforge.module"), [])


def write_truth(name: str, path: Path) -> None:
    """What every call of every module gives, from hooks on a model that is not exported."""
    model, x = build(name)
    calls: list[str] = []
    arrays: dict[str, Any] = {"input.x": x.numpy()}

    def hook(module_path: str) -> Callable[..., None]:
        def record(_module: Any, _args: Any, output: Any) -> None:
            for index, tensor in enumerate(_pytree.tree_flatten(output)[0]):
                arrays[f"call.{len(calls)}.{index}"] = tensor.detach().numpy().copy()
            calls.append(module_path)

        return record

    for module_path, module in model.named_modules():
        module.register_forward_hook(hook(module_path))
    with torch.no_grad():
        model(x)
    archive = io.BytesIO()
    np.savez_compressed(archive, calls=np.array(json.dumps(calls)), **arrays)
    path.write_bytes(archive.getvalue())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Exporters tell their progress on standard output."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def installed(package: str) -> str | None:
    """The version of a package, without the name of its build."""
    try:
        return importlib.metadata.version(package).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def make(out: Path, names: list[str]) -> int:
    """All files of the installed version."""
    torch.set_num_threads(1)
    versions = {package: installed(package) for package in PACKAGES}
    folder = out / str(versions["torch"])
    folder.mkdir(parents=True, exist_ok=True)
    failed = {}
    for name in names or MODELS:
        write_truth(name, folder / f"{name}.npz")
        for exporter in filter(has, EXPORTERS):
            if exporter == "fx" and name not in OF_FX:
                continue
            try:
                with quiet():
                    facts = made(name, exporter, folder)
            except Exception as error:  # noqa: BLE001 - one line for each, and the others all the same
                failed[f"{name}.{exporter}"] = reason(error)
                print(f"{name}.{exporter}: {reason(error)}", file=sys.stderr)
                continue
            print(f"{name}.{exporter}: {facts['evidence']}, identical {facts['identical']}, wrong {facts['wrong']}")
    told = {**{key: value for key, value in versions.items() if value}, "failed": failed}
    (folder / "versions.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    return make(args.out, args.names)


if __name__ == "__main__":
    sys.exit(main())
