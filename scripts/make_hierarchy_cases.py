#!/usr/bin/env python3
"""Makes the models under tests/python/data/hierarchy: small PyTorch models whose modules are hard to find again in the exported file.

    pip install torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1 numpy==2.4.6
    python scripts/make_hierarchy_cases.py                  # every case
    python scripts/make_hierarchy_cases.py --out DIR shared cond

Those are the versions it was last run with. Each case is exported in up to three ways, by what makes the difference in PyTorch:

    NAME.raw.onnx.gz      torch.export, nothing optimized (`dynamo=True, optimize=False`)
    NAME.dynamo.onnx.gz   torch.export with its defaults
    NAME.script.onnx.gz   TorchScript (`dynamo=False`)

Beside them lie NAME.modules.json.gz, the table of modules as `onnxforge … --modules` reads it, and NAME.npz, the truth: one sample of the inputs by
name (`input.NAME`), what every call of every module gave (`call.N`), and under `calls` the JSON list of the modules that were called, in the order of N.

Weights are random but seeded, and the same for the three exports. Lines of source code and paths of this machine are removed from the files.
"""

from __future__ import annotations

import argparse
import gzip
import inspect
import io
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import nn
from torch._higher_order_ops.scan import scan

SEED = 7
OPSET_SCRIPT = 17
EXPORTS = {
    "raw": {"dynamo": True, "optimize": False},
    "dynamo": {"dynamo": True},
    "script": {"dynamo": False, "opset_version": OPSET_SCRIPT},
}
# They tell nothing that a test asks for, and the first tells where this script ran.
DROPPED = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node")
OUT = Path(__file__).resolve().parents[1] / "tests/python/data/hierarchy"


@dataclass(frozen=True)
class Case:
    """A model, its inputs, and the exports that there are of it."""

    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple]
    exports: tuple = tuple(EXPORTS)


CASES: dict[str, Case] = {}


def case(*inputs, exports=tuple(EXPORTS)):
    """Makes a case of a class. An input is a shape of random numbers, or a function that makes one."""

    def made(make):
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in make.__name__).strip("_")
        values = lambda: tuple(given() if callable(given) else torch.randn(*given) for given in inputs)
        CASES[name] = Case(make, values, exports)
        return make

    return made


def tokens(count=5, vocabulary=11):
    """A row of numbers of words."""
    return lambda: torch.randint(0, vocabulary, (1, count))


# --- Convolutions and normalizations --------------------------------------------------------------------------------


class Block(nn.Module):
    """Convolution and normalization, with one activation for two places."""

    def __init__(self, channels):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


@case((1, 3, 8, 8))
class Cnn(nn.Module):
    """A Sequential, a ModuleList, and normalizations that exporters fold into convolutions."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.blocks = nn.ModuleList(Block(4) for _ in range(2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.dropout(self.pool(x).flatten(1)))


class ConvBn(nn.Module):
    """A convolution inside of another module than the normalization that follows it."""

    def __init__(self, channels):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(channels, channels, 1))
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(self.inner(x))


@case((1, 3, 6, 6))
class ApartBn(nn.Module):
    """What an exporter folds together lies in different modules."""

    def __init__(self):
        super().__init__()
        self.first, self.second = ConvBn(3), ConvBn(3)

    def forward(self, x):
        return torch.tanh(self.second(torch.relu(self.first(x))))


# --- Names -----------------------------------------------------------------------------------------------------------


class Scaled(nn.Module):
    """A Linear of its own, and something functional."""

    def __init__(self, size, factor=2.0):
        super().__init__()
        self.l, self.factor = nn.Linear(size, size), factor

    def forward(self, x):
        return torch.tanh(self.l(x)) * self.factor


@case((2, 6))
class Dicts(nn.Module):
    """Dictionaries with the same keys, and keys that are no names."""

    def __init__(self):
        super().__init__()
        self.d1 = nn.ModuleDict({"a": Scaled(6), "x/y": Scaled(6, 3.0)})
        self.d2 = nn.ModuleDict({"a": Scaled(6, 4.0), "it's": Scaled(6, 5.0)})

    def forward(self, x):
        x = self.d1["a"](x) + self.d1["x/y"](x)
        return self.d2["it's"](self.d2["a"](x))


@case((2, 4), exports=("script",))
class Quotes(nn.Module):
    """A key with both kinds of quotes and a space, for which torch.export has no name."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"it's \"b\"": Scaled(4), "a b": nn.Linear(4, 4)})

    def forward(self, x):
        return self.parts["a b"](self.parts["it's \"b\""](x))


