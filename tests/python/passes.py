"""What the passes make of a model: how many nodes are left, whether the order of passes matters, and whether ONNX Runtime
(without its own optimizations) gives the same as before, for the whole pipeline and for each pass alone, at two sizes of
every symbolic dimension. Exits with 1 when something differs beyond what a pass declares.

    python tests/python/passes.py BINARY NAME MODEL.onnx [OPSET] [TARGET]
"""

import functools
import gc
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import native
import numpy as np
import onnx

# The fewest nodes that onnxsim, OnnxSlim, onnxoptimizer, onnxscript or ONNX Runtime (basic) leave of a model.
BEST_PEER = {
    "bert_base.dynamo": 543, "bert_base.torchscript": 767, "deit_small.dynamo": 442, "deit_small.torchscript": 598,
    "distilbert.dynamo": 283, "distilbert.torchscript": 396, "efficientnet_b0.dynamo": 239,
    "efficientnet_b0.torchscript": 239, "gpt2.dynamo": 638, "gpt2.torchscript": 1230, "llama2l.dynamo": 187,
    "llama2l.torchscript": 219, "mobilenet_v2.dynamo": 100, "mobilenet_v2.torchscript": 100,
    "mobilenet_v3_small.dynamo": 122, "mobilenet_v3_small.torchscript": 122, "mobilevit_small.dynamo": 394,
    "mobilevit_small.torchscript": 549, "resnet50.dynamo": 122, "resnet50.torchscript": 122,
    "roberta_base.dynamo": 551, "roberta_base.torchscript": 773, "tinyllama.dynamo": 1607, "vit_base.dynamo": 442,
    "vit_base.torchscript": 597, "wav2vec2_base.dynamo": 465, "wav2vec2_base.torchscript": 662,
    "whisper_base_enc.dynamo": 194, "whisper_base_enc.torchscript": 311, "whisper_tiny_enc.dynamo": 132,
    "whisper_tiny_enc.torchscript": 215, "yolov8n.dynamo": 236, "yolov8n.torchscript": 241, "yolov8s.dynamo": 236,
    "yolov8s.torchscript": 241,
}  # fmt: skip
SHUFFLES = 5
TOLERANCE = 1e-5


def run(binary, *arguments):
    done = subprocess.run([str(part) for part in (binary, *arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-2000:])
    return json.loads(done.stdout)


def passes(binary):
    """Names and accuracy classes of the passes that run by default."""
    listed = run(binary, "passes", "--json", "-")
    by_default = lambda entry: not entry["on_request"] and "portable" in (entry["targets"] or ["portable"])
    return {entry["name"]: entry["class"] for entry in listed if by_default(entry)}


def named_dims(path):
    message = onnx.load(path, load_external_data=False)
    dims = [dim for port in message.graph.input for dim in port.type.tensor_type.shape.dim]
    return sorted({dim.dim_param for dim in dims if dim.dim_param})


def samples(binary, model, folder):
    """Inputs at two sizes of every symbolic dimension."""
    names = named_dims(model)
    first_output = onnx.load(model, load_external_data=False).graph.output[0].name
    for sizes in ((1, 8), (2, 11)) if names else ((),):
        dims = [f"{name}={sizes[0] if 'batch' in name else sizes[1]}" for name in names]
        inputs = Path(folder) / "inputs.npz"
        run(binary, "run", model, "--save-inputs", inputs, "--outputs", first_output, "--json", "-", *native.flags(dims))
        yield dict(np.load(inputs))


def results(model, inputs):
    session = native.session(model)
    found = [session.run(None, native.feeds_of(session, each)) for each in inputs]
    del session
    gc.collect()
    return found


def own_results(binary, folder, model, inputs):
    found = []
    for each in inputs:
        np.savez(Path(folder) / "given.npz", **each)
        _, _, outputs = native.run_ours(binary, model, folder, "--inputs", Path(folder) / "given.npz")
        found.append(list(outputs.values()))
    return found


def error(expected, found):
    """The largest relative error, and whether all bits are the same."""
    pairs = [pair for a, b in zip(expected, found, strict=True) for pair in zip(a, b, strict=True)]
    return max(native.relative_error(y, x) for x, y in pairs), all(same_bits(x, y) for x, y in pairs)


def same_bits(x, y):
    """Whether all elements are the same, the signs of zeros too; one NaN is as good as another."""
    if x.dtype.kind != "f":
        return np.array_equal(x, y)
    return np.array_equal(x, y, equal_nan=True) and np.array_equal(np.signbit(x[x == 0]), np.signbit(y[y == 0]))


def main(binary, name, path, opset="keep", target="portable"):
    problems = []
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        out = Path(folder) / "out.onnx"

        def optimize(model, *arguments):
            for file in Path(folder).glob("out.onnx*"):
                file.unlink()
            return run(binary, "optimize", model, "-o", out, "--verify", "off", "--opset", opset, "--target", target, "--json", "-", *arguments)

        report = optimize(path)
        left, best = report["after"]["nodes"], BEST_PEER.get(name)
        if best is not None and left > best:
            problems.append(f"{left} nodes, a peer leaves {best}")
        again = run(binary, "optimize", out, "-o", Path(folder) / "again.onnx", "--verify", "off", "--json", "-")
        if any(entry["edits"] for entry in again["passes"]):
            problems.append("a second run finds more")
        known = passes(binary)
        counts = [
            optimize(path, "--passes", ",".join(random.Random(seed).sample(list(known), len(known))))["after"]["nodes"]
            for seed in range(SHUFFLES)
        ]
        if set(counts) != {left}:
            problems.append(f"shuffled: {counts}")

        inputs = list(samples(binary, path, folder))
        run_all = results
        try:
            expected = results(path, inputs)
        except Exception as problem:
            # bfloat16 on a CPU, for example: the whole pipeline is then tried with our own evaluator.
            print(f"{name}: ONNX Runtime does not run it: {str(problem)[:120]}")
            known, inputs = {}, inputs[:1]
            run_all = functools.partial(own_results, binary, folder)
            expected = run_all(path, inputs)
        optimize(path)
        whole, _ = error(expected, run_all(out, inputs))
        if not whole <= TOLERANCE:
            problems.append(f"off by {whole:.1e}")
        alone = 0
        for one, accuracy in known.items():
            if not any(entry["edits"] for entry in optimize(path, "--passes", one)["passes"]):
                continue
            alone += 1
            off, exact = error(expected, results(out, inputs))
            wrong = {"bit-exact": not exact, "value-exact": off > 0}.get(accuracy, False)
            if wrong or not off <= TOLERANCE:
                problems.append(f"{one} ({accuracy}): off by {off:.1e}")
    print(f"{name:32} {report['before']['nodes']:5} → {left:5}  best peer {best or '-':>5}  shuffles {counts}"
          f"  off by {whole:.1e}  {alone} passes alone  {'; '.join(problems) or 'fine'}", flush=True)  # fmt: skip
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
