"""How long ONNX Runtime, with its own optimizations, takes for a model as it was and for what we make of it.

    python tests/python/latency.py BINARY NAME MODEL.onnx [OPSET] [ROUNDS]

Both sessions run in turn on the same inputs, so that what else happens on the machine hits both. The speed is the median over
rounds of the original's time by ours, with the interval in which the middle 95 % of resampled medians lie.
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


def timed(session, feeds):
    start = time.perf_counter()
    for _ in range(RUNS):
        session.run(None, feeds)
    return (time.perf_counter() - start) / RUNS * 1e3


def interval(values, resamples=1000):
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples)]


def pairs_of(before, after, inputs, rounds):
    """Milliseconds of both models on the same inputs, round by round."""
    before, after = (native.session(model, THREADS, optimized=True) for model in (before, after))
    feeds = native.feeds_of(before, inputs)
    pairs = []
    for round in range(rounds + 1):
        # Who comes second finds warmer caches: they take turns.
        order = (before, after) if round % 2 else (after, before)
        times = {session: timed(session, feeds) for session in order}
        pairs.append((times[before], times[after]))
    return pairs[1:]


def main(binary, name, path, opset="keep", rounds="20"):
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        out = Path(folder) / "out.onnx"
        report = passes.run(binary, "optimize", path, "-o", out, "--opset", opset, "--json", "-")
        dims = [f"{dim}={1 if 'batch' in dim else 128}" for dim in passes.named_dims(path)]
        _, inputs, _ = native.run_ours(binary, path, folder, *native.flags(dims))
        pairs = pairs_of(path, out, inputs, int(rounds))
    speeds = [a / b for a, b in pairs]
    low, high = interval(speeds)
    old, new = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{name:32} {report['before']['nodes']:5} → {report['after']['nodes']:5} nodes  {old:8.2f} → {new:8.2f} ms"
          f"  speed {statistics.median(speeds):.3f} [{low:.3f}, {high:.3f}]", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
