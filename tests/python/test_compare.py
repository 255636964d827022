"""`onnxforge compare`: what counts as the same topology, what does not, and where a difference begins."""

import gzip
import json
import random
import time

import numpy as np
import onnx
import pytest
from corpus import zoo_skeletons
from onnx import TensorProto, helper, numpy_helper

MODEL = """<ir_version: 10, opset_import: ["" : 21, "d" : 1]>
g (float[batch, 4] x, bool c) => (float[batch, 4] y, float[batch, 4] z)
<float[4] w = {1.0, 2.0, 3.0, 4.0}, float[4] v = {0.5, 0.5, 0.5, 0.5}, float[batch, 4] named> {
  named = Mul (x, w)
  left = Relu (named)
  right = Relu (named)
  less = Sub (left, v)
  more = Add (right, w)
  t = LeakyRelu <alpha = 0.25> (less)
  i = If <then_branch = yes () => (float[batch, 4] p) { p = Neg (more) },
          else_branch = no () => (float[batch, 4] q) { m = Abs (t)  q = Sub (m, more) }> (c)
  y = d.f <k = 1> (i)
  z = Clip (t, , w)
  unread = Exp (less)
}
<domain: "d", opset_import: ["" : 21]> f <k> (a) => (b) { e = Abs (a)  b = Softmax <axis : int = @k> (e) }"""


@pytest.fixture
def model():
    return onnx.parser.parse_model(MODEL)


@pytest.fixture
def judge(forge, tmp_path):
    """The report on two models, and that the exit codes agree with it."""

    def run(a, b):
        paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
        for path, model in zip(paths, (a, b)):
            path.write_bytes(model.SerializeToString())
        return compared(forge, *paths)

    return run


def compared(forge, a, b):
    outcome = forge("compare", a, b, "--json").orderly()
    report = json.loads(outcome.out)
    said = report["sameness"]
    assert outcome.code == (1 if said == "different" else 0), str(outcome)
    exact = forge("compare", a, b, "--exact").orderly()
    assert exact.code == (0 if said == "identical" else 1), str(exact)
    first = {"identical": "identical but for metadata", "equal": "structurally equal", "different": "different"}[said]
    assert exact.out.startswith(first), str(exact)
    # Which one comes first does not matter to the answer.
    assert json.loads(forge("compare", b, a, "--json").out)["sameness"] == said
    return report


def copy(model):
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


def node(model, op):
    return next(n for n in model.graph.node if n.op_type == op)


def rename(graph, names):
    """Renames values, also where they are captured."""
    new = lambda name: names.get(name, name)
    for n in graph.node:
        n.input[:], n.output[:] = map(new, n.input), map(new, n.output)
        for attribute in n.attribute:
            if attribute.HasField("g"):
                rename(attribute.g, names)
    for part in [*graph.initializer, *graph.value_info, *graph.output]:
        part.name = new(part.name)


def test_a_model_is_identical_to_itself(judge, model):
    report = judge(model, copy(model))
    assert report["sameness"] == "identical"
    assert report["not_identical"] is None and report["differences"] is None
    assert report["nodes"] == [15, 15] and report["unread"] == [0, 0]


def test_metadata_and_documentation_do_not_count(judge, model):
    other = copy(model)
    graphs = [other.graph, *(a.g for a in node(other, "If").attribute)]
    described = [other, other.functions[0], *other.functions[0].node]
    for graph in graphs:
        described += [graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info]
    for part in described:
        part.doc_string = "documented"
        part.metadata_props.add(key="k", value="v")
    for n in other.graph.node:
        for attribute in n.attribute:
            attribute.doc_string = "documented"
    assert judge(model, other)["sameness"] == "identical"


INSIDE = {"named": "n1", "left": "n2", "right": "n3", "less": "n4", "more": "n5", "t": "n6", "i": "n7", "w": "n8", "v": "n9",
          "p": "n10", "q": "n11", "m": "n12", "unread": "n13"}  # fmt: skip


