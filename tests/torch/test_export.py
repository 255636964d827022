"""What `export` takes, gives back, and leaves as it was."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import exports
import models
import onnx
import onnxforge
import onnxforge.torch
import pytest
import torch
from onnxforge.torch import CheckError, ExportError, _recorder
from onnxforge.torch._arguments import Call
from onnxforge.torch._pin import needs_pin, pinned
from torch import nn


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Branching(nn.Module):
    """A condition in Python on a value, which torch.export refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if x.sum() > 0 else x


class Impossible(nn.Module):
    """Nothing that any exporter could write."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("there is no result")


X = torch.ones(2, 4)


def exported(model: nn.Module, f: Any = None, args: Any = (X,), **options: Any) -> onnxforge.torch.Exported:
    with exports.quiet():
        return onnxforge.torch.export(model, args, f, verbose=False, **options)


def modules_of(model: onnx.ModelProto) -> set[str]:
    return {path for node in model.graph.node for path in exports.stored(node, "onnxforge.module")}


# --- Without PyTorch --------------------------------------------------------------------------------------------------


def test_importing_needs_no_pytorch() -> None:
    script = """
import sys
import onnxforge.torch
assert "torch" not in sys.modules and "transformers" not in sys.modules
sys.modules["torch"] = None
try:
    onnxforge.torch.export(None, ())
except onnxforge.Error as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "torch" in said
    assert "pip install torch" in said


# --- The table --------------------------------------------------------------------------------------------------------


def test_the_table_tells_what_inspection_can() -> None:
    model = models.Aliases()
    table = onnxforge.torch.module_table(model)
    assert list(table) == [path for path, _ in model.named_modules(remove_duplicate=False)]
    assert table[""]["class"] == "models.Aliases"
    assert table["norm_b"]["alias_of"] == "norm_a"
    assert table["again.0"]["alias_of"] == "second"
    assert table["norm_a"]["direct_parameters"] == ["weight", "bias"]
    assert table[""]["children"]["again"] == "ModuleList"
    assert table["first.0"]["forward_args"] == ["input"]


def test_the_table_calls_nothing() -> None:
    class Strange(nn.Module):
        def forward(
            self,
            x: torch.Tensor,
            *rest: Any,
            scale: float = 0.5,
            kind: Any = torch.float32,
            limit: float = float("inf"),
            **more: Any,
        ) -> None:
            raise AssertionError("called")

    model = Strange()
    model.inner = nn.Sequential(nn.Identity())
    model.inner.around = model.inner
    table = onnxforge.torch.module_table(model)
    assert table[""]["forward_args"] == ["x", "rest", "scale", "kind", "limit", "more"]
    assert table[""]["forward_defaults"] == {"scale": 0.5, "kind": "torch.float32", "limit": "inf"}
    assert list(table) == ["", "inner", "inner.0"]


def test_a_saved_table_serves_other_exports(tmp_path: Path) -> None:
    model = Small()
    with exports.quiet():
        torch.onnx.export(model, (X,), str(tmp_path / "m.onnx"), dynamo=False)
    saved = onnxforge.torch.save_modules(model, tmp_path / "m.json")
    result = onnxforge.tag(tmp_path / "m.onnx", output=tmp_path / "tagged.onnx", modules=saved)
    assert result.report["coverage"]["root"] == 0
    assert modules_of(onnx.load(tmp_path / "tagged.onnx")) == {"", "first", "second"}


# --- Strategies -------------------------------------------------------------------------------------------------------


def test_dynamo_says_the_same_as_strategy(tmp_path: Path) -> None:
    assert exported(Small(), tmp_path / "m.onnx", dynamo=False).strategy == "torchscript"
    assert exported(Small(), tmp_path / "m.onnx", dynamo=True, strategy="dynamo").strategy == "dynamo"
    assert exported(Small(), tmp_path / "m.onnx").strategy == "dynamo"


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "dynamo", "dynamo": False},
        {"strategy": "torchscript", "dynamo": True},
        {"strategy": "onnx"},
        {"check": "please"},
        {"pin_forward": 3},
    ],
)
def test_contradictions_are_told(options: dict[str, Any]) -> None:
    with pytest.raises(onnxforge.UsageError):
        exported(Small(), **options)


def test_missing_folders_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(onnxforge.SaveError, match="no does not exist; create it first"):
        onnxforge.torch.export(Small(), (torch.ones(1, 4),), tmp_path / "no/model.onnx")
    assert not (tmp_path / "no").exists()


