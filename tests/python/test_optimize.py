"""`onnxforge optimize`: fewer nodes than any peer, the same results."""

import json
import random
import shutil

import native
import numpy as np
import onnx
import passes
import pytest
import wheels
from conftest import Limits
from corpus import ROOT

SMALL = ["efficientnet_b0", "mobilenet_v2", "mobilenet_v3_small", "mobilevit_small", "whisper_tiny_enc", "yolov8n"]
SMALL_ZOO = [name for name in passes.BEST_PEER if name.split(".")[0] in SMALL]
TINY = ["tiny_bert", "small_cnn", "tiny_llama"]


def report(forge, model, target, *arguments, **options):
    return json.loads(forge("optimize", model, "-o", target, "--json", "-", *arguments, **options).good().out)


def interface(path):
    graph = onnx.load(path, load_external_data=False).graph
    return [port.SerializeToString() for port in (*graph.input, *graph.output)]


def assert_equal(forge, before, after, tmp_path, given=None, tolerance=1e-5):
    """Both give the same in ONNX Runtime without optimizations, at two sizes of every symbolic dimension."""
    assert interface(before) == interface(after)
    onnx.checker.check_model(str(after))
    a, b = native.session(before), native.session(after)
    for size in (3, 5):
        if given is None:
            dims = native.flags(f"{name}={size + index}" for index, name in enumerate(passes.named_dims(before)))
            _, inputs, _ = native.run_ours(forge.binary, before, tmp_path, *dims)
        else:
            inputs = given
        expected, found = a.run(None, native.feeds_of(a, inputs)), b.run(None, native.feeds_of(b, inputs))
        for x, y in zip(expected, found, strict=True):
            assert native.relative_error(y, x) <= tolerance


@pytest.fixture(scope="session")
def zoo(forge, tmp_path_factory):
    """Models of the zoo with weights, made on demand."""
    import gzip

    folder = tmp_path_factory.mktemp("zoo")

    def model(name):
        path = folder / f"{name}.onnx"
        if not path.exists():
            skeleton = folder / "skeleton.onnx"
            skeleton.write_bytes(gzip.decompress((ROOT / "zoo" / f"{name}.onnx.gz").read_bytes()))
            forge("materialize", skeleton, "-o", path).good()
        return path

    return model


@pytest.mark.parametrize("name", SMALL_ZOO)
def test_no_more_nodes_than_the_best_peer(forge, zoo, name, tmp_path):
    model, best = zoo(name), passes.BEST_PEER[name]
    found = report(forge, model, tmp_path / "out.onnx", "--verify", "off")
    assert found["stop"] == "fixpoint"
    assert found["after"]["nodes"] <= best
    assert found["after"]["constants"] <= found["before"]["constants"] * 1.05 + 2**20
    again = report(forge, tmp_path / "out.onnx", tmp_path / "again.onnx")
    assert sum(one["edits"] for one in again["passes"]) == 0
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()


@pytest.mark.parametrize("name", SMALL_ZOO)
def test_the_zoo_stays_equal(forge, zoo, name, tmp_path):
    model = zoo(name)
    # Verification runs whole models: with kernels of the dev profile and both cores busy that takes longer than other commands.
    report(forge, model, tmp_path / "out.onnx", timeout=180)
    assert_equal(forge, model, tmp_path / "out.onnx", tmp_path)


@pytest.mark.parametrize("name", TINY)
def test_examples_stay_equal(forge, name, tmp_path):
    model = ROOT / "examples" / f"{name}.onnx"
    before = report(forge, model, tmp_path / "out.onnx")
    assert before["after"]["nodes"] < before["before"]["nodes"]
    assert_equal(forge, model, tmp_path / "out.onnx", tmp_path)


@pytest.mark.parametrize("name", [name for name in wheels.INPUTS if "nudenet" not in name])
def test_trained_models_stay_equal(forge, name, trained, tmp_path):
    report(forge, trained[name], tmp_path / "out.onnx")
    assert_equal(forge, trained[name], tmp_path / "out.onnx", tmp_path, given=wheels.INPUTS[name](), tolerance=1e-4)


