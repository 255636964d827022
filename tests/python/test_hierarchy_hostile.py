"""What tells of modules is untrusted: whatever stands there, commands end soon, by their own decision, and write nowhere else."""

import json
import resource

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
MODULE, EVIDENCE, TAGS, WHOLE = "onnxforge.module", "onnxforge.evidence", "onnxforge.tags", "onnxforge.hierarchy"
SECONDS = 4
MANY = 30_000


def chain(metadata=(), names=None, count=4, whole=None):
    """Nodes in a row, each with these entries; a Mul reads the parameter `a.weight`."""
    nodes = []
    for index in range(count):
        inputs = [f"v{index}", "a.weight"] if index == 1 else [f"v{index}"]
        name = names[index] if names else f"n{index}"
        node = helper.make_node("Mul" if index == 1 else "Relu", inputs, [f"v{index + 1}"], name=name)
        for key, value in metadata:
            node.metadata_props.add(key=key, value=value)
        nodes.append(node)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("v0", f"v{count}")]
    weight = numpy_helper.from_array(np.array([2, 3], np.float32), "a.weight")
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    if whole is not None:
        model.metadata_props.add(key=WHOLE, value=whole)
    return model


def stack(*paths):
    """The entries of the exporter for a node in the last of these modules."""
    return [(SCOPES, repr(["", *paths, "op"])), (CLASSES, repr(["m.Net", *["m.Part"] * len(paths), "aten.op"]))]


