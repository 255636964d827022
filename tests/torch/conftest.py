from __future__ import annotations

import logging
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import exports
import pytest
import torch


def pytest_configure() -> None:
    torch.set_num_threads(1)
    # The fused path of inference has no operator of ONNX.
    torch.backends.mha.set_fastpath_enabled(False)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> exports.Exports:
    return exports.Exports(tmp_path_factory.mktemp("exports"))


ROWS: dict[str, list[tuple[str, dict[str, int]]]] = {}


@pytest.fixture
def record_row():
    """Keeps numbers for the tables at the end of a run."""

    def record(table: str, name: str, **numbers: int) -> None:
        ROWS.setdefault(table, []).append((name, numbers))

    return record


def pytest_terminal_summary(terminalreporter) -> None:
    for table, rows in ROWS.items():
        terminalreporter.section(table)
        rows = [*rows, ("sum", {key: sum(numbers[key] for _, numbers in rows) for key in rows[0][1]})]
        for name, numbers in rows:
            terminalreporter.write_line(f"{name:24}" + "  ".join(f"{key} {value:5}" for key, value in numbers.items()))
