"""`onnxforge infer`: sharper than onnx and ONNX Runtime on every model of the zoo, and loud about contradictions."""

import json

import onnx
import pytest
import shapes
from corpus import zoo_skeletons

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[batch, seq, 768] x) => (float y) <float[batch, 12, seq, 32] wrong> {
  s = Shape <start = 0, end = 2> (x)
  r = Constant <value_ints = [12, 64]> ()
  t = Concat <axis = 0> (s, r)
  heads = Reshape (x, t)
  wrong = Transpose <perm = [0, 2, 1, 3]> (heads)
  y = ReduceSum <keepdims = 0> (wrong)
}
"""


@pytest.mark.parametrize("skeleton", zoo_skeletons(), ids=lambda path: path.name.removesuffix(".onnx.gz"))
def test_zoo_is_sharper_than_the_peers(forge, skeleton):
    row = shapes.compare(forge.binary, skeleton)
    ours, _ = row["onnxforge"]
    missing = [f"{value['op']} {value['name']}: {value['type']}" for value in row["missing"][:10]]
    assert ours >= 0.995 * row["total"], f"{ours} of {row['total']}: {missing}"
    for peer in ("onnx", "ort"):
        count, _ = row[peer]
        assert count is None or ours >= count, f"{peer} knows {count} of {row['total']}, we know {ours}"


def test_contradictions_are_reported_and_nothing_else_is_lost(forge, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    outcome = forge("infer", path, "--json", "-")
    assert outcome.code == 1, str(outcome)
    report = json.loads(outcome.out)
    assert len(report["conflicts"]) == 1 and "float[batch,12,seq,64]" in report["conflicts"][0]["problem"]
    assert report["expressed"] == report["total"] == 6
    assert {v["name"]: v["type"] for v in report["values"]}["heads"] == "float[batch,seq,12,64]"


def test_what_is_found_is_declared_in_the_output(forge, tmp_path):
    path, output = tmp_path / "model.onnx", tmp_path / "inferred.onnx"
    model = onnx.parser.parse_model(MODEL)
    del model.graph.value_info[:]
    path.write_bytes(model.SerializeToString())
    forge("infer", path, "-o", output).good()
    inferred = onnx.load(output)
    onnx.checker.check_model(inferred, full_check=True)
    declared = {info.name: info.type.tensor_type for info in inferred.graph.value_info}
    dims = [dim.dim_param or dim.dim_value for dim in declared["wrong"].shape.dim]
    assert dims == ["batch", 12, "seq", 64]
    assert declared["t"].elem_type == onnx.TensorProto.INT64


def test_declarations_are_refined_and_the_interface_stays(forge, tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[batch, 3] x) => (float[rows, cols] y) <float[m, k] named, float[] open> {
      named = Neg (x)
      open = Abs (named)
      y = Relu (open)
    }"""
    path, output = tmp_path / "model.onnx", tmp_path / "inferred.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    report = json.loads(forge("infer", path, "-o", output, "--json", "-").good().out)
    assert [file["path"] for file in report["files"]] == [str(output)]
    graph = onnx.load(output).graph
    declared = {info.name: [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]
                for info in [*graph.value_info, *graph.output]}  # fmt: skip
    assert declared == {"named": ["m", 3], "open": ["batch", 3], "y": ["rows", "cols"]}


def test_values_in_bodies_and_functions_are_listed(forge, tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 21, "d" : 1]>
    g (float[2] x, bool c) => (float[2] y) {
      y = If <then_branch = t () => (float[2] p) { p = Neg (x) }, else_branch = e () => (float[2] q) { q = d.f (x) }> (c)
    }
    <domain: "d", opset_import: ["" : 21]> f (a) => (b) { b = Abs (a) }"""
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    report = json.loads(forge("infer", path, "--json", "-").good().out)
    assert [value["name"] for value in report["values"]] == ["y"] and report["total"] == 1
    report = json.loads(forge("infer", path, "--all", "--json", "-").good().out)
    found = {value["name"]: (value.get("within"), value["type"]) for value in report["values"]}
    assert found["p"] == found["q"] == ("If y", "float[2]")
    assert found["b"][0] == "function f" and report["total"] == 1 and report["complete"]
    assert "within" in forge("infer", path, "--all").good().out


def test_calls_without_end_are_given_up(forge, tmp_path):
    functions = [f"""<domain: "d", opset_import: ["" : 21, "d" : 1]>
    f{i} (a) => (c) {{ b = d.f{i + 1} (a)  c = d.f{i + 1} (b) }}""" for i in range(40)]  # fmt: skip
    text = """<ir_version: 10, opset_import: ["" : 21, "d" : 1]> g (float[2] x) => (float[2] y) { y = d.f0 (x) }
    """ + "\n".join(functions) + '<domain: "d", opset_import: ["" : 21]> f40 (a) => (b) { b = Abs (a) }'
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    report = json.loads(forge("infer", path, "--json", "-", timeout=30).good().out)
    assert not report["complete"]
    assert "not everything was looked at" in forge("infer", path, "--timeout", "0").good().out
