#!/usr/bin/env python3
"""Makes the small models under examples/ and tests/data/.

    pip install torch==2.15.0 transformers==5.22.2 onnx==1.23.2 onnxscript==0.7.2 \\
        onnxruntime==1.31.1 numpy==2.4.6 ml_dtypes==0.6.0
    python scripts/make_examples.py                      # every model, into this repository
    python scripts/make_examples.py --root out lstm.dynamo if.dynamo
    python scripts/make_examples.py --list

Those are the versions it was last run with, on Python 3.11. Weights are random
but seeded. The PyTorch models are exported raw (no constant folding, no
optimization), by the TorchScript exporter (`*.torchscript.onnx`, and the BERT
and the CNN in examples/) and by the torch.export one (`*.dynamo.onnx`, and the
LLaMA in examples/). The float16 BERT is from torch.export only: the TorchScript
export of it mixes float and float16 in LayerNormalization.

Every file is checked with onnx.checker. All but dtypes.onnx and every_field.onnx
are also run with onnxruntime, the exported ones at other sizes of their dynamic
axes, and their outputs compared with those of PyTorch, of the model before
quantization, or of the formula beside the model.

torch.export records a stack trace for each node. Directory names are removed
from it, so that no file tells where it was made. In the transformers, where the
metadata would be most of the file, only one node per PyTorch operator keeps it.
"""

from __future__ import annotations

import argparse
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import onnxscript
import torch
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxscript import FLOAT, script
from onnxscript import opset18 as op
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

MAX_BYTES = 400_000
SEED = 20
TORCHSCRIPT_OPSET = 17
STACK_TRACE = "pkg.torch.onnx.stack_trace"
FX_NODE = "pkg.torch.onnx.fx_node"


@dataclass
class Probe:
    """Inputs to run a model on, and the outputs they must give."""

    feeds: dict[str, np.ndarray | list[np.ndarray]]
    expected: list[np.ndarray]
    tolerance: float = 1e-4


@dataclass
class Example:
    """One file to make. `build` writes it and says how to run it, if it can be run."""

    path: str
    build: Callable[[Path], Probe | None]

    @property
    def name(self) -> str:
        return Path(self.path).name.removesuffix(".onnx")


EXAMPLES: list[Example] = []


def example(path: str, *args, **kwargs):
    """Registers a function as the maker of the file `path`, called with these arguments."""

    def register(build):
        EXAMPLES.append(Example(path, lambda file: build(file, *args, **kwargs)))
        return build

    return register


# ---------------------------------------------------------------------------
# Export


def numpy_outputs(outputs) -> list[np.ndarray]:
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [output.detach().numpy() for output in outputs]


def torch_probe(module: nn.Module, inputs: dict[str, torch.Tensor]) -> Probe:
    with torch.no_grad():
        outputs = module(*inputs.values())
    expected = numpy_outputs(outputs)
    tolerance = 2e-2 if expected[0].dtype == np.float16 else 1e-4
    return Probe({name: value.numpy() for name, value in inputs.items()}, expected, tolerance)


def export_torchscript(path, module, inputs, probe, outputs, axes):
    """Exports by tracing (or from torch.jit.script) to TorchScript."""
    torch.onnx.export(
        module,
        tuple(inputs.values()),
        path,
        dynamo=False,
        do_constant_folding=False,
        opset_version=TORCHSCRIPT_OPSET,
        input_names=list(inputs),
        output_names=outputs,
        dynamic_axes=axes,
    )
    return torch_probe(module, probe)


def export_dynamo(path, module, inputs, probe, outputs, axes, thin=False, external_data=False):
    """Exports with torch.export."""
    torch.onnx.export(
        module,
        tuple(inputs.values()),
        path,
        dynamo=True,
        optimize=False,
        verbose=False,
        external_data=external_data,
        input_names=list(inputs),
        output_names=outputs,
        dynamic_shapes=tuple(axes.get(name) for name in inputs),
    )
    model = onnx.load(path, load_external_data=False)
    strip_directories(model)
    if thin:
        thin_metadata(model.graph)
    onnx.save(model, path)
    return torch_probe(module, probe)


export_thin = partial(export_dynamo, thin=True)


