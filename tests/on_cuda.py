"""CUDA for tests that run in a child process: a real GPU where there is one, else the stand-in in `tests/stubgpu`."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
from typing import Any

import torch

# The last lines of a child's program, which print its `out`. The interpreter's own end would wait for threads of the
# autograd engine that may only now begin, and abort.
END = """
import json, os
print(json.dumps(out), flush=True)
os._exit(0)
"""
BUILD = pathlib.Path(__file__).resolve().parent / "stubgpu" / "build.py"


def environment() -> dict[str, str]:
    """What a child needs in its environment for CUDA to work there; nothing with a real GPU, or when `reason()`."""
    return dict(_found()[0])


def reason() -> str:
    """Why CUDA cannot be had, in one sentence; empty when it can."""
    return _found()[1]


@functools.cache
def builder() -> Any:
    """`tests/stubgpu/build.py` as a module."""
    return load(BUILD)


def load(path: pathlib.Path) -> Any:
    """A file that is in no package, as a new module."""
    spec = importlib.util.spec_from_file_location(f"stubgpu_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _found() -> tuple[dict[str, str], str]:
    if torch.cuda.is_available():
        return {}, ""
    try:
        return builder().environment(), ""
    except builder().Unavailable as error:
        return {}, str(error)
