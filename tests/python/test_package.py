"""The Python package: models of every kind in and out, results, errors, threads and the ends of work."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnx_ir
import onnxforge
import pytest
from onnx import TensorProto, helper

from conftest import ROOT

BERT = ROOT / "examples/tiny_bert.onnx"
CNN = ROOT / "examples/small_cnn.onnx"
LLAMA = ROOT / "examples/tiny_llama.onnx"


def heavy(layers=64, size=512):
    """A model that takes seconds to verify."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    value = "x"
    for layer in range(layers):
        weights.append(onnx.numpy_helper.from_array(rng.random((size, size), np.float32) / size, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"y{layer}"]))
        nodes.append(helper.make_node("Identity", [f"y{layer}"], [f"z{layer}"]))
        value = f"z{layer}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4 * size, size])
    y = helper.make_tensor_value_info(value, TensorProto.FLOAT, [4 * size, size])
    graph = helper.make_graph(nodes, "heavy", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class TestKinds:
    """A path, bytes, a ModelProto and an onnx_ir model go in, and the same kind comes out."""

    def test_a_path_becomes_a_path(self, tmp_path):
        result = onnxforge.optimize(BERT, tmp_path / "small.onnx")
        assert result.model == str(tmp_path / "small.onnx")
        assert len(onnx.load(result.model).graph.node) == result.nodes_after < result.nodes_before == 288

    def test_all_kinds_give_the_same_model(self, tmp_path):
        by_path = onnxforge.optimize(BERT, tmp_path / "small.onnx")
        expected = (tmp_path / "small.onnx").read_bytes()
        content = BERT.read_bytes()
        assert onnxforge.optimize(BERT).model == expected
        assert onnxforge.optimize(content).model == expected
        assert onnxforge.optimize(bytearray(content)).model == expected
        assert onnxforge.optimize(memoryview(content)).model == expected
        proto = onnxforge.optimize(onnx.load(BERT)).model
        assert isinstance(proto, onnx.ModelProto)
        assert onnxforge.compare(proto, expected, exact=True)
        ir = onnxforge.optimize(onnx_ir.load(BERT)).model
        assert isinstance(ir, onnx_ir.Model)
        assert len(list(ir.graph)) == by_path.nodes_after
        assert onnxforge.verify(ir, expected).verdict == "identical"
        assert onnxforge.verify(BERT, ir).verdict in ("identical", "rounding")

    def test_what_was_handed_over_stays_as_it_was(self):
        proto = onnx.load(BERT)
        before = proto.SerializeToString()
        onnxforge.optimize(proto)
        assert proto.SerializeToString() == before

    def test_weights_of_an_onnx_ir_model_may_lie_in_files(self, tmp_path):
        onnx.save(onnx.load(CNN), tmp_path / "cnn.onnx", save_as_external_data=True, size_threshold=0)
        ir = onnx_ir.load(tmp_path / "cnn.onnx")
        result = onnxforge.optimize(ir)
        assert result.verified
        assert onnxforge.verify(result.model, CNN).equal

    def test_weights_of_bodies_may_lie_in_files(self, tmp_path):
        port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
        weight = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
        then = helper.make_graph([helper.make_node("Add", ["x", "w"], ["a"])], "then", [], [port("a")], [weight])
        other = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "other", [], [port("b")])
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
        condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
        graph = helper.make_graph(nodes, "g", [port("x"), condition], [port("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        ir = onnx_ir.from_proto(model)
        (tmp_path / "w.bin").write_bytes(weight.raw_data)
        [branch] = [node for node in ir.graph]
        value = branch.attributes["then_branch"].value.initializers["w"]
        value.const_value = onnx_ir.ExternalTensor(
            "w.bin", 0, 16, onnx_ir.DataType.FLOAT, shape=onnx_ir.Shape([4]), name="w", base_dir=tmp_path
        )
        found = onnxforge.run(ir, {"x": np.ones(4, np.float32), "c": np.array(True)})
        assert found["y"].tolist() == [1, 2, 3, 4]

    def test_external_weights_go_through_paths(self, tmp_path):
        onnx.save(onnx.load(CNN), tmp_path / "cnn.onnx", save_as_external_data=True, size_threshold=0, location="cnn.bin")
        with pytest.raises(onnxforge.SaveError, match="out does not exist; create it first"):
            onnxforge.optimize(tmp_path / "cnn.onnx", tmp_path / "out" / "small.onnx")
        (tmp_path / "out").mkdir()
        result = onnxforge.optimize(tmp_path / "cnn.onnx", tmp_path / "out" / "small.onnx")
        assert result.verified
        kept = [tensor for tensor in onnx.load(result.model, load_external_data=False).graph.initializer if tensor.external_data]
        assert kept
        shared = onnxforge.optimize(tmp_path / "cnn.onnx", tmp_path / "small.onnx", external="share")
        assert shared.report["files"][-1]["shared"] == [str(tmp_path / "cnn.bin")]
        # Without an output everything is in memory, weights included.
        assert not onnx.load_from_string(onnxforge.optimize(tmp_path / "cnn.onnx").model).graph.initializer[0].external_data

    def test_a_model_without_its_weights_is_refused(self, tmp_path):
        onnx.save(onnx.load(CNN), tmp_path / "cnn.onnx", save_as_external_data=True, size_threshold=0)
        proto = onnx.load(tmp_path / "cnn.onnx", load_external_data=False)
        with pytest.raises(onnxforge.Error, match="external"):
            onnxforge.optimize(proto)

    def test_another_kind_is_refused(self):
        with pytest.raises(onnxforge.UsageError, match=r"not builtins\.int"):
            onnxforge.check(3)

    def test_in_place(self, tmp_path):
        path = tmp_path / "model.onnx"
        path.write_bytes(BERT.read_bytes())
        onnxforge.optimize(path, path)
        assert len(onnx.load(path).graph.node) < 288


class TestFunctions:
    def test_optimize_tells_what_it_did(self):
        result = onnxforge.optimize(BERT, opset=23)
        assert result.ok and result.verified is True
        assert sum(result.passes.values()) == result.nodes_after - result.nodes_before
        assert result.report["schema"] == 1
        assert "nodes" in str(result) and "verified" in repr(result)
        assert onnxforge.optimize(BERT, verify="off").verified is None
        exact = onnxforge.optimize(BERT, opset=23, accuracy="exact")
        assert exact.report["accuracy"] == "exact" and result.nodes_after < exact.nodes_after < exact.nodes_before

    def test_options_reach_the_command(self, tmp_path):
        result = onnxforge.optimize(
            BERT,
            set_dim={"batch": 1, "sequence": 8},
            skip=["fold_constants"],
            outputs=["pooler_output"],
            trace=tmp_path / "trace.jsonl",
            report=tmp_path / "page.html",
        )
        graph = onnx.load_from_string(result.model).graph
        assert [output.name for output in graph.output] == ["pooler_output"]
        assert [dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim] == [1, 8]
        assert "fold_constants" not in result.passes
        edits = (tmp_path / "trace.jsonl").read_text().splitlines()
        assert all(json.loads(line)["pass"] for line in edits) and edits
        assert "<html" in (tmp_path / "page.html").read_text()
        only = onnxforge.optimize(BERT, passes=["eliminate_dead_nodes"])
        assert set(only.passes) <= {"eliminate_dead_nodes"}
        assert onnxforge.optimize(BERT, passes=[], skip=[]).nodes_after == 288
        assert onnxforge.optimize(BERT, passes=iter([])).nodes_after == 288
        assert onnxforge.optimize(onnxforge.optimize(BERT).model).verified
        shaped = onnxforge.optimize(BERT, set_shape={"input_ids": [2, 4]}).model
        assert [d.dim_value for d in onnx.load_from_string(shaped).graph.input[0].type.tensor_type.shape.dim] == [2, 4]

    def test_run_takes_and_gives_arrays(self):
        import onnxruntime

        name, x = "image", np.random.default_rng(0).random((2, 3, 16, 16), np.float32)
        ours = onnxforge.run(CNN, {name: x})
        session = onnxruntime.InferenceSession(str(CNN))
        theirs = dict(zip([each.name for each in session.get_outputs()], session.run(None, {name: x})))
        assert ours.keys() == theirs.keys()
        for key in ours:
            np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-4, atol=1e-5)
        wide = onnxforge.run(CNN, {name: x}, engine="oracle")
        assert all(array.dtype == np.float64 for array in wide.values())

    def test_names_of_inputs_may_be_anything(self):
        names = ["file", "a/b", "ü", "self"]
        nodes = [helper.make_node("Sum", names, ["y"])]
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names]
        graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        found = onnxforge.run(model, {name: np.full(2, 10.0**place, np.float32) for place, name in enumerate(names)})
        assert found["y"].tolist() == [1111.0, 1111.0]

    def test_arrays_of_other_types(self):
        import ml_dtypes

        for kind, dtype, value in [
            (TensorProto.BFLOAT16, ml_dtypes.bfloat16, [1.5, -2]),
            (TensorProto.STRING, object, ["a", "bc"]),
            (TensorProto.BOOL, np.bool_, [True, False]),
            (TensorProto.FLOAT16, np.float16, [0.5, 8]),
        ]:
            port = lambda name: helper.make_tensor_value_info(name, kind, [2])
            graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [port("x")], [port("y")])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            assert onnxforge.run(model, {"x": np.array(value, dtype)})["y"].tolist() == value

    def test_verify_tells_rounding_from_error(self):
        small = onnxforge.optimize(BERT).model
        assert onnxforge.verify(BERT, small)
        broken = onnx.load_from_string(small)
        for tensor in broken.graph.initializer:
            if len(tensor.dims) == 2 and tensor.data_type == TensorProto.FLOAT:
                array = onnx.numpy_helper.to_array(tensor) * np.float32(1.001)
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
                break
        found = onnxforge.verify(BERT, broken)
        assert not found and found.verdict == "different" and not found.ok

    def test_check_lists_problems(self):
        model = onnx.load(CNN)
        assert onnxforge.check(model).valid
        model.graph.node[0].input[0] = "nobody"
        found = onnxforge.check(model)
        assert not found and any("nobody" in problem["message"] for problem in found.problems)

    def test_inspect_and_attribute(self):
        both = onnxforge.inspect(BERT, CNN)
        assert [each["nodes"] for each in both.models] == [288, 20]
        found = onnxforge.attribute(CNN).models[0]
        assert found["after"] - found["nodes"] == sum(each["cumulative"] for each in found["passes"])

    def test_upgrade_and_save(self, tmp_path):
        newer = onnx.load_from_string(onnxforge.upgrade(BERT, opset=21).model)
        assert newer.opset_import[0].version == 21
        onnxforge.save(newer, tmp_path / "m.onnx", external="split")
        assert len(list(tmp_path.iterdir())) == 2

    def test_bench_takes_models_of_any_kind(self):
        found = onnxforge.bench(CNN, onnx.load(CNN), sessions=6, rounds=2)
        assert len(found.models) == 2 and found.models[0]["latency_ms"]["median"] > 0

    @pytest.mark.parametrize("make", [
        lambda: onnxforge.optimize(BERT), lambda: onnxforge.verify(BERT, BERT), lambda: onnxforge.check(BERT),
        lambda: onnxforge.inspect(BERT), lambda: onnxforge.attribute(CNN), lambda: onnxforge.compare(BERT, BERT),
        lambda: onnxforge.coverage(BERT), lambda: onnxforge.analyze(BERT), lambda: onnxforge.profile(CNN, seconds=0.1), lambda: onnxforge.tag(BERT), lambda: onnxforge.extract(BERT, "bert.pooler"),
    ])  # fmt: skip
    def test_results_show_themselves(self, make):
        result = make()
        assert result.text and str(result) == result.text
        assert result._repr_html_().startswith("<div>") and "onnxforge" in repr(result)

    def test_what_is_known_of_passes_and_shapes(self, tmp_path):
        assert {"fold_constants", "fuse_gelu"} <= {each["name"] for each in onnxforge.passes()}
        assert onnxforge.passes("fuse_gelu")[0]["class"] == "rounding"
        assert onnxforge.explain("fuse_matmul_add_3d", BERT).report
        assert onnxforge.infer(BERT).report["expressed"] > 250
        assert "<html" in open(onnxforge.report(BERT, tmp_path / "page.html").report["files"][0]["path"]).read()
        assert open(onnxforge.report(BERT, tmp_path / "layer.svg", graph="bert.encoder.layer.0").path).read().startswith("<svg")

    def test_arguments_are_never_ignored(self):
        with pytest.raises(onnxforge.UsageError, match="target"):
            onnxforge.optimize(CNN, passes=["fold_constants"], target="ort")
        with pytest.raises(onnxforge.UsageError, match="verify"):
            onnxforge.extract(BERT, "bert.pooler", engine="native")
        with pytest.raises(onnxforge.UsageError, match="dictionary"):
            onnxforge.optimize(BERT, set_dim=["batch=1"])
        with pytest.raises(onnxforge.UsageError, match="arrays by name"):
            onnxforge.run(CNN, [np.zeros(3)])
        with pytest.raises(onnxforge.UsageError, match="path"):
            onnxforge.optimize(CNN, b"out.onnx")
        skipped = onnxforge.optimize(BERT, skip={"fold_constants"}, set_shape={"input_ids": np.array([2, 4])})
        assert "fold_constants" not in skipped.passes

    def test_names_cannot_break_a_notebook(self):
        model = onnx.load(CNN)
        model.graph.node[0].op_type = "<script>alert(1)</script>"
        model.graph.node[0].domain = "x"
        model.opset_import.append(helper.make_opsetid("x", 1))
        assert "<script>" not in onnxforge.inspect(model)._repr_html_()