def test_names_inside_do_not_count_for_equality(judge, model):
    other = copy(model)
    rename(other.graph, INSIDE)
    for index, n in enumerate(other.graph.node):
        n.name = f"called_{index}"
    function = other.functions[0]
    function.input[0] = function.node[0].input[0] = "one"
    report = judge(model, other)
    assert report["sameness"] == "equal"
    assert "Mul" in report["not_identical"] or "n8" in report["not_identical"]


def test_orders_inside_do_not_count_for_equality(judge, model):
    for seed in range(5):
        other = copy(model)
        rename(other.graph, INSIDE)
        shuffle(other.graph, random.Random(seed))
        assert judge(model, other)["sameness"] == "equal", seed


def shuffle(graph, rng):
    """Another topological order of the nodes, and any order of what has none."""
    for field in (graph.initializer, graph.value_info):
        parts = list(field)
        rng.shuffle(parts)
        del field[:]
        field.extend(parts)
    reads = {n.output[0]: set(n.input) | {name for a in n.attribute for m in a.g.node for name in m.input}
             for n in graph.node}  # fmt: skip
    waiting, done = list(graph.node), []
    while waiting:
        ready = [n for n in waiting if not reads[n.output[0]] & {w.output[0] for w in waiting}]
        done.append(rng.choice(ready))
        waiting = [n for n in waiting if n.output[0] != done[-1].output[0]]
    del graph.node[:]
    graph.node.extend(done)


@pytest.mark.parametrize("what", ["initializers", "nodes", "value_info", "producer", "graph name", "node name"])
def test_what_is_equal_and_not_identical(judge, model, what):
    other = copy(model)
    if what == "initializers":
        parts = list(reversed(other.graph.initializer))
        del other.graph.initializer[:]
        other.graph.initializer.extend(parts)
    elif what == "nodes":
        left, right = copy(model).graph.node[1], copy(model).graph.node[2]
        other.graph.node[1].CopyFrom(right)
        other.graph.node[2].CopyFrom(left)
    elif what == "value_info":
        del other.graph.value_info[:]
    elif what == "producer":
        other.producer_name = "somebody"
    elif what == "graph name":
        other.graph.name = "other"
    else:
        other.graph.node[0].name = "other"
    assert judge(model, other)["sameness"] == "equal"


def test_readers_of_duplicates_may_change_places(judge, model):
    other = copy(model)
    node(other, "Sub").input[0], node(other, "Add").input[0] = "right", "left"
    assert judge(model, other)["sameness"] == "equal"


def test_reading_one_duplicate_twice_is_another_structure(judge, model):
    other = copy(model)
    node(other, "Add").input[0] = "left"
    report = judge(model, other)
    assert report["sameness"] == "different"
    # Every value is computed alike, so no node stands out: the pairing tells what is wrong.
    assert report["differences"]["nodes_without_partner"] == [0, 0]
    assert "left" in report["differences"]["conflict"]


def change_attribute(model):
    node(model, "LeakyRelu").attribute[0].f = 0.5


def drop_attribute(model):
    del node(model, "LeakyRelu").attribute[:]


def swap_sub(model):
    node(model, "Sub").input[:] = reversed(node(model, "Sub").input)


def swap_add(model):
    node(model, "Add").input[:] = reversed(node(model, "Add").input)


def move_optional(model):
    node(model, "Clip").input[:] = ["t", "w"]


def change_operator(model):
    node(model, "Sub").op_type = "Div"


def change_body(model):
    node(model, "If").attribute[1].g.node[0].op_type = "Exp"


def change_capture(model):
    node(model, "If").attribute[0].g.node[0].input[0] = "t"


def change_function(model):
    model.functions[0].node[0].op_type = "Neg"


def change_dead_node(model):
    model.graph.node[-1].op_type = "Log"


def reshape_weight(model):
    model.graph.initializer[0].dims[:] = [1, 4]