@pytest.fixture(scope="session")
def trained():
    return wheels.fetch(ROOT / "target" / "wheels")


@pytest.mark.parametrize("name", TINY)
def test_the_same_bytes_on_any_number_of_threads(forge, name, tmp_path):
    model = ROOT / "examples" / f"{name}.onnx"
    for threads in ("1", "2", "7"):
        report(forge, model, tmp_path / f"{threads}.onnx", env={"RAYON_NUM_THREADS": threads})
    assert (tmp_path / "1.onnx").read_bytes() == (tmp_path / "2.onnx").read_bytes() == (tmp_path / "7.onnx").read_bytes()


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("seed", range(3))
def test_neither_names_nor_the_order_of_nodes_matter(forge, name, seed, tmp_path):
    message = onnx.load(ROOT / "examples" / f"{name}.onnx")
    rng = random.Random(seed)
    ports = {port.name for port in (*message.graph.input, *message.graph.output)}
    renamed = {}

    def other(text):
        if not text or text in ports:
            return text
        return renamed.setdefault(text, f"v{rng.randrange(10**9)}_{len(renamed)}")

    for node in message.graph.node:
        node.name = ""
        node.input[:] = [other(text) for text in node.input]
        node.output[:] = [other(text) for text in node.output]
    for tensor in message.graph.initializer:
        tensor.name = other(tensor.name)
    del message.graph.value_info[:]
    ready = {port.name for port in message.graph.input} | {tensor.name for tensor in message.graph.initializer} | {""}
    left, order = list(message.graph.node), []
    while left:
        possible = [node for node in left if all(text in ready for text in node.input)]
        node = rng.choice(possible)
        left.remove(node)
        order.append(node)
        ready.update(node.output)
    del message.graph.node[:]
    message.graph.node.extend(order)
    onnx.save(message, tmp_path / "other.onnx")
    # The one pass to which the order of nodes matters; docs/passes.md explains it.
    less = ("--skip", "fuse_matmul_add_3d")
    plain = report(forge, ROOT / "examples" / f"{name}.onnx", tmp_path / "a.onnx", *less)
    changed = report(forge, tmp_path / "other.onnx", tmp_path / "b.onnx", *less)
    assert plain["after"]["nodes"] == changed["after"]["nodes"]


@pytest.mark.parametrize("name", TINY)
def test_the_order_of_passes_does_not_matter(forge, name, tmp_path):
    model = ROOT / "examples" / f"{name}.onnx"
    expected = report(forge, model, tmp_path / "out.onnx")["after"]["nodes"]
    for seed in range(5):
        known = list(passes.passes(forge.binary))
        order = random.Random(seed).sample(known, len(known))
        found = report(forge, model, tmp_path / "out.onnx", "--passes", ",".join(order))
        assert found["after"]["nodes"] == expected, order


GROWS = {
    "Expand": "e = Constant <value_ints = [4096, 4096]> () z = Constant <value_float = 0.0> () a = Expand (z, e)",
    "Tile": "z = Constant <value_floats = [0.0]> () r = Constant <value_ints = [16777216]> () a = Tile (z, r)",
    "ConstantOfShape": "e = Constant <value_ints = [4096, 4096]> () a = ConstantOfShape (e)",
    "Range": "z = Constant <value_float = 0.0> () n = Constant <value_float = 9000000.0> () s = Constant <value_float = 1.0> () a = Range (z, n, s)",
}