class TestHierarchy:
    def test_modules_can_be_walked_and_cut_out(self, tmp_path):
        hierarchy = onnxforge.Hierarchy.load(BERT)
        layer = hierarchy["bert.encoder.layer.0"]
        assert layer in list(hierarchy) and "bert.encoder.layer.0" in hierarchy
        assert hierarchy[layer.tag] is layer
        assert {child.path for child in layer.children} >= {"bert.encoder.layer.0.attention"}
        assert 0 < len(layer.nodes) < len(hierarchy[""].nodes) == 288
        assert all("bert.encoder.layer.0" in node["modules"][0] for node in layer.nodes)
        assert layer.inputs and layer.outputs
        assert len(onnx.load_from_string(hierarchy[""].extract().model).graph.node) == 288
        layer.extract(tmp_path / "layer.onnx", verify=True)
        assert onnxforge.check(tmp_path / "layer.onnx")
        assert hierarchy.coverage().coverage == 1.0
        with pytest.raises(onnxforge.RequestError, match="did you mean 'bert.encoder.layer.0'"):
            hierarchy["bert.encoder.layer.00"]

    def test_a_pattern_gives_one_model_each(self, tmp_path):
        parts = onnxforge.extract(onnx.load(BERT), "bert.encoder.layer.*")
        assert set(parts.model) == {"bert.encoder.layer.0", "bert.encoder.layer.1"}
        assert all(onnxforge.check(model) for model in parts.model.values())
        files = onnxforge.extract(BERT, "bert.encoder.layer.*", tmp_path).model
        assert all(os.path.exists(path) for path in files.values())

    def test_tags_come_and_go(self, tmp_path):
        tagged = onnxforge.tag(BERT)
        assert b"onnxforge.hierarchy" in tagged.model and tagged.coverage == 1.0
        assert onnxforge.strip(tagged.model).model == BERT.read_bytes()
        onnxforge.tag(BERT, tmp_path / "tagged.onnx")
        assert (tmp_path / "tagged_hierarchy.json").exists()
        lost = onnxforge.strip(onnxforge.optimize(tagged.model).model, all=True).model
        again = onnxforge.restore(lost, original=tagged.model)
        assert onnxforge.coverage(again.model).coverage > 0.9

    def test_modules_are_timed(self, tmp_path):
        found = onnxforge.profile(BERT, onnx.load(BERT), seconds=0.2, flame=tmp_path / "flame.svg")
        assert found.engine == "ort" and len(found.models) == 2 and (tmp_path / "flame.svg").exists()
        layer, whole = found.modules["bert.encoder.layer.0"], found.modules[""]
        assert 0 <= layer["self_ms"]["median"] <= layer["total_ms"]["median"] < whole["total_ms"]["median"] and layer["share"] > 0
        assert onnxforge.profile(BERT, engine="native", seconds=0.2).engine == "native"
        alone = onnxforge.Hierarchy(BERT)["bert.encoder.layer.0"].bench(sessions=6, rounds=2)
        assert alone.models[0]["latency_ms"]["median"] > 0

    def test_only_some_modules_are_optimized(self):
        some = onnxforge.optimize(BERT, modules=["bert.encoder.layer.0"])
        everything = onnxforge.optimize(BERT)
        assert everything.nodes_after < some.nodes_after < some.nodes_before
        with pytest.raises(onnxforge.RequestError, match="bert.encoder"):
            onnxforge.optimize(BERT, modules=["bert.encode"])

    def test_coverage_can_be_narrowed_and_analyzed(self):
        found = onnxforge.coverage(BERT, category="math", threshold={"mathematical_operations": 50})
        assert [(each["category"], each["threshold"]) for each in found.report["categories"]] == [("mathematical_operations", 50)]
        analyzed = onnxforge.analyze(BERT)
        assert sum(analyzed.tags.values()) == analyzed.report["tagged_operations"] == 288 and analyzed.warnings == []

    def test_consumers_through_any_number_of_nodes(self, tmp_path):
        onnxforge.tag(BERT, tmp_path / "tagged.onnx", consumers="transitive", operations=True)
        tensors = json.loads((tmp_path / "tagged_hierarchy.json").read_text(encoding="utf-8"))["tensors"]
        assert "bert.pooler" in str(tensors["input_ids"]["transitive_consumers"])
        assert "module_to_operations" in {prop.key for prop in onnx.load(tmp_path / "tagged.onnx").metadata_props}

    def test_what_is_cut_out_is_listed(self):
        part = onnxforge.extract(BERT, "bert.pooler")
        assert part.operations and set(part.boundary_operations) <= set(part.operations)
        assert part.external_inputs == [each["name"] for each in part.inputs]
        assert not set(part.internal_tensors) & {each["name"] for each in part.outputs}

    def test_a_table_of_modules_can_be_a_dictionary(self):
        modules = {"modules": {"": {"class": "models.Tiny"}, "bert": {"class": "models.Bert"}}}
        hierarchy = onnxforge.Hierarchy(BERT, modules)
        assert hierarchy["bert"].class_name == "models.Bert"


