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