def walk_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """These nodes, and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from walk_nodes(graph.node)


def strip_directories(model: onnx.ModelProto) -> None:
    """Leaves only the file names of the paths in stack traces."""
    for node in walk_nodes(model.graph.node):
        for entry in node.metadata_props:
            if entry.key == STACK_TRACE:
                entry.value = re.sub(r'File "[^"]*[/\\]', 'File "', entry.value)


def thin_metadata(graph: onnx.GraphProto) -> None:
    """Keeps the metadata of the last of the nodes that one PyTorch operator became."""
    origin = [
        next((entry.value for entry in node.metadata_props if entry.key == FX_NODE), None)
        for node in graph.node
    ]
    for node, this, following in zip(graph.node, origin, origin[1:], strict=False):
        if this == following:
            node.ClearField("metadata_props")


def randomize(module: nn.Module) -> nn.Module:
    """Gives biases, norms and statistics distinct values, and convolutions larger weights."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)
            elif isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(0.0, 0.1)
                layer.running_var.uniform_(0.5, 1.5)
    return module.eval()


# ---------------------------------------------------------------------------
# Transformers


class TinyBert(nn.Module):
    """A BertModel whose inputs are exactly the traced ones."""

    def __init__(self):
        super().__init__()
        self.bert = BertModel(
            BertConfig(
                vocab_size=96,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                max_position_embeddings=32,
                initializer_range=0.2,
            )
        )

    def forward(self, input_ids, attention_mask, token_type_ids):
        outputs = self.bert(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
        )
        return outputs.last_hidden_state, outputs.pooler_output


