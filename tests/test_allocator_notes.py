"""Verdicts on an allocator that are no leaks: each from made-up numbers, and the same from the real allocator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import on_cuda
import pytest

from leakhunter.findings import Finding, Report, Series, Verdict
from leakhunter.patterns import allocator
from leakhunter.patterns.first_workspace import CUBLAS, CUBLASLT
from leakhunter.patterns.pool import MIB, PINNED, Curve, Layout, Pool, Segment, read_layout
from leakhunter.report.text import finding as as_text

STEPS = range(9, 209)


def curve(reading: Callable[[int], float], steps: range = STEPS) -> Curve:
    return Curve(tuple(steps), tuple(reading(step) * MIB for step in steps))


def pool(allocated, reserved, peak: float = 900, outside=None, name: str = "cuda:0", steps: range = STEPS) -> Pool:
    beside = curve(outside, range(16, steps.stop, 16)) if outside else Curve()
    return Pool(name, curve(allocated, steps), curve(reserved, steps), beside, peak * MIB)


def level(height: float) -> Callable[[int], float]:
    return lambda step: height


def from_step(first: int, before: float, after: float) -> Callable[[int], float]:
    return lambda step: before if step < first else after


def within(first: int, last: int, low: float, high: float) -> Callable[[int], float]:
    return lambda step: high if first <= step <= last else low


def found(given: Pool, layout: Layout | None = None) -> list[str]:
    return [note.pattern for note in allocator.notes(given, 208, lambda pool: layout)]


def note(given: Pool, layout: Layout | None = None) -> Finding:
    (only,) = allocator.notes(given, 208, lambda pool: layout)
    return only


FRAGMENTED = pool(level(500), lambda step: 1000 + 10 * step)
CACHED = pool(within(50, 52, 500, 1500), from_step(50, 1000, 2000), peak=1800)
OUTSIDE = pool(level(500), level(1000), outside=lambda step: 600 + step)
PILED = pool(level(8), lambda step: 64 + 2 * step, peak=40, name=PINNED)
STAYED = pool(within(60, 60, 8, 512), from_step(60, 16, 528), peak=512, name=PINNED)
WORKSPACE = pool(from_step(14, 500, 500 + CUBLAS / MIB), level(1000))
EACH = {
    "LH921": FRAGMENTED,
    "LH922": CACHED,
    "LH923": OUTSIDE,
    "LH924": PILED,
    "LH925": WORKSPACE,
}


@pytest.mark.parametrize(("pattern", "given"), EACH.items())
def test_each_is_recognised_alone(pattern, given):
    assert found(given) == [pattern]


def test_a_pinned_peak_stays_too():
    assert found(STAYED) == ["LH924"]


def test_workspaces_of_both_libraries_are_taken_at_once():
    assert found(pool(from_step(14, 500, 500 + (CUBLAS + CUBLASLT) / MIB), level(1000))) == ["LH925"]


HEALTHY = {
    "nothing moves": pool(level(500), level(1000)),
    "no readings": Pool("cuda:0"),
    "few readings": pool(level(500), lambda step: 1000 + 10 * step, steps=range(9, 15)),
    "reserved follows a leak": pool(lambda step: 500 + 10 * step, lambda step: 1000 + 10 * step),
    "each step needs more": pool(level(500), lambda step: 1000 + 10 * step, peak=2950),
    "peak unknown": pool(level(500), lambda step: 1000 + 10 * step, peak=0),
    "reserved fills up": pool(level(500), lambda step: 2000 - 1000 * 0.97**step),
    "reserved rises once": pool(level(500), from_step(60, 1000, 2000)),
    "reserved rises a little": pool(level(500), lambda step: 1000 + 0.2 * step),
    "reserved is given back each epoch": pool(level(500), lambda step: 1000 + 10 * (step % 40)),
    "peak comes back": pool(lambda step: 1500 if step % 50 == 0 else 500, from_step(50, 1000, 2000)),
    "peak is too young to know": pool(within(150, 150, 500, 1500), from_step(150, 1000, 2000)),
    "peak was given back": pool(within(50, 50, 500, 1500), within(50, 52, 1000, 2000)),
    "peak fitted in": pool(within(50, 50, 500, 900), level(1000)),
    "peak before the first reading": pool(within(0, 12, 500, 1500), level(2000)),
    "new level of use": pool(from_step(60, 500, 1500), from_step(60, 1000, 2000)),
    "outside rises once": pool(level(500), level(1000), outside=from_step(60, 600, 900)),
    "outside goes up and down": pool(level(500), level(1000), outside=lambda step: 600 + step % 64),
    "outside grows by little": pool(level(500), level(1000), outside=lambda step: 600 + step / 20),
    "step of another size": pool(from_step(14, 500, 508), level(1000)),
    "workspace late": pool(from_step(100, 500, 500 + CUBLAS / MIB), level(1000)),
    "workspace given back": pool(within(14, 60, 500, 500 + CUBLAS / MIB), level(1000)),
    "workspace in noise": pool(lambda step: from_step(14, 500, 500 + CUBLAS / MIB)(step) + step % 3, level(1000)),
    "pinned buffers in use each step": pool(level(8), level(528), peak=512, name=PINNED),
    "pinned memory follows use": pool(lambda step: 2 * step, lambda step: 64 + 2 * step, peak=416, name=PINNED),
    "pinned memory fills up": pool(level(8), lambda step: 500 - 400 * 0.97**step, peak=40, name=PINNED),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_looks_alike_gets_none(name):
    assert not found(HEALTHY[name])


@pytest.mark.parametrize("given", EACH.values(), ids=EACH)
def test_a_note_accuses_nobody_and_survives_json(given):
    only = note(given)
    report = Report("a loop", 208, 0.1, (only,))
    assert not only.accuses
    assert not report.open
    assert "no leak found" not in as_text(only)
    assert Report.from_dict(report.to_dict()) == report
    assert all("\n" not in line and len(line) <= 120 for line in as_text(only).splitlines())


def test_signatures_differ_by_pattern_and_pool_and_by_nothing_else():
    other = pool(level(300), lambda step: 900 + 20 * step)
    assert note(FRAGMENTED).signature == note(other).signature
    second = Pool("cuda:1", FRAGMENTED.allocated, FRAGMENTED.reserved, peak=FRAGMENTED.peak)
    assert len({note(given).signature for given in (*EACH.values(), second)}) == len(EACH) + 1


def test_fragmentation_says_what_was_used_and_advises_from_the_sizes():
    layout = Layout((Segment((2 * MIB,), (60 * MIB, 20 * MIB)), Segment((30 * MIB,)), Segment((), (40 * MIB,))))
    only = note(FRAGMENTED, layout)
    assert only.evidence.statements[0] == (
        "reserved went from 1.1 GiB to 3.0 GiB since step 9, while 500 MiB are allocated and never more than 900 MiB "
        "were in use at once"
    )
    assert only.evidence.statements[1] == (
        "of 3 segments, 80.0 MiB are free between live blocks and 40.0 MiB in segments without any; the largest free "
        "block has 60.0 MiB"
    )
    assert "expandable_segments:True" in only.fix.text
    assert "max_split_size_mb:21 " in only.fix.text
    assert "the 40.0 MiB" in only.fix.caveat
    assert only.bytes_per_step == pytest.approx(10 * MIB, rel=0.01)
    assert (only.holder.path, only.holder.kind, only.first_step) == ("CUDA allocator of cuda:0", "native", 9)


def test_the_limit_lies_above_the_small_blocks_and_is_not_given_where_it_would_not_help():
    def limit(live: int, free: int) -> int:
        return Layout((Segment((live * MIB,), (free * MIB,)),)).split_limit

    assert limit(25, 60) == 26
    assert limit(2, 19) == limit(60, 50) == limit(40, 41) == 0
    assert Layout().split_limit == 0


def test_expandable_segments_are_not_advised_twice_nor_for_graphs():
    expandable = note(FRAGMENTED, Layout((Segment((MIB,), (60 * MIB,), expandable=True),)))
    assert "expandable_segments:True" not in expandable.fix.text
    private = note(FRAGMENTED, Layout((Segment((MIB,), (60 * MIB,), private=True),)))
    assert "CUDA graphs" in private.fix.text


def test_the_cache_says_which_step_and_how_much_would_come_back():
    only = note(CACHED, Layout((Segment((), (900 * MIB,)), Segment((), (50 * MIB,), private=True))))
    assert only.evidence.statements[0] == (
        "allocated was 1.5 GiB in steps 50 to 52, has not come near that in the 156 steps since and is 500 MiB now; "
        "reserved was 1000 MiB before and is 2.0 GiB"
    )
    assert "after step 52 would give back 900 MiB" in only.fix.text
    assert "no cure for a leak" in only.fix.caveat
    assert "at most 1000 MiB" in note(CACHED).fix.text


def test_a_note_without_growth_shows_no_rate():
    text = as_text(note(CACHED))
    assert text.startswith("LH922 allocator cache after a peak  (note)\n  measured   allocated was")
    assert "per step" not in text


def test_segments_are_only_asked_for_when_there_is_something_to_say():
    asked = []
    allocator.notes(HEALTHY["nothing moves"], 208, asked.append)
    assert not asked
    allocator.notes(FRAGMENTED, 208, asked.append)
    assert asked == [FRAGMENTED]


def test_a_snapshot_is_read_for_its_device_and_unknown_keys_are_no_matter():
    blocks = [
        {"size": 5, "state": "active_allocated"},
        {"size": 7, "state": "inactive"},
        {"size": 9, "state": "active_pending_free"},
    ]
    snapshot = {
        "segments": [
            {"device": 0, "blocks": blocks, "is_expandable": True, "news": 1},
            {"device": 1, "blocks": blocks},
            {"device": 0, "blocks": [], "segment_pool_id": (0, 1)},
        ]
    }
    assert read_layout(snapshot, 0).segments == (Segment((5, 9), (7,), expandable=True), Segment(private=True))
    assert read_layout({}, 0) == Layout()


def test_pools_are_made_of_the_series_of_a_watch_without_its_warm_up(monkeypatch):
    monkeypatch.setattr(allocator, "_peak", lambda index: 10.0 * (index + 1))
    monkeypatch.setattr(allocator, "_pinned_peak", lambda: 5.0)
    names = ["RSS", "cuda:1 allocated", "cuda:1 reserved", "cuda:1 outside PyTorch", "xpu:0 reserved"]
    names += ["pinned memory in use", "pinned memory"]
    series = [
        Series(name, "bytes", (8, 9, 10), (0.0, place, place), Verdict("flat")) for place, name in enumerate(names)
    ]

    def kept(place: int) -> Curve:
        return Curve((9, 10), (place, place))

    assert list(allocator.pools(series, 8)) == [
        Pool(PINNED, kept(5), kept(6), peak=5.0),
        Pool("cuda:1", kept(1), kept(2), kept(3), 20.0),
    ]
    assert list(allocator.pools(series[:1], 8)) == []


# ------------------------------------------------------------------------------------------------------------------
# the real allocator


BEFORE = """
import json, torch, leakhunter
from collections import deque
MIB = 1 << 20
out = {}
def block(mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")
def reserved():
    return torch.cuda.memory_reserved()
def watch(step, steps=120):
    block(1)
    with leakhunter.watch() as watched:
        for number in range(1, steps + 1):
            step(number)
            watched.step()
    report = watched.report
    out["patterns"] = [f.pattern for f in report.findings]
    out["open"] = [f.pattern for f in report.open]
    out["fix"] = [f.fix.text for f in report.findings]
    out["held"] = [f.bytes_held for f in report.findings]
    out["first"] = [f.first_step for f in report.findings]
    out["text"] = str(report)
"""


@pytest.fixture
def run() -> Callable[..., dict[str, Any]]:
    def result(code: str, **variables: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", BEFORE + textwrap.dedent(code) + on_cuda.END],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **on_cuda.environment(), **variables},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        out: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return out

    return result


# Every step asks for 2 MiB more than the last, and leaves a small block where the large one was.
FRAGMENTING = """
recent = deque(maxlen=8)
def step(number):
    large = block(22 + 2 * number)
    del large
    recent.append(block(2))
watch(step, 60)
out["growth"] = reserved() / MIB
"""


@pytest.mark.cuda
def test_a_fragmenting_loop_is_told_so(run):
    out = run(FRAGMENTING, STUBGPU_BYTES=str(64 << 30))
    assert out["patterns"] == ["LH921"], out["text"]
    assert not out["open"]
    assert "expandable_segments:True" in out["fix"][0]
    assert out["held"][0] > 1000 * MIB


@pytest.mark.cuda
def test_with_the_advice_taken_it_no_longer_fragments(run):
    out = run(FRAGMENTING, STUBGPU_BYTES=str(64 << 30), PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert out["patterns"] == [], out["text"]
    assert out["growth"] < 400


@pytest.mark.cuda
def test_a_peak_that_is_over_is_told_with_what_would_come_back(run):
    out = run(
        """
        kept = block(40)
        large = None
        def step(number):
            global large
            large = block(600) if number == 30 else None
            block(30)
        watch(step)
        before = reserved()
        torch.cuda.empty_cache()
        out["given back"] = before - reserved()
        """
    )
    assert out["patterns"] == ["LH922"], out["text"]
    assert not out["open"]
    assert out["first"] == [30]
    assert f"would give back {out['given back'] / MIB:.0f} MiB" in out["fix"][0]


@pytest.mark.cuda
def test_pinned_memory_kept_since_a_peak_is_told(run):
    out = run(
        """
        kept = []
        def step(number):
            kept[:] = [torch.empty(64 * MIB, dtype=torch.uint8).pin_memory()] if number == 30 else []
            torch.empty(MIB, dtype=torch.uint8).pin_memory().to("cuda")
        watch(step)
        """
    )
    assert out["patterns"] == ["LH924"], out["text"]
    assert out["first"] == [30]


@pytest.mark.cuda
@pytest.mark.parametrize("shapes", ["same", "varied"])
def test_a_healthy_training_gets_none(run, shapes):
    out = run(
        f"""
        import random
        random.seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        def step(number):
            rows = random.randint(64, 8192) if {shapes!r} == "varied" else 4096
            optimizer.zero_grad()
            batch = torch.empty(rows, 512).pin_memory().to("cuda", non_blocking=True)
            net(batch).square().mean().backward()
            optimizer.step()
            if number % 50 == 0:
                with torch.no_grad():
                    outputs = [net(torch.empty(4096, 512, device="cuda")) for _ in range(8)]
        watch(step, 160)
        """
    )
    assert not set(out["patterns"]) & {pattern.id for pattern in allocator.PATTERNS}, out["text"]
    assert "cuda:0 reserved" in out["text"]


@pytest.mark.cuda
@pytest.mark.parametrize(("backend", "readable"), [("native", True), ("cudaMallocAsync", False)])
def test_only_the_native_backend_has_segments_to_read(run, backend, readable):
    out = run(
        """
        from leakhunter.patterns import allocator, pool
        kept = block(30), block(1)
        layout = allocator.layout_of(pool.Pool("cuda:0"))
        out["read"] = layout is not None
        out["right"] = layout is None or sum(sum(s.live) + sum(s.free) for s in layout.segments) == reserved()
        """,
        PYTORCH_CUDA_ALLOC_CONF=f"backend:{backend}",
    )
    assert out["read"] == readable
    assert out["right"]
