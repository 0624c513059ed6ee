"""What all tests share: interpreters, a log catcher, and gc between tests."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import on_cuda
import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("cuda") and on_cuda.reason():
        pytest.skip(on_cuda.reason())


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a piece of Python in a fresh interpreter."""

    def run(code: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, **(env or {})},
            check=False,
        )

    return run


class Records(logging.Handler):
    """Log lines of leakhunter, as text."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self, least: int = logging.DEBUG) -> list[str]:
        return [record.getMessage() for record in self.records if record.levelno >= least]


@pytest.fixture
def log() -> Iterator[Records]:
    logger = logging.getLogger("leakhunter")
    records, level = Records(), logger.level
    logger.addHandler(records)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(records)
    logger.setLevel(level)


@pytest.fixture
def stub(run: Any) -> Any:
    """A module's own ``run``, where CUDA is the stand-in and obeys its settings."""
    if not on_cuda.environment():
        pytest.skip("there is a real GPU here, and nothing stands in for it")
    return run


@pytest.fixture
def settled() -> Iterator[None]:
    """Garbage of one test must not be found by the next."""
    yield
    gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _settled() -> Iterator[None]:
    """Most tests leave none, so that gc, which takes as long as many of them, runs after each module only."""
    yield
    gc.collect()
