"""`onnxforge check` against `onnx.checker`.

* Every model that the ONNX project uses for its tests, and every model of this repository, is valid.
* Of models that are damaged in one place, `onnx.checker` refuses none that we accept; and where we refuse one that it
  accepts, the rule is among those that it does not look at.
"""

import json

import onnx
import pytest

import corpus
from damage import Damage, function_model, sparse_model

# What we refuse and `onnx.checker.check_model` (without shape inference) does not, and what forbids it.
# Besides, it does not look at training at all.
STRICTER = {
    "arity": "IR.md, Nodes: calls of local functions fit their signature, which onnx.checker leaves for later",
    "attribute-form": "onnx.proto: exactly one value, also without a schema and for defaults of functions",
    "attribute-missing": "Operators.md: exactly one value attribute of Constant",
    "attribute-reference": "onnx.proto, ref_attr_name: only in functions, to their attributes, without a value",
    "attribute-unknown": "IR.md, Functions: attribute and attribute_proto are the signature of a local function",
    "body-arity": "Operators.md: the bodies of If, Loop, Scan and SequenceMap; shape inference refuses the same",
    "call": "Operators.md: what inference proves to fail in every run; shape inference and runtimes refuse the same",
    "duplicate-node-name": "ONNX Runtime refuses two nodes of one name in a graph",
    "device-configuration": "onnx.proto: required fields; configuration_id and tensor_name match a name",
    "dimension": "IR.md, Static tensor shapes: sizes are not negative",
    "external-data": "ExternalData.md: length and file fit type and shape; our own: tensors share all bytes or none",
    "function-identity": "onnx.proto: name and domain identify a function, also below IR version 8",
    "function-parameter": "IR.md, Functions: names of attributes are distinct, outputs are computed",
    "ir-feature": "onnx.proto, Version: functions came with IR version 8, overloads with 10",
    "ir-version": "onnx.proto, Version: versions are positive",
    "missing-name": "onnx.proto: names of the defaults of functions",
    "opset-import": "onnx.proto, OperatorSetIdProto: version is present; two versions contradict each other",
    "sparse-tensor": "onnx.proto, SparseTensorProto: in the defaults of functions too",
    "tensor": "IR.md, Tensor Definition: as many elements as the dimensions say, not more; in the field of the type",
    "type-conflict": "IR.md: the default of an input, and the notes on a value, have its type",
    "missing-type": "onnx.proto, ValueInfoProto: the element type of an output is not UNDEFINED",
    "missing-shape": "onnx.proto, ValueInfoProto of inputs and outputs; checker.cc: field shape is required",
    "type-form": "onnx.proto, TypeProto: element types exist and are not UNDEFINED, at every depth",
    "type-mismatch": "IR.md, Nodes: types satisfy the signature of the operator; shape inference refuses the same",
    "unknown-operator": "IR.md, Operators: also in the preview domains",
}


UNREADABLE = {"problems": [{"rule": "unreadable", "severity": "error"}]}


def verdicts(forge, paths, may_be_unreadable=False):
    """What the command says about each file."""
    reports = []
    for path, outcome in zip(paths, forge.many([("check", path, "--json") for path in paths])):
        outcome.orderly()
        if outcome.code == 2 and may_be_unreadable:
            reports.append(UNREADABLE)
            continue
        assert outcome.code in (0, 1), str(outcome)
        report = json.loads(outcome.out)
        assert report["schema"] == 1 and report["valid"] == (outcome.code == 0), str(outcome)
        errors = [problem for problem in report["problems"] if problem["severity"] == "error"]
        assert report["valid"] == (not errors), str(outcome)
        reports.append(report)
    return reports


def assert_valid(forge, paths):
    wrong = [
        f"{path.name}: {problem['place']}: {problem['message']}"
        for path, report in zip(paths, verdicts(forge, paths))
        for problem in report["problems"]
        if problem["severity"] == "error"
    ]
    assert not wrong, "\n".join(wrong)


def test_the_models_of_the_repository_are_valid(forge):
    assert_valid(forge, corpus.repository_models())


def test_the_models_of_the_onnx_package_are_valid(forge):
    assert_valid(forge, corpus.wheel_models())


@pytest.fixture(scope="module")
def node_cases(tmp_path_factory):
    paths = corpus.write_node_cases(tmp_path_factory.mktemp("nodes"))
    assert len(paths) > 1500
    return paths