def processor_time():
    """Of all commands so far; others that run on the machine do not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def commands(forge, tmp_path):
    """Runs every command on a model; the outcomes by their names."""

    def run(model, table=None, skip=()):
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        (tmp_path / "parts").mkdir(exist_ok=True)
        options = []
        if table is not None:
            (tmp_path / "table.json").write_text(table if isinstance(table, str) else json.dumps(table))
            options = ["--modules", tmp_path / "table.json"]
        everything = {
            "tree": ["tree", path, *options],
            "coverage": ["coverage", path, *options, "--detailed"],
            "validate": ["validate", path, *options],
            "extract": ["extract", path, *options, "-m", "**", "-o", tmp_path / "parts", "--verify", "--engine", "native"],
            "report": ["report", path, *options, "-o", tmp_path / "report.html"],
            "tag": ["tag", path, *options, "-o", tmp_path / "tagged.onnx"],
            "restore": ["restore", path, "--from", path, *options, "-o", tmp_path / "restored.onnx"],
        }
        outcomes = {}
        for name, args in everything.items():
            if name not in skip:
                begin = processor_time()
                outcomes[name] = forge(*args).orderly()
                took = processor_time() - begin
                assert took < SECONDS * (1 if "release" in forge.binary else 4), f"{took:.1f} s\n{outcomes[name]}"
        return outcomes

    return run


def good(outcomes):
    for outcome in outcomes.values():
        outcome.good()


BAD_REPRS = ["", "[", "['a", "['', 'a', 'op'] x", "[1, 2]", "['\\q', 'op']", "[['a']]", "null", "\x00", "['" + "a" * 100_000, "[" * 100_000]


@pytest.mark.parametrize("text", BAD_REPRS, ids=range(len(BAD_REPRS)))
def test_stacks_that_cannot_be_read(commands, text):
    outcomes = commands(chain([(SCOPES, text)]))
    assert outcomes["validate"].code == 1 and "cannot be read" in outcomes["validate"].out
    assert len(outcomes["validate"].out) < 4000


def test_stacks_without_end(commands):
    good(commands(chain(stack(*(f"m{index}" for index in range(20_000))))))


def test_more_levels_than_any_model_has(commands, forge):
    path = ".".join(["a"] * 5000)
    outcomes = commands(chain(stack(path)))
    assert "levels" in outcomes["tree"].err
    for outcome in commands(chain(), {path: {}}).values():
        outcome.refused("table.json", "levels")
    deep = {".".join(["a"] * levels): {"class": "m.A", "direct_parameters": ["w"]} for levels in range(1, 257)}
    good(commands(chain(stack(".".join(["a"] * 256)), count=100), deep))


@pytest.mark.parametrize(
    "text", ["", "a", "{}", "3", '["no.such"]', '["a", 3]', '[["a"]]', "[" * 100_000, '["' + "x" * 100_000 + '"]'], ids=range(9)
)
def test_modules_of_nodes_that_are_none(commands, text):
    outcomes = commands(chain([(MODULE, text)], names=["/a/Relu"] * 4, whole=json.dumps({"modules": {"a": {"class": "m.A"}}})))
    assert outcomes["validate"].code == 1 and MODULE in outcomes["validate"].out
    outcomes["tree"].good()


def test_evidence_and_tags_that_are_none(commands):
    outcomes = commands(chain([(MODULE, '["a"]'), (EVIDENCE, "hearsay"), (TAGS, "{"), (TAGS, "[]")], names=["/a/Relu"] * 4))
    for text in (EVIDENCE, "hearsay", "more than once", "no list of tags"):
        assert text in outcomes["validate"].out, outcomes["validate"]


WHOLES = [
    "x" * 1_000_000,
    "[" * 1_000_000,
    '{"modules": ' * 80_000,
    json.dumps({"modules": {}, "schema_version": "99.0"}),
    json.dumps({"modules": {"a": {}}, "anchors": {"v1": [7, 1 << 40]}, "weak": {"nonsense": ["v1", "v9"]}}),
    json.dumps({"modules": {"a": {"alias_of": "b"}, "b": {"alias_of": "a"}}}),
    json.dumps({"modules": {"a": {"class": "c" * 1_000_000}}}),
    json.dumps({"modules": {}, "policy": {"keep": 3}}),
    json.dumps({"modules": {"a": 3}}),
]


@pytest.mark.parametrize("whole", WHOLES, ids=range(len(WHOLES)))
def test_tables_in_the_model_that_are_none(commands, whole):
    outcomes = commands(chain(stack("a"), whole=whole))
    outcomes["coverage"].good()
    for outcome in outcomes.values():
        assert len(outcome.err) < 4000, outcome
    if "nonsense" not in whole:
        assert outcomes["validate"].code == 1 and WHOLE in outcomes["validate"].out


@pytest.mark.parametrize(
    "table, said",
    [
        ("", "no table"),
        ("[]", "no table"),
        ("x" * 1_000_000, "no table"),
        ("[" * 1_000_000, "no table"),
        ('{"a": {}, "a": {}}', "listed twice"),
        ({"a": {"alias_of": "a"}}, "alias of itself"),
        ({"a": {"alias_of": "gone"}}, "does not have"),
        ({f"a{index}": {"alias_of": f"a{(index + 1) % MANY}"} for index in range(MANY)}, "alias of itself"),
        ({"a": {"class": 3}}, "no table"),
        ({"a" * 100_000: {}}, "bytes"),
        ({"": {"class": "C" * 100_000}}, "bytes"),
        ({"modules": {"b": {}}, "fingerprint": "0" * 32}, "another graph"),
        ({"": {}, "b": {"class": "m.B"}, "b.c": {"class": "m.C"}}, "another model"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_tables_that_are_refused(commands, table, said):
    for outcome in commands(chain(), table).values():
        outcome.refused("table.json", said)


def test_long_rows_of_aliases(commands):
    table = {f"a{index}": {"class": "m.A", "alias_of": f"a{index + 1}"} for index in range(MANY)}
    table |= {f"a{MANY}": {"class": "m.A"}, "a": {"class": "m.A", "direct_parameters": ["weight"]}}
    good(commands(chain(stack("a")), table, skip=("report",)))


SHAPES = {
    "flat": [f"m{index}" for index in range(MANY)],
    "blocks of the same names": [f"b.{index}.{own}" for index in range(MANY // 4) for own in ("conv", "bn", "act", "fc")],
    "one name everywhere": [".".join([f"m{index}", *["conv"] * (1 + index % 3)]) for index in range(MANY)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_very_many_modules(commands, shape):
    paths = SHAPES[shape]
    table = {"": {"class": "m.Net"}} | {
        path: {"class": "m.A", "direct_parameters": ["weight", "bias"]} for path in [*paths, "a"]
    }
    names = [f"/{['conv', 'b.7/conv', f'conv_{index}', f'm{index}'][index % 4]}/Relu" for index in range(1000)]
    good(commands(chain(names=names, count=1000), table))


def test_a_module_of_very_many_parameters(commands):
    table = {"a": {"class": "m.A", "direct_parameters": [*(f"w{index}" for index in range(MANY)), "weight"]}}
    good(commands(chain(names=["/a/Relu"] * 2000, count=2000), table))


def test_one_known_node_at_the_end_of_many(commands):
    """What is concluded from neighbours goes from one to the next."""
    names = ["/a/Relu"] + [""] * 19_999
    outcomes = commands(chain(names=names, count=20_000), {"": {"class": "m.Net"}, "a": {"class": "m.A"}}, skip=("extract",))
    assert "20,000" in outcomes["tree"].out or "20000" in outcomes["tree"].out, outcomes["tree"]


@pytest.mark.parametrize("name", ["/" * 100_000, "/a" * 100_000, "/" + "a" * 1_000_000 + "/Relu", "/a_1_2_3//Relu", "//"], ids=range(5))
def test_names_that_are_no_scopes(commands, name):
    commands(chain(names=[name] * 4))
    commands(chain(names=[name] * 4), {"a": {"class": "m.A", "direct_parameters": ["weight"]}, "a." + "/" * 1000: {}})


WILD = [
    "..", "...", "../up", "../../up", "/etc", "a/b", "a_b", "A_b", "a b", 'a"b', "a'b", "a\nb", "a\tb", "a\x1b[31mb", "a\\b", "a:b", "a*b", "model", "é",
    "CON", "-o", "a" * 300, "a" * 300 + "b", ".hidden", "a.onnx", "x" * 100 + "." + "y" * 150, "\u202egpj", "a%2Fb", "~",
]  # fmt: skip


def test_files_of_modules_with_wild_names(forge, tmp_path):
    """Each has a file of its own, in the folder and nowhere else."""
    model = chain(count=len(WILD))
    for node, path in zip(model.graph.node, WILD, strict=True):
        for key, value in stack(path):
            node.metadata_props.add(key=key, value=value)
    inner = tmp_path / "x" / "y" / "parts"
    inner.mkdir(parents=True)
    source = tmp_path / "model.onnx"
    onnx.save(model, source)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    report = json.loads(forge("extract", source, "-m", "**", "-o", inner, "--verify", "--engine", "native", "--json").good().out)
    parts = report["parts"]
    assert {part["module"] for part in parts} >= set(WILD)
    files = [file["path"] for part in parts for file in part["files"]]
    assert len({file.lower() for file in files}) == len(parts)
    after = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(after) == len(before) + len(parts)
    assert all(path.parent == inner for path in after if path not in before)
    for part in parts:
        assert part["verified"] == "identical", part
    for path in WILD:
        if "*" not in path and not path.startswith("/"):
            forge("extract", source, f"--module={path}", "-o", tmp_path / "one.onnx").good()
    for command in (["tree"], ["tree", "--view", "path"], ["coverage", "--detailed"], ["validate"]):
        forge(command[0], source, *command[1:]).good()
    forge("tag", source, "-o", tmp_path / "tagged.onnx").good()
    forge("validate", tmp_path / "tagged.onnx").good()
    forge("report", source, "-o", tmp_path / "r.html").good()


def test_a_sidecar_of_another_model(forge, tmp_path):
    """One that lies beside a model is not used; one that is given is refused."""
    here, other = tmp_path / "here.onnx", tmp_path / "other.onnx"
    onnx.save(chain(stack("a")), here)
    onnx.save(chain(stack("b"), count=6), other)
    forge("tag", other).good()
    sidecar = tmp_path / "other_hierarchy.json"
    forge("tree", here, "--modules", sidecar).refused("another graph")
    sidecar.rename(tmp_path / "here_hierarchy.json")
    outcome = forge("coverage", here, "--json").good()
    assert "another graph" in outcome.err
    assert json.loads(outcome.out)["evidence"] == {"exporter": 4}
    assert "another graph" in forge("validate", here).out


def test_tags_of_a_model_that_was_not_its_source(forge, tmp_path):
    here, other = tmp_path / "here.onnx", tmp_path / "other.onnx"
    onnx.save(chain(stack("a")), here)
    model = chain()
    for node in model.graph.node:
        node.input[0], node.output[0] = f"w{node.input[0]}", f"w{node.output[0]}"
    model.graph.input[0].name, model.graph.output[0].name = "wv0", "wv4"
    onnx.save(model, other)
    forge("restore", other, "--from", here, "-o", tmp_path / "out.onnx").refused("other.onnx", "was it made from")
    assert not (tmp_path / "out.onnx").exists()


def test_slips_are_told(forge, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(chain(stack("encoder", "encoder.layer")), path)
    forge("extract", path, "-m", "encoder.layr", "-o", tmp_path / "x.onnx").refused("encoder.layer")
    forge("extract", path, "-m", "no\nsuch", "-o", tmp_path / "x.onnx").refused("no\\nsuch")
    forge("extract", path, "-m", "*" * 10_000 + "x", "-o", tmp_path).refused("no module")
    forge("extract", path, "-m", "encoder", "--call", "9", "-o", tmp_path / "x.onnx").refused("call 9")
