"""Files that mean harm, or that something went wrong with: a clear refusal, never a crash, never unbounded memory."""

import random
import shutil
import zipfile

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import corpus
from conftest import MIB, Limits
from corpus import ROOT
from wire import GROUP, LEN, delimited, key, lengths, path_to, reachable, read, wrap, write

# Memory grows with the input, by no more than this factor: an empty message has two bytes in a file, hundreds here.
FACTOR = 1024
BASE = 64 * MIB


def limits(size):
    return Limits(heap=BASE + FACTOR * size)


def small_model():
    """A valid model, of which no part can go without making it invalid."""
    weight = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    tensor = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
    body = lambda op: helper.make_graph([helper.make_node(op, ["x"], ["b"])], "body", [], [tensor("b")])
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"], name="add"),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["k"], ["c"], then_branch=body("Neg"), else_branch=body("Abs")),
        helper.make_node("Mul", ["a", "c"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [tensor("x")], [tensor("y")], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="t")
    onnx.checker.check_model(model)
    return model


def files(folder, contents):
    """Writes each of `contents`; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, data in contents:
        paths.append(folder / f"{name}.onnx")
        paths[-1].write_bytes(data)
    return paths


def run(forge, paths, folder):
    """Checks and saves each file; the outcomes, all orderly, as (path, check, save)."""
    heap = limits(max(path.stat().st_size for path in paths))
    (folder / "out").mkdir(exist_ok=True)
    outcomes = forge.many([("check", path) for path in paths], limits=heap, timeout=20)
    saves = forge.many([("save", path, "-o", folder / "out" / path.name) for path in paths], limits=heap, timeout=20)
    for path, check, save in zip(paths, outcomes, saves):
        check.orderly()
        save.orderly()
        if check.code == 2:
            check.refused(path.name)
        if save.code != 0:
            save.refused(path.name)
            assert not (folder / "out" / path.name).exists(), f"an output was written\n{save}"
    return list(zip(paths, outcomes, saves))


def assert_all_bad(outcomes):
    """None is called valid."""
    for _, check, _ in outcomes:
        assert check.code in (1, 2), str(check)


def test_the_small_model_is_valid(forge, tmp_path):
    """What follows would prove nothing otherwise."""
    ((_, check, save),) = run(forge, files(tmp_path, [("small", small_model().SerializeToString())]), tmp_path)
    check.good(), save.good()


def test_truncated_at_every_byte(forge, tmp_path):
    data = small_model().SerializeToString()
    outcomes = run(forge, files(tmp_path, [(f"{end}", data[:end]) for end in range(len(data))]), tmp_path)
    assert_all_bad(outcomes)
    for path, _, save in outcomes:
        try:
            whole = corpus.parse(path).HasField("graph")
        except Exception:
            whole = False
        assert whole or save.code == 2, str(save)


CLAIMS = {
    "plus_1": lambda length: length + 1,
    "plus_200": lambda length: length + 200,
    "31_bits": lambda length: 2**31 - 1,
    "32_bits": lambda length: 2**32 - 1,
    "63_bits": lambda length: 2**63 - 1,
    "64_bits": lambda length: 2**64 - 1,
    "70_bits": lambda length: 2**70 - 1,
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_length_blown_up(forge, tmp_path, claim):
    model = small_model().SerializeToString()
    fields = read(model, ModelProto.DESCRIPTOR)
    assert write(fields) == model
    contents = [(f"{i}", write(fields, field, CLAIMS[claim])) for i, field in enumerate(lengths(fields))]
    assert len(contents) > 50
    outcomes = run(forge, files(tmp_path, contents), tmp_path)
    for path, check, save in outcomes:
        try:
            corpus.parse(path)
        except Exception:
            assert check.code == save.code == 2, f"Python finds this malformed\n{check}\n{save}"


def test_bytes_changed_at_random(forge, tmp_path):
    model = (ROOT / "tests/data/every_field.onnx").read_bytes()
    rng = random.Random(5)
    contents = []
    for number in range(300):
        data = bytearray(model)
        for _ in range(rng.choice([1, 2, 8])):
            data[rng.randrange(len(data))] = rng.choice([0, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        contents.append((f"{number}", bytes(data)))
    run(forge, files(tmp_path, contents), tmp_path)


DIMS = [
    [2**32, 2**32], [2**31, 2**31, 4], [2**62, 4], [2**63 - 1], [2**63 - 1, 2**63 - 1], [3] * 50, [2**61], [-1],
    [-(2**63)], [2, -2], [-1, -4], [2**64 // 4 + 1], [1 << 20, 1 << 20, 1 << 22],
]  # fmt: skip


@pytest.mark.parametrize("place", ["raw", "typed", "absent", "external", "attribute", "sparse"])
def test_dims_that_are_too_large(forge, tmp_path, place):
    contents = []
    (tmp_path / "w.bin").write_bytes(bytes(64))
    for number, dims in enumerate(DIMS):
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT)
        tensor.dims.extend(dim if dim < 2**63 else dim - 2**64 for dim in dims)
        model = small_model()
        if place in ("raw", "attribute", "sparse"):
            tensor.raw_data = bytes(16)
        elif place == "typed":
            tensor.float_data.extend([1, 2, 3, 4])
        elif place == "external":
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="w.bin")
        del model.graph.initializer[:]
        if place == "attribute":
            model.graph.node[1].attribute[0].t.CopyFrom(tensor)
        elif place == "sparse":
            sparse = model.graph.sparse_initializer.add(dims=dims)
            sparse.values.CopyFrom(tensor)
            sparse.indices.CopyFrom(tensor)
        else:
            model.graph.initializer.append(tensor)
        contents.append((f"{number}", model.SerializeToString()))
    assert_all_bad(run(forge, files(tmp_path, contents), tmp_path))


def test_dims_with_a_zero_are_fine(forge, tmp_path):
    """No element, whatever the other dimensions say."""
    model = small_model()
    tensor = TensorProto(name="empty", data_type=TensorProto.FLOAT, dims=[0, 2**40, 2**40])
    model.graph.initializer.append(tensor)
    ((_, _, save),) = run(forge, files(tmp_path, [("zero", model.SerializeToString())]), tmp_path)
    assert save.code == 0, str(save)


# Ways to nest: what is repeated around the innermost content, and what is around it all.
GRAPH = 7
NODE, ATTRIBUTE, BODY, BODIES = 1, 5, 6, 11
VALUE_INFO, TYPE, SEQUENCE, MAP, OPTIONAL, ELEMENT, MAP_VALUE = 13, 2, 4, 5, 9, 1, 2
NESTINGS = {
    "body": ([GRAPH], [NODE, ATTRIBUTE, BODY]),
    "bodies": ([GRAPH], [NODE, ATTRIBUTE, BODIES]),
    "sequence": ([GRAPH, VALUE_INFO, TYPE], [SEQUENCE, ELEMENT]),
    "optional": ([GRAPH, VALUE_INFO, TYPE], [OPTIONAL, ELEMENT]),
    "map": ([GRAPH, VALUE_INFO, TYPE], [MAP, MAP_VALUE]),
    "training": ([20, 1], [NODE, ATTRIBUTE, BODY]),
    "function": ([25, 7], [ATTRIBUTE, BODY, NODE]),
}


def nested(around, step, depth):
    content = b""
    for _ in range(depth):
        content = wrap(step, content)
    return small_model().SerializeToString() + wrap(around, content)


def in_groups(around, depth):
    content = key(77, GROUP) * depth + key(77, GROUP + 1) * depth
    return small_model().SerializeToString() + wrap(around, content)


def test_nested_ten_thousand_deep(forge, tmp_path):
    contents = [(name, nested(*nesting, 10_000)) for name, nesting in NESTINGS.items()]
    for number, path in enumerate([[], [7], [7, 1], [7, 5], [7, 13, 2]]):
        contents.append((f"group_{number}", in_groups(path, 10_000)))
    contents.append(("open_groups", small_model().SerializeToString() + key(77, GROUP) * 10_000))
    outcomes = run(forge, files(tmp_path, contents), tmp_path)
    assert_all_bad(outcomes)
    assert all(save.code == 2 for _, _, save in outcomes)


def test_nested_as_deep_as_python_accepts(forge, tmp_path):
    """The limit is not below that of other implementations."""
    contents = []
    for depth in [1, 2, 5, 10, *range(28, 36), *range(45, 52), *range(94, 103)]:
        contents += [(f"{name}_{depth}", nested(*NESTINGS[name], depth)) for name in ("sequence", "optional", "map")]
        for number, path in enumerate([[], [7], [7, 13]]):
            contents.append((f"group_{number}_{depth}", in_groups(path, depth)))
        model = small_model()
        # Bodies need names for what they hold.
        node = model.graph.node[3]
        try:
            for _ in range(depth):
                attribute = node.attribute.add(name="body", type=onnx.AttributeProto.GRAPH)
                node = attribute.g.node.add(op_type="Custom")
            contents.append((f"body_{depth}", model.SerializeToString()))
        except Exception:
            continue
    accepted = 0
    for path, _, save in run(forge, files(tmp_path, contents), tmp_path):
        try:
            expected = corpus.parse(path)
        except Exception:
            continue
        accepted += 1
        assert save.code == 0, f"Python reads {path.name}\n{save}"
        if "WARN" not in save.err:  # what is mended on load is noted, and comes back otherwise
            assert corpus.parse(tmp_path / "out" / path.name) == expected
    assert accepted > 80


def repeated_fields():
    """Every repeated field with the way to it."""
    for descriptor in reachable(ModelProto.DESCRIPTOR):
        for field in descriptor.fields:
            if field.is_repeated:
                yield field, path_to(ModelProto.DESCRIPTOR, descriptor)


def test_a_hundred_thousand_empty_elements_in_each_repeated_field(forge, tmp_path):
    contents = []
    for field, path in repeated_fields():
        delimited_type = field.message_type or field.type in (field.TYPE_STRING, field.TYPE_BYTES)
        element = key(field.number, LEN) + b"\0" if delimited_type else delimited(field.number, b"\0" * 8)
        content = element * 100_000
        name = field.full_name.removeprefix("onnx.")
        contents.append((name, small_model().SerializeToString() + wrap(path, content)))
    assert len(contents) > 40
    run(forge, files(tmp_path, contents), tmp_path)


def model_of(nodes, **fields):
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], **fields)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cycles():
    node = helper.make_node
    yield "itself", model_of([node("Add", ["x", "y"], ["y"])])
    yield "two", model_of([node("Add", ["x", "b"], ["y"]), node("Neg", ["y"], ["b"])])
    body = helper.make_graph([node("Neg", ["y"], ["b"])], "b", [], [helper.make_tensor_value_info("b", 1, None)])
    yield "through_a_body", model_of([node("Custom", ["x"], ["y"], body=body)])
    ring = [node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(200_000)]
    yield "long", model_of([*ring, node("Add", ["v200000", "x"], ["v0"]), node("Neg", ["v7"], ["y"])])


def test_cyclic_graphs(forge, tmp_path):
    outcomes = run(forge, files(tmp_path, [(name, model.SerializeToString()) for name, model in cycles()]), tmp_path)
    assert_all_bad(outcomes)
    assert all(save.code == 2 for _, _, save in outcomes)


def contradictions():
    node = helper.make_node

    def changed(change):
        model = small_model()
        change(model)
        return model

    yield "no_op_type", changed(lambda m: m.graph.node[0].ClearField("op_type"))
    yield "empty_op_type", changed(lambda m: setattr(m.graph.node[0], "op_type", ""))
    yield "no_graph", changed(lambda m: m.ClearField("graph"))
    yield "no_opset", changed(lambda m: m.ClearField("opset_import"))
    yield "no_ir_version", changed(lambda m: m.ClearField("ir_version"))
    yield "input_that_nothing_defines", model_of([node("Neg", ["nowhere"], ["y"])])
    yield "output_that_nothing_defines", model_of([node("Neg", ["x"], ["z"])])
    yield "defined_twice", model_of([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])])
    yield "defined_twice_by_one_node", model_of([node("Split", ["x"], ["y", "y"])])
    yield "input_defined_again", model_of([node("Neg", ["x"], ["x"]), node("Neg", ["x"], ["y"])])
    yield "initializer_twice", changed(lambda m: m.graph.initializer.append(m.graph.initializer[0]))
    yield "initializer_without_name", changed(lambda m: m.graph.initializer[0].ClearField("name"))
    yield "initializer_of_no_type", changed(lambda m: m.graph.initializer[0].ClearField("data_type"))
    yield "initializer_of_a_later_type", changed(lambda m: setattr(m.graph.initializer[0], "data_type", 9999))
    yield "initializer_too_short", changed(lambda m: setattr(m.graph.initializer[0], "raw_data", bytes(15)))
    yield "initializer_too_long", changed(lambda m: setattr(m.graph.initializer[0], "raw_data", bytes(17)))
    yield "input_without_name", changed(lambda m: m.graph.input[0].ClearField("name"))
    yield "output_without_name", changed(lambda m: m.graph.output[0].ClearField("name"))
    yield "attribute_without_name", changed(lambda m: m.graph.node[1].attribute[0].ClearField("name"))
    yield "attribute_of_a_wrong_type", changed(lambda m: setattr(m.graph.node[1].attribute[0], "type", 1))
    yield "attribute_with_two_values", changed(lambda m: setattr(m.graph.node[1].attribute[0], "i", 1))
    yield "attribute_without_value", changed(lambda m: m.graph.node[1].attribute[0].ClearField("t"))
    yield "body_without_output", changed(lambda m: m.graph.node[2].attribute[0].g.ClearField("output"))
    yield "unknown_operator", model_of([node("NoSuchOperator", ["x"], ["y"])])


def test_contradictions(forge, tmp_path):
    contents = [(name, model.SerializeToString()) for name, model in contradictions()]
    assert_all_bad(run(forge, files(tmp_path, contents), tmp_path))


def test_names_that_are_not_utf8(forge, tmp_path):
    contents = []
    for descriptor in reachable(ModelProto.DESCRIPTOR):
        path = path_to(ModelProto.DESCRIPTOR, descriptor)
        for field in descriptor.fields:
            if field.type == field.TYPE_STRING:
                for number, text in enumerate([b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"a\xf4\x90\x80\x80"]):
                    data = small_model().SerializeToString() + wrap(path, delimited(field.number, text))
                    contents.append((f"{field.full_name}_{number}", data))
    assert len(contents) > 100
    outcomes = run(forge, files(tmp_path, contents), tmp_path)
    assert all(save.code == 2 for _, _, save in outcomes)


def test_names_that_hold_anything_else(forge, tmp_path):
    """Line breaks, control characters and quotes are names like others; messages about them stay on one line."""
    names = ["a\nb", "\x1b[31mred", "\0", "\"'", "\u202e", "x" * 100_000, "\r\n", "💥", "\x7f"]
    for number, name in enumerate(names):
        model = small_model()
        model.graph.node[0].name = name
        model.graph.node[0].input[1] = name + "!"
        model.graph.initializer[0].name = name + "!"
        model.graph.name = name
        good = model.SerializeToString()
        model.graph.initializer[0].name = "gone"
        paths = files(tmp_path / str(number), [("good", good), ("bad", model.SerializeToString())])
        (_, _, good), (_, check, bad) = run(forge, paths, tmp_path / str(number))
        assert good.code == 0, str(good)
        assert bad.code == 2 and check.code in (1, 2), str(bad)
        assert "\x1b" not in bad.err and "\x1b" not in check.err + check.out


def other_files(folder):
    """Files that are not models, and names of no files."""
    contents = [
        ("empty", b""),
        ("text", b"hello, this is not a model\n" * 20),
        ("json", b'{"ir_version": 8}'),
        ("zeros", bytes(1000)),
        ("random", random.Random(1).randbytes(5000)),
        ("gzip", b"\x1f\x8b\x08\x00" + bytes(100)),
        ("pickle", b"\x80\x02}q\x00."),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
        ("utf16", "a model".encode("utf-16")),
        ("one_byte", b"\x08"),
    ]
    paths = files(folder, contents)
    with zipfile.ZipFile(folder / "archive.onnx", "w") as archive:
        archive.writestr("data.pkl", b"abc")
    (folder / "folder.onnx").mkdir()
    (folder / "dangling.onnx").symlink_to("nowhere")
    return [*paths, *(folder / name for name in ["archive.onnx", "folder.onnx", "dangling.onnx", "missing.onnx"])]


def test_other_files(forge, tmp_path):
    paths = other_files(tmp_path)
    target = tmp_path / "out.onnx"
    for command in [("check",), ("save", "-o", target), ("inspect",), ("print",), ("redact", "-o", target)]:
        for path, outcome in zip(paths, forge.many([(*command, path) for path in paths], limits=Limits())):
            outcome.refused(path.name)
    assert not target.exists()


def large_models():
    """Models on which work that grows with the square of the input would take minutes."""
    count = 60_000
    node = helper.make_node
    many = model_of([node("Sum", ["x"] * 3 * count, ["y"])])
    for _ in range(3 * count):
        annotation = many.graph.quantization_annotation.add(tensor_name="x")
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="x")
    yield "uses", many
    backwards = model_of([node("Neg", [f"v{i + 1}"], [f"v{i}" if i else "y"]) for i in range(count)])
    backwards.graph.node[-1].input[0] = "x"
    yield "backwards", backwards
    same = model_of([node("Neg", ["x"], ["y"])])
    same.graph.value_info.extend([helper.make_tensor_value_info("y", 1, None)] * count)
    yield "infos", same
    nodes = [node("F", ["x"], [f"v{i}"], domain=f"d{i}") for i in range(count)]
    imports = model_of([node("Neg", ["x"], ["y"]), *nodes])
    imports.opset_import.extend(helper.make_opsetid(f"d{i}", 1) for i in range(count))
    yield "imports", imports
    attributes = model_of([node("F", ["x"], ["y"], domain="d", **{f"a{i}": i for i in range(count)})])
    attributes.opset_import.append(helper.make_opsetid("d", 1))
    yield "attributes", attributes
    outputs = model_of([node("Split", ["x"], ["y", *(f"v{i}" for i in range(count))])])
    outputs.graph.output.extend(helper.make_tensor_value_info(f"v{i}", 1, None) for i in range(count))
    yield "outputs", outputs
    functions = model_of([node("Neg", ["x"], ["y"])])
    functions.functions.extend(
        helper.make_function("d", f"f{i}", ["a"], ["b"], [node("Neg", ["a"], ["b"])], []) for i in range(10_000)
    )
    yield "functions", functions
    located = model_of([node("Neg", ["x"], ["y"])])
    for i in range(count // 3):
        tensor = located.graph.initializer.add(name=f"w{i}", data_type=1, data_location=1)
        tensor.external_data.add(key="location", value=f"w{i}.bin")
    yield "files", located


LARGE = ["uses", "backwards", "infos", "imports", "attributes", "outputs", "functions", "files"]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    paths = files(folder, [(name, model.SerializeToString()) for name, model in large_models()])
    assert [path.stem for path in paths] == LARGE
    return {path.stem: path for path in paths}


@pytest.mark.parametrize("name", LARGE)
def test_nothing_is_slow(forge, tmp_path, large, name):
    run(forge, [large[name]], tmp_path)
    # Over a target that is hostile itself.
    shutil.copy(large[name], tmp_path / "target.onnx")
    good = files(tmp_path, [("good", small_model().SerializeToString())])[0]
    forge("save", good, "-o", tmp_path / "target.onnx", timeout=20).good()