def test_the_other_exporter_is_used_and_the_reason_told(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = onnxforge.torch.export(Branching(), (X,), tmp_path / "m.onnx", check="warn", verbose=False)
    assert result.strategy == "torchscript"
    assert result.fallback is not None and "data-dependent" in result.fallback
    said = [warning for warning in heard if "because dynamo failed" in str(warning.message)]
    assert len(said) == 1
    assert said[0].filename == __file__
    # It computes the same for this argument, and has lost the other branch.
    assert result.check is not None and result.check.agrees and not result.check
    assert result.undetermined is not None and result.ok is None


def test_both_reasons_are_told() -> None:
    with pytest.raises(
        ExportError, match="dynamo: RuntimeError: there is no result; torchscript: RuntimeError: there is no result"
    ):
        exported(Impossible())


def test_one_strategy_fails_in_pytorchs_words() -> None:
    with pytest.raises(RuntimeError, match="there is no result"):
        exported(Impossible(), strategy="torchscript")
    with pytest.raises(torch.onnx.errors.OnnxExporterError):
        exported(Impossible(), strategy="dynamo")


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_mask_is_what_torchscript_needs(name: str, tmp_path: Path) -> None:
    """Without one, transformers looks for packed sequences, with an operator that TorchScript cannot translate."""
    model, kwargs = models.MODELS[name].build()
    del kwargs["attention_mask"]
    with pytest.raises(Exception, match="aten::diff"):
        exported(model, tmp_path / "m.onnx", args=(), kwargs=kwargs, strategy="torchscript")
    assert exported(model, tmp_path / "m.onnx", args=(), kwargs=kwargs, check=True).strategy == "dynamo"


def test_dynamic_shapes_reach_both_exporters(tmp_path: Path) -> None:
    for strategy in exports.STRATEGIES:
        result = exported(
            Small(), tmp_path / "m.onnx", strategy=strategy, dynamic_shapes={"x": {0: "batch"}}, check=True
        )
        port = result.model.graph.input[0]
        assert (port.name, port.type.tensor_type.shape.dim[0].dim_param) == ("x", "batch")


@pytest.mark.parametrize("strategy", exports.STRATEGIES)
def test_inputs_are_found_in_any_order(strategy: str) -> None:
    """torch.export keeps the order of keyword arguments, TorchScript that of the parameters."""
    given = {"scale": None, "y": Y, "x": X}
    for names in (None, ["one", "two"]):
        assert exported(Plain(), args=(), kwargs=given, strategy=strategy, input_names=names, check=True).check


def test_programs_are_exported_too(tmp_path: Path) -> None:
    program = torch.export.export(Small(), (X,))
    result = exported(program, tmp_path / "m.onnx", args=())
    assert modules_of(result.model) == {"", "first", "second"}


@pytest.mark.parametrize("strategy", exports.STRATEGIES)
@pytest.mark.parametrize(
    "model", [nn.Identity(), nn.Sequential(nn.Dropout()), nn.Flatten()], ids=lambda m: type(m).__name__
)
def test_models_that_compute_nothing(model: nn.Module, strategy: str) -> None:
    assert exported(model.eval(), strategy=strategy, check=True).check


# --- Where it goes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", exports.STRATEGIES)
def test_no_file(strategy: str) -> None:
    result = exported(Small(), strategy=strategy, check=True)
    assert result.path is None
    assert modules_of(result.model) == {"", "first", "second"}
    assert (result.program is not None) == (strategy == "dynamo")


@pytest.mark.parametrize("strategy", exports.STRATEGIES)
def test_something_like_a_file(strategy: str, tmp_path: Path) -> None:
    model, ours, plain = Small(), io.BytesIO(), io.BytesIO()
    result = exported(model, ours, strategy=strategy)
    with exports.quiet():
        torch.onnx.export(model, (X,), plain, dynamo=strategy == "dynamo", verbose=False)
    assert onnx.load_from_string(ours.getvalue()) == result.model
    (tmp_path / "m.onnx").write_bytes(ours.getvalue())
    onnxforge.strip(tmp_path / "m.onnx", output=tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == plain.getvalue()


@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize("optimize", [True, None])
def test_sidecars(sidecar: bool, optimize: bool | None, tmp_path: Path) -> None:
    exported(
        models.Cnn().eval(),
        str(tmp_path / "m.onnx"),
        args=(torch.randn(1, 3, 8, 8),),
        sidecar=sidecar,
        optimize=optimize,
    )
    assert (tmp_path / "m_hierarchy.json").exists() == sidecar
    if sidecar:
        # It belongs to the file as it is: given by hand, one of another graph would be refused.
        onnxforge.tag(tmp_path / "m.onnx", output=tmp_path / "again.onnx", modules=tmp_path / "m_hierarchy.json")


def test_traces_are_removed(tmp_path: Path) -> None:
    exported(Small(), tmp_path / "m.onnx", strip_traces=True)
    assert b"stack_trace" not in (tmp_path / "m.onnx").read_bytes()


# --- Optimizing -------------------------------------------------------------------------------------------------------


def test_optimized_files_know_their_modules(tmp_path: Path) -> None:
    model, kwargs = models.MODELS["bert"].build()
    result = exported(model, tmp_path / "m.onnx", args=(), kwargs=kwargs, optimize={"opset": "latest"}, check=True)
    assert result.optimization is not None
    assert result.optimization["after"]["nodes"] < result.optimization["before"]["nodes"]
    assert result.report["coverage"]["root"] == 0
    assert result.model.opset_import[0].version >= 23
    assert "encoder.layer.1.attention.self" in modules_of(result.model)


@pytest.mark.parametrize("options", [{"optimize": False}, {"torch_optimize": False}])
def test_nothing_is_optimized_if_that_is_asked_for(options: dict[str, Any], tmp_path: Path) -> None:
    """`optimize=False` means what it does for PyTorch."""
    model = models.Cnn().eval()
    x = torch.randn(1, 3, 8, 8)
    exported(model, tmp_path / "m.onnx", args=(x,), **options)
    with exports.quiet():
        torch.onnx.export(model, (x,), str(tmp_path / "plain.onnx"), optimize=False, verbose=False, external_data=False)
        exported(model, tmp_path / "ours.onnx", args=(x,), external_data=False, **options)
    onnxforge.strip(tmp_path / "ours.onnx", output=tmp_path / "ours.onnx")
    assert (tmp_path / "ours.onnx").read_bytes() == (tmp_path / "plain.onnx").read_bytes()
    assert any(node.op_type == "BatchNormalization" for node in onnx.load(tmp_path / "m.onnx").graph.node)


# --- Left as it was ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["auto", *exports.STRATEGIES])
@pytest.mark.parametrize("fails", [False, True])
def test_models_come_back_as_they_were(strategy: str, fails: bool) -> None:
    model = nn.Sequential(Small(), Impossible() if fails else nn.Identity()).train()
    model[0].second.eval()
    own = model.forward
    model.forward = own
    model[0].register_forward_hook(lambda *_: None)
    flags = [module.training for module in model.modules()]
    before = [dict(vars(module)) | {"_forward_hooks": dict(module._forward_hooks)} for module in model.modules()]
    try:
        exported(model, strategy=strategy, check=False)
    except Exception:  # noqa: BLE001 - that is the point
        assert fails
    else:
        assert not fails
    assert [module.training for module in model.modules()] == flags
    for module, known in zip(model.modules(), before):
        assert vars(module).keys() == known.keys()
        assert dict(module._forward_hooks) == known["_forward_hooks"]
    assert model.forward is own


def test_private_functions_are_put_back_after_errors() -> None:
    exporter = _recorder._exporter()
    before = [
        getattr(exporter, _recorder._SETUP),
        *(getattr(torch._C, name) for name in (_recorder._NAMING, _recorder._MERGING)),
    ]
    with pytest.raises(RuntimeError):
        exported(Impossible(), strategy="torchscript")
    after = [
        getattr(exporter, _recorder._SETUP),
        *(getattr(torch._C, name) for name in (_recorder._NAMING, _recorder._MERGING)),
    ]
    assert before == after


@pytest.mark.parametrize("step", ["wrap", "_mark", "_read", "_note_normalizations"])
def test_a_recorder_that_fails_does_no_harm(step: str, tmp_path: Path) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("PyTorch works differently")

    model, file, plain = Small(), tmp_path / "m.onnx", tmp_path / "plain.onnx"
    with patch.object(_recorder._Recorder, step, fails):
        result = exported(model, file, strategy="torchscript")
    assert result.report["coverage"]["evidence"] == {"scope": result.report["coverage"]["nodes"]}
    with exports.quiet():
        torch.onnx.export(model, (X,), str(plain), dynamo=False)
    onnxforge.strip(file, output=file)
    assert file.read_bytes() == plain.read_bytes()


def test_threads_wait_for_each_other() -> None:
    results: dict[int, set[str]] = {}

    def work(number: int) -> None:
        model = nn.Sequential(*(Small() if index else nn.Linear(4, 4) for index in range(number % 2 + 1)))
        results[number] = modules_of(onnxforge.torch.export(model, (X,), strategy="torchscript", verbose=False).model)

    with exports.quiet():
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {number: {"0"} if number % 2 == 0 else {"0", "1", "1.first", "1.second"} for number in range(4)}


# --- Pinning ----------------------------------------------------------------------------------------------------------


def decorated(function: Any) -> Any:
    """As decorators of transformers do: gives an argument itself that may have come by position."""
    import functools

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs["scale"] = kwargs.get("scale") or 3.0
        return function(self, *args, **kwargs)

    return wrapper


class Plain(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, scale: float | None = None) -> torch.Tensor:
        return (x if y is None else x + y) * (scale or 1.0)


class Decorated(Plain):
    forward = decorated(Plain.forward)


class ByName(nn.Module):
    def forward(self, x: torch.Tensor, *, y: torch.Tensor, negate: bool = True) -> torch.Tensor:
        return -(x * y) if negate else x * y


class AnyName(nn.Module):
    def forward(self, x: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return x * more["y"] + more["z"]["deep"]


Y = torch.full((2, 4), 3.0)


@pytest.mark.parametrize(
    ("model", "args", "kwargs", "pins"),
    [
        (Plain(), (X, Y, None), {}, False),
        (Plain(), (X,), {}, False),
        (Plain(), (X,), {"y": Y}, False),
        (Decorated(), (X,), {"y": Y}, True),
        (Decorated(), (X,), {}, True),
        (ByName(), (X,), {"y": Y}, True),
        (ByName(), (X,), {"y": Y, "negate": False}, True),
        (AnyName(), (X,), {"y": Y, "z": {"deep": Y}}, True),
        (nn.ReLU(), (X,), {}, False),
    ],
)
def test_pinning_is_for_what_torchscript_cannot_call(
    model: nn.Module, args: Any, kwargs: dict[str, Any], pins: bool, tmp_path: Path
) -> None:
    call = Call.of(args, kwargs)
    assert needs_pin(model.forward, call) == pins
    result = exported(model, tmp_path / "m.onnx", args=args, kwargs=kwargs, strategy="torchscript", check=True)
    assert result.check
    assert "forward" not in vars(model)
    if pins:
        with pytest.raises(Exception):  # noqa: B017 - whatever PyTorch says then, or a file with other results
            exported(model, args=args, kwargs=kwargs, strategy="torchscript", pin_forward=False, check=True)


def test_numbers_are_inputs_for_torchscript_unless_pinned() -> None:
    """PyTorch makes inputs of them, which is no reason to pin; what cannot be checked then says so."""
    with pytest.raises(onnxforge.Error, match="pin_forward=True"):
        exported(Plain(), args=(X, Y, 2.0), strategy="torchscript", check=True)
    assert (
        len(exported(Plain(), args=(X, Y, 2.0), strategy="torchscript", pin_forward=True, check=True).model.graph.input)
        == 2
    )


def test_fixed_arguments_stay_what_they_were() -> None:
    model, call = ByName(), Call.of((X,), {"y": Y, "negate": False})
    with pinned(model, call) as args:
        assert [value is known for value, known in zip(args, (X, Y))] == [True, True]
        assert torch.equal(model(*args), X * Y)
    assert torch.equal(model(X, y=Y), -(X * Y))


def test_a_wrong_file_is_told(tmp_path: Path) -> None:
    class Liar(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2.0 if torch.onnx.is_in_onnx_export() else x * 2.001

    for strategy in exports.STRATEGIES:
        with pytest.raises(CheckError, match="differs from PyTorch's") as caught:
            exported(Liar(), tmp_path / "m.onnx", strategy=strategy, check=True)
        assert caught.value.exported.path == tmp_path / "m.onnx"
        assert not caught.value.exported.check
        with exports.quiet(), pytest.warns(UserWarning, match="differs from PyTorch's"):
            result = onnxforge.torch.export(
                Liar(), (X,), tmp_path / "m.onnx", strategy=strategy, check="warn", verbose=False
            )
        assert result.check is not None and not result.check.good


def test_the_example_works() -> None:
    example = Path(__file__).resolve().parents[2] / "examples/torch_export.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "of the nodes are known" in done.stdout
