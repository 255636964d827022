"""Many models at once: on this machine and on a Ray cluster, with models and workers that fail."""

import json
import shutil
import subprocess
import sys

import onnx
import onnxforge.corpus
import pyarrow.parquet
import pytest
from onnx import TensorProto, helper

from conftest import ROOT

EXAMPLES = ROOT / "examples"


def table(folder, name="results"):
    return pyarrow.parquet.read_table(folder / f"{name}.parquet").to_pylist()


def hungry(path, gigabytes):
    """A model of which verification needs much memory."""
    size = int(gigabytes * 2.5e8)
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [size])
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Add", ["same", "ones"], ["sum"]),
        helper.make_node("ReduceSum", ["sum"], ["y"], keepdims=1),
    ]
    port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])
    graph = helper.make_graph(nodes, "hungry", [port("x")], [port("y")], [shape])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def corpus(tmp_path):
    """Good models, a corrupt one, and one that asks for too much."""
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    for place, path in enumerate(sorted(EXAMPLES.glob("*.onnx"))):
        shutil.copy(path, folder / ("deep" if place % 2 else ".") / path.name)
    (folder / "corrupt.onnx").write_bytes((EXAMPLES / "tiny_bert.onnx").read_bytes()[:1000])
    return folder


def test_every_model_has_a_row(corpus, tmp_path):
    told = []
    result = onnxforge.corpus.run(corpus, tmp_path / "out", progress=told.append)
    rows = table(tmp_path / "out")
    assert [row["model"] for row in rows] == ["corrupt.onnx", "deep/tiny_bert.onnx", "small_cnn.onnx", "tiny_llama.onnx"]
    assert [row["status"] for row in rows] == ["failed", "ok", "ok", "ok"]
    assert not result.ok and "corrupt.onnx" in str(result) and rows == result.rows
    assert "corrupt.onnx" in rows[0]["error"] and rows[0]["nodes_after"] is None
    assert rows[1]["nodes_before"] == 288 > rows[1]["nodes_after"]
    made = tmp_path / "out/models/deep/tiny_bert.onnx"
    assert made.read_bytes() == onnxforge.optimize(EXAMPLES / "tiny_bert.onnx").model
    assert (told[-1].done, told[-1].total) == (4, 4)
    # What would fail again is not tried again.
    assert [run["attempt"] for run in table(tmp_path / "out", "runs")] == [1, 1, 1, 1]
    assert "small_cnn" in result._repr_html_()


def test_what_needs_more_memory_than_given_is_reported(tmp_path):
    (tmp_path / "in").mkdir()
    hungry(tmp_path / "in/hungry.onnx", 2)
    shutil.copy(EXAMPLES / "small_cnn.onnx", tmp_path / "in/good.onnx")
    onnxforge.corpus.run(tmp_path / "in", tmp_path / "out", memory=0.8, engine="local", verify="final", skip=["fold_constants"])
    good, bad = table(tmp_path / "out")
    assert good["status"] == "ok"
    assert bad["model"] == "hungry.onnx" and bad["status"] == "died" and "0.8 GB" in bad["error"]


def test_what_hangs_is_tried_twice(tmp_path):
    runs = onnxforge.corpus.run([EXAMPLES / "tiny_bert.onnx"], tmp_path / "out", timeout=0.001)
    assert runs.rows[0]["status"] == "timeout"
    assert [run["status"] for run in table(tmp_path / "out", "runs")] == ["timeout", "timeout"]


def test_options_reach_the_work(tmp_path):
    rows = onnxforge.corpus.run(EXAMPLES / "*bert*.onnx", tmp_path / "out", passes=["fold_constants"], verify="off").rows
    assert onnxforge.corpus.run([EXAMPLES / "small_cnn.onnx"] * 2, tmp_path / "twice").rows[0]["model"] == "small_cnn.onnx"
    assert len(rows) == 1 and set(json.loads(rows[0]["passes"])) == {"fold_constants"} and rows[0]["verdict"] is None


def test_usage(tmp_path):
    with pytest.raises(onnxforge.UsageError, match="no model"):
        onnxforge.corpus.run(tmp_path, tmp_path / "out")
    with pytest.raises(onnxforge.UsageError, match="'local' or 'ray'"):
        onnxforge.corpus.run(EXAMPLES, tmp_path / "out", engine="dask")
    with pytest.raises(TypeError):
        onnxforge.corpus.run(EXAMPLES)


def test_an_exception_in_progress_ends_the_work(tmp_path):
    def stop(_):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        onnxforge.corpus.run(EXAMPLES, tmp_path / "out", workers=1, progress=stop)


@pytest.mark.skipif(sys.platform != "linux", reason="Ray starts clusters of several nodes on one machine on Linux only")
def test_a_node_of_the_cluster_dies(tmp_path):
    """Three nodes, one of which is killed in the middle: every model is done, with the same rows as on this machine."""
    (tmp_path / "in").mkdir()
    for copy in range(8):
        for path in EXAMPLES.glob("*.onnx"):
            shutil.copy(path, tmp_path / f"in/{path.stem}{copy}.onnx")
    code = f"""
import os
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
import ray
from ray.cluster_utils import Cluster
import onnxforge.corpus

cluster = Cluster(initialize_head=True, head_node_args={{"num_cpus": 1}})
others = [cluster.add_node(num_cpus=1) for _ in range(2)]
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)
def progress(state):
    if state.done == 3 and len(others) == 2:
        cluster.remove_node(others.pop(), allow_graceful=False)
result = onnxforge.corpus.run({str(tmp_path / "in")!r}, {str(tmp_path / "ray")!r}, engine="ray", progress=progress)
# Ray writes messages of its own to the standard output, also in the middle of lines.
with open({str(tmp_path / "said")!r}, "w") as said:
    said.write(f"{{len(result.rows)}} models, all good: {{result.ok}}, nodes left beside the head: {{len(others)}}")
ray.shutdown()
cluster.shutdown()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert (tmp_path / "said").read_text() == "24 models, all good: True, nodes left beside the head: 1"
    onnxforge.corpus.run(tmp_path / "in", tmp_path / "local")
    assert table(tmp_path / "ray") == table(tmp_path / "local")
