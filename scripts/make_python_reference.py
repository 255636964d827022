"""Writes docs/python-reference.md from the docstrings of the package.

    python scripts/make_python_reference.py            # writes it
    python scripts/make_python_reference.py --check    # fails where it is not what would be written

It needs the package, and nothing else: the part with PyTorch is read from its source.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python/onnxforge"
TARGET = ROOT / "docs/python-reference.md"
# Where what is public is defined, with what a reader would call it.
FILES = {
    "onnxforge": [f"_commands/{group}.py" for group in ("optimization", "verification", "conversion", "understanding", "modules", "tags", "files")],
    "onnxforge.compat": ["compat/_onnxsim.py", "compat/_onnxslim.py", "compat/_install.py"],
    "onnxforge.torch": ["torch/_export.py", "torch/_table.py", "torch/_exported.py", "torch/_check.py", "torch/_errors.py"],
    "onnxforge.corpus": ["corpus.py"],
    "onnxforge.hierarchy": ["hierarchy.py"],
    "onnxforge.results": ["results.py"],
    "onnxforge.errors": ["errors.py"],
}
TORCH = {"Check", "CheckError", "ExportError", "Exported", "OutputCheck", "UndeterminedError", "export", "module_table", "save_modules"}
CORPUS = {"CorpusResult", "run"}
COMPAT = {"simplify", "slim", "install", "uninstall"}
HIDDEN = {"Options"}


def is_public(module: str, name: str) -> bool:
    only = {"onnxforge.torch": TORCH, "onnxforge.corpus": CORPUS, "onnxforge.compat": COMPAT}.get(module)
    return not name.startswith("_") and name not in HIDDEN and not name.endswith("Options") and (only is None or name in only)


def heading(node: ast.FunctionDef, prefix: str = "") -> str:
    """A signature on lines of its own where it is long."""
    arguments = ast.unparse(node.args)
    if len(arguments) > 100:
        arguments = "\n    " + re.sub(r", (?=[*\w]+(?::|,|$|\*))", ",\n    ", arguments) + "\n"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{prefix}{node.name}({arguments}){returns}"


def body(text: str) -> str:
    """A docstring of Google's style as Markdown."""
    out: list[str] = []
    part = ""
    for line in inspect.cleandoc(text).splitlines():
        found = re.fullmatch(r"(Args|Returns|Raises|Example|Attributes):", line)
        if found:
            if part == "Example":
                out.append("```")
            part = found[1]
            out += ["", "```python"] if part == "Example" else ["", f"**{part}**", ""]
        elif part == "Example":
            out.append(line.removeprefix("    "))
        elif part and line.strip():
            item = re.match(r" {4}([\w.*]+): (.*)", line)
            if item and part != "Returns":
                out.append(f"- `{item[1]}`: {item[2]}")
            else:
                out.append(("  " if part != "Returns" else "") + line.strip())
        else:
            out.append(line)
    while out and not out[-1].strip():
        out.pop()
    return "\n".join([*out, "```"] if part == "Example" else out)


def entries(module: str, path: Path) -> list[str]:
    parts = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        is_overload = any(isinstance(each, ast.Name) and each.id == "overload" for each in getattr(node, "decorator_list", []))
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or not is_public(module, node.name) or is_overload:
            continue
        text = ast.get_docstring(node)
        if text is None:
            continue
        if isinstance(node, ast.FunctionDef):
            parts.append(f"### {node.name}\n\n```python\n{heading(node)}\n```\n\n{body(text)}\n")
            continue
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        parts.append(f"### {node.name}\n\n```python\nclass {node.name}({bases})\n```\n\n{body(text)}\n")
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and ast.get_docstring(each):
                is_property = any(isinstance(mark, ast.Name) and mark.id == "property" for mark in each.decorator_list)
                shown = f"{each.name} -> {ast.unparse(each.returns)}" if is_property and each.returns else heading(each)
                parts.append(f"#### {node.name}.{each.name}\n\n```python\n{shown}\n```\n\n{body(ast.get_docstring(each) or '')}\n")
    return parts


def page() -> str:
    out = ["# Python reference\n", "Made from the docstrings by `python scripts/make_python_reference.py`. A guide is in [python.md](python.md).\n"]
    for module, files in FILES.items():
        out.append(f"## {module}\n")
        out += [entry for file in files for entry in entries(module, PACKAGE / file)]
    return "\n".join(out)


def main() -> int:
    made = page()
    if "--check" in sys.argv[1:]:
        if TARGET.read_text(encoding="utf-8") != made:
            print(f"{TARGET} is not what the docstrings say; run python scripts/make_python_reference.py")
            return 1
        return 0
    TARGET.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
