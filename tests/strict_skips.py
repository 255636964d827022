"""Nothing is skipped silently: `cargo xtask test` loads this plugin, and a skip that is not listed here fails the run.

Its environments have everything that tests need, so what is left are systems that cannot do something, cases that are no
cases, and what somebody has explicitly done without (`--without`).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Allowed:
    """Tests of a file may be skipped for a reason that begins like this."""

    file: str
    reason: str
    when: bool = True


NOT_LINUX = sys.platform != "linux"
WINDOWS = os.name == "nt"

ALLOWED = [
    # Systems that cannot do it.
    Allowed("test_bench.py", "only Linux tells which processes another one has started", NOT_LINUX),
    Allowed("test_corpus.py", "Ray starts clusters of several nodes on one machine on Linux only", NOT_LINUX),
    Allowed("test_package.py", "only Linux tells how much memory is a process's own", NOT_LINUX),
    Allowed("test_package.py", "this system does not fork processes", WINDOWS),
    Allowed("test_package.py", "Windows sends Ctrl-C to whole consoles", WINDOWS),
    # Models that are no cases: nothing can be converted to an older operator set, and what the runtime cannot run, or nobody
    # can give inputs to, cannot be compared in it.
    Allowed("test_upgrade.py", "it is newer"),
    Allowed("test_upgrade.py", "ONNX Runtime cannot run it"),
    Allowed("test_upgrade.py", "nobody makes up inputs"),
]

# What tests may do without where somebody asks for it, and how they say so.
WITHOUT = {"chromium": "there is no Chromium"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", action="append", default=[], choices=sorted(WITHOUT), help="may be missing")


def refused(config: pytest.Config) -> list[str]:
    """The skips that nothing allows."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    found = []
    for report in reporter.stats.get("skipped", []) if reporter else []:
        place = report.nodeid.split("::")[0]
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        listed = any(
            one.when and place.endswith(one.file) and reason.startswith(one.reason) for one in ALLOWED
        )
        done_without = any(reason.startswith(WITHOUT[name]) for name in config.getoption("--without"))
        if not listed and not done_without:
            found.append(f"{report.nodeid}: {reason}")
    return found


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Workers see their own tests only; the process that started them sees all.
    if not hasattr(session.config, "workerinput") and refused(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    lines = refused(config)
    if lines:
        terminalreporter.section("skipped, and tests/strict_skips.py does not allow it", red=True)
        for line in lines:
            terminalreporter.write_line(line)
