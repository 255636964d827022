"""What results, hierarchies and errors say of themselves; rewriters, and what optimize does on request."""

import errno
import json

import onnx
import onnxforge
import pytest
from onnx import parser
from onnxforge.errors import in_python

from drop_ins import EXAMPLES, operators

BERT, CNN = EXAMPLES["tiny_bert"], EXAMPLES["small_cnn"]
RESULTS = {
    "optimize": lambda folder: onnxforge.optimize(CNN),
    "upgrade": lambda folder: onnxforge.upgrade(CNN, opset=21),
    "float16": lambda folder: onnxforge.float16(CNN, keep_ops=["Gemm"]),
    "convert": lambda folder: onnxforge.convert(CNN, folder / "m.tflite", set_dim={"batch": 1}),
    "verify": lambda folder: onnxforge.verify(CNN, CNN, samples=1),
    "compare": lambda folder: onnxforge.compare(CNN, BERT),
    "check": lambda folder: onnxforge.check(CNN),
    "inspect": lambda folder: onnxforge.inspect(CNN),
    "audit": lambda folder: onnxforge.audit(BERT),
    "fingerprint": lambda folder: onnxforge.fingerprint(BERT),
    "attribute": lambda folder: onnxforge.attribute(CNN),
    "save": lambda folder: onnxforge.save(CNN, folder / "saved.onnx"),
    "tag": lambda folder: onnxforge.tag(BERT),
    "coverage": lambda folder: onnxforge.coverage(BERT),
    "extract": lambda folder: onnxforge.extract(BERT, "bert.encoder.layer.0"),
    "strip": lambda folder: onnxforge.strip(BERT),
    "infer": lambda folder: onnxforge.infer(CNN),
    "explain": lambda folder: onnxforge.explain("fuse_conv_batchnorm", CNN),
    "report": lambda folder: onnxforge.report(BERT, folder / "page.html"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_shows_itself(name, tmp_path):
    result = RESULTS[name](tmp_path)
    said = repr(result)
    assert said.startswith("<onnxforge ") and not said.endswith((": ok>", ": not ok>")) and "\n" not in said and len(said) < 200
    page = result._repr_html_()
    assert page.startswith(("<div>", "<iframe")) and page.count("<table") == page.count("</table")
    whole = result.to_dict()
    assert whole == result.report and whole is not result.report
    json.dumps(whole)


def test_a_page_opens_in_place(tmp_path):
    page = onnxforge.report(BERT, tmp_path / "page.html")
    html = page._repr_html_()
    assert page.path == str(tmp_path / "page.html")
    assert 'sandbox="allow-scripts"' in html and "<script" not in html and "&lt;script" in html


def test_hierarchies_show_themselves():
    hierarchy = onnxforge.Hierarchy(BERT)
    html = hierarchy._repr_html_()
    assert html.count("<details") == html.count("</details>") > 3 and "288 nodes" in html
    assert json.loads(json.dumps(hierarchy.to_dict())) == hierarchy.sidecar
    module = hierarchy["bert.encoder.layer.0"]
    assert "<table" in module._repr_html_() and "nodes" in repr(module)
    assert module.to_dict()["path"] == "bert.encoder.layer.0" and len(module.to_dict()["nodes"]) == len(module.nodes)


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    missing = str(tmp_path / "none.onnx")
    for call in (
        lambda: onnxforge.optimize(missing), lambda: onnxforge.verify(CNN, missing), lambda: onnxforge.run(CNN, str(tmp_path / "none.npz")),
    ):  # fmt: skip
        with pytest.raises(FileNotFoundError) as found:
            call()
        error = found.value
        assert isinstance(error, onnxforge.LoadError) and isinstance(error, onnxforge.ModelNotFoundError)
        assert error.errno == errno.ENOENT and error.filename == error.path and "none" in str(error)
    (tmp_path / "text.onnx").write_text("text")
    with pytest.raises(onnxforge.LoadError) as other:
        onnxforge.optimize(tmp_path / "text.onnx")
    assert not isinstance(other.value, FileNotFoundError)


@pytest.mark.parametrize(
    "line, expected",
    [
        ("set sizes with --set-dim, or give inputs with --inputs", "set sizes with set_dim, or give inputs with inputs"),
        ("give --set-dim batch=1, or --set-shape x=1,3,8", "give set_dim={'batch': 1}, or set_shape={'x': [1, 3, 8]}"),
        ("use `--external split`", "use `external='split'`"),
        ("invalid value '1' for '--sessions <N>': 1 is too few", "invalid value '1' for 'sessions': 1 is too few"),
        ("--opset 21 is needed", "opset=21 is needed"),
        ("the value a--b has no type", "the value a--b has no type"),
    ],
)
def test_messages_are_about_arguments(line, expected):
    assert in_python(line) == expected


def test_errors_name_arguments():
    for options in ({"target": "gpu"}, {"stop_after": "x"}, {"samples": 0}, {"verify": "never"}):
        with pytest.raises(ValueError) as found:
            onnxforge.optimize(CNN, **options)
        assert "--" not in str(found.value) and next(iter(options)) in str(found.value)


def test_shapes_and_names_on_request():
    plain = onnxforge.optimize(onnx.load(CNN)).model
    made = onnxforge.optimize(onnx.load(CNN), declare_shapes=True).model
    assert len(made.graph.value_info) > len(plain.graph.value_info)
    onnx.checker.check_model(made, full_check=True)
    nameless = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[A,B] y) { r = Relu(x)  [Sigmoid_0] s = Sigmoid(r)  t = Sigmoid(s)  y = Neg(t) }'
    )
    made = onnxforge.optimize(nameless, name_nodes=True, declare_shapes=True).model
    assert [node.name for node in made.graph.node] == ["Relu_0", "Sigmoid_0", "Sigmoid_1", "Neg_0"]
    assert [dim.dim_value for dim in made.graph.output[0].type.tensor_type.shape.dim] == [2, 3]


