"""`onnxforge.simplify` and `onnxforge.slim` beside onnxsim and onnxslim: the same signatures, everything in the guide, and nothing wrong that is called good."""

import inspect

import onnxforge
import pytest
from onnxforge import simplify, slim
from onnxforge.compat import _names

from drop_ins import ROOT, detector

# Signatures


def test_simplify_takes_what_onnxsim_0_8_takes():
    parameters = inspect.signature(simplify).parameters
    positional = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert positional == (
        "model check_n perform_optimization skip_fuse_bn overwrite_input_shapes test_input_shapes skipped_optimizers "
        "skip_constant_folding skip_shape_inference input_data dynamic_input_shape custom_lib include_subgraph "
        "unused_output tensor_size_threshold mutable_initializer"
    ).split()
    assert {name: each.default for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY} == {
        "initializers_as_constants": True,
        "inline_functions": False,
        "import_custom_schemas": True,
        "input_shapes": None,
        "target_opset_version": None,
        "extra_optimizers": None,
        "custom_rewriter": None,
        "function_rewrite_rules": None,
        "check_rtol": 1e-4,
        "check_atol": 1e-5,
        "input_fill": "random",
        "providers": None,
        "gemm_fusion_backend": "ort_cpu",
        "profile": None,
        "ort_profile": None,
        "merge_ort_profile": False,
        "output_path": None,
        "external_data_threshold": "100MB",
        "range_opt": False,
        "certify": None,
        "check_hazards": False,
        "check_gradients": False,
        "gradient_precision": "fp32",
    }


def test_slim_takes_what_onnxslim_0_1_takes():
    parameters = inspect.signature(slim).parameters
    assert set(parameters) == set(
        "model output_model model_check input_shapes inputs outputs no_shape_infer skip_optimizations dtype "
        "skip_fusion_patterns size_threshold inspect dump_to_disk save_as_external_data model_check_inputs verbose "
        "no_constant_folding".split()
    )
    assert not any(each.default for name, each in parameters.items() if name != "model")


def test_the_guide_has_every_parameter_and_every_name():
    guide = (ROOT / "docs/from-onnxsim-and-onnxslim.md").read_text(encoding="utf-8")
    table = [line.strip("|").split("|") for line in guide.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in table]
    told = {name for left, *_ in rows for name in left.replace("`", "").split(", ")}
    assert {*inspect.signature(simplify).parameters, *inspect.signature(slim).parameters} <= told
    for catalogue in (_names.OPTIMIZERS, _names.PATTERNS, _names.OPTIMIZATIONS):
        for name, passes in catalogue.items():
            stands_for = ", ".join(f"`{each}`" for each in passes)
            assert not passes or any(f"`{name}`" in left and right == stands_for for left, right, *_ in rows), name


@pytest.mark.parametrize("call", [simplify, slim])
def test_misspelled_parameters_and_other_kinds_of_models_are_type_errors(call):
    with pytest.raises(TypeError, match="chekc"):
        call(detector(), chekc=3)
    with pytest.raises(TypeError):
        call()
    with pytest.raises(TypeError, match="bytes"):
        call(detector().SerializeToString())


@pytest.mark.parametrize("call", [simplify, slim])
def test_files_that_are_no_models(call, tmp_path):
    with pytest.raises(FileNotFoundError):
        call(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(onnxforge.Error, match="text.onnx"):
        call(tmp_path / "text.onnx")


# What is found wrong


class Result:
    def __init__(self, model, verified, reverted=()):
        self.model, self.verified = model, verified
        self.report = {"verification": {"reverted": list(reverted), "unverified": None}}


def test_a_wrong_result_is_not_called_good(monkeypatch):
    monkeypatch.setattr(onnxforge, "optimize", lambda model, *_, **options: Result(model, False))
    assert simplify(detector())[1] is False
    with pytest.raises(onnxforge.Error):
        slim(detector())


def test_edits_that_were_left_out_are_told(monkeypatch):
    monkeypatch.setattr(onnxforge, "optimize", lambda model, **_: Result(model, True, [{"pass": "fuse_wrong"}]))
    with pytest.warns(RuntimeWarning, match="fuse_wrong"):
        assert simplify(detector())[1] is True
    with pytest.warns(RuntimeWarning, match="fuse_wrong"):
        slim(detector())
