"""The export is PyTorch's own: without our metadata, the same bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import exports
import models
import onnx
import onnxforge
import onnxforge.torch
import pytest
import torch
from google.protobuf.message import Message
from torch import nn

COUNTER = re.compile(rb"<eval_with_key>\.\d+")


def settled(path: Path) -> bytes:
    """The bytes of a file. PyTorch counts the functions that it compiles for conditions, and leaves that number in
    call stacks: two of its own exports differ by it, so it is put to zero, and for such files alone the messages are
    compared.
    """
    if not COUNTER.search(path.read_bytes()):
        return path.read_bytes()
    model = onnx.load(path, load_external_data=False)
    settle(model)
    return model.SerializeToString(deterministic=True)


def settle(message: Message) -> None:
    for part, value in message.ListFields():
        if part.name == "metadata_props":
            for entry in value:
                entry.value = COUNTER.sub(b"<eval_with_key>.0", entry.value.encode()).decode()
        elif part.message_type is not None:
            for inner in value if part.is_repeated else [value]:
                settle(inner)


def test_there_are_twelve_models_for_each_exporter() -> None:
    for strategy in exports.STRATEGIES:
        assert sum(found == strategy for _, found in exports.NAMES) >= 12


@pytest.mark.parametrize(("name", "strategy"), exports.NAMES)
def test_stripped_files_have_the_bytes_of_the_plain_export(
    name: str, strategy: str, made: exports.Exports, tmp_path: Path
) -> None:
    plain, ours = made.plain(name, strategy), made.made(name, strategy).path
    stripped = tmp_path / "model.onnx"
    onnxforge.strip(ours, output=stripped)
    assert settled(stripped) == settled(plain)
    ours_data, plain_data = (
        {found.name: found.read_bytes() for found in path.parent.glob("*.data")} for path in (ours, plain)
    )
    assert ours_data == plain_data


@pytest.mark.parametrize(
    "options",
    [
        {"dynamo": False, "verbose": True},
        {"dynamo": False, "opset_version": 13, "do_constant_folding": False},
        {
            "dynamo": False,
            "keep_initializers_as_inputs": True,
            "input_names": ["image"],
            "dynamic_axes": {"image": [0]},
        },
        {"dynamo": False, "training": torch.onnx.TrainingMode.TRAINING},
        {"dynamo": True, "external_data": False, "dynamic_shapes": {"x": {0: "batch"}}},
        {"dynamo": False, "export_params": False},
    ],
    ids=lambda options: "-".join(map(str, options)),
)
def test_options_go_through(options: dict[str, Any], tmp_path: Path) -> None:
    """Whatever PyTorch is told, its file is the same, also where the recorder does not work."""
    model, kwargs = models.MODELS["cnn"].build()
    plain, ours = tmp_path / "plain.onnx", tmp_path / "ours.onnx"
    with exports.quiet():
        torch.onnx.export(model, (), str(plain), kwargs=kwargs, **{"verbose": False, **options})
        model, kwargs = models.MODELS["cnn"].build()
        onnxforge.torch.export(model, (), str(ours), kwargs=kwargs, **{"verbose": False, **options})
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    onnxforge.strip(ours, output=ours)
    assert undocumented(ours) == undocumented(plain)


def undocumented(path: Path) -> bytes:
    """The bytes of a file without the call stacks that `verbose` leaves at nodes: they tell who called."""
    model = onnx.load(path)
    if not any(node.doc_string for node in model.graph.node):
        return path.read_bytes()
    for node in model.graph.node:
        node.ClearField("doc_string")
    return model.SerializeToString(deterministic=True)


def test_functions_of_modules_are_left_alone(tmp_path: Path) -> None:
    """PyTorch finds classes in scopes then, so nothing may be put there; and it leaves hooks behind."""
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    plain, ours = tmp_path / "plain.onnx", tmp_path / "ours.onnx"
    options = {"dynamo": False, "export_modules_as_functions": True, "opset_version": 15}
    with exports.quiet():
        onnxforge.torch.export(model, (x,), str(ours), **options)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        torch.onnx.export(model, (x,), str(plain), **options)
    onnxforge.strip(ours, output=ours)
    assert ours.read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("name", [name for name, case in models.MODELS.items() if case.fails])
def test_what_one_exporter_cannot_write(name: str, tmp_path: Path) -> None:
    """It says why, and `auto` uses the other one."""
    case = models.MODELS[name]
    model, kwargs = case.build()
    for strategy, words in case.fails.items():
        with exports.quiet(), pytest.raises(Exception, match=words):
            onnxforge.torch.export(model, (), tmp_path / "m.onnx", kwargs=kwargs, strategy=strategy, verbose=False)
    with exports.quiet():
        exported = onnxforge.torch.export(model, (), tmp_path / "m.onnx", kwargs=kwargs, check=True, verbose=False)
    assert exported.strategy not in case.fails
    assert exported.check