@pytest.mark.parametrize("op", GROWS)
def test_models_do_not_explode(forge, op, tmp_path):
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[1] x) => (float[1] y) {{
        {GROWS[op]} m = ReduceMax <keepdims = 0> (a) y = Add (x, m) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    report(forge, tmp_path / "m.onnx", tmp_path / "out.onnx", limits=Limits(address_space=4 << 30))
    assert (tmp_path / "out.onnx").stat().st_size < (tmp_path / "m.onnx").stat().st_size * 1.05 + 2**20
    a, b = native.session(tmp_path / "m.onnx"), native.session(tmp_path / "out.onnx")
    x = {"x": np.array([1.5], np.float32)}
    assert np.array_equal(a.run(None, x)[0], b.run(None, x)[0])


def test_sizes_shapes_and_outputs_on_request(forge, tmp_path):
    model, out = ROOT / "examples" / "tiny_bert.onnx", tmp_path / "out.onnx"

    def shapes(ports):
        return {port.name: [dim.dim_param or dim.dim_value for dim in port.type.tensor_type.shape.dim] for port in ports}

    report(forge, model, out, "--set-dim", "batch=2")
    assert shapes(onnx.load(out).graph.input)["attention_mask"] == [2, "sequence"]
    report(forge, model, out, "--set-shape", "input_ids=2,5")
    assert shapes(onnx.load(out).graph.input)["attention_mask"] == [2, 5]
    assert shapes(onnx.load(out).graph.output)["last_hidden_state"] == [2, 5, 32]
    fixed = report(forge, model, out, "--set-dim", "batch=1", "--set-dim", "sequence=8")
    assert "Shape" not in {op for op, (_, after) in fixed["operators"].items() if after}
    report(forge, model, out, "--outputs", "last_hidden_state")
    assert list(shapes(onnx.load(out).graph.output)) == ["last_hidden_state"]


def test_bad_wishes_are_refused(forge, tmp_path):
    model, out = ROOT / "examples" / "tiny_bert.onnx", tmp_path / "out.onnx"
    forge("optimize", model, "-o", out, "--set-dim", "bach=2").refused(model, "bach", "batch, sequence")
    forge("optimize", model, "-o", out, "--set-shape", "input_ids=2").refused("input_ids", "[batch,sequence]")
    forge("optimize", model, "-o", out, "--set-shape", "ids=2,2").refused("ids", "input_ids")
    forge("optimize", model, "-o", out, "--outputs", "last_hidden_stat").refused("last_hidden_state")
    forge("optimize", model, "-o", out, "--passes", "fold_constant").refused("fold_constants")
    forge("optimize", model, "-o", out, "--skip", "nothing_like_it").refused("onnxforge passes")
    cnn = ROOT / "examples" / "small_cnn.onnx"
    forge("optimize", cnn, "-o", out, "--set-shape", "image=1,3,16,15").refused("image")
    broken = onnx.load(cnn)
    broken.graph.node[1].input[0] = "nobody"
    onnx.save(broken, tmp_path / "broken.onnx")
    forge("optimize", tmp_path / "broken.onnx", "-o", out).refused("nobody")
    assert not out.exists()


def test_passes_can_be_chosen_and_stopped(forge, tmp_path):
    model, out = ROOT / "examples" / "tiny_bert.onnx", tmp_path / "out.onnx"
    one = report(forge, model, out, "--passes", "eliminate_identity_ops", "--trace", tmp_path / "trace.jsonl")
    assert [entry["name"] for entry in one["passes"]] == ["eliminate_identity_ops"]
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert len(lines) == one["passes"][0]["edits"] > 0
    assert {line["pass"] for line in lines} == {"eliminate_identity_ops"}
    some = report(forge, model, out, "--stop-after", "7")
    assert sum(entry["edits"] for entry in some["passes"]) == 7
    assert some["stop"] == "edits"
    assert_equal(forge, model, out, tmp_path)
    less = report(forge, model, out, "--skip", "fold_constants")
    assert "fold_constants" not in {entry["name"] for entry in less["passes"]}


def test_passes_are_attributed(forge, tmp_path):
    model = ROOT / "examples" / "tiny_bert.onnx"
    [found] = json.loads(forge("attribute", model, "--json", "-").good().out)["models"]
    optimized = report(forge, model, tmp_path / "out.onnx")
    assert found["after"] == optimized["after"]["all_nodes"]
    assert sum(row["cumulative"] for row in found["passes"]) == found["after"] - found["nodes"]
    assert all(row["isolated"] <= 0 for row in found["passes"])


def test_passes_are_explained(forge):
    model = ROOT / "examples" / "small_cnn.onnx"
    listed = json.loads(forge("passes", "--json", "-").good().out)
    assert all(entry["summary"] and "Proof" in entry["text"] for entry in listed)
    assert "training" in forge("passes", "fuse_conv_batchnorm").good().out
    found = json.loads(forge("explain", "fuse_conv_batchnorm", model, "--json", "-").good().out)
    assert found["fired"] or found["skipped"]


def test_the_result_lies_beside_the_model(forge, tmp_path):
    model = tmp_path / "net.v1.onnx"
    shutil.copy(ROOT / "examples" / "tiny_bert.onnx", model)
    shown = forge("optimize", model).good().out
    assert shown.startswith("transformer (97 %): 2 attention blocks") and "wrote" in shown.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.v1.onnx", "net.v1.opt.onnx"]
    onnx.checker.check_model(tmp_path / "net.v1.opt.onnx")
    kind = json.loads(forge("optimize", model, "--json", "-").good().out)["kind"]
    assert kind["class"] == "transformer" and kind["confidence"] > 0.9 and kind["chosen"] == []


def test_explain_answers_for_a_run_of_optimize(forge, tmp_path):
    model = ROOT / "examples" / "tiny_bert.onnx"
    kept = forge("explain", "fuse_gelu", model).good().out.splitlines()[-1]
    assert kept == "fuse_gelu fired 0 times, skipped 2 matches"
    newer = forge("explain", "fuse_gelu", model, "--opset", "23").good().out.splitlines()[-1]
    assert newer == "fuse_gelu fired 2 times, skipped 0 matches"
    cnn = ROOT / "examples" / "small_cnn.onnx"
    assert forge("explain", "ort_conv_activation", cnn).good().out.splitlines()[-1].startswith("with --target ort: ")
    llama = ROOT / "examples" / "tiny_llama.onnx"
    before = forge("explain", "fuse_matmul_add_3d", llama).good().out.splitlines()[-1]
    assert before.endswith("skipped 0 matches; other passes rewrote 15 matches before")
    alone = json.loads(forge("explain", "fuse_matmul_add_3d", llama, "--alone", "--json", "-").good().out)
    assert len(alone["fired"]) == 15 and alone["elsewhere"] == []


def test_typical_mistakes_get_a_hint(forge, tmp_path):
    model = tmp_path / "tiny_bert.onnx"
    shutil.copy(ROOT / "examples" / "tiny_bert.onnx", model)
    (tmp_path / "cut.onnx").write_bytes(model.read_bytes()[:2000])
    for words, hint in [
        (["optimize", tmp_path], "it is a folder; its models are cut.onnx, tiny_bert.onnx"),
        (["optimize", tmp_path / "tiny_bret.onnx"], f"did you mean {model}?"),
        (["check", tmp_path / "tiny_bert"], f"did you mean {model}?"),
        (["optimize", tmp_path / "no" / "tiny_bert.onnx"], f"there is no folder {tmp_path / 'no'}"),
        (["optimize", tmp_path / "cut.onnx"], "it ends too early"),
        (["explain", "gelu", model], "did you mean fuse_gelu?"),
    ]:
        done = forge(*words)
        assert done.code == 2 and hint in done.err, done.err


def test_a_model_of_old_stays_valid(forge, tmp_path):
    """Before IR version 4 every constant is an input too; a new one is not, so the model says a version in which that is right."""
    text = """<ir_version: 3, opset_import: ["" : 8]>
    g (float[2,3,4] x, float[4] w) => (float[2,3,4] y) <float[4] w = {1, 2, 3, 4}>
    { a = Transpose<perm=[0,2,1]>(x)  b = Transpose<perm=[0,2,1]>(a)  c = Add(b, w)  d = Add(c, w)
      t = Transpose<perm=[2,0,1]>(d)  r = Relu(t)  u = Add(r, r)  y = Transpose<perm=[1,2,0]>(u) }"""
    source, model, out = (tmp_path / name for name in ("model.onnxtxt", "model.onnx", "out.onnx"))
    source.write_text(text)
    forge("parse", source, "-o", model).good()
    found = report(forge, model, out, "--passes", "merge_scalar_arithmetic,cancel_transposes,fuse_conv_bias,fold_constants")
    message = onnx.load(out)
    onnx.checker.check_model(message)
    forge("check", out).good()
    forge("optimize", out, "-o", tmp_path / "again.onnx").good()
