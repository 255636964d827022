"""Pages of `onnxforge report` with synthetic data: the files of the page put together as the library does it.

    python tests/python/reports.py FOLDER       # writes bert.html, huge.html and hostile.html
"""

import json
import random
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "crates/onnxforge-hierarchy/src/report"
SCRIPTS = ("dagre.min.js", "data.js", "elements.js", "tree.js", "module.js", "graph.js", "page.js")

LAYER_NORM = ("LayerNorm", "LayerNorm", [("LayerNormalization", "normalization")])
DROPOUT = ("dropout", "Dropout", [])


def linear(name):
    return (name, "Linear", [("MatMul", "math"), ("Add", "math")])


BERT_LAYER = [
    ("attention", "BertAttention", [], [
        ("self", "BertSelfAttention", [
            ("Reshape", "shape"), ("Transpose", "shape"), ("MatMul", "math"), ("Mul", "math"), ("Add", "math"), ("Softmax", "activation"),
            ("IsNaN", "logic"), ("Where", "logic"), ("Shape", "shape"), ("Gather", "index"), ("Concat", "shape"), ("Constant", "constant"),
        ], [linear("query"), linear("key"), linear("value"), DROPOUT]),
        ("output", "BertSelfOutput", [("Add", "math")], [linear("dense"), LAYER_NORM, DROPOUT]),
    ]),
    ("intermediate", "BertIntermediate", [], [
        linear("dense"), ("intermediate_act_fn", "GELUActivation", [("Div", "math"), ("Erf", "math"), ("Add", "math"), ("Mul", "math")]),
    ]),
    ("output", "BertOutput", [("Add", "math")], [linear("dense"), LAYER_NORM, DROPOUT]),
]  # fmt: skip


