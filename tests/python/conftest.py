"""Runs the command line under test. `cargo xtask test` sets ONNXFORGE_BIN; by hand, set it to the built binary."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import browser

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    args: tuple
    code: int
    out: str
    err: str

    def __str__(self):
        command = " ".join(str(arg) for arg in self.args)
        return f"`onnxforge {command}` ended with {self.code}\nstdout: {self.out[-2000:]}\nstderr: {self.err[-2000:]}"

    def good(self):
        assert self.code == 0, str(self)
        return self

    def orderly(self):
        """Ended by its own decision: no signal, no panic, and one line on standard error, after notes of what was mended, if the input was bad."""
        assert self.code in (0, 1, 2), str(self)
        assert "panicked" not in self.err, str(self)
        if self.code == 2:
            # What was mended on load is noted before.
            lines = [line for line in self.err.strip().splitlines() if not line.startswith("WARN ")]
            assert len(lines) == 1, f"not one line on standard error\n{self}"
            assert len(self.err) < 4000, f"a line too long to read\n{self}"
        return self

    def refused(self, *mentioned):
        """Bad input: exit code 2, and one line that mentions all of `mentioned`."""
        self.orderly()
        assert self.code == 2, str(self)
        for text in mentioned:
            assert str(text) in self.err, f"{text} is not mentioned\n{self}"
        return self


@dataclass(frozen=True)
class Limits:
    """What a command may use; the default is what every command gets by."""

    address_space: int = 2048 * MIB
    heap: int | None = None
    files: int | None = None

    def wrap(self, command):
        limits = [f"ulimit -v {self.address_space // 1024}"]
        if self.heap is not None:
            limits.append(f"ulimit -d {self.heap // 1024}")
        if self.files is not None:
            limits.append(f"ulimit -S -n {self.files}")
        return ["/bin/sh", "-c", "; ".join([*limits, 'exec "$@"']), "sh", *command]


class Forge:
    """The command line."""

    def __init__(self, binary):
        self.binary = str(binary)

    def __call__(self, *args, limits=None, timeout=60, cwd=None, env=None):
        command = [self.binary, *map(str, args)]
        if limits is not None:
            command = limits.wrap(command)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, cwd=cwd, close_fds=False,
            env={**os.environ, **env} if env else None,
        )
        decode = lambda data: data.decode("utf-8", "backslashreplace")
        return Outcome(args, done.returncode, decode(done.stdout), decode(done.stderr))

    def many(self, commands, **options):
        """The outcomes of many commands, in their order; they run side by side."""
        with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
            return list(pool.map(lambda args: self(*args, **options), commands))

    def start(self, *args):
        """A command that is still running."""
        return subprocess.Popen(
            [self.binary, *map(str, args)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, close_fds=False,
        )  # fmt: skip


@pytest.fixture(scope="session")
def forge():
    binary = Path(os.environ.get("ONNXFORGE_BIN", ROOT / "target/release/onnxforge")).absolute()
    if not binary.is_file():
        pytest.exit(f"{binary} is not there; run `cargo xtask test`, or build it and set ONNXFORGE_BIN", returncode=2)
    return Forge(binary)


@pytest.fixture(scope="module")
def chromium():
    """A browser; see browser.py for where it comes from."""
    with browser.started() as running:
        yield running
