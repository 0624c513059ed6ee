"""Every program in tests/programs, watched with default options in an interpreter of its own."""

from __future__ import annotations

import json
import multiprocessing
import pathlib
from typing import Any

import pytest

FOLDER = pathlib.Path(__file__).parent / "programs"
BENCH = pathlib.Path(__file__).parent.parent / "benchmarks" / "leakbench.py"
STEPS = 100

# Forked from a server that has loaded torch and done nothing with it: as fresh as a new interpreter, and quicker.
CHILD = """
import os, runpy, sys
out = os.open({out!r}, os.O_WRONLY | os.O_CREAT)
os.dup2(out, 1)
sys.stdout = open(1, "w", closefd=False)
sys.argv = [{bench!r}, "--one", "watched", {program!r}, "--steps", "{steps}"]
runpy.run_path({bench!r}, run_name="__main__")
"""


@pytest.fixture(scope="module")
def server() -> Any:
    try:
        context = multiprocessing.get_context("forkserver")
    except ValueError:
        return multiprocessing.get_context("spawn")
    context.set_forkserver_preload(["torch", "leakhunter"])
    return context


def run(server: Any, program: str, folder: pathlib.Path) -> dict[str, Any]:
    out = folder / "row.json"
    code = CHILD.format(out=str(out), bench=str(BENCH), program=program, steps=STEPS)
    child = server.Process(target=exec, args=(code, {"__name__": "child"}))
    child.start()
    child.join(200)
    assert child.exitcode == 0
    row: dict[str, Any] = json.loads(out.read_text().splitlines()[-1])
    assert "error" not in row
    return row


def programs(kind: str) -> list[Any]:
    return [pytest.param(str(path), id=path.stem) for path in sorted((FOLDER / kind).glob("*.py"))]


# The items that tee keeps are reached through the iterator that is ahead as well as through the one behind.
OTHER_NAME = {"tee_behind": "used"}


@pytest.mark.parametrize("program", programs("leaks"))
def test_a_leak_is_found_and_its_holder_named(program, server, tmp_path):
    row = run(server, program, tmp_path)
    found = [finding for finding in row["findings"] if finding["signature"] in row["open"]]
    assert found, row["text"]
    wanted = OTHER_NAME.get(row["case"], row["culprit"].split(".")[-1])
    named = [finding["path"] for finding in found] + [node for finding in found for node in finding["nodes"]]
    assert any(wanted in name for name in named), row["text"]
    assert all(finding["fix"] for finding in found)


@pytest.mark.parametrize("program", programs("healthy"))
def test_a_healthy_program_is_not_accused(program, server, tmp_path):
    row = run(server, program, tmp_path)
    assert not row["open"], row["text"]