def test_the_onnx_node_cases_are_valid_and_not_odd(forge, node_cases):
    reports = verdicts(forge, node_cases)
    wrong = [(path.stem, report["problems"]) for path, report in zip(node_cases, reports) if report["problems"]]
    assert not wrong, wrong[:10]


def test_the_zoo_is_valid(forge, tmp_path):
    skeletons = corpus.zoo_skeletons()
    assert skeletons, "the repository has no zoo"
    assert_valid(forge, [corpus.write_sparse(skeleton, tmp_path / skeleton.stem) for skeleton in skeletons])


def test_the_answer_is_in_the_exit_code(forge, tmp_path):
    model = corpus.parse(corpus.ROOT / "examples/small_cnn.onnx")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert forge("check", path).good()
    model.graph.node[0].input[0] = "nothing"
    path.write_bytes(model.SerializeToString())
    outcome = forge("check", path, "--json").orderly()
    assert outcome.code == 1, str(outcome)
    [problem] = json.loads(outcome.out)["problems"]
    assert set(problem) == {"rule", "severity", "place", "message"}
    assert (problem["rule"], problem["severity"]) == ("dangling-name", "error")
    assert problem["place"].startswith(f'graph "{model.graph.name}" / node 0 ')
    path.write_bytes(b"this is no model")
    forge("check", path, "--json").refused(path.name)
    forge("check", tmp_path / "absent.onnx", "--json").refused("absent.onnx")


def test_missing_external_data_is_reported(forge, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes((corpus.ROOT / "tests/data/external_data.onnx").read_bytes())
    [report] = verdicts(forge, [path])
    assert {problem["rule"] for problem in report["problems"]} == {"external-data"}


# Node cases with bodies, sequences, optionals, old operators and other domains.
CASES = """
    test_loop11 test_loop13_seq test_loop16_seq_none test_if test_if_seq test_if_opt test_scan_sum test_scan9_sum
    test_sequence_map_add_1_sequence_1_tensor test_batchnorm_example_training_mode test_constant
    test_conv_with_strides_padding test_gru_defaults test_optional_get_element_sequence test_clip test_adam
    test_ai_onnx_ml_label_encoder_tensor_mapping test_training_dropout_default test_concat_2d_axis_0
    test_layer_normalization_2d_axis0_expanded test_range_float_type_positive_delta_expanded
""".split()


def sound_models(node_cases):
    """Small models of every kind, as bytes by name."""
    paths = [path for path in corpus.repository_models() if path.stat().st_size < 30_000]
    paths += [path for path in node_cases if path.stem in CASES]
    models = {path.name: path.read_bytes() for path in paths}
    models["sparse"] = sparse_model().SerializeToString()
    models["functions"] = function_model().SerializeToString()
    return models


def refused(path):
    """Why `onnx.checker` refuses a model, if it does."""
    try:
        onnx.checker.check_model(path, full_check=False)
    except Exception as error:
        return str(error)
    return None


def test_damaged_models_are_refused_where_onnx_refuses_them(forge, node_cases, tmp_path):
    sound = sound_models(node_cases)
    for path in corpus.ROOT.glob("tests/data/*.data"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damage = Damage(seed=20)
    cases = []
    while len(cases) < 1500:
        name = damage.random.choice(sorted(sound))
        model = onnx.ModelProto.FromString(sound[name])
        try:
            what = damage(model)
        except (ValueError, OverflowError):  # a value that the field does not take
            continue
        path = tmp_path / f"{len(cases)}.onnx"
        path.write_bytes(model.SerializeToString())
        cases.append((path, f"{name}: {what}", refused(str(path))))

    reports = verdicts(forge, [path for path, _, _ in cases], may_be_unreadable=True)
    missed, unexpected, both = [], [], 0
    for (path, what, why), report in zip(cases, reports):
        errors = [problem for problem in report["problems"] if problem["severity"] == "error"]
        both += bool(why and errors)
        if why and not errors:
            missed.append(f"{path.name} ({what}): {why.splitlines()[0]}")
        rules = {error["rule"] for error in errors if not error.get("place", "").startswith("training ")}
        if not why and rules - set(STRICTER):
            unexpected.append(f"{path.name} ({what}): {errors}")
    assert not missed, "\n".join(missed)
    assert not unexpected, "\n".join(unexpected)
    assert both > 500, "the damage is too harmless to compare anything"
