"""Calls as programs make them: type checkers have nothing to say, and know what comes back. It is checked, not run."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir
import onnxforge
import onnxforge.compat
import onnxforge.corpus
from onnxforge import Progress, results, simplify, slim
from typing_extensions import assert_type

proto: onnx.ModelProto = onnx.load("model.onnx")
ir: onnx_ir.Model = onnx_ir.load("model.onnx")
path = Path("model.onnx")
image: npt.NDArray[np.float32] = np.zeros((1, 3, 224, 224), np.float32)


def told(progress: Progress) -> None:
    print(progress.what, progress.done / max(progress.total, 1), progress.unit)


def rewriter(model: onnx.ModelProto) -> Optional[onnx.ModelProto]:
    return model


# optimize
assert_type(onnxforge.optimize("model.onnx", "small.onnx"), results.OptimizeResult[str])
assert_type(onnxforge.optimize("model.onnx"), results.OptimizeResult[bytes])
assert_type(onnxforge.optimize(path), results.OptimizeResult[bytes])
assert_type(onnxforge.optimize(path, path), results.OptimizeResult[str])
assert_type(onnxforge.optimize(path.read_bytes()), results.OptimizeResult[bytes])
assert_type(onnxforge.optimize(bytearray(b"")), results.OptimizeResult[bytes])
assert_type(onnxforge.optimize(proto).model, onnx.ModelProto)
assert_type(onnxforge.optimize(ir).model, onnx_ir.Model)
assert_type(onnxforge.optimize(proto, "small.onnx").model, str)
assert_type(onnxforge.optimize(proto, verify="each", samples=3).verified, Optional[bool])
assert_type(onnxforge.optimize(proto, opset="latest", target="ort").nodes_after, int)
assert_type(onnxforge.optimize(proto, opset=21, accuracy="exact").passes, dict[str, int])
onnxforge.optimize(proto, set_dim={"batch": 1}, set_shape={"x": [1, 3, 224, 224]})
onnxforge.optimize(proto, set_shape={"x": (1, 3, 224, 224)})
onnxforge.optimize(proto, passes=["fuse_gelu"], skip=("fuse_attention", "fold_constants.fold"))
onnxforge.optimize(proto, outputs=["logits"], inputs={"x": image}, engine="native", seed=1)
onnxforge.optimize("model.onnx", "small.onnx", inputs="inputs.npz", external="split", report="page.html", trace=path)
onnxforge.optimize(proto, progress=told, allow_revert=True, stop_after=10, follow_links=True)
onnxforge.optimize(proto, declare_shapes=True, name_nodes=True)
onnxforge.optimize(proto, rewriters=[rewriter])
assert_type(onnxforge.optimize(proto).report, dict[str, Any])
assert_type(onnxforge.optimize(proto).to_dict(), dict[str, Any])
assert_type(onnxforge.optimize(proto).text, str)
assert_type(onnxforge.optimize(proto).ok, bool)

# upgrade, float16, convert, save
assert_type(onnxforge.upgrade("model.onnx", opset=21).model, bytes)
assert_type(onnxforge.upgrade(proto, opset="latest").model, onnx.ModelProto)
assert_type(onnxforge.upgrade(proto, "new.onnx").model, str)
assert_type(onnxforge.float16(proto).model, onnx.ModelProto)
assert_type(onnxforge.float16("model.onnx", "half.onnx").model, str)
assert_type(onnxforge.float16("model.onnx", keep=["/head/*"], keep_ops=["Softmax"]).worst, float)
assert_type(onnxforge.float16(ir, interface=True, tolerance=0.05).kept, list[dict[str, str]])
assert_type(onnxforge.float16(ir, inputs={"x": image}, verify_dim={"batch": 2}).errors, dict[str, float])
assert_type(onnxforge.convert("model.onnx", "model.tflite").operators, dict[str, int])
assert_type(onnxforge.convert(proto, path, set_dim={"batch": 1}).refused, list[dict[str, Any]])
assert_type(onnxforge.save(proto, "model.onnx", external="inline").model, str)
onnxforge.save("model.onnx", path, external="share")

# verify, check, compare
assert_type(onnxforge.verify("a.onnx", "b.onnx"), results.VerifyResult)
assert_type(onnxforge.verify(proto, ir).equal, bool)
assert_type(onnxforge.verify(proto, b"").verdict, str)
assert_type(bool(onnxforge.verify(proto, path, samples=5, tolerance=1e-3)), bool)
onnxforge.verify(proto, proto, sweep=20, engine="oracle", blocks=True, set_dim={"batch": 2})
assert_type(onnxforge.check(proto, strict=True).valid, bool)
assert_type(onnxforge.check("model.onnx").problems, list[dict[str, Any]])
assert_type(onnxforge.compare(proto, "b.onnx", exact=True).sameness, str)

# inspect and its like
assert_type(onnxforge.inspect(proto).models, list[dict[str, Any]])
assert_type(onnxforge.inspect("a.onnx", proto, ir, set_dim={"batch": 1}, passes=True, jobs=2), results.InspectResult)
assert_type(onnxforge.audit("a.onnx", "b.onnx").finding("cast_chains"), dict[str, Any])
assert_type(onnxforge.fingerprint(*["a.onnx", "b.onnx"]).classes, list[str])
assert_type(onnxforge.attribute(proto, verify=True, target="portable").models, list[dict[str, Any]])
assert_type(onnxforge.bench("a.onnx", "b.onnx", sessions=3, seconds=2.5), results.BenchResult)
onnxforge.bench(proto, rounds=2, threads=4, level="basic", inputs={"x": image})
assert_type(onnxforge.infer(proto).values, list[dict[str, Any]])
onnxforge.infer("model.onnx", "typed.onnx", all=True, timeout=3)
assert_type(onnxforge.passes(), list[dict[str, Any]])
assert_type(onnxforge.passes("fuse_gelu")[0]["name"], Any)
assert_type(onnxforge.explain("fuse_gelu", proto, opset=20, alone=True), results.ExplainResult)
assert_type(onnxforge.report(proto, "page.html").path, str)

# run
assert_type(onnxforge.run(proto), dict[str, npt.NDArray[np.generic]])
outputs = onnxforge.run("model.onnx", {"x": image}, outputs=["features"], engine="oracle")
assert_type(outputs["features"].shape, tuple[Any, ...])
onnxforge.run(proto, {"x": [[1.0, 2.0]]}, memory=2, timeout=10.5)
onnxforge.run(proto, "inputs.npz", seed=3, set_shape={"x": [1, 2]})

# modules
assert_type(onnxforge.tag(proto).model, onnx.ModelProto)
assert_type(onnxforge.tag("model.onnx", "tagged.onnx", keep=["LayerNorm"], sidecar=False).coverage, float)
assert_type(onnxforge.coverage(proto, fail_under=90).coverage, float)
assert_type(onnxforge.extract(proto, "encoder.layer.0").parts, list[dict[str, Any]])
onnxforge.extract("model.onnx", "encoder.*", "parts", verify=True, call_index=0)
assert_type(onnxforge.restore(proto, original="model.onnx").model, onnx.ModelProto)
assert_type(onnxforge.restore("small.onnx", "tagged.onnx", original=proto).model, str)
assert_type(onnxforge.strip(ir, all=True).model, onnx_ir.Model)
assert_type(onnxforge.strip("model.onnx", traces=True).model, bytes)
hierarchy = onnxforge.Hierarchy("model.onnx")
assert_type(hierarchy["encoder.layer.0"], onnxforge.Module)
assert_type([module.class_name for module in hierarchy], list[Optional[str]])
assert_type(hierarchy["encoder"].children, list[onnxforge.Module])
assert_type(hierarchy["encoder"].nodes, list[dict[str, Any]])
assert_type("encoder" in hierarchy, bool)
assert_type(len(hierarchy), int)
assert_type(hierarchy.coverage().ok, bool)
assert_type(hierarchy.to_dict(), dict[str, Any])
onnxforge.Hierarchy(proto, modules={"modules": {}}, follow_links=True)
hierarchy["encoder"].extract("encoder.onnx", verify=True)

# drop-ins
assert_type(simplify("model.onnx"), tuple[onnx.ModelProto, bool])
assert_type(simplify(proto, 3)[1], bool)
simplify(proto, check_n=3, overwrite_input_shapes={"x": [0, 3, 224, 224]}, input_data={"x": image})
simplify(proto, skipped_optimizers=["eliminate_identity"], providers=["CPUExecutionProvider"], check_rtol=1e-3)
simplify(path, custom_rewriter=rewriter, output_path="small.onnx", target_opset_version="latest")
simplify(proto, initializers_as_constants=False, unused_output=["aux"], mutable_initializer=True)
assert_type(slim(proto), onnx.ModelProto)
assert_type(slim("model.onnx"), onnx.ModelProto)
slim("model.onnx", "slim.onnx")
slim(proto, path, model_check=True, save_as_external_data=True)
assert_type(slim(proto, input_shapes=["x:1,3,224,224"], dtype="fp16", size_threshold=1024), onnx.ModelProto)
slim(proto, skip_optimizations=["constant_folding"], inputs=["x:fp32"], outputs=["y"], inspect=True)
onnxforge.compat.install()
onnxforge.compat.install("onnxslim")
onnxforge.compat.uninstall()

# corpora
assert_type(onnxforge.corpus.run("models/", "results/"), onnxforge.corpus.CorpusResult)
onnxforge.corpus.run(["a.onnx", path], "results", workers=2, memory=1.5, timeout=60, engine="local", verify="each")

# errors
try:
    onnxforge.optimize("none.onnx")
except onnxforge.ModelNotFoundError as missing_model:
    assert_type(missing_model.path, Optional[str])
except FileNotFoundError as missing:
    assert_type(missing, FileNotFoundError)
except onnxforge.LoadError as error:
    assert_type(error.message, str)
except ValueError:
    pass


def wrapped(model: "str | os.PathLike[str]", feeds: Mapping[str, npt.ArrayLike]) -> bytes:
    return onnxforge.optimize(model, inputs=feeds).model