@case((2, 6))
class Branches(nn.Module):
    """One dictionary of two branches."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleDict({"a": nn.Linear(6, 4), "b": Scaled(6)})
        self.join = nn.Linear(10, 3)

    def forward(self, x):
        return self.join(torch.cat([self.branches["a"](x), self.branches["b"](x)], 1))


class Local:
    """A place for a class inside of a function."""

    @staticmethod
    def make():
        class Hidden(nn.Module):
            """Its class is called Local.make.<locals>.Hidden."""

            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(4, 4)

            def forward(self, x):
                return torch.relu(self.inner(x))

        return Hidden()


@case((2, 4))
class LocalClass(nn.Module):
    """Holds a module whose class a function defines."""

    def __init__(self):
        super().__init__()
        self.hidden = Local.make()

    def forward(self, x):
        return self.hidden(x) + 1


@case((1, 4))
class Deep(nn.Module):
    """Many levels."""

    def __init__(self, levels=12):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.inner = Deep(levels - 1) if levels else nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(torch.tanh(x * self.weight))


@case((2, 4))
class NumberNames(nn.Module):
    """Lists in lists, and names that end like the second call of another module."""

    def __init__(self):
        super().__init__()
        self.rows = nn.ModuleList(nn.ModuleList(nn.Linear(4, 4) for _ in range(2)) for _ in range(2))
        self.fc = nn.Linear(4, 4)
        self.fc_2 = nn.Linear(4, 4)

    def forward(self, x):
        for row in self.rows:
            for layer in row:
                x = torch.tanh(layer(x))
        return self.fc_2(torch.relu(self.fc(x)))


# --- Sharing ---------------------------------------------------------------------------------------------------------


@case((2, 4))
class Shared(nn.Module):
    """A module that is called twice, next to one that is called as the second call is written, and one that is called three times."""

    def __init__(self):
        super().__init__()
        self.proj, self.proj_1, self.again = nn.Linear(4, 4), nn.Linear(4, 4), Scaled(4, 0.5)

    def forward(self, x):
        y = self.proj(x)
        y = self.proj(torch.tanh(y)) - y
        y = self.proj_1(y)
        return self.again(self.again(self.again(y)))


@case((2, 4))
class Chained(nn.Module):
    """A module on its own result."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.proj(self.proj(x)))


@case((2, 4))
class Alias(nn.Module):
    """One module under two names, both called; another of which only the first is."""

    def __init__(self):
        super().__init__()
        self.norm_a = nn.LayerNorm(4)
        self.norm_a.weight.data = torch.randn(4)
        self.norm_b = self.norm_a
        self.used = nn.Linear(4, 4)
        self.spare = self.used

    def forward(self, x):
        return self.norm_b(self.used(self.norm_a(x) * 2))


@case((2, 4))
class Siblings(nn.Module):
    """Two modules that compute the same of the same."""

    def __init__(self):
        super().__init__()
        self.left, self.right = Scaled(4), Scaled(4)
        self.right.load_state_dict(self.left.state_dict())

    def forward(self, x):
        return self.left(x) + self.right(x)


@case(tokens())
class Tied(nn.Module):
    """Embedding and head share their weight."""

    def __init__(self):
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(11, 6), Scaled(6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.body(self.embedding(ids)))


class Borrower(nn.Module):
    """Calls a module that somebody else holds."""

    def __init__(self, lent):
        super().__init__()
        self.own = nn.Linear(4, 4)
        self.__dict__["lent"] = lent

    def forward(self, x):
        return torch.sigmoid(self.lent(self.own(x)))


class Owner(nn.Module):
    """Holds what another one calls."""

    def __init__(self):
        super().__init__()
        self.tool, self.out = Scaled(4), nn.Linear(4, 4)

    def forward(self, x):
        return self.out(x)


@case((2, 4))
class Lent(nn.Module):
    """A module that is called by another one than that which holds it."""

    def __init__(self):
        super().__init__()
        self.owner = Owner()
        self.borrower = Borrower(self.owner.tool)

    def forward(self, x):
        return self.owner(self.borrower(x))


# --- Modules that leave little ---------------------------------------------------------------------------------------


class Functional(nn.Module):
    """No parameters, no modules."""

    def forward(self, a, b):
        return torch.softmax(a @ b.transpose(-1, -2), -1) @ b


@case((2, 3, 4))
class FunctionalOnly(nn.Module):
    """Modules without parameters, and dropouts and identities, which compute nothing."""

    def __init__(self):
        super().__init__()
        self.attend, self.drop, self.same = Functional(), nn.Dropout(0.1), nn.Identity()

    def forward(self, x):
        return self.same(self.drop(self.attend(x, torch.sin(x))))