class Builder:
    """Collects modules and nodes, then adds up what belongs to subtrees."""

    def __init__(self, title, seed=7):
        self.title = title
        self.random = random.Random(seed)
        self.modules = []
        self.nodes = {column: [] for column in ("name", "op", "category", "modules", "evidence", "why", "confidence", "output")}

    def module(self, name, kind, parent, full_class=None):
        above = self.modules[parent] if parent is not None else None
        path = ".".join(filter(None, [above["path"] if above else "", name]))
        number = name.rsplit(".", 1)[-1]
        tag = (above["tag"] if above else "") + "/" + kind + (f".{number}" if number.isdigit() else "")
        self.modules.append({
            "path": path, "tag": tag, "class": kind, "full_class": full_class or f"transformers.models.bert.modeling_bert.{kind}",
            "parent": parent, "inputs": [], "outputs": [], "weights": [], "shared": 0, "before": None, "extract": None, "without": None,
            **{metric: {"own": 0, "all": 0} for metric in ("nodes", "parameters", "bytes", "flops")},
        })  # fmt: skip
        return len(self.modules) - 1

    def node(self, module, op, category, evidence="exact", others=()):
        number = len(self.nodes["name"])
        path = self.modules[module]["path"]
        why = {"exact": "exporter metadata", "inferred": "all readers are in it", "root": "no metadata, no neighbour"}[evidence]
        row = (f"/{path.replace('.', '/')}/{op}_{number}", op, category, [module, *others], evidence, why, {"exact": 0.99, "inferred": 0.6, "root": 0.0}[evidence], f"{op.lower()}_{number}_out")
        for column, value in zip(self.nodes.values(), row, strict=True):
            column.append(value)
        own = self.modules[module]
        own["nodes"]["own"] += 1
        own["flops"]["own"] += {"math": 400_000, "normalization": 90_000}.get(category, 0) * (40 if op == "MatMul" else 1)

    def weight(self, module, name, *shape):
        size = 1
        for dimension in shape:
            size *= dimension
        own = self.modules[module]
        own["weights"].append({"name": f"{own['path']}.{name}", "type": f"float32[{', '.join(map(str, shape))}]", "bytes": 4 * size})
        own["parameters"]["own"] += size
        own["bytes"]["own"] += 4 * size

    def grow(self, parent, shape, full=None):
        name, kind, ops, *below = shape
        module = self.module(name, kind, parent, f"torch.nn.modules.{kind.lower()}.{kind}" if kind in ("Linear", "LayerNorm", "Dropout") else None)
        for op, category in ops:
            for _ in range(8 if kind == "BertSelfAttention" else 1):
                chance = self.random.random()
                evidence = "exact" if category in ("math", "normalization", "activation") or chance < 0.9 else "inferred" if chance < 0.97 else "root"
                self.node(module, op, category, evidence, [parent] if evidence == "inferred" and chance < 0.94 else [])
        if kind == "Linear":
            wide = 3072 if "intermediate" in self.modules[module]["path"] else 768
            self.weight(module, "weight", 768, wide)
            self.weight(module, "bias", wide)
        if kind == "LayerNorm":
            self.weight(module, "weight", 768)
            self.weight(module, "bias", 768)
        for child in below[0] if below else []:
            self.grow(module, child)
        return module

    def report(self, optimized=True):
        self.add_up()
        for index, module in enumerate(self.modules):
            self.describe(index, module, optimized)
        top = self.modules[0]
        return {
            "schema": 1, "title": self.title,
            "model": {
                "file": f"models/{self.title}", "producer": "pytorch 2.15.0", "opset": 20, "nodes": len(self.nodes["name"]),
                "parameters": top["parameters"]["all"], "bytes": top["bytes"]["all"] + 210_000, "flops": top["flops"]["all"],
                "flops_note": "for batch = 1, sequence = 128",
            },
            "modules": self.modules, "nodes": self.nodes, "graph": self.flow(), **({"before": self.flow_before()} if optimized else {}), "categories": self.categories(),
            "optimization": {
                "before": top["before"], "after": top["nodes"]["all"],
                "passes": [
                    {"pass": "fold_constants", "edits": 214, "nodes": -301}, {"pass": "fuse_attention", "edits": 12, "nodes": -96},
                    {"pass": "fuse_gelu", "edits": 12, "nodes": -48}, {"pass": "drop_identity", "edits": 31, "nodes": -31},
                    {"pass": "move_transpose", "edits": 18, "nodes": 0}, {"pass": "split_qkv", "edits": 4, "nodes": 8},
                ],
            } if optimized else None,
        }  # fmt: skip

    def flow(self):
        """Each node reads what the one before it makes, and some what one a little earlier makes."""
        many = len(self.nodes["name"])
        reads = [[node] + ([node - 3] if node % 7 == 4 else []) for node in range(many)]
        return {
            "names": ["input", *self.nodes["output"]], "types": [0] + [1 + node % 2 for node in range(many)],
            "texts": ["int64[batch,sequence]", "float32[batch,sequence,768]", "float32[batch,12,sequence,64]"],
            "makers": [None, *range(many)], "reads": reads, "outputs": [many],
        }  # fmt: skip

    def flow_before(self):
        """The same model with one more node at the end."""
        last = {"name": "more", "op": "Identity", "category": "shape", "modules": [0], "evidence": "exact", "why": "said so", "confidence": 0.99, "output": "out"}
        nodes = {column: [*values, last[column]] for column, values in self.nodes.items()}
        return {"nodes": nodes, "graph": Builder.flow(type("", (), {"nodes": nodes})())}

    def add_up(self):
        for module in self.modules:
            for metric in ("nodes", "parameters", "bytes", "flops"):
                module[metric]["all"] = module[metric]["own"]
        for module in reversed(self.modules[1:]):
            for metric in ("nodes", "parameters", "bytes", "flops"):
                self.modules[module["parent"]][metric]["all"] += module[metric]["all"]

    def describe(self, index, module, optimized):
        if not module["nodes"]["all"]:
            dropout = module["class"] == "Dropout"
            module["without"] = "does nothing when the model is not being trained" if dropout else "only groups other modules"
        else:
            name = module["path"] or self.modules[0]["class"]
            module["extract"] = f"onnxforge extract {self.title} -m {name} -o {name.replace('.', '_')}.onnx"
            siblings = [other for other in range(max(0, index - 3), index) if other != module["parent"]]
            module["inputs"] = [
                {"name": "hidden_states", "type": "float32[batch, sequence, 768]", "from": siblings[:2]},
                {"name": "attention_mask", "type": "float32[batch, 1, 1, sequence]", "from": [0] if index else []},
            ]
            after = [index + 1] if index + 1 < len(self.modules) and index else []
            module["outputs"] = [{"name": f"{name}_out", "type": "float32[batch, sequence, 768]", "to": after}]
        if module["class"] == "BertSelfAttention":
            module["shared"] = 4
        if optimized:
            module["before"] = module["nodes"]["all"] + (module["nodes"]["all"] // 3 if module["nodes"]["all"] > 3 else 0)

    def categories(self):
        found = {}
        for category, evidence in zip(self.nodes["category"], self.nodes["evidence"]):
            row = found.setdefault(category, {"category": category, "nodes": 0, "exact": 0, "inferred": 0, "root": 0})
            row["nodes"] += 1
            row[evidence] += 1
        for row in found.values():
            row["coverage"] = (row["exact"] + row["inferred"]) / row["nodes"]
            row["threshold"] = None if row["category"] == "constant" else 95.0
            row["ok"] = row["threshold"] is None or 100 * row["coverage"] >= row["threshold"]
        return sorted(found.values(), key=lambda row: -row["nodes"])


def bert(layers=12, title="bert.onnx", optimized=True):
    """Like BERT: some 200 modules and 1,400 nodes at twelve layers."""
    builder = Builder(title)
    top = builder.module("", "BertModel", None)
    for _ in range(18):
        builder.node(top, "Expand", "shape", "root")
    embeddings = builder.module("embeddings", "BertEmbeddings", top)
    for name, size in [("word_embeddings", 30522), ("position_embeddings", 512), ("token_type_embeddings", 2)]:
        table = builder.module(name, "Embedding", embeddings, "torch.nn.modules.sparse.Embedding")
        builder.node(table, "Gather", "index")
        builder.weight(table, "weight", size, 768)
    builder.node(embeddings, "Add", "math")
    builder.grow(embeddings, LAYER_NORM)
    builder.grow(embeddings, DROPOUT)
    encoder = builder.module("encoder", "BertEncoder", top)
    for layer in range(layers):
        builder.grow(encoder, (f"layer.{layer}", "BertLayer", [], BERT_LAYER))
    builder.grow(top, ("pooler", "BertPooler", [("Gather", "index")], [linear("dense"), ("activation", "Tanh", [("Tanh", "activation")])]))
    return builder.report(optimized)


def huge():
    """1,500 modules and 10,000 nodes."""
    data = Builder("huge.onnx")
    top = data.module("", "HugeModel", None)
    while len(data.modules) < 1500:
        data.grow(top, (f"layer.{len(data.modules)}", "BertLayer", [], BERT_LAYER))
    while len(data.nodes["name"]) < 10_000:
        data.node(data.random.randrange(len(data.modules)), "Add", "math")
    return data.report()


HOSTILE = [
    "<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "<!--", "\"'`${alert(3)}", "a\u202eb\u0000c\nd", "javascript:alert(4)",
    "__proto__", "constructor", "/*DATA*/", "x" * 5000, "&lt;b&gt;", "#module=encoder&view=optimizer", "\U0001f600",
]  # fmt: skip


def hostile():
    """Every text is an attack, and paths are long."""
    data = Builder(HOSTILE[0])
    top = data.module("", HOSTILE[1], None)
    deep = top
    for depth in range(120):
        deep = data.module(HOSTILE[depth % len(HOSTILE)], HOSTILE[(depth + 1) % len(HOSTILE)], deep if depth > 60 else top)
        data.node(deep, HOSTILE[(depth + 2) % len(HOSTILE)], HOSTILE[(depth + 3) % len(HOSTILE)])
    report = data.report()
    for index, module in enumerate(report["modules"]):
        text = HOSTILE[index % len(HOSTILE)]
        module["extract"] = f"onnxforge extract m.onnx -m '{text}'"
        module["without"] = text if index % 3 == 0 else None
        module["full_class"] = text
        module["inputs"] = [{"name": text, "type": text, "from": [index]}]
        module["outputs"] = [{"name": text, "type": text, "to": list(range(index))}]
        module["weights"] = [{"name": text, "type": text, "bytes": 10**15}]
    for column in ("name", "op", "category", "why", "output"):
        report["nodes"][column] = [HOSTILE[node % len(HOSTILE)] for node in range(len(report["nodes"][column]))]
    report["optimization"]["passes"] = [{"pass": text, "edits": 1, "nodes": -1} for text in HOSTILE]
    for graph in (report["graph"], report["before"]["graph"]):
        for column in ("names", "texts"):
            graph[column] = [HOSTILE[place % len(HOSTILE)] for place in range(len(graph[column]))]
    report["model"].update(producer=HOSTILE[1], flops_note=HOSTILE[0])
    return report


def page(data):
    """The page of some data, as `onnxforge report` writes it."""
    text = (PAGE / "page.html").read_text(encoding="utf-8")
    data = json.dumps(data).replace("<", "\\u003c")
    for placeholder, content in [
        ("/*STYLE*/", (PAGE / "page.css").read_text(encoding="utf-8")),
        ("/*SCRIPT*/", "\n".join((PAGE / name).read_text(encoding="utf-8") for name in SCRIPTS)),
        ("/*DATA*/", data),
    ]:
        text = text.replace(placeholder, content, 1)
    return text


def write(data, path):
    path.write_text(page(data), encoding="utf-8")
    return path


def rows(page):
    """The names in the tree, from top to bottom, as far as they are drawn."""
    return page.evaluate(
        """[...document.querySelectorAll("#rows .row")].sort((a, b) => a.dataset.row - b.dataset.row)
        .map((row) => row.querySelector(".name b").textContent)"""
    )


def row(page, index):
    return page.locator(f"#row-{index}")


def index_of(data, path):
    return [module["path"] for module in data["modules"]].index(path)


def selected(page):
    """The path of the selected module: as the overview shows it, and nothing for the root."""
    path = page.locator("code.path bdi")
    return path.text_content() if path.count() else ""


def sideways(page):
    """Elements that can be scrolled sideways, or that stick out of the window."""
    return page.evaluate(
        """[...document.querySelectorAll("body, body *")].filter((el) => {
            const box = el.getBoundingClientRect();
            const scrolls = el.scrollWidth > el.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(el).overflowX);
            return scrolls || (el.id && box.width > 0 && (box.right > innerWidth + 1 || box.left < -1));
        }).map((el) => el.tagName + "#" + el.id + "." + el.className)"""
    )


if __name__ == "__main__":
    for name, data in [("bert", bert()), ("huge", huge()), ("hostile", hostile())]:
        print(write(data, Path(sys.argv[1]) / f"{name}.html"))
