"""The flight recorder: what is said when a CUDA device is full, and that the program's own error is untouched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import on_cuda
import pytest

from leakhunter import Report, oom
from leakhunter.findings import Breakdown, Held, OutOfMemory
from leakhunter.heap.breakdown import with_remainder
from leakhunter.report import text

GIB = 2**30


@pytest.mark.parametrize(
    ("requested", "grown", "unused", "cause"),
    [
        (1, 4 * GIB, 0, "leak"),
        (4 * GIB, 0, 0, "one large request"),
        (1, 0, 0, "working set"),
        (GIB, 0, 3 * GIB, "fragmentation"),
        (2 * GIB, 0, 3 * GIB, "one large request"),
        (4 * GIB, 4 * GIB, 0, "leak"),
    ],
)
def test_the_cause_follows_from_the_numbers(requested, grown, unused, cause):
    assert oom.cause(requested, 8 * GIB, grown, unused) == cause


def test_what_no_tensor_explains_is_named_and_never_negative():
    assert with_remainder({"parameters": 3}, 10) == {"parameters": 3, "not in tensors": 7}
    assert with_remainder({"parameters": 3}, 3) == {"parameters": 3}
    assert with_remainder({"parameters": 3}, 2) == {"parameters": 3}


FULL = OutOfMemory(
    "cuda:0", 128, 64 * 2**20, 8 * GIB, 2**20, 7 * GIB, 8 * GIB, 6 * GIB, "leak",
    {"parameters": 2**20, "other tensors": 7 * GIB}, (Held("kept[*]", 6 * GIB, 96),),
)  # fmt: skip


def test_the_text_begins_with_what_happened_and_names_the_holder():
    lines = text.out_of_memory(FULL).splitlines()
    assert lines[0].startswith("cuda:0 was out of memory in step 128: 64.0 MiB were asked for, 7.0 GiB of 8.0 GiB")
    assert "memory grew by 6.0 GiB since warm-up" in lines[1]
    assert "kept[*]: 6.0 GiB in 96 storages" in lines[2]
    assert any("other tensors" in line and "100%" in line for line in lines)


def test_it_is_in_the_report_and_survives_json(tmp_path):
    part = Breakdown("cpu", "quiet point", 7, {"parameters": 5})
    report = Report("a loop", 127, 0.1, out_of_memory=(FULL,), breakdown=(part,))
    report.to_json(tmp_path / "report.json")
    assert Report.from_json(tmp_path / "report.json") == report
    assert "was out of memory" in str(report)


PROGRAM = """
import gc, json, logging, sys, torch, leakhunter
lines = []
handler = logging.Handler(); handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
logging.getLogger("leakhunter").addHandler(handler)
kept = []
def step(number):
    {step}
def run(loop):
    try:
        for number in loop:
            step(number)
    except torch.OutOfMemoryError as error:
        return str(error), type(error.__context__).__name__
loop = leakhunter.watch(range(400), report={report!r})
seen = run(loop)
full = loop.report.out_of_memory
out = {{"seen": seen, "lines": lines, "full": loop.report.to_dict()["out_of_memory"]}}
"""


def run(step: str, report: str | None = None, **settings: str) -> dict[str, Any]:
    env = {**os.environ, **on_cuda.environment(), "STUBGPU_BYTES": str(256 * 2**20), **settings}
    code = PROGRAM.format(step=step, report=report) + on_cuda.END
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.cuda
def test_a_leak_that_fills_the_device_is_told_with_its_holder_before_the_error(tmp_path):
    place = tmp_path / "report.json"
    out = run("kept.append(torch.ones(2**20, device='cuda'))", str(place))
    assert "CUDA out of memory" in out["seen"][0]
    assert out["seen"][1] == "NoneType"
    (full,) = out["full"]
    assert full["cause"] == "leak"
    assert full["holders"][0]["path"] == "kept[*]"
    assert full["holders"][0]["bytes"] == sum(full["breakdown"].values()) - full["breakdown"].get("not in tensors", 0)
    assert any(level == "ERROR" and "was out of memory in step" in line for level, line in out["lines"])
    assert Report.from_json(place).out_of_memory


@pytest.mark.cuda
def test_one_large_request_is_no_leak():
    out = run("torch.ones(2**30 if number == 30 else 4, device='cuda')")
    assert [full["cause"] for full in out["full"]] == ["one large request"]
    assert "4.00 GiB" in out["seen"][0]


@pytest.mark.cuda
def test_errors_that_the_program_expects_are_told_three_times_at_most():
    step = """
    torch.ones(4, device='cuda')
    try:
        torch.ones(2**30, device='cuda')
    except torch.OutOfMemoryError:
        pass
"""
    out = run(step)
    assert out["seen"] is None
    assert len(out["full"]) == oom.MOST_REPORTS


@pytest.mark.cuda
def test_an_error_of_ours_leaves_the_programs_error_as_it_is():
    step = """
    import leakhunter.oom
    leakhunter.oom.captured = None
    torch.ones(2**30 if number == 30 else 4, device='cuda')
"""
    out = run(step)
    assert "CUDA out of memory" in out["seen"][0]
    assert any("could not say what filled cuda:0" in line for _, line in out["lines"])