@pytest.mark.parametrize(
    "change, op, within, said",
    [
        (change_attribute, "LeakyRelu", None, "attribute alpha: 0.25 and 0.5"),
        (drop_attribute, "LeakyRelu", None, "attribute alpha: 0.25 and nothing"),
        (swap_sub, "Sub", None, "input 0: left (Relu) and v (a constant)"),
        (swap_add, "Add", None, "input 0: right (Relu) and w (a constant)"),
        (move_optional, "Clip", None, "input 1: nothing and w (a constant)"),
        (change_operator, "Sub", None, "operator: Sub and Div"),
        (change_body, "Abs", "If i", "operator: Abs and Exp"),
        (change_capture, "Neg", "If i", "input 0: more (Add) and t (LeakyRelu)"),
        (change_function, "Abs", "function f", "operator: Abs and Neg"),
        (change_dead_node, "Exp", None, "operator: Exp and Log"),
        (reshape_weight, "Mul", None, "input 1, w: float[4] and float[1,4]"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_first_difference_is_told(judge, model, change, op, within, said):
    other = copy(model)
    change(other)
    report = judge(model, other)
    assert report["sameness"] == "different"
    found = report["differences"]["first"]["first"][0]
    assert (found["op"], found["within"]) == (op, within), found
    assert said in found["differs"], found
    assert report["differences"]["second"]["total"] >= 1


def test_the_interface_counts(judge, model):
    other = copy(model)
    other.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    found = judge(model, other)["differences"]
    assert found["inputs"]["first"] == [{"index": 0, "first": "x: float[batch,4]", "second": "x: float[rows,4]"}]
    assert found["outputs"]["total"] == 0 and found["first"]["total"] == 0

    other = copy(model)
    rename(other.graph, {"z": "zz"})
    found = judge(model, other)["differences"]
    assert [port["second"] for port in found["outputs"]["first"]] == ["zz: float[batch,4]"]

    other = copy(model)
    other.graph.output.reverse()
    assert judge(model, other)["differences"]["outputs"]["total"] == 2

    other = copy(model)
    other.graph.output.pop()
    assert judge(model, other)["differences"]["outputs"]["first"][0]["second"] is None


def test_the_operator_set_counts_where_it_is_used(judge, model):
    other = copy(model)
    other.opset_import.add(domain="unused", version=3)
    assert judge(model, other)["sameness"] == "equal"
    other.opset_import[0].version = 20
    found = judge(model, other)["differences"]["opsets"]["first"]
    assert found == [{"function": None, "domain": "ai.onnx", "first": 21, "second": 20}]


def test_operators_are_counted(judge, model):
    other = copy(model)
    node(other, "Exp").op_type = "Log"
    counts = judge(model, other)["differences"]["operators"]["first"]
    assert counts == [{"op": "Exp", "first": 1, "second": 0}, {"op": "Log", "first": 0, "second": 1}]


def test_functions_that_nothing_calls_count(judge, model):
    other = copy(model)
    extra = other.functions.add()
    extra.CopyFrom(model.functions[0])
    extra.name = "unused"
    assert judge(model, other)["sameness"] == "different"
    # Their order does not.
    again = copy(other)
    again.functions.reverse()
    assert judge(other, again)["sameness"] == "equal"


def test_nodes_that_nothing_reads_are_paired(judge):
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) {{ y = Relu (x)
      a = Neg (x)  b = Neg (x)  c = Neg (x)  {}  }}"""
    parse = lambda body: onnx.parser.parse_model(text.format(body))
    one = parse("p = Exp (a)  q = Exp (b)  r = Abs (a)  s = Add (b, c)")
    # The same with other nodes in the same places; only what is around tells the three Negs apart.
    assert judge(one, parse("p = Exp (b)  q = Exp (c)  r = Abs (c)  s = Add (b, a)"))["sameness"] == "equal"
    assert judge(one, parse("p = Exp (a)  q = Exp (b)  r = Abs (c)  s = Add (b, c)"))["sameness"] == "different"
    # Which Exp is which shows only at another reader of what it reads.
    many = lambda at: parse(" ".join([*(f"n{i} = Neg (x)" for i in range(20)), f"r = Abs (n{at})",
                                      *(f"e{i} = Exp (n{i})" for i in range(20))]))  # fmt: skip
    assert judge(many(3), many(16))["sameness"] == "equal"


def test_initializers_that_nothing_reads_count(judge, model):
    def unused(*values):
        other = copy(model)
        for index, value in enumerate(values):
            other.graph.initializer.append(numpy_helper.from_array(np.array(value), f"unused_{index}"))
        return other

    assert judge(unused(1.0, 2.0), unused(2.0, 1.0))["sameness"] == "equal"
    assert judge(unused(1.0, 2.0), unused(2.0, 2.0))["sameness"] == "different"
    assert judge(unused(1.0), model)["sameness"] == "different"


def weighty(bit=None):
    """A model with a weight that is too large to be hashed whole."""
    weight = np.arange(300 * 300, dtype=np.float32).reshape(300, 300)
    if bit is not None:
        weight.view(np.uint32).reshape(-1)[bit] ^= 1
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 300])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("at", [0, 1025, 54_321, 89_999])
def test_weights_count_bit_for_bit(judge, at):
    report = judge(weighty(), weighty(at))
    assert report["sameness"] == "different"
    [found] = report["differences"]["constants"]["first"]
    assert found["first"] == "w" and "MatMul" in found["read_by"]
    assert found["differs"] == f"elements differ, the first one at {at}"


def test_it_does_not_matter_where_weights_lie(forge, tmp_path):
    inline, outside, typed = (tmp_path / name for name in ("inline.onnx", "outside.onnx", "typed.onnx"))
    inline.write_bytes(weighty().SerializeToString())
    onnx.save(weighty(), outside, save_as_external_data=True, location="outside.data", size_threshold=0)
    model = weighty()
    values = numpy_helper.to_array(model.graph.initializer[0]).reshape(-1).tolist()
    model.graph.initializer[0].CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [300, 300], values))
    typed.write_bytes(model.SerializeToString())
    assert compared(forge, inline, outside)["sameness"] == "identical"
    assert compared(forge, inline, typed)["sameness"] == "identical"
    data = bytearray((tmp_path / "outside.data").read_bytes())
    data[-1] ^= 1
    (tmp_path / "outside.data").write_bytes(data)
    assert compared(forge, inline, outside)["sameness"] == "different"


def test_weights_that_are_missing_count_by_their_place(forge, tmp_path):
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(weighty(), a, save_as_external_data=True, location="gone.data", size_threshold=0)
    b.write_bytes(a.read_bytes())
    (tmp_path / "gone.data").unlink()
    report = compared(forge, a, b)
    assert report["sameness"] == "identical" and report["unread"] == [1, 1]
    assert "cannot be read" in forge("compare", a, b).out
    elsewhere = onnx.load(a, load_external_data=False)
    elsewhere.graph.initializer[0].external_data[0].value = "other.data"
    b.write_bytes(elsewhere.SerializeToString())
    assert compared(forge, a, b)["sameness"] == "different"
    b.write_bytes(weighty().SerializeToString())
    assert compared(forge, a, b)["sameness"] == "different"


def test_signed_zero_and_nan_are_told_apart_by_their_bits(judge, model):
    def with_alpha(value):
        other = copy(model)
        node(other, "LeakyRelu").attribute[0].f = value
        return other

    assert judge(with_alpha(float("nan")), with_alpha(float("nan")))["sameness"] == "identical"
    assert judge(with_alpha(0.0), with_alpha(-0.0))["sameness"] == "different"


def test_lists_are_bounded(forge, tmp_path):
    def many(op):
        nodes = [helper.make_node(op, ["x"], [f"y{i}"], name=f"n{i}") for i in range(500)]
        info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])
        graph = helper.make_graph(nodes, "g", [info("x")], [info(f"y{i}") for i in range(500)])
        path = tmp_path / f"{op}.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
        return path

    a, b = many("Sin"), many("Cos")
    text = forge("compare", a, b).out
    assert "and 490 more nodes of the first" in text and len(text.splitlines()) < 40, text
    found = compared(forge, a, b)["differences"]
    assert found["nodes_without_partner"] == [500, 500] and len(found["first"]["first"]) == 100


def test_bad_input_is_refused(forge, tmp_path, model):
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    good.write_bytes(model.SerializeToString())
    bad.write_bytes(good.read_bytes()[:-7])
    forge("compare", good, bad).refused("bad.onnx")
    forge("compare", tmp_path / "none.onnx", good).refused("none.onnx")
    assert forge("compare", good).code == 2
    cyclic = copy(model)
    node(cyclic, "Mul").input[0] = "t"
    bad.write_bytes(cyclic.SerializeToString())
    forge("compare", good, bad).refused("bad.onnx", "cycle")


def saved(path, nodes, outputs):
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])
    graph = helper.make_graph(nodes, "g", [info("x")], [info(name) for name in outputs])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    path.write_bytes(model.SerializeToString())
    return path


def chain(length, last):
    ops = ["Relu"] * (length - 1) + [last]
    return [helper.make_node(op, [f"v{i - 1}" if i else "x"], [f"v{i}"], name=f"n{i}") for i, op in enumerate(ops)]


def hostile_dead(size, odd):
    """Copies of one value, and sums of two of them that nothing reads: which copy is which is a riddle about graphs."""
    nodes = [helper.make_node("Relu", ["x"], [f"c{i}"]) for i in range(size)]
    step = lambda i: 2 if odd and i % 2 else 3
    sums = [(i, (i + 1) % size) for i in range(size)] + [(i, (i + step(i)) % size) for i in range(size)]
    nodes += [helper.make_node("Add", [f"c{a}", f"c{b}"], [f"s{k}"]) for k, (a, b) in enumerate(sums)]
    return [*nodes, helper.make_node("Neg", ["x"], ["y"])]


@pytest.mark.parametrize(
    "first, second, outputs, said",
    [
        (chain(20_000, "Relu"), chain(20_000, "Abs"), ["v19999"], "different"),
        (chain(20_000, "Relu"), [helper.make_node(n.op_type, n.input, n.output) for n in chain(20_000, "Relu")], ["v19999"], "equal"),
        (chain(20_000, "Relu"), [*chain(20_000, "Relu")[:-1], helper.make_node("Relu", ["v19997"], ["v19999"])], ["v19999"], "different"),
        # Nothing is read: every node has to be searched for.
        ([*chain(20_000, "Relu"), helper.make_node("Neg", ["x"], ["y"])], [helper.make_node("Neg", ["x"], ["y"]), *chain(20_000, "Relu")], ["y"], "equal"),
        # Duplicates without end.
        ([helper.make_node("Relu", ["x"], [f"v{i}"]) for i in range(20_000)], [helper.make_node("Relu", ["x"], [f"v{19_999 - i}"]) for i in range(20_000)], ["v0"], "equal"),
        (hostile_dead(2000, False), hostile_dead(2000, True), ["y"], "different"),
    ],
    ids=["last", "names", "shortcut", "unread", "duplicates", "riddle"],
)  # fmt: skip
def test_it_takes_about_as_long_as_the_models_are_large(forge, tmp_path, first, second, outputs, said):
    a, b = saved(tmp_path / "a.onnx", first, outputs), saved(tmp_path / "b.onnx", second, outputs)
    start = time.monotonic()
    report = json.loads(forge("compare", a, b, "--json").orderly().out)
    assert report["sameness"] == said, report
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("skeleton", zoo_skeletons(), ids=lambda path: path.name.removesuffix(".onnx.gz"))
def test_the_zoo_with_other_names_and_orders(forge, tmp_path, skeleton):
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    model = onnx.load_from_string(gzip.decompress(skeleton.read_bytes()))
    a.write_bytes(model.SerializeToString())
    outside = {port.name for port in [*model.graph.input, *model.graph.output]}
    names = [*(t.name for t in model.graph.initializer), *(o for n in model.graph.node for o in n.output)]
    rename(model.graph, {name: f"v{i}" for i, name in enumerate(names) if name and name not in outside})
    parts = list(reversed(model.graph.initializer))
    del model.graph.initializer[:]
    model.graph.initializer.extend(parts)
    for part in model.graph.node:
        part.name = ""
    b.write_bytes(model.SerializeToString())
    start = time.monotonic()
    assert json.loads(forge("compare", a, b, "--json").good().out)["sameness"] == "equal"
    assert time.monotonic() - start < 2
    victim = random.Random(7).choice(model.graph.node)
    victim.op_type = "Elsewhere"
    b.write_bytes(model.SerializeToString())
    outcome = forge("compare", a, b, "--json").orderly()
    found = json.loads(outcome.out)["differences"]
    assert outcome.code == 1
    assert [node["op"] for node in found["second"]["first"]] == ["Elsewhere"]