@case(tokens(4))
class Positions(nn.Module):
    """The embedding of constant positions is folded."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 6), nn.Embedding(8, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, ids):
        places = torch.arange(ids.shape[1]).unsqueeze(0)
        return self.norm(self.words(ids) + self.places(places))


class Standardize(nn.Module):
    """Buffers instead of parameters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("scale", torch.rand(4) + 0.5, persistent=False)

    def forward(self, x):
        return (x - self.mean) * self.scale


@case((2, 4))
class Buffers(nn.Module):
    """A module with buffers, and a buffer of the model's own."""

    def __init__(self):
        super().__init__()
        self.standardize, self.out = Standardize(), nn.Linear(4, 2)
        self.register_buffer("offset", torch.randn(2))

    def forward(self, x):
        return self.out(self.standardize(x)) + self.offset


class Inner(nn.Module):
    """What the wrapper is around of."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = Scaled(4), nn.LayerNorm(4)

    def forward(self, x, mask=None):
        y = self.norm(self.body(x))
        return y if mask is None else y * mask


@case((2, 4))
class Wrapper(nn.Module):
    """A model in a class that only names its inputs."""

    def __init__(self):
        super().__init__()
        self.model = Inner()

    def forward(self, x):
        return self.model(x)


@case((2, 4))
class Single(nn.Linear):
    """No modules at all but the model."""

    def __init__(self):
        super().__init__(4, 3)

    def forward(self, x):
        return super().forward(x)


@case((2, 4))
class Direct(nn.Module):
    """Calls forward itself, which no hook sees: the nodes are those of the caller."""

    def __init__(self):
        super().__init__()
        self.unseen, self.seen = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.seen(torch.relu(self.unseen.forward(x)))


@case((2, 4))
class SeveralOutputs(nn.Module):
    """A module that gives a tuple, of which the rest of the model needs one part twice and one not at all."""

    def __init__(self):
        super().__init__()
        self.split = Splitter()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(2, 3)

    def forward(self, x):
        a, b, _ = self.split(x)
        return self.left(a), self.right(b + a)


class Splitter(nn.Module):
    """Two halves and a sum."""

    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(4, 4)

    def forward(self, x):
        y = self.pre(x)
        a, b = y.chunk(2, -1)
        return a, torch.relu(b), y.sum()


# --- Recurrent layers, attention, control flow -----------------------------------------------------------------------


@case((1, 5, 3))
class Recurrent(nn.Module):
    """An LSTM and a GRU."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
        self.gru, self.head = nn.GRU(8, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        y, _ = self.lstm(x)
        y, last = self.gru(y)
        return self.head(y[:, -1]) + self.head(last[0])


@case((1, 5, 8))
class Attention(nn.Module):
    """MultiheadAttention, whose projection is a parameter that it uses without calling a module."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


@case((1, 4, 8))
class Encoder(nn.Module):
    """A model of modules of PyTorch alone."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x)


@case((2, 4), exports=("raw", "dynamo"))
class Cond(nn.Module):
    """Modules in the branches of a condition."""

    threshold = 0.0

    def __init__(self):
        super().__init__()
        self.before, self.yes, self.no, self.after = nn.Linear(4, 4), Scaled(4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.before(x)
        x = torch.cond(x.sum() > self.threshold, lambda x: self.yes(x), lambda x: self.no(x) - 1, (x,))
        return self.after(x)


@case((2, 4), exports=("raw", "dynamo"))
class CondYes(Cond):
    """The same for a sample that takes the other branch."""

    threshold = -100.0


@case((2, 4), exports=("raw", "dynamo"))
class CondInside(nn.Module):
    """A module that is a condition, called twice."""

    def __init__(self):
        super().__init__()
        self.gate, self.out = Gate(), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.gate(self.gate(x)))


class Gate(nn.Module):
    """A condition with a module in one branch."""

    def __init__(self):
        super().__init__()
        self.open = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.mean() > 0, lambda x: self.open(x), lambda x: x * 0.5, (x,))


@case((5, 4), exports=("raw", "dynamo"))
class Scanned(nn.Module):
    """A scan that calls a module in each turn."""

    def __init__(self):
        super().__init__()
        self.step, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        def turn(state, row):
            state = torch.tanh(self.step(state) + row)
            return state, state.clone()

        _, states = scan(turn, torch.zeros_like(x[0]), x)
        return self.out(states)


@case((2, 4), exports=("script",))
class Looped(nn.Module):
    """A module that is a loop; only TorchScript can write it down."""

    def __init__(self):
        super().__init__()
        self.before, self.loop = nn.Linear(4, 4), Turns()

    def forward(self, x):
        return torch.relu(self.loop(self.before(x)))


