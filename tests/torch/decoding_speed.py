"""Time for one token of a LLaMA with a filled cache, in ONNX Runtime: the export, what ONNX Runtime's own offline optimization
makes of it, what `onnxforge optimize --target ort` does, and what the model builder of onnxruntime-genai writes; in turn.

    python tests/torch/decoding_speed.py ONNXFORGE [--layers 4] [--contexts 128 1024] [--keep FOLDER]

Needs torch, transformers, onnx and onnxruntime. The widths are those of LLaMA 3.2 1B; layers and words are fewer, so that
all models fit into memory at once. The builder has a column where `onnxruntime_genai` can be imported. Each session is one
observation: the median of its rounds, in which models take turns, another one first in each. Speeds are the export's time
by a model's own in the same session; the interval is from the least to the largest of the sessions.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import tokenizers
import transformers

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import export_decoders

HEADS, CACHED_HEADS, HEAD, HIDDEN, THETA = 32, 8, 64, 2048, 500000.0


def llama(layers: int, words: int) -> export_decoders.Family:
    options = {
        **{"vocab_size": words, "hidden_size": HIDDEN, "intermediate_size": 8192, "num_hidden_layers": layers},
        **{"num_attention_heads": HEADS, "num_key_value_heads": CACHED_HEADS, "head_dim": HEAD},
        **{"max_position_embeddings": 4096, "tie_word_embeddings": True, "rope_theta": THETA},
        **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    }
    return export_decoders.Family("LlamaConfig", "LlamaForCausalLM", options, CACHED_HEADS, HEAD, layers)


def session_options(threads: int = 2) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    # Threads of other sessions must not take time from the one that runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def offline(given: Path, made: Path) -> None:
    options = session_options()
    options.optimized_model_filepath = str(made)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", made.name + ".data")
    onnxruntime.InferenceSession(str(given), options, providers=["CPUExecutionProvider"])


def by_builder(weights: Path, folder: Path) -> Path | None:
    """What onnxruntime-genai's builder writes for these weights."""
    if importlib.util.find_spec("onnxruntime_genai") is None:
        print("onnxruntime_genai is not installed: no column for its builder")
        return None
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", weights, "-o", folder / "builder"]
    command += ["-p", "fp32", "-e", "cpu", "-c", folder / "hub"]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    return folder / "builder" / "model.onnx"


def models(folder: Path, arguments: argparse.Namespace) -> dict[str, Path]:
    """The models that are compared, made where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    export, ours = folder / "export.onnx", folder / "ours.onnx"
    built = folder / "builder" / "model.onnx"
    if not export.exists():
        decoder = export_decoders.Flat(llama(arguments.layers, arguments.words), "cached").eval()
        with export_decoders.quiet():
            # Both models get the same weights.
            decoder.model.save_pretrained(folder / "weights")
            # The builder looks for the base of the rotation where it was before transformers 5, and wants some tokenizer.
            config = json.loads((folder / "weights" / "config.json").read_text())
            (folder / "weights" / "config.json").write_text(json.dumps(config | {"rope_theta": THETA}))
            words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
            transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder / "weights")
            export_decoders.by_dynamo(decoder, export, external=True)
    if not (folder / "offline.onnx").exists():
        offline(export, folder / "offline.onnx")
    command = [arguments.onnxforge, "optimize", export, "-o", ours, "--target", "ort", "--opset", arguments.opset]
    subprocess.run([*map(str, command), "--quiet", *arguments.options], check=True)
    found = {"export": export, "offline": folder / "offline.onnx", "ours": ours}
    if not built.exists():
        made = by_builder(folder / "weights", folder)
        return found if made is None else found | {"builder": made}
    return found | {"builder": built}


def feeds(session: onnxruntime.InferenceSession, context: int) -> dict[str, np.ndarray]:
    """One token after a context of so many: names are those of all the models."""
    random = np.random.default_rng(0)
    values = {}
    # The models list their inputs in different orders.
    for port in sorted(session.get_inputs(), key=lambda port: port.name):
        if port.name.startswith("past"):
            shape = (1, CACHED_HEADS, context, HEAD)
            values[port.name] = random.standard_normal(shape, dtype=np.float32)
        elif port.name == "attention_mask":
            values[port.name] = np.ones((1, context + 1), np.int64)
        elif port.name == "input_ids":
            values[port.name] = np.array([[5]])
        else:
            raise SystemExit(f"an input that is not known: {port.name}")
    return values


def measure(found: dict[str, Path], arguments: argparse.Namespace) -> dict[int, dict[str, float]]:
    """The median time of each model at each context, in one session of each."""
    clock = time.process_time if arguments.processor else time.perf_counter
    options = session_options(arguments.threads)
    sessions = {
        name: onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for name, path in found.items()
    }
    names = list(sessions)
    medians = {}
    for context in arguments.contexts:
        given = {name: feeds(session, context) for name, session in sessions.items()}
        times: dict[str, list[float]] = {name: [] for name in names}
        results = {name: session.run(None, given[name])[0] for name, session in sessions.items()}
        for name, result in results.items():
            scale = np.abs(results["export"]).max()
            off = np.abs(result - results["export"]).max() / scale
            if not off < 1e-4:
                raise SystemExit(f"{name} differs by {off:.1e} at a context of {context}")
        for turn in range(arguments.rounds):
            first = turn % len(names)
            for name in itertools.chain(names[first:], names[:first]):
                start = clock()
                sessions[name].run(None, given[name])
                times[name].append((clock() - start) * 1e3)
        medians[context] = {name: statistics.median(column) for name, column in times.items()}
    del sessions
    gc.collect()
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("onnxforge", type=Path, help="the command line")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--words", type=int, default=32000)
    parser.add_argument("--contexts", type=int, nargs="*", default=[128, 1024])
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processor", action="store_true", help="the processor's time, for machines that are not idle")
    parser.add_argument("--opset", default="23")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="more options for `optimize`")
    parser.add_argument("--keep", type=Path, help="where models are kept, and found again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = models(arguments.keep or Path(scratch), arguments)
        counts = {name: len(onnx.load(path, load_external_data=False).graph.node) for name, path in found.items()}
        observed = []
        for number in range(arguments.sessions):
            observed.append(measure(found, arguments))
            print(f"session {number + 1}: {json.dumps(observed[-1])}", file=sys.stderr, flush=True)
    print("| context | " + " | ".join(f"{name} ({count} nodes), ms" for name, count in counts.items()), end=" | ")
    speeds = [f"speed of {name}" for name in list(counts)[1:]]
    speeds += ["speed of ours beside the builder's"] if "builder" in counts else []
    print(" | ".join(speeds) + " |")
    print("|---" * (1 + len(counts) + len(speeds)) + "|")
    for context in arguments.contexts:
        times = {name: statistics.median(one[context][name] for one in observed) for name in counts}
        cells = [f"{time:.1f}" for time in times.values()]
        for name in list(counts)[1:]:
            speeds = [one[context]["export"] / one[context][name] for one in observed]
            cells.append(f"{statistics.median(speeds):.3f} [{min(speeds):.3f}, {max(speeds):.3f}]")
        if "builder" in counts:
            beside = [one[context]["builder"] / one[context]["ours"] for one in observed]
            cells.append(f"{statistics.median(beside):.3f} [{min(beside):.3f}, {max(beside):.3f}]")
        print(f"| {context} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
