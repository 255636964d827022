"""Many models: the same work on each of them, on this machine or on a Ray cluster, and the results as Parquet.

Every model is worked on in a process of its own. One that dies, hangs or takes more memory than it was given loses only its model, which
is tried once more and then reported.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Optional, Protocol, Union

from . import errors, results
from ._call import Answer, Progress, ProgressCallback, call
from ._models import PathLike

__all__ = ["CorpusResult", "run"]

Engine = Literal["local", "ray"]
Task = Literal["optimize", "study"]

#: Columns that are the same wherever and however often the work is done, in the order of the table.
COLUMNS: Mapping[str, str] = {
    "model": "string",
    "status": "string",
    "error": "string",
    "nodes_before": "int64",
    "nodes_after": "int64",
    "constant_bytes_before": "int64",
    "constant_bytes_after": "int64",
    "verdict": "string",
    "max_relative_difference": "float64",
    "passes": "string",
    "result_sha256": "string",
}

#: Columns about the work itself, one row for each attempt.
RUN_COLUMNS: Mapping[str, str] = {
    "model": "string",
    "attempt": "int64",
    "status": "string",
    "reason": "string",
    "host": "string",
    "seconds": "float64",
}


@dataclass(frozen=True)
class Job:
    """What is to be done with one model; a worker can be told nothing else."""

    task: Task
    #: Its name in the table: its path below the folder of the corpus.
    name: str
    path: str
    #: Where the result goes.
    output: str
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Bytes of memory.
    memory: Optional[int] = None
    #: Seconds.
    timeout: Optional[float] = None


@dataclass(frozen=True)
class Attempt:
    """How one attempt ended."""

    #: ``ok``, ``wrong`` (a faulty rewrite was reverted), ``failed`` (an error that another attempt would meet again), ``died`` or
    #: ``timeout``.
    status: str
    row: Mapping[str, Any]
    reason: Optional[str]
    host: str
    seconds: float

    @property
    def is_final(self) -> bool:
        """Whether another attempt would end the same way."""
        return self.status in ("ok", "wrong", "failed")


class CorpusResult(results.Result):
    """What became of every model of a corpus. `ok` is true where all of them are good."""

    def __init__(self, rows: list[dict[str, Any]], folder: str) -> None:
        bad = [row for row in rows if row["status"] != "ok"]
        lines = [f"{len(rows) - len(bad)} of {len(rows)} models are good; {os.path.join(folder, 'results.parquet')}"]
        lines += [f"{row['model']}: {row['status']}: {row['error']}" for row in bad]
        super().__init__(Answer(not bad, {"schema": 1, "models": rows}, "\n".join(lines) + "\n", {}))
        #: One row for each model, in the order of their names.
        self.rows = rows
        #: The folder that holds the results.
        self.folder = folder

    def _headline(self) -> str:
        return self.text.splitlines()[0]

    def _tables(self) -> Iterable[tuple[Sequence[str], Iterable[Sequence[object]]]]:
        shown = ("model", "status", "nodes_before", "nodes_after", "verdict", "error")
        yield shown, [[_blank(row[name]) for name in shown] for row in self.rows]


def run(
    models: Union[PathLike, Iterable[PathLike]],
    output: PathLike,
    *,
    task: Task = "optimize",
    engine: Engine = "local",
    workers: Optional[int] = None,
    memory: Optional[float] = None,
    timeout: Optional[float] = None,
    retries: int = 1,
    progress: Optional[ProgressCallback] = None,
    **options: Any,
) -> CorpusResult:
    """Do the same work on every model of a corpus.

    Args:
        models: A folder (all `.onnx` files below it), a pattern, or paths. With Ray, every node must see them.
        output: The folder for the results: `results.parquet`, `runs.parquet` (attempts, hosts, times), and what
            the work makes.
        task: `optimize`: each model to `models/…` below `output`; `study`: the experiments on each, and their
            summary, by the program `onnxforge-study`, which must be installed beside the interpreter or in the
            `PATH`, with Ray on every node.
        engine: Processes on this machine, or a Ray cluster (the one that Ray is connected to; else one on this
            machine).
        workers: How many models at a time; all cores by default. A Ray cluster decides by itself.
        memory: Gigabytes that each model may take.
        timeout: Seconds that each model may take.
        retries: How often a model is tried again whose worker died.
        progress: Called with how many models are done; an exception in it ends the work.
        options: Of `onnxforge.optimize`, or of `onnxforge study`.

    Returns:
        One row for each model; true where all of them are good.

    Example:
        >>> result = onnxforge.corpus.run(["tiny_bert.onnx", "small_cnn.onnx"], "results", workers=1)
        >>> bool(result), len(result.rows)
        (True, 2)
    """
    if engine not in ("local", "ray"):
        raise errors.UsageError(f"the engine is 'local' or 'ray', not {engine!r}")
    if task not in ("optimize", "study"):
        raise errors.UsageError(f"the task is 'optimize' or 'study', not {task!r}")
    folder = os.fspath(output)
    found = dict(_named(models))
    if not found:
        raise errors.UsageError("there is no model in the corpus")
    _table_format()
    if task == "study":
        # If its program is not there, that is said before any work.
        call("study", help=True)
    limit = None if memory is None else int(memory * 1e9)
    target = os.path.join(folder, "models" if task == "optimize" else "data")

    def place(name: str) -> str:
        # A study keeps the answers about a model in a folder of its name.
        return name if task == "optimize" else os.path.splitext(name)[0].replace(os.sep, ".")

    jobs = [
        Job(task, name, path, os.path.join(target, place(name)), options, limit, timeout)
        for name, path in found.items()
    ]
    if len({job.output for job in jobs}) < len(jobs):
        raise errors.UsageError("two models would write into one folder; give one of them another name")
    pool: Pool = _Ray() if engine == "ray" else _Processes(workers or os.cpu_count() or 1)
    rows: dict[str, dict[str, Any]] = {}
    runs: list[dict[str, Any]] = []
    with pool:
        for job, number, attempt in _attempts(pool, jobs, retries):
            about = {"model": job.name, "attempt": number, "status": attempt.status, "reason": attempt.reason}
            runs.append({**about, "host": attempt.host, "seconds": attempt.seconds})
            if attempt.is_final or number > retries:
                rows[job.name] = _row(job, attempt)
            if progress is not None:
                progress(Progress("models", len(rows), len(jobs), "models"))
    in_order = [rows[name] for name in sorted(rows)]
    _write(os.path.join(folder, "results.parquet"), in_order, COLUMNS)
    _write(os.path.join(folder, "runs.parquet"), sorted(runs, key=lambda run: (run["model"], run["attempt"])), RUN_COLUMNS)
    if task == "study":
        call("study", output=folder, summary_only=True)
    return CorpusResult(in_order, folder)


def _named(models: Union[PathLike, Iterable[PathLike]]) -> Iterator[tuple[str, str]]:
    """Every model with its name in the table."""
    if isinstance(models, (str, os.PathLike)):
        root = os.fspath(models)
        if os.path.isdir(root):
            for path in sorted(glob.glob(os.path.join(glob.escape(root), "**", "*.onnx"), recursive=True)):
                yield os.path.relpath(path, root), os.path.abspath(path)
            return
        models = sorted(glob.glob(root, recursive=True)) if glob.has_magic(root) else [root]
    paths = list(dict.fromkeys(os.path.abspath(os.fspath(path)) for path in models))
    around = os.path.dirname(paths[0]) if len(paths) == 1 else os.path.commonpath(paths) if paths else ""
    for path in paths:
        yield os.path.relpath(path, around), path


# Attempts


class Pool(Protocol):
    """Where attempts are made."""

    def __enter__(self) -> Pool: ...
    def __exit__(self, *error: object) -> None: ...
    def submit(self, job: Job) -> Any:
        """Begins an attempt."""
        ...

    def first(self, pending: Sequence[Any]) -> Any:
        """One of these that has ended."""
        ...

    def result(self, handle: Any) -> Attempt:
        """How it ended."""
        ...


def _attempts(pool: Pool, jobs: Sequence[Job], retries: int) -> Iterator[tuple[Job, int, Attempt]]:
    """Every attempt as it ends, with its number."""
    pending = {pool.submit(job): (job, 1) for job in jobs}
    while pending:
        handle = pool.first(list(pending))
        job, number = pending.pop(handle)
        attempt = pool.result(handle)
        yield job, number, attempt
        if not attempt.is_final and number <= retries:
            pending[pool.submit(job)] = (job, number + 1)


class _Processes:
    """Processes on this machine, some at a time."""

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(wait=True, cancel_futures=error[0] is not None)

    def submit(self, job: Job) -> Future[Attempt]:
        return self._threads.submit(attempt, job)

    def first(self, pending: Sequence[Future[Attempt]]) -> Future[Attempt]:
        return next(iter(wait(pending, return_when=FIRST_COMPLETED).done))

    def result(self, handle: Future[Attempt]) -> Attempt:
        return handle.result()


class _Ray:
    """Workers of a Ray cluster. A worker or node that dies ends the attempt, not the work."""

    def __init__(self) -> None:
        try:
            import ray
        except ImportError:
            raise errors.UsageError("engine='ray' needs the package ray: pip install 'onnxforge[ray]'") from None
        self._ray: Any = ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False)
        # Attempts are counted here, so that they are reported.
        self._attempt: Any = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(attempt)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, job: Job) -> Any:
        return self._attempt.remote(job)

    def first(self, pending: Sequence[Any]) -> Any:
        done, _ = self._ray.wait(pending, num_returns=1)
        return done[0]

    def result(self, handle: Any) -> Attempt:
        try:
            made: Attempt = self._ray.get(handle)
        except self._ray.exceptions.RayError as error:
            # The cluster needs a moment to notice, or it sends the model there again.
            time.sleep(2)
            return Attempt("died", {}, f"the worker is gone: {type(error).__name__}", "", 0.0)
        return made


def attempt(job: Job) -> Attempt:
    """One attempt, in a process of its own."""
    start = time.monotonic()
    words = [sys.executable, "-m", "onnxforge.corpus"]
    # A trace of where memory ran out needs memory: the process would wait for itself instead of ending.
    environment = os.environ if job.memory is None else {**os.environ, "RUST_BACKTRACE": "0"}

    def ended(status: str, row: Mapping[str, Any], reason: Optional[str]) -> Attempt:
        return Attempt(status, row, reason, socket.gethostname(), time.monotonic() - start)

    try:
        done = subprocess.run(
            words,
            input=json.dumps(asdict(job)),
            env=environment,
            capture_output=True,
            text=True,
            timeout=job.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ended("timeout", {}, f"it took more than {job.timeout:g} s")
    if done.returncode == 0:
        answer = json.loads(done.stdout.splitlines()[-1])
        return ended(answer.pop("status"), answer, answer.get("error"))
    said = done.stderr.strip().splitlines()
    reason = f"the process ended with {done.returncode}"
    if job.memory is not None and any("memory allocation" in line or "MemoryError" in line for line in said):
        reason = f"it needs more than {job.memory / 1e9:g} GB of memory"
    elif said:
        reason += f": {said[-1]}"
    return ended("died", {}, reason)


# The process of an attempt


def _work(job: Mapping[str, Any]) -> dict[str, Any]:
    """The work itself; the columns that it can fill in."""
    import onnxforge

    os.makedirs(os.path.dirname(job["output"]), exist_ok=True)
    try:
        if job["task"] == "study":
            memory = None if job["memory"] is None else job["memory"] / 1e9
            answer = call(
                "study", job["path"], output=job["output"], record_only=True, memory=memory, **job["options"]
            )
            return {"status": "ok"} if answer.good else {"status": "wrong", "error": "not every command had an answer"}
        made = onnxforge.optimize(job["path"], job["output"], **job["options"])
    except errors.Error as error:
        return {"status": "failed", "error": str(error)}
    compared = made.report["verification"]["global"] or {}
    differences = [each["difference"] for each in compared.get("outputs", ()) if each["difference"]]
    return {
        "status": "ok" if made.ok else "wrong",
        "error": None if made.ok else "a faulty rewrite was reverted",
        "nodes_before": made.nodes_before,
        "nodes_after": made.nodes_after,
        "constant_bytes_before": made.report["before"]["constants"],
        "constant_bytes_after": made.report["after"]["constants"],
        "verdict": compared.get("verdict"),
        "max_relative_difference": max((each["max_rel"] for each in differences), default=None),
        "passes": json.dumps(made.passes, sort_keys=True),
        "result_sha256": _digest(file["path"] for file in made.report["files"]),
    }


def _digest(paths: Iterable[str]) -> str:
    """The hash of the contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _limit_memory(size: int) -> None:
    """Lets this process take no more than so many bytes of its own, where the system can do that."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def main() -> int:
    """The process of an attempt: a job comes in, the columns go out."""
    job = json.load(sys.stdin)
    if job["memory"] is not None:
        _limit_memory(job["memory"])
    print(json.dumps(_work(job)))
    return 0


# Tables


def _row(job: Job, attempt: Attempt) -> dict[str, Any]:
    row = {name: attempt.row.get(name) for name in COLUMNS}
    return {**row, "model": job.name, "status": attempt.status, "error": attempt.reason}


def _table_format() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise errors.UsageError("results are written by the package pyarrow: pip install 'onnxforge[corpus]'") from None
    return pyarrow


def _write(path: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    pyarrow = _table_format()
    kinds = {"string": pyarrow.string(), "int64": pyarrow.int64(), "float64": pyarrow.float64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema=schema), path)


def _blank(value: object) -> object:
    return "" if value is None else value


if __name__ == "__main__":
    sys.exit(main())
