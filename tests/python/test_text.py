"""The textual syntax against the implementation of the ONNX project.

For each model:

* printed and parsed again it is the same message, byte for byte, and printing it again gives the same text;
* `onnx.parser` reads the printed text, and reads it as we do when our notes are comments to us, too;
* the text of `onnx.printer` means the same to us as to `onnx.parser`, wherever the latter accepts it.
"""

import re
from concurrent.futures import ThreadPoolExecutor

import onnx
import onnx.parser
import onnx.printer
import pytest

import corpus

# Models with something that only our notation can say outside of notes: sparse tensors, encoded messages.
EXTENDED = {"every_field.onnx"}


class Reader:
    """Both parsers, with a folder for their files."""

    def __init__(self, forge, folder):
        self.forge, self.folder = forge, folder
        folder.mkdir(parents=True, exist_ok=True)

    def parse(self, text, name="model"):
        path = self.folder / f"{name}.txt"
        path.write_bytes(text.encode())
        return self.forge("parse", path, "-o", path.with_suffix(".onnx"))

    def ours(self, text, name="model"):
        """The model that our parser reads."""
        self.parse(text, name).good()
        return corpus.parse(self.folder / f"{name}.onnx")

    def theirs(self, text):
        """The model that the parser of the ONNX project reads, or none where it refuses."""
        try:
            return onnx.parser.parse_model(text)
        except Exception:
            return None


def same(a, b):
    return a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)


def without_notes(text):
    """The text with every note, but no string, cut out."""
    pattern = re.compile(r'("(?:[^"\\]|\\.)*")|#@[^\n]*', re.DOTALL)
    return pattern.sub(lambda found: found[1] or "", text)


def complaints(forge, path, folder):
    """What is wrong with the text of one model."""
    reader = Reader(forge, folder)
    text = forge("print", "--full", path).good().out
    model = corpus.parse(path)
    if not same(reader.ours(text), model):
        yield f"{path}: printed and parsed it is another model"
    if forge("print", "--full", folder / "model.onnx").good().out != text:
        yield f"{path}: printed again it is another text"

    read = reader.theirs(text)
    if read is None and path.name not in EXTENDED:
        yield f"{path}: the standard parser refuses our text"
    if read is not None and not same(reader.ours(without_notes(text), "plain"), read):
        yield f"{path}: the standard parser reads our text differently"

    standard = onnx.printer.to_text(model)
    read = reader.theirs(standard)
    if read is not None and not same(reader.ours(standard, "standard"), read):
        yield f"{path}: we read the standard text differently"


def assert_exact(forge, paths, folder):
    with ThreadPoolExecutor() as pool:
        work = lambda job: list(complaints(forge, job[1], folder / str(job[0])))
        found = [complaint for result in pool.map(work, enumerate(paths)) for complaint in result]
    assert not found, f"{len(found)} complaints about {len(paths)} models\n" + "\n".join(found[:20])


def test_models_of_the_repository(forge, tmp_path):
    assert_exact(forge, corpus.repository_models(), tmp_path)


def test_models_of_the_onnx_package(forge, tmp_path):
    sources = corpus.wheel_models()
    assert len(sources) > 100
    assert_exact(forge, sources, tmp_path)


def test_node_cases(forge, tmp_path):
    sources = corpus.write_node_cases(tmp_path / "cases")
    assert len(sources) == 1884 or onnx.__version__ != "1.23.2"
    assert_exact(forge, sources, tmp_path)


