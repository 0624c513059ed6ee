"""What all tests share: paths, a log catcher, and models small enough for every step to take a millisecond."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "programs"


def load(path: pathlib.Path, name: str | None = None) -> Any:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def leakbench() -> Any:
    """The benchmark that runs programs in fresh processes."""
    return load(ROOT / "benchmarks" / "leakbench.py", "leakbench")


@pytest.fixture
def root() -> pathlib.Path:
    return ROOT


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


@pytest.fixture(autouse=True)
def _settled() -> Iterator[None]:
    """Garbage of one test must not be found by the next."""
    yield
    gc.collect()