class Turns(nn.Module):
    """As many turns as there are rows."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return turned(x, self.weight)


@torch.jit.script
def turned(x, weight):
    """A loop that stays one in the file."""
    for _ in range(x.size(0)):
        x = torch.tanh(torch.matmul(x, weight))
    return x


# --- Writing ---------------------------------------------------------------------------------------------------------


def table(model: nn.Module) -> dict:
    """The modules of a model: class, arguments of forward, parameters, buffers and children of each."""
    modules, first = {}, {}
    for path, module in model.named_modules(remove_duplicate=False):
        kind = type(module)
        entry = {
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "forward_args": [name for name in inspect.signature(module.forward).parameters],
            "direct_parameters": [name for name, _ in module.named_parameters(recurse=False)],
            "direct_buffers": [name for name, _ in module.named_buffers(recurse=False)],
            "children": {name: type(child).__name__ for name, child in module._modules.items() if child is not None},
        }
        if id(module) in first:
            entry["alias_of"] = first[id(module)]
        else:
            first[id(module)] = path
        modules[path] = entry
    return modules


def tensors(value):
    """The tensors in what a module gave, in their order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors(part)


@contextmanager
def in_python():
    """Conditions and scans as Python runs them: PyTorch's own compile what they run, and hooks with it."""

    def condition(predicate, yes, no, operands):
        return yes(*operands) if predicate else no(*operands)

    def scanned(turn, state, rows):
        states = []
        for row in rows:
            state, result = turn(state, row)
            states.append(result)
        return state, torch.stack(states)

    with patch.object(torch, "cond", condition), patch.dict(globals(), scan=scanned):
        yield


def truth(model: nn.Module, inputs: tuple) -> dict:
    """What every call of every module gives for these inputs."""
    calls, arrays = [], {}

    def record(path):
        def hook(_module, _args, output):
            for index, tensor in enumerate(tensors(output)):
                arrays[f"call.{len(calls)}.{index}"] = tensor.detach().numpy().copy()
            calls.append(path)

        return hook

    hooks = [module.register_forward_hook(record(path)) for path, module in model.named_modules()]
    with torch.no_grad(), in_python():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return {"calls": np.array(json.dumps(calls)), **arrays}


def forget(message) -> None:
    """Removes what tells of this machine from a message and all messages in it."""
    for field, value in message.ListFields():
        if field.name == "metadata_props":
            kept = [entry for entry in value if entry.key not in DROPPED]
            entries = [(entry.key, entry.value) for entry in kept]
            del value[:]
            for key, text in entries:
                value.add(key=key, value=text)
        elif field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                forget(part)


def export(model: nn.Module, inputs: tuple, names: list[str], options: dict) -> onnx.ModelProto:
    """The model as a file, and back."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, inputs, str(path), input_names=names, verbose=False, **options)
        exported = onnx.load(path)
    forget(exported)
    onnx.checker.check_model(exported)
    return exported


def compressed(path: Path, data: bytes) -> None:
    """The same bytes give the same file, whenever that is."""
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def write(name: str, made: Case, out: Path) -> None:
    """All files of a case."""
    torch.manual_seed(SEED)
    model = made.model().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean):
                tensor.data = torch.randn_like(tensor)
            module.running_var.data = torch.rand_like(module.running_var) + 0.5
    inputs = made.inputs()
    names = list(inspect.signature(model.forward).parameters)
    known = truth(model, inputs)
    given = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
    archive = io.BytesIO()
    np.savez_compressed(archive, **known, **{f"input.{name}": value for name, value in given.items()})
    (out / f"{name}.npz").write_bytes(archive.getvalue())
    compressed(out / f"{name}.modules.json.gz", json.dumps(table(model), indent=0).encode())
    last = len(json.loads(str(known["calls"]))) - 1
    for kind in made.exports:
        exported = export(model, inputs, names, EXPORTS[kind])
        session = ort.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
        for index, found in enumerate(session.run(None, given)):
            np.testing.assert_allclose(found, known[f"call.{last}.{index}"], atol=1e-4, err_msg=f"{name}.{kind}")
        compressed(out / f"{name}.{kind}.onnx.gz", exported.SerializeToString(deterministic=True))
        print(f"{name}.{kind}: {len(exported.graph.node)} nodes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    # The fused path of inference has no operator of ONNX.
    torch.backends.mha.set_fastpath_enabled(False)
    args.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in args.names or CASES:
        try:
            write(name, CASES[name], args.out)
        except Exception as error:  # noqa: BLE001 - one line for each, and the others all the same
            failed += 1
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