class TinyLlama(nn.Module):
    """A LlamaForCausalLM with grouped-query attention, without a key-value cache."""

    def __init__(self):
        super().__init__()
        self.llama = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=64,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=48,
                max_position_embeddings=32,
                initializer_range=0.2,
            )
        )

    def forward(self, input_ids, attention_mask):
        outputs = self.llama(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        return outputs.logits


def token_inputs(names: Sequence[str], batch: int, sequence: int) -> dict[str, torch.Tensor]:
    """Token inputs by name; the last row is padded by two tokens."""
    attention_mask = torch.ones(batch, sequence, dtype=torch.int64)
    attention_mask[-1, -2:] = 0
    inputs = {
        "input_ids": torch.randint(0, 64, (batch, sequence)),
        "attention_mask": attention_mask,
        "token_type_ids": torch.randint(0, 2, (batch, sequence)),
    }
    return {name: inputs[name] for name in names}


def token_axes(names: Sequence[str]) -> dict[str, dict[int, str]]:
    return {name: {0: "batch", 1: "sequence"} for name in names}


@example("examples/tiny_bert.onnx", export_torchscript)
@example("tests/data/tiny_bert.dynamo.onnx", export_thin)
@example("tests/data/tiny_bert_fp16.dynamo.onnx", export_thin, dtype=torch.float16)
def tiny_bert(path, export, dtype=torch.float32):
    names = ["input_ids", "attention_mask", "token_type_ids"]
    return export(
        path,
        randomize(TinyBert()).to(dtype),
        token_inputs(names, 2, 8),
        token_inputs(names, 3, 5),
        ["last_hidden_state", "pooler_output"],
        token_axes([*names, "last_hidden_state"]) | {"pooler_output": {0: "batch"}},
    )


@example("examples/tiny_llama.onnx", export_thin)
@example("tests/data/tiny_llama.torchscript.onnx", export_torchscript)
def tiny_llama(path, export):
    names = ["input_ids", "attention_mask"]
    return export(
        path,
        randomize(TinyLlama()),
        token_inputs(names, 2, 8),
        token_inputs(names, 3, 5),
        ["logits"],
        token_axes([*names, "logits"]),
    )


# ---------------------------------------------------------------------------
# Convolutional and recurrent


class ConvBlock(nn.Sequential):
    def __init__(self, channels_in, channels_out, kernel, **options):
        super().__init__(
            nn.Conv2d(channels_in, channels_out, kernel, padding=kernel // 2, **options),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
        )


class SmallCnn(nn.Module):
    """Conv-BatchNorm-ReLU blocks, a residual, a depthwise convolution, two poolings, a Linear."""

    def __init__(self):
        super().__init__()
        self.stem = ConvBlock(3, 16, 3, bias=False)
        self.pool = nn.MaxPool2d(2)
        self.residual = nn.Sequential(ConvBlock(16, 16, 3), ConvBlock(16, 16, 3))
        self.depthwise = ConvBlock(16, 16, 3, groups=16, stride=2)
        self.pointwise = ConvBlock(16, 32, 1)
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(32, 10)

    def forward(self, image):
        x = self.pool(self.stem(image))
        x = x + self.residual(x)
        x = self.pointwise(self.depthwise(x))
        x = self.dropout(self.global_pool(x).flatten(1))
        return self.classifier(x)


@example("examples/small_cnn.onnx", export_torchscript)
@example("tests/data/small_cnn.dynamo.onnx", export_dynamo)
@example("tests/data/small_cnn_fp16.dynamo.onnx", export_dynamo, dtype=torch.float16)
def small_cnn(path, export, dtype=torch.float32):
    return export(
        path,
        randomize(SmallCnn()).to(dtype),
        {"image": torch.randn(2, 3, 16, 16, dtype=dtype)},
        {"image": torch.randn(3, 3, 16, 16, dtype=dtype)},
        ["logits"],
        {"image": {0: "batch"}, "logits": {0: "batch"}},
    )


class RandomImages(CalibrationDataReader):
    def __init__(self, count: int):
        self.images = iter(torch.randn(count, 2, 3, 16, 16).numpy())

    def get_next(self):
        image = next(self.images, None)
        return None if image is None else {"image": image}


@example("tests/data/small_cnn_qdq.onnx")
def small_cnn_qdq(path):
    """The small CNN quantized to int8, with QuantizeLinear and DequantizeLinear nodes."""
    with tempfile.TemporaryDirectory() as directory:
        exported, prepared = Path(directory, "exported.onnx"), Path(directory, "prepared.onnx")
        small_cnn(exported, export_torchscript)
        quant_pre_process(exported, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared, path, RandomImages(8), quant_format=QuantFormat.QDQ, per_channel=True
        )
        return reference_probe(prepared, {"image": torch.randn(3, 3, 16, 16).numpy()})


def reference_probe(path: Path, feeds: dict[str, np.ndarray]) -> Probe:
    """Expects about the outputs of the model in `path`."""
    return Probe(feeds, ort.InferenceSession(path).run(None, feeds), tolerance=0.1)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        states, (hidden, cell) = self.lstm(x)
        return self.head(states), hidden, cell


@example("tests/data/lstm.torchscript.onnx", export_torchscript)
@example("tests/data/lstm.dynamo.onnx", export_dynamo)
def lstm(path, export):
    return export(
        path,
        randomize(Lstm()),
        {"x": torch.randn(2, 7, 8)},
        {"x": torch.randn(3, 5, 8)},
        ["y", "hidden", "cell"],
        {
            "x": {0: "batch", 1: "sequence"},
            "y": {0: "batch", 1: "sequence"},
            "hidden": {1: "batch"},
            "cell": {1: "batch"},
        },
    )


# ---------------------------------------------------------------------------
# Control flow


class ScriptedIf(nn.Module):
    def __init__(self):
        super().__init__()
        self.positive = nn.Linear(8, 8)
        self.negative = nn.Linear(8, 8)

    def forward(self, x):
        if bool(x.sum() > 0):
            y = torch.relu(self.positive(x))
        else:
            y = torch.tanh(self.negative(x)) * 2.0
        return y + x


class CondIf(ScriptedIf):
    def forward(self, x):
        y = torch.cond(
            x.sum() > 0,
            lambda x: torch.relu(self.positive(x)),
            lambda x: torch.tanh(self.negative(x)) * 2.0,
            (x,),
        )
        return y + x


@example(
    "tests/data/if.torchscript.onnx", export_torchscript, lambda: torch.jit.script(ScriptedIf())
)
@example("tests/data/if.dynamo.onnx", export_dynamo, CondIf)
def if_model(path, export, make):
    return export(
        path,
        make(),
        {"x": torch.rand(2, 8)},
        {"x": -torch.rand(3, 8)},
        ["y"],
        {"x": {0: "batch"}, "y": {0: "batch"}},
    )


class ScriptedLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(8, 8)

    def forward(self, x, steps):
        for i in range(int(steps)):
            x = torch.tanh(self.step(x)) + float(i)
        return x


class WhileLoop(ScriptedLoop):
    def forward(self, x, steps):
        def body(i, x, steps):
            return i + 1, torch.tanh(self.step(x)) + i, steps.clone()

        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, x, steps: i < steps, body, (start, x, steps))[1]


@example(
    "tests/data/loop.torchscript.onnx", export_torchscript, lambda: torch.jit.script(ScriptedLoop())
)
@example("tests/data/loop.dynamo.onnx", export_dynamo, WhileLoop)
def loop_model(path, export, make):
    return export(
        path,
        make(),
        {"x": torch.randn(2, 8), "steps": torch.tensor(3)},
        {"x": torch.randn(3, 8), "steps": torch.tensor(5)},
        ["y"],
        {"x": {0: "batch"}, "y": {0: "batch"}},
    )


class Scan(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) * 0.3)

    def forward(self, x):
        def step(state, row):
            state = torch.tanh(state @ self.weight + row)
            return state, state * 2.0

        state, rows = scan(step, torch.zeros(8) + 0.5, x)
        return state, rows