def test_one_rule_of_a_pass_can_be_skipped():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,1] x) => (float[N,1] y) { i = Identity(x)  r = ReduceMax<axes=[1]>(i)  y = Relu(r) }'
    )
    assert operators(onnxforge.optimize(model, skip=["eliminate_identity_ops.identity"]).model) == {"Identity": 1, "Relu": 1}
    with pytest.raises(onnxforge.RequestError, match="has no rule \"identiti\"; it has identity, "):
        onnxforge.optimize(model, skip=["eliminate_identity_ops.identiti"])


def right(model):
    for node in model.graph.node:
        if node.op_type == "GlobalAveragePool":
            node.op_type = "ReduceMean"
            node.attribute.append(onnx.helper.make_attribute("axes", [2, 3]))


def wrong(model):
    for node in model.graph.node:
        if node.op_type == "Relu":
            node.op_type = "Sigmoid"
    return model


def test_rewriters_are_verified_like_passes(tmp_path):
    result = onnxforge.optimize(CNN, tmp_path / "out.onnx", rewriters=[right, wrong], verify="each")
    assert not result.ok and result.verified
    assert [(each["name"], each["changed"]) for each in result.report["rewriters"]] == [("right", True), ("wrong", False)]
    assert "something else" in result.report["rewriters"][1]["left_out"] and "wrong" in result.text
    assert result.nodes_before == 20 and result.report["operators"]["Conv"][0] == 5
    made = onnx.load(tmp_path / "out.onnx")
    assert operators(made)["ReduceMean"] == 1 and operators(made)["Sigmoid"] == 0
    assert onnxforge.verify(CNN, made)
    assert onnxforge.optimize(CNN, rewriters=[wrong], allow_revert=True).ok
    assert onnxforge.optimize(CNN, rewriters=[lambda model: False]).ok
    with pytest.raises(onnxforge.UsageError, match="function"):
        onnxforge.optimize(CNN, rewriters=[3])
    with pytest.raises(ZeroDivisionError):
        onnxforge.optimize(CNN, rewriters=[lambda model: 1 / 0])