# Texts that the standard parser accepts and that are not what its printer would write.
ACCEPTED = [
    'g (float[N] x) => (float[N] y) { y = Relu(x) }',
    '# comment\n<ir_version: 7, opset_import: ["" : 10, "a.b" : 1]> # more\ng (x, float y) => (z) {z = a . b . Op(x,,"", y,)}',
    '<ir_version: 7, opset_import: []> g => () {}',
    '<opset_import: ["":1], opset_import: ["a":2], metadata_props: [], doc_string: "a \\"b\\" \\\\ \\n\nc">g () => () < > {}',
    'g (float[2] x = {1, -2.5e-3}, int64[?, "a b", M, -1] y) => (float[] z, float s) <uint64[1] u = {-1}, float[3] e = ["location": "f"], float[0] n = , bool b> { [] = Op() [name] a, b = Op(,) ["n 2"] , c = .Op(x) }',
    'g () => () { y = Op <a = 1, b = 2.0, c = "s", d = [1, 2], e = [1.0, 2], f: floats = [1, -0], g: ints = [], h: float = -0, i = nan, j = -inf, k = INFINITY> (x) }',
    'g () => () { y = Op (x) <a = float[2] {1, 2}, b = int8[1] w {3}, c = int8[1] w = {300}, d = float[2] = ["k": "v"], e = @r, f: int = @s, g = seq(map(int64, optional(sparse_tensor(float[2])))), h = opaque(a.b, C), i = opaque(a.b), j = opaque()> }',
    'g () => () { y = Op:over (x) <body = b (float x) => (float y) <float[1] c = {1}> { y = Add(x, c) }, t: type_proto = float[N]> }',
    'g () => () { = Op() = (x) y = Op < f = [1.0] > () }',
    'g () => () {} <domain: "d", opset_import: ["" : 1], overload: "o", doc_string: ""> f <a, b: int = 1, c = 2.0> (float[N] x, y) => (float z) <float t, u> { z = Op <k: float = @a> (x, y) } f2 (x) => (y) { y = d.f(x) }',
    'g () => () <float16[2] a = {15360, -1}, bfloat16[1] b = {1}, int4[2] c = {1, 2}, float6e2m3[1] d = {3}, complex64[1] e = {1, 2}, string[2] f = {"a", "\\"b"}, double[3] h = {1e-400, inf, -nan}, uint2 i = {3}> {}',
]

REFUSED = [
    "",
    "g",
    "g () => ()",
    "g () => () {",
    "g () => () { y = Op(x }",
    "g () => () { y = Op <> (x) }",
    "g () => () { y = Op <a = []> (x) }",
    "g () => () { y = Op <a: int = []> (x) }",
    "g () => () { y = Op <a: int = 1.0> (x) }",
    "g () => () { y = Op <a = [1, 2.0]> (x) }",
    "g () => () { y = Op <a: wrong = 1> (x) }",
    "g (float[N] x = {1}) => () {}",
    "g (float[] x = {1}) => () {}",
    "g (x = {1}) => () {}",
    "g (seq(float) x = {1}) => () {}",
    "g (float[1] x = {1e39}) => () {}",
    "g (int32[1] x = {2147483648}) => () {}",
    "g (int64[1] x = {9223372036854775808}) => () {}",
    "g (int64[1] x = {1.0}) => () {}",
    "g (string[1] x = {a}) => () {}",
    "g (float[1] x = {- 1}) => () {}",
    "g (float[1] x = {+1}) => () {}",
    "g (float[1] x = {.5}) => () {}",
    "g (float[1] x = {...}) => () {}",
    "g (wrong[1] x) => () {}",
    'g () => () { y = Op(x) <a = "unclosed> }',
    "<ir_version: 1.0> g () => () {}",
    "<wrong: 1> g () => () {}",
    "<> g () => () {}",
    "g () = > () {}",
    "g (x,) => () {}",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(forge, tmp_path, text):
    found = Reader(forge, tmp_path).ours(text)
    assert same(found, onnx.parser.parse_model(text)), found


@pytest.mark.parametrize("text", REFUSED)
def test_refused(forge, tmp_path, text):
    reader = Reader(forge, tmp_path)
    assert reader.theirs(text) is None
    assert re.search(r"model\.txt:\d+:\d+: ", reader.parse(text).refused().err)
