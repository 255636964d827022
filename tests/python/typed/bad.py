"""Calls with mistakes: type checkers find every one of them. It is checked, not run."""

import onnx
import onnxforge
from onnxforge import simplify, slim

proto: onnx.ModelProto = onnx.load("model.onnx")

onnxforge.optimize(3)  # bad
onnxforge.optimize(proto, 3)  # bad
onnxforge.optimize(proto, verfiy="final")  # bad
onnxforge.optimize(proto, verify="sometimes")  # bad
onnxforge.optimize(proto, target="onnxruntime")  # bad
onnxforge.optimize(proto, opset="newest")  # bad
onnxforge.optimize(proto, set_dim=["batch", 1])  # bad
onnxforge.optimize(proto, set_dim={"batch": "one"})  # bad
onnxforge.optimize(proto, set_shape={"x": 3})  # bad
onnxforge.optimize(proto, samples="3")  # bad
onnxforge.optimize(proto, external="beside")  # bad
onnxforge.optimize(proto, rewriters=3)  # bad
onnxforge.optimize(proto).nodes  # bad
onnxforge.optimize("model.onnx").model.graph  # bad
size: int = onnxforge.optimize(proto, "small.onnx").model  # bad
onnxforge.upgrade(proto, opset="keep")  # bad
onnxforge.float16(proto, keep=3)  # bad
onnxforge.float16(proto, dtype="fp16")  # bad
onnxforge.convert(proto)  # bad
onnxforge.verify(proto)  # bad
onnxforge.verify(proto, proto, tolerance="small")  # bad
onnxforge.verify(proto, proto, engine="onnxruntime")  # bad
onnxforge.check(proto).errors  # bad
onnxforge.inspect(proto, jobs="all")  # bad
onnxforge.run(proto, [1, 2, 3])  # bad
onnxforge.run(proto, engine="ort")  # bad
onnxforge.save(proto)  # bad
onnxforge.extract(proto)  # bad
onnxforge.restore(proto)  # bad
onnxforge.Hierarchy("model.onnx")[0]  # bad
onnxforge.explain(proto)  # bad
simplify(proto, chekc_n=3)  # bad
simplify(proto, gemm_fusion_backend="cuda")  # bad
slim(proto, dtype="fp8")  # bad
slim(proto, "small.onnx").graph  # bad
slim(proto, modelcheck=True)  # bad