class TestErrors:
    def test_fields(self, tmp_path):
        with pytest.raises(onnxforge.LoadError) as missing:
            onnxforge.optimize(tmp_path / "missing.onnx", tmp_path / "out.onnx")
        assert missing.value.path == str(tmp_path / "missing.onnx") and missing.value.kind == "load"
        assert "\n" not in str(missing.value)
        model = onnx.load(CNN)
        model.graph.node[1].input[0] = "nobody"
        with pytest.raises(onnxforge.InvalidModelError, match="nobody") as invalid:
            onnxforge.optimize(model)
        assert invalid.value.place and invalid.value.kind == "invalid"
        with pytest.raises(onnxforge.SaveError) as unwritable:
            onnxforge.optimize(CNN, "/proc/nowhere/out.onnx")
        assert unwritable.value.path == "/proc/nowhere/out.onnx"
        with pytest.raises(onnxforge.UsageError, match="possible values: off, final, each"):
            onnxforge.optimize(CNN, verify="sometimes")
        with pytest.raises(onnxforge.RequestError, match="did you mean fold_constants"):
            onnxforge.optimize(CNN, skip=["fold_constant"])
        with pytest.raises(onnxforge.RequestError, match="no input has a dimension"):
            onnxforge.run(BERT, set_dim={"nothing": 3})
        with pytest.raises(ValueError):
            onnxforge.extract(BERT, "bert.nothing")
        with pytest.raises(TypeError):
            onnxforge.optimize(CNN, verfy="off")

    def test_a_hostile_model_is_an_exception(self):
        content = BERT.read_bytes()
        for end in (0, 1, 100, len(content) // 2, len(content) - 1):
            with pytest.raises(onnxforge.Error):
                onnxforge.optimize(content[:end])

    def test_paths_into_memory_do_not_leave_it(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(onnxforge.LoadError):
            onnxforge.check("memory:nothing.onnx")
        onnxforge.tag(BERT)
        onnxforge.Hierarchy(BERT.read_bytes())
        assert not list(tmp_path.iterdir())

    def test_warnings_are_logged(self, caplog):
        model = onnx.load(CNN)
        model.opset_import[0].version = 99
        with caplog.at_level(logging.WARNING, "onnxforge"):
            onnxforge.run(model)
        assert any("99" in record.message for record in caplog.records)


class TestThreads:
    def test_progress_is_told_on_the_thread_that_asked(self):
        told = []
        onnxforge.optimize(BERT, progress=lambda state: told.append((threading.get_ident(), state)))
        assert {thread for thread, _ in told} == {threading.get_ident()}
        states = [state for _, state in told]
        assert any(state.unit == "passes" and state.done == state.total for state in states)
        assert all(0 <= state.done <= state.total for state in states)

    def test_an_exception_in_progress_ends_the_work(self, tmp_path):
        class Enough(Exception):
            pass

        def stop(state):
            raise Enough

        start = time.monotonic()
        with pytest.raises(Enough):
            onnxforge.optimize(heavy(), tmp_path / "out.onnx", progress=stop)
        assert time.monotonic() - start < 20
        assert not list(tmp_path.iterdir())

    def test_many_threads_do_what_one_does(self):
        models = [BERT, CNN, LLAMA, BERT, CNN, LLAMA, BERT, CNN] * 2
        serial = {path: onnxforge.optimize(path).model for path in set(models)}
        with ThreadPoolExecutor(8) as pool:
            parallel = list(pool.map(lambda path: onnxforge.optimize(path).model, models))
        assert parallel == [serial[path] for path in models]

    def test_some_are_cancelled_and_others_are_not(self):
        expected = onnxforge.optimize(BERT).model

        def one(place):
            if place % 2:
                return onnxforge.optimize(BERT).model == expected

            def stop(state):
                raise KeyError(place)

            try:
                onnxforge.optimize(BERT, progress=stop)
            except KeyError as error:
                return error.args == (place,)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(one, range(32)))

    def test_bench_can_be_ended(self):
        class Enough(Exception):
            pass

        def stop(state):
            if state.done:
                raise Enough

        start = time.monotonic()
        with pytest.raises(Enough):
            onnxforge.bench(CNN, sessions=9, seconds=120, progress=stop)
        assert time.monotonic() - start < 30

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
    def test_a_forked_process_is_told_why(self):
        code = (
            "import multiprocessing, onnxforge, sys\n"
            "def work(_):\n"
            "    try: onnxforge.run(sys.argv[1])\n"
            "    except onnxforge.Error as error: return str(error)\n"
            "work(0)\n"
            "with multiprocessing.get_context('fork').Pool(1) as pool: print(pool.map(work, [0])[0])\n"
        )
        done = subprocess.run([sys.executable, "-c", code, CNN], capture_output=True, text=True, timeout=60, check=True)
        assert "spawn" in done.stdout

    def test_other_threads_go_on(self):
        """The interpreter's lock is released: a thread counts while another one optimizes."""
        model, counted, done = heavy(16).SerializeToString(), 0, threading.Event()
        worker = threading.Thread(target=lambda: (onnxforge.optimize(model), done.set()))
        worker.start()
        while not done.wait(0.01):
            counted += 1
        worker.join()
        assert counted > 5

    @pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C to whole consoles, this test included")
    def test_ctrl_c_interrupts(self, tmp_path):
        onnx.save(heavy(128, 640), tmp_path / "heavy.onnx")
        code = (
            "import onnxforge, signal, sys\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # whoever runs this in the background ignores it
            "print('ready', flush=True)\n"
            "try:\n"
            "    onnxforge.optimize(sys.argv[1], sys.argv[2])\n"
            "    print('finished')\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', flush=True)\n"
        )
        (tmp_path / "out").mkdir()
        words = [sys.executable, "-c", code, tmp_path / "heavy.onnx", tmp_path / "out" / "out.onnx"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, _ = process.communicate(timeout=60)
        assert out == "interrupted\n" and process.returncode == 0
        assert time.monotonic() - start < 15
        assert not list((tmp_path / "out").iterdir())


class TestCommand:
    """The command of the package is the program."""

    def run(self, *words):
        return subprocess.run([sys.executable, "-m", "onnxforge", *map(str, words)], capture_output=True, text=True)

    def test_same_as_the_program(self, forge, tmp_path):
        for words in (["inspect", BERT, "--json"], ["passes"], ["check", tmp_path / "no.onnx"], ["--version"], ["nothing"]):
            ours, theirs = self.run(*words), forge(*words)
            assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.code, theirs.out, theirs.err)

    def test_optimizes(self, tmp_path):
        done = self.run("optimize", BERT, "-o", tmp_path / "small.onnx")
        assert done.returncode == 0 and "all nodes" in done.stdout
        assert (tmp_path / "small.onnx").read_bytes() == onnxforge.optimize(BERT).model
        assert self.run("verify", BERT, CNN).returncode != 0

    def test_measures_in_processes_of_its_own(self):
        done = self.run("bench", CNN, "--sessions", 6, "--rounds", 2, "--json")
        assert json.loads(done.stdout)["sessions"] == 6


class TestPackage:
    def test_imports_little(self):
        code = "import sys, onnxforge; print([name for name in ('numpy', 'onnx', 'torch', 'onnxruntime') if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"

    def test_everything_public_is_documented(self):
        for name in onnxforge.__all__:
            assert name == "__version__" or getattr(onnxforge, name).__doc__, name

    def test_the_wheel_is_small(self):
        wheel = os.environ.get("ONNXFORGE_WHEEL")
        if not wheel:
            pytest.skip("ONNXFORGE_WHEEL is not set")
        if "debug" not in wheel:
            assert os.path.getsize(wheel) <= 15e6
        assert "abi3" in os.path.basename(wheel) and "cp39" in os.path.basename(wheel)

    @pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
    def test_types(self, checker, tmp_path):
        words = {"mypy": ["mypy", "--cache-dir", tmp_path], "basedpyright": ["basedpyright"]}[checker]
        done = subprocess.run(
            [sys.executable, "-m", *map(str, words)], capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory is a process's own")
    def test_weights_are_not_read_into_memory(self, tmp_path):
        """A model with 1.2 GB of weights is optimized by path in a fraction of that."""
        size, count = 75_000_000, 4
        with open(tmp_path / "big.bin", "wb") as file:
            file.truncate(4 * size * count)
        nodes, weights = [], []
        for place in range(count):
            tensor = TensorProto(name=f"w{place}", data_type=TensorProto.FLOAT, dims=[size // 100, 100])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "big.bin"), ("offset", 4 * size * place), ("length", 4 * size)):
                tensor.external_data.add(key=key, value=str(value))
            weights.append(tensor)
            nodes.append(helper.make_node("Gather", [f"w{place}", "x"], [f"g{place}"]))
            nodes.append(helper.make_node("Identity", [f"g{place}"], [f"y{place}"]))
        x = helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])
        outputs = [helper.make_tensor_value_info(f"y{place}", TensorProto.FLOAT, ["n", 100]) for place in range(count)]
        graph = helper.make_graph(nodes, "big", [x], outputs, weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "big.onnx")
        code = (
            "import onnxforge, sys, threading, time\n"
            "peak = 0\n"
            "def watch():\n"
            "    global peak\n"
            "    while True:\n"
            "        for line in open('/proc/self/status'):\n"
            "            if line.startswith('RssAnon'): peak = max(peak, int(line.split()[1]))\n"
            "        time.sleep(0.005)\n"
            "threading.Thread(target=watch, daemon=True).start()\n"
            "result = onnxforge.optimize(sys.argv[1], sys.argv[2], verify='off')\n"
            "print(peak // 1024, result.nodes_after)\n"
        )
        words = [sys.executable, "-c", code, tmp_path / "big.onnx", tmp_path / "out.onnx"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        peak, nodes = map(int, done.stdout.split())
        assert nodes == count and peak < 128


def test_the_tour_works():
    done = subprocess.run([sys.executable, ROOT / "examples/tour.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "did you mean fuse_gelu" in done.stdout and "passes" in done.stdout
