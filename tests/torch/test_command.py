"""`onnxforge export`, as users type it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import pytest
import torch
from onnxforge import errors
from onnxforge._export import main
from onnxforge.torch import _samples, _transformers

HERE = Path(__file__).parent


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs the command in a folder of its own; the exit code, and what it says on both ways."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(HERE))

    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(list(words))
        said = capfd.readouterr()
        return code, said.out, said.err

    return call


def ports(path: str) -> dict[str, list[Any]]:
    graph = onnx.load(path).graph
    return {
        port.name: [dim.dim_param or dim.dim_value for dim in port.type.tensor_type.shape.dim] for port in graph.input
    }


# --- Sources and arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "inputs"),
    [
        (["command_models:net", "--args", "2,4"], {"x": [2, 4]}),
        (["command_models:Net", "--args", "x=3,4", "scale=float32:", "--optimize"], {"x": [3, 4], "scale": []}),
        (["command_models:Net", "--args", "scale=float32:2", "x=3,4"], {"x": [3, 4], "scale": [2]}),
        (["command_models:with_args", "--dynamic", "x=0:batch"], {"x": ["batch", 4]}),
        (
            ["command_models:with_args", "--dynamic", "x=0:batch", "--strategy", "torchscript", "--opset", "17"],
            {"x": ["batch", 4]},
        ),
        (["command_models:with_kwargs"], {"x": [2, 4], "scale": []}),
        ([f"{HERE / 'command_models.py'}:with_kwargs", "--args", "5,4"], {"x": [5, 4]}),
        (["command_models:net", "--args", "2,4", "negate=py:True"], {"x": [2, 4]}),
    ],
)
def test_models_are_exported(words: list[str], inputs: dict[str, Any], run) -> None:
    code, out, err = run(*words, "-o", "m.onnx", "--check")
    assert (code, err) == (0, "")
    assert "the same as PyTorch" in out
    assert ports("m.onnx") == inputs
    assert Path("m_hierarchy.json").exists()


def test_values_from_files(run) -> None:
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    np.savez("named.npz", x=x)
    np.savez("numbered.npz", x)
    np.save("one.npy", x)
    torch.save({"x": torch.from_numpy(x)}, "named.pt")
    torch.save((torch.from_numpy(x),), "listed.pt")
    torch.save(torch.from_numpy(x), "one.pt")
    for file in ("named.npz", "numbered.npz", "one.npy", "named.pt", "listed.pt", "one.pt"):
        call = _samples.call_of([file])
        given = next(iter([*call.args, *call.kwargs.values()]))
        assert torch.equal(given, torch.from_numpy(x))
    assert run("command_models:net", "-o", "m.onnx", "--args", "named.npz", "-q", "--check") == (0, "", "")


def test_made_up_values() -> None:
    call = _samples.call_of(["float16:2,3", "ids=int64:1,50%7", "mask=bool:4", "count=py:3", "names=py:['a']"])
    assert (call.args[0].dtype, tuple(call.args[0].shape)) == (torch.float16, (2, 3))
    assert set(call.kwargs["ids"].flatten().tolist()) == set(range(7))
    assert call.kwargs["mask"].dtype is torch.bool
    assert (call.kwargs["count"], call.kwargs["names"]) == (3, ["a"])


def test_the_same_words_give_the_same_file(run) -> None:
    for name in ("a.onnx", "b.onnx"):
        assert (
            run("command_models:Net", "-o", name, "--args", "2,4", "--no-sidecar", "--strategy", "torchscript", "-q")[0]
            == 0
        )
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    assert not Path("a_hierarchy.json").exists()


# --- Answers ----------------------------------------------------------------------------------------------------------


def test_json(run) -> None:
    code, out, err = run("command_models:with_args", "-o", "m.onnx", "--check", "--optimize", "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert (told["schema"], told["strategy"], told["fallback"], told["output"]) == (1, "dynamo", None, "m.onnx")
    assert told["check"]["good"] and told["tag"]["modules"] == 3 and told["optimize"]["after"]["nodes"] > 0
    assert run("command_models:with_args", "-o", "m.onnx", "--json", "told.json", "-q")[:2] == (0, "")
    assert json.loads(Path("told.json").read_text())["check"] is None


def test_a_wrong_file_is_the_answer_no(run) -> None:
    code, out, _ = run("command_models:Liar", "-o", "m.onnx", "--args", "2,4", "--check")
    assert code == 1
    assert "differs from PyTorch's" in out
    assert Path("m.onnx").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["command_models:net"], "missing a required argument: 'x'"),
        (["command_models:net", "--args", "2,4", "y=3"], "'y'"),
        (["command_models:net", "--args", "2;4"], "a shape such as 1,3,224,224"),
        (["command_models:net", "--args", "x=float99:2"], "'float99' is no type"),
        (["command_models:net", "--args", "x=float32:2%9"], "is for integers"),
        (["command_models:net", "--args", "x=2,4", "x=2,4"], "given twice"),
        (["command_models:net", "--args", "x=py:import os"], "no number, string"),
        (["command_models:net", "--args", "none.npz"], "no such file"),
        (["command_models:net", "--args", "2,4", "--dynamic", "z=0:batch"], "no argument is called 'z'"),
        (["command_models:net", "--args", "2,4", "--dynamic", "x=2:batch"], "no axis 2"),
        (["command_models:net", "--args", "2,4", "--dynamic", "x:0"], "hint: NAME=AXIS:SIZE"),
        (["command_models:net", "--args", "2,5", "--strategy", "torchscript"], "shapes cannot be multiplied"),
        (["command_models:net", "--args", "2,4", "--class", "BertModel"], "only models of transformers"),
        (["command_models:nett"], "it has Liar, Net, net"),
        (["command_models:nothing"], "neither a module nor something that makes one"),
        (["command_models:broken"], "RuntimeError: the weights are missing"),
        (["commands:net"], "there is no module commands"),
        (["none.py:net"], "there is no file none.py"),
        (["command_models"], "hint: package.module:factory"),
        (["hf:no_such_model"], "neither a folder or file here"),
        (["hf:."], "has no config.json"),
        ([], "the following arguments are required: SOURCE"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], says: str, run) -> None:
    code, out, err = run(*words, "-o", "m.onnx")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert says in err


def test_the_folder_must_be_there(run) -> None:
    assert run("command_models:net", "-o", "none/m.onnx", "--args", "2,4")[0] == 2


def test_help(run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "hf:FOLDER" in out


# --- transformers -----------------------------------------------------------------------------------------------------


def test_a_folder_with_weights(run) -> None:
    model, kwargs = models.MODELS["bert"].build()
    model.save_pretrained("bert")
    code, _, err = run(
        "hf:bert",
        "-o",
        "m.onnx",
        "--check",
        "--dynamic",
        "input_ids=0:batch,1:sequence",
        "attention_mask=0:batch,1:sequence",
    )
    assert (code, err) == (0, "")
    assert ports("m.onnx") == {"input_ids": ["batch", "sequence"], "attention_mask": ["batch", "sequence"]}
    loaded = _transformers.model_of("bert")
    with torch.no_grad():
        assert torch.equal(loaded(**kwargs)[0], model(**kwargs)[0])


@pytest.mark.parametrize("name", ["gpt2", "vit"])
def test_a_configuration_alone(name: str, run) -> None:
    model, _ = models.MODELS[name].build()
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained("folder")
    code, out, err = run("hf:folder/config.json", "-o", "m.onnx", "--check")
    assert (code, err) == (0, "")
    assert "the same as PyTorch" in out
    assert run("hf:folder", "-o", "m.onnx", "--class", "NoSuchModel")[0] == 2


def test_nothing_is_asked_of_a_network() -> None:
    with pytest.raises(errors.UsageError, match="download the model first"):
        _transformers.model_of("google-bert/bert-base-uncased")
