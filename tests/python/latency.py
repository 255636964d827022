"""How long ONNX Runtime, with its own optimizations, takes for a model as it was, for what we make of it, and for what ONNX Runtime
makes of it offline.

    python tests/python/latency.py BINARY NAME MODEL.onnx [OPSET] [TARGET] [ROUNDS]

All sessions run in turn on the same inputs, so that what else happens on the machine hits all of them. A speed is the median over
rounds of another's time by ours, with the interval in which the middle 95 % of resampled medians lie.
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import native
import passes

THREADS = 2
RUNS = 3
SESSIONS = 5


def timed(session, feeds):
    start = time.perf_counter()
    for _ in range(RUNS):
        session.run(None, feeds)
    return (time.perf_counter() - start) / RUNS * 1e3


def interval(values, resamples=1000):
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples)]


def speed(others, ours):
    """How many times as fast ours is, in words."""
    ratios = [other / our for other, our in zip(others, ours, strict=True)]
    low, high = interval(ratios)
    return f"{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]"


def offline(path, out):
    """What ONNX Runtime saves of the model with all fusions that do not depend on the machine."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(out)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "offline.data")
    options.log_severity_level = 3
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def times_of(models, inputs, rounds):
    """Milliseconds of each model on the same inputs, round by round. Small models run faster or slower by where a session happens to
    have its memory, so there are several sessions of each."""
    times = [[] for _ in models]
    for _ in range(SESSIONS):
        sessions = [native.session(model, THREADS, optimized=True) for model in models]
        feeds = native.feeds_of(sessions[0], inputs)
        for round in range(rounds // SESSIONS + 1):
            # Who comes second finds warmer caches: they take turns.
            for turn in range(len(sessions)):
                which = (round + turn) % len(sessions)
                spent = timed(sessions[which], feeds)
                if round > 0:
                    times[which].append(spent)
    return times


def main(binary, name, path, opset="keep", target="portable", rounds="20"):
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        ours, theirs = Path(folder) / "ours.onnx", Path(folder) / "theirs.onnx"
        command = ["optimize", path, "-o", ours, "--opset", opset, "--target", target, "--json", "-"]
        report = passes.run(binary, *command)
        offline(path, theirs)
        dims = [f"{dim}={1 if 'batch' in dim else 128}" for dim in passes.named_dims(path)]
        _, inputs, _ = native.run_ours(binary, path, folder, *native.flags(dims))
        before, saved, after = times_of((path, theirs, ours), inputs, int(rounds))
    print(f"| {name} | {report['before']['nodes']} → {report['after']['nodes']} | {statistics.median(before):.2f}"
          f" | {statistics.median(saved):.2f} | {statistics.median(after):.2f} | {speed(before, after)}"
          f" | {speed(saved, after)} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