@example("tests/data/scan.dynamo.onnx")
def scan_model(path):
    return export_dynamo(
        path,
        Scan(),
        {"x": torch.randn(4, 8)},
        {"x": torch.randn(6, 8)},
        ["state", "rows"],
        {"x": {0: "steps"}},
    )


# ---------------------------------------------------------------------------
# Sequences, optionals, strings


class ScriptedSequence(nn.Module):
    def forward(self, x):
        rows: list[torch.Tensor] = []
        for i in range(x.size(0)):
            rows.append(x[i] * float(i + 1))
        return torch.stack(rows)


@example("tests/data/sequence.torchscript.onnx")
def sequence(path):
    return export_torchscript(
        path,
        torch.jit.script(ScriptedSequence()),
        {"x": torch.randn(3, 4)},
        {"x": torch.randn(5, 4)},
        ["y"],
        {"x": {0: "rows"}, "y": {0: "rows"}},
    )


def save(path, nodes, inputs, outputs, initializers, opsets, ir_version):
    """Writes a model made of protobuf messages."""
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, initializers)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*opset) for opset in opsets.items()],
        ir_version=ir_version,
        producer_name="make_examples",
    )
    onnx.save(model, path)


def float_info(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@example("tests/data/sequence_optional.onnx")
def sequence_optional(path):
    """A sequence input, sequence operators, and an optional value that decides an If."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 2])
    parts = helper.make_sequence_type_proto(tensor)
    take = helper.make_graph(
        [helper.make_node("OptionalGetElement", ["maybe"], ["then_value"])],
        "take",
        [],
        [float_info("then_value", "m", 2)],
    )
    default = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["else_value"])],
        "default",
        [],
        [float_info("else_value", "m", 2)],
    )
    nodes = [
        helper.make_node("SequenceInsert", ["parts", "x"], ["longer"], name="insert"),
        helper.make_node("SequenceAt", ["longer", "zero"], ["first"], name="at"),
        helper.make_node("ConcatFromSequence", ["longer"], ["joined"], name="join", axis=0),
        helper.make_node(
            "SplitToSequence", ["joined"], ["split"], name="split", axis=0, keepdims=1
        ),
        helper.make_node("SequenceLength", ["split"], ["count"], name="length"),
        helper.make_node("Optional", ["first"], ["maybe"], name="optional"),
        helper.make_node("OptionalHasElement", ["maybe"], ["present"], name="has"),
        helper.make_node(
            "If", ["present"], ["chosen"], name="if", then_branch=take, else_branch=default
        ),
    ]
    save(
        path,
        nodes,
        [helper.make_value_info("parts", parts), float_info("x", "n", 2)],
        [
            float_info("joined", "total", 2),
            helper.make_tensor_value_info("count", TensorProto.INT64, []),
            float_info("chosen", "m", 2),
        ],
        [numpy_helper.from_array(np.array(0, np.int64), "zero")],
        opsets={"": 18},
        ir_version=8,
    )
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    feeds = {"parts": [rows[:1], rows[1:3]], "x": rows[3:]}
    return Probe(feeds, [rows, np.array(6), rows[:1]])


@example("tests/data/strings.onnx")
def strings(path):
    """Strings as initializer, input, output and attribute, and an ai.onnx.ml operator."""
    colours = ["red", "grün", "blue", ""]
    nodes = [
        helper.make_node("StringConcat", ["word", "suffix"], ["suffixed"], name="concat"),
        helper.make_node(
            "LabelEncoder",
            ["word"],
            ["index"],
            name="encode",
            domain="ai.onnx.ml",
            keys_strings=colours[:3],
            values_int64s=[0, 1, 2],
            default_int64=3,
        ),
        helper.make_node("Gather", ["colours", "index"], ["known"], name="look_up"),
    ]
    word, *outputs = (
        helper.make_tensor_value_info(name, TensorProto.STRING, ["n"])
        for name in ("word", "suffixed", "known")
    )
    save(
        path,
        nodes,
        [word],
        outputs,
        [
            helper.make_tensor("colours", TensorProto.STRING, [4], [c.encode() for c in colours]),
            helper.make_tensor("suffix", TensorProto.STRING, [1], [b"!"]),
        ],
        opsets={"": 20, "ai.onnx.ml": 3},
        ir_version=9,
    )
    words = np.array(["blue", "green", "grün"], dtype=object)
    expected = [words + "!", np.array(["blue", "", "grün"], dtype=object)]
    return Probe({"word": words}, expected)


# ---------------------------------------------------------------------------
# Local functions, external data, element types

local = onnxscript.values.Opset("onnxforge.example", 1)


@script(local, default_opset=op)
def Swish(x, beta: float = 1.0):
    """x * sigmoid(beta * x)"""
    return x * op.Sigmoid(op.CastLike(op.Constant(value_float=beta), x) * x)


@script(local, default_opset=op)
def GatedUnit(x, gate, up, beta: float):
    """Swish(x @ gate) * (x @ up)"""
    return Swish(op.MatMul(x, gate), beta=beta) * op.MatMul(x, up)


@script(default_opset=op)
def gated_network(
    x: FLOAT[None, 16],
    gate: FLOAT[16, 24],
    up: FLOAT[16, 24],
    down: FLOAT[24, 16],
) -> FLOAT[None, 16]:
    hidden = GatedUnit(x, gate, up, beta=1.5)
    y = Swish(op.MatMul(hidden, down))
    return op.Identity(y)


@example("tests/data/functions.onnx")
def functions(path):
    """Two local functions, one calling the other, with a required and a defaulted attribute."""
    model = gated_network.to_model_proto()
    generator = np.random.default_rng(SEED)
    gate, up = (generator.normal(size=(16, 24)).astype(np.float32) * 0.3 for _ in range(2))
    down = generator.normal(size=(24, 16)).astype(np.float32) * 0.3
    weights = {"gate": gate, "up": up, "down": down}
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    del model.graph.input[1:]
    onnx.save(model, path)

    def swish(x, beta):
        return x / (1 + np.exp(-beta * x))

    x = generator.normal(size=(3, 16)).astype(np.float32)
    return Probe({"x": x}, [swish((swish(x @ gate, 1.5) * (x @ up)) @ down, 1.0)])


@example("tests/data/external_data.onnx")
def external_data(path):
    """Weights in a second file, as torch.export writes them."""
    return export_dynamo(
        path,
        randomize(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))),
        {"input": torch.randn(2, 64)},
        {"input": torch.randn(3, 64)},
        ["output"],
        {"input": {0: "batch"}},
        external_data=True,
    )


def value_range(dtype: np.dtype) -> tuple[float, float]:
    """Bounds of the random values of an element type."""
    if dtype == np.bool_:
        return 0, 1
    if dtype == ml_dtypes.float8_e8m0fnu:
        return 1, 100
    if "int" in dtype.name:
        limits = ml_dtypes.iinfo(dtype)
        return int(limits.min), int(limits.max)
    return -6, 6


def dtype_arrays() -> Iterator[tuple[str, np.ndarray]]:
    """Random values of each element type but strings and the 6-bit floats of IR version 14."""
    generator = np.random.default_rng(SEED)
    for name, number in TensorProto.DataType.items():
        if name in ("UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2"):
            continue
        dtype = helper.tensor_dtype_to_np_dtype(number)
        values = generator.uniform(*value_range(dtype), size=(3, 5))
        if name.startswith("COMPLEX"):
            values = values + 1j * values[::-1]
        elif "int" in dtype.name or dtype == np.bool_:
            values = np.rint(values)
        yield name, values.astype(dtype)


@example("tests/data/dtypes.onnx")
def dtypes(path):
    """A tensor of each element type, as raw_data and in the field of that type."""
    nodes, outputs, initializers = [], [], []
    for name, array in dtype_arrays():
        number = TensorProto.DataType.Value(name)
        raw = numpy_helper.from_array(array, f"{name.lower()}_raw")
        typed = helper.make_tensor(f"{name.lower()}_typed", number, array.shape, array.flatten())
        initializers += [raw, typed]
        for tensor in (raw, typed):
            output = f"{tensor.name}_out"
            if name.startswith("COMPLEX"):
                nodes.append(helper.make_node("Identity", [tensor.name], [output]))
                outputs.append(helper.make_tensor_value_info(output, number, array.shape))
            else:
                nodes.append(
                    helper.make_node("Cast", [tensor.name], [output], to=TensorProto.FLOAT)
                )
                outputs.append(float_info(output, *array.shape))
    save(path, nodes, [], outputs, initializers, opsets={"": 25}, ir_version=13)


# ---------------------------------------------------------------------------
# Every field of onnx.proto


def props(**entries: str) -> list[onnx.StringStringEntryProto]:
    return [onnx.StringStringEntryProto(key=key, value=value) for key, value in entries.items()]


def scalar_type(dtype: int = TensorProto.FLOAT) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(dtype, [])


def all_types() -> dict[str, onnx.TypeProto]:
    """One type of each kind."""
    opaque = onnx.TypeProto()
    opaque.opaque_type.domain = "onnxforge.example"
    opaque.opaque_type.name = "Handle"
    mapping = onnx.TypeProto()
    mapping.map_type.key_type = TensorProto.STRING
    mapping.map_type.value_type.CopyFrom(scalar_type())
    return {
        "a_sequence": helper.make_sequence_type_proto(scalar_type()),
        "an_optional": helper.make_optional_type_proto(scalar_type()),
        "a_sparse": helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [4, 4]),
        "a_map": mapping,
        "an_opaque": opaque,
    }


def sparse_tensor(name: str) -> onnx.SparseTensorProto:
    values = helper.make_tensor(name, TensorProto.FLOAT, [3], [1.5, -2.0, 0.25])
    indices = helper.make_tensor(f"{name}_indices", TensorProto.INT64, [3], [1, 6, 15])
    return helper.make_sparse_tensor(values, indices, [4, 4])


def small_graph(name: str) -> onnx.GraphProto:
    output = f"{name}_y"
    return helper.make_graph(
        [helper.make_node("Identity", ["x"], [output])], name, [], [float_info(output, "batch", 4)]
    )


def every_attribute() -> list[onnx.AttributeProto]:
    """One attribute of each kind."""
    tensor = helper.make_tensor("", TensorProto.INT64, [2], [1, 2])
    kinds = onnx.AttributeProto
    return [
        kinds(name="a_float", type=kinds.FLOAT, f=0.5, doc_string="an attribute"),
        kinds(name="an_int", type=kinds.INT, i=-7),
        kinds(name="a_string", type=kinds.STRING, s="häßlich".encode()),
        kinds(name="a_tensor", type=kinds.TENSOR, t=tensor),
        kinds(name="a_graph", type=kinds.GRAPH, g=small_graph("one")),
        kinds(name="a_sparse_tensor", type=kinds.SPARSE_TENSOR, sparse_tensor=sparse_tensor("s")),
        kinds(name="a_type", type=kinds.TYPE_PROTO, tp=scalar_type()),
        kinds(name="floats", type=kinds.FLOATS, floats=[0.5, -1.5]),
        kinds(name="ints", type=kinds.INTS, ints=[3, -4, 1 << 40]),
        kinds(name="strings", type=kinds.STRINGS, strings=[b"a", b""]),
        kinds(name="tensors", type=kinds.TENSORS, tensors=[tensor, tensor]),
        kinds(name="graphs", type=kinds.GRAPHS, graphs=[small_graph("two"), small_graph("three")]),
        kinds(
            name="sparse_tensors",
            type=kinds.SPARSE_TENSORS,
            sparse_tensors=[sparse_tensor("t"), sparse_tensor("u")],
        ),
        kinds(
            name="types",
            type=kinds.TYPE_PROTOS,
            type_protos=[scalar_type(), scalar_type(TensorProto.INT64)],
        ),
    ]


def scale_function() -> onnx.FunctionProto:
    """x * factor + offset, as an overload with a required and a defaulted attribute."""

    def constant(attribute: str) -> onnx.NodeProto:
        node = helper.make_node("Constant", [], [f"{attribute}_value"], name=attribute)
        node.attribute.add(
            name="value_float", type=onnx.AttributeProto.FLOAT, ref_attr_name=attribute
        )
        return node

    return onnx.FunctionProto(
        name="Scale",
        domain="onnxforge.example",
        overload="affine",
        doc_string="a function",
        input=["x"],
        output=["y"],
        attribute=["factor"],
        attribute_proto=[helper.make_attribute("offset", 0.125)],
        node=[
            constant("factor"),
            constant("offset"),
            helper.make_node("Mul", ["x", "factor_value"], ["scaled"]),
            helper.make_node("Add", ["scaled", "offset_value"], ["y"]),
        ],
        value_info=[float_info("scaled", "batch", 4)],
        opset_import=[helper.make_opsetid("", 21)],
        metadata_props=props(level="function"),
    )


def sharding() -> onnx.NodeDeviceConfigurationProto:
    """The rows of a tensor on two devices, its columns by a group of both."""
    spec = onnx.ShardingSpecProto(
        tensor_name="x",
        device=[0, -1],
        index_to_device_group_map=[onnx.IntIntListEntryProto(key=-1, value=[0, 1])],
    )
    spec.sharded_dim.add(axis=0).simple_sharding.add(dim_param="batch", num_shards=2)
    spec.sharded_dim.add(axis=1).simple_sharding.add(dim_value=4, num_shards=2)
    return onnx.NodeDeviceConfigurationProto(
        configuration_id="pair", sharding_spec=[spec], pipeline_stage=1
    )


def every_tensor_field(data_file: Path) -> list[onnx.TensorProto]:
    """Initializers that together set each field of a tensor."""
    weight = np.arange(16, dtype=np.float32).reshape(4, 4) / 8
    described = numpy_helper.from_array(weight, "weight")
    described.doc_string = "an initializer"
    described.metadata_props.extend(props(level="tensor"))
    data_file.write_bytes(weight.tobytes())
    external = TensorProto(
        name="external",
        data_type=TensorProto.FLOAT,
        dims=weight.shape,
        data_location=TensorProto.EXTERNAL,
        external_data=props(location=data_file.name, offset="0", length=str(weight.nbytes)),
    )
    return [
        described,
        external,
        helper.make_tensor("weight_scale", TensorProto.FLOAT, [], [0.5]),
        helper.make_tensor("weight_zero_point", TensorProto.INT8, [], [3]),
        helper.make_tensor("names", TensorProto.STRING, [2], [b"a", b"b"]),
        helper.make_tensor("int64s", TensorProto.INT64, [2], [-1, 1 << 40]),
        helper.make_tensor("doubles", TensorProto.DOUBLE, [2], [0.1, 1e300]),
        helper.make_tensor("uint64s", TensorProto.UINT64, [2], [0, (1 << 64) - 1]),
        TensorProto(
            name="segmented",
            data_type=TensorProto.FLOAT,
            dims=[2],
            float_data=[1.0, 2.0],
            segment=TensorProto.Segment(begin=0, end=2),
        ),
    ]


def every_field_graph(data_file: Path) -> onnx.GraphProto:
    matmul = helper.make_node(
        "MatMul", ["x", "weight"], ["product"], name="matmul", doc_string="a node"
    )
    matmul.metadata_props.extend(props(level="node"))
    matmul.device_configurations.append(sharding())
    scale = helper.make_node(
        "Scale",
        ["product"],
        ["scaled"],
        name="scale",
        domain="onnxforge.example",
        overload="affine",
        factor=2.0,
    )
    custom = onnx.NodeProto(
        op_type="EveryAttribute",
        domain="onnxforge.example",
        name="custom",
        input=["scaled", "", "sparse", "external"],
        output=["y"],
        attribute=every_attribute(),
    )

    x = float_info("x", "batch", 4)
    x.doc_string = "an input"
    x.metadata_props.extend(props(level="value"))
    x.type.denotation = "TENSOR"
    x.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    others = [helper.make_value_info(name, type_) for name, type_ in all_types().items()]

    graph = helper.make_graph(
        [matmul, scale, custom],
        "every_field",
        [x, *others],
        [float_info("y", "batch", 4)],
        every_tensor_field(data_file),
        doc_string="a graph",
        value_info=[float_info("product", "batch", 4)],
        sparse_initializer=[sparse_tensor("sparse")],
    )
    graph.metadata_props.extend(props(level="graph"))
    graph.quantization_annotation.add(
        tensor_name="weight",
        quant_parameter_tensor_names=props(
            SCALE_TENSOR="weight_scale", ZERO_POINT_TENSOR="weight_zero_point"
        ),
    )
    return graph


def training() -> onnx.TrainingInfoProto:
    """Draws a first weight, then moves it towards zero."""
    initialization = helper.make_graph(
        [helper.make_node("RandomNormal", [], ["first_weight"], shape=[4, 4])],
        "initialization",
        [],
        [float_info("first_weight", 4, 4)],
    )
    algorithm = helper.make_graph(
        [
            helper.make_node("Mul", ["weight", "weight_scale"], ["step"]),
            helper.make_node("Sub", ["weight", "step"], ["next_weight"]),
        ],
        "algorithm",
        [],
        [float_info("next_weight", 4, 4)],
    )
    return helper.make_training_info(
        algorithm, [("weight", "next_weight")], initialization, [("weight", "first_weight")]
    )


@example("tests/data/every_field.onnx")
def every_field(path):
    """Sets every field that onnx.proto defines."""
    model = helper.make_model(
        every_field_graph(path.with_name(f"{path.name}.data")),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("onnxforge.example", 1)],
        functions=[scale_function()],
        ir_version=13,
        producer_name="make_examples",
        producer_version="1",
        domain="onnxforge.example",
        model_version=3,
        doc_string="a model",
    )
    model.metadata_props.extend(props(level="model"))
    model.training_info.append(training())
    model.configuration.add(name="pair", num_devices=2, device=["cpu:0", "cpu:1"])
    unset = defined_fields(model.DESCRIPTOR) - set_fields(model)
    if unset:
        raise ValueError(f"fields left unset: {sorted(unset)}")
    onnx.save(model, path)


def defined_fields(root: Descriptor) -> set[str]:
    """Names of the fields of a message type and of all those it holds."""
    fields, pending, seen = set(), [root], set()
    while pending:
        descriptor = pending.pop()
        if descriptor.full_name in seen:
            continue
        seen.add(descriptor.full_name)
        fields.update(field.full_name for field in descriptor.fields)
        pending.extend(field.message_type for field in descriptor.fields if field.message_type)
    return fields


def set_fields(message: Message) -> set[str]:
    """Names of the fields that are set somewhere in a message."""
    fields = set()
    for field, value in message.ListFields():
        fields.add(field.full_name)
        if field.message_type:
            for child in [value] if isinstance(value, Message) else value:
                fields |= set_fields(child)
    return fields


# ---------------------------------------------------------------------------
# Checks


def check_outputs(path: Path, probe: Probe) -> None:
    """Runs a model and compares its outputs with the expected ones."""
    outputs = ort.InferenceSession(path).run(None, probe.feeds)
    for output, expected in zip(outputs, probe.expected, strict=True):
        output = np.asarray(output)
        if output.shape != expected.shape:
            raise ValueError(f"{path}: shape {output.shape}, expected {expected.shape}")
        if expected.dtype == object:
            np.testing.assert_array_equal(output, expected, err_msg=str(path))
        else:
            tolerance = probe.tolerance
            np.testing.assert_allclose(output, expected, tolerance, tolerance, err_msg=str(path))


def make(item: Example, root: Path) -> None:
    """Writes one file, checks it and prints its row of the table."""
    path = root / item.path
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    probe = item.build(path)
    onnx.checker.check_model(path)
    if probe:
        check_outputs(path, probe)

    files = [path, path.with_name(f"{path.name}.data")]
    size = sum(file.stat().st_size for file in files if file.exists())
    if size > MAX_BYTES:
        raise ValueError(f"{path} has {size} bytes, more than {MAX_BYTES}")
    model = onnx.load(path, load_external_data=False)
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    checks = "checker, runtime" if probe else "checker"
    print(
        f"{item.path:46} {size / 1000:7.1f} {len(model.graph.node):6}"
        f" {opset:6} {model.ir_version:3}  {checks}",
        flush=True,
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes the small models of the repository.")
    parser.add_argument("names", nargs="*", help="the models to make; all if none is given")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parent.parent,
        help="the directory to write examples/ and tests/data/ into",
    )
    parser.add_argument("--list", action="store_true", help="print the model names and stop")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {item.name for item in EXAMPLES}
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.list:
        print("\n".join(item.name for item in EXAMPLES))
        return
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    print(f"{'file':46} {'kB':>7} {'nodes':>6} {'opset':>6} {'ir':>3}  checked by")
    for item in sorted(EXAMPLES, key=lambda item: item.path):
        if not arguments.names or item.name in arguments.names:
            make(item, arguments.root)


if __name__ == "__main__":
    main()
