"""Whether models in 16 bits end with as many nodes as in 32, and with results within the bounds of their rules.

    python tests/python/half.py ONNXFORGE FOLDER [OPTION-OF-OPTIMIZE …]

FOLDER has what scripts/export_half.py writes: NAME.fp32.onnx, NAME.fp16.onnx, NAME.bf16.onnx. Each is optimized with `--opset 23` and compared by the
command itself: `identical` or `rounding` means that the result differs from a run in 64 bits by no more than the original's own rounding and the bounds of
the rules that fired allow. Exits with 1 if a count is more than 5 % above float32's, or a result is not verified.
"""

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

TYPES = ("fp32", "fp16", "bf16")
BAR = 0.05


def optimized(binary, path, options):
    """Nodes before and after, and the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.onnx")
        command = [binary, "optimize", path, "-o", made, "--opset", "23", "--verify", "final", "--json", *options]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return 0, 0, f"exit code {done.returncode}: {done.stderr.strip()[:200]}"
        proof = json.loads(done.stdout)["verification"]
        verdict = (proof.get("global") or {}).get("verdict") or f"not compared: {proof.get('unverified')}"
        return nodes(path), nodes(made), verdict


def nodes(path):
    return sum(node.op_type != "Constant" for node in onnx.load(path, load_external_data=False).graph.node)


def main(binary, folder, *options):
    models = collections.defaultdict(dict)
    for path in sorted(Path(folder).glob("*.*.onnx")):
        name, kind = path.name.removesuffix(".onnx").rsplit(".", 1)
        if kind in TYPES:
            models[name][kind] = path
    print("| model | " + " | ".join(f"{kind}: before, after" for kind in TYPES) + " | most, beside fp32 | results |")
    print("|---" * (3 + len(TYPES)) + "|")
    failed = False
    for name, paths in models.items():
        found = {kind: optimized(binary, path, options) for kind, path in paths.items()}
        cells = [f"{found[kind][0]}, {found[kind][1]}" if kind in found else "no export" for kind in TYPES]
        verdicts = {kind: verdict for kind, (_, _, verdict) in found.items()}
        ratio = max(after for _, after, _ in found.values()) / max(found["fp32"][1], 1) - 1 if "fp32" in found else 0.0
        wrong = {kind: verdict for kind, verdict in verdicts.items() if verdict not in ("identical", "rounding")}
        failed |= bool(wrong) or ratio > BAR
        said = "; ".join(f"{kind}: {verdict}" for kind, verdict in wrong.items()) or "within bounds"
        print(f"| {name} | " + " | ".join(cells) + f" | {ratio:+.1%} | {said} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
