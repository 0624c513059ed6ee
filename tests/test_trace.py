"""A trace that viewers read, alone and beside one of torch.profiler."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from itertools import pairwise

import made_up
import pytest
from hypothesis import HealthCheck, given, settings
from test_findings import reports

from leakhunter.findings import Report
from leakhunter.report import trace


def events(report: Report) -> list[dict]:
    found = json.loads(trace.render(report))["traceEvents"]
    for event in found:
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        assert event["name"].isprintable()
        assert event["ph"] == "M" or event["ts"] >= 0
    times = [event["ts"] for event in found if event["ph"] != "M"]
    assert times == sorted(times)
    return found


def of(kind: str, found: list[dict]) -> list[dict]:
    return [event for event in found if event["ph"] == kind]


@pytest.mark.parametrize("report", [made_up.FULL, made_up.hostile(), Report("a loop", 0, 0.0)])
def test_slices_do_not_overlap_on_a_track(report):
    tracks = defaultdict(list)
    for event in of("X", events(report)):
        assert event["dur"] > 0
        tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start + 1e-6


def test_steps_last_as_long_as_the_report_says_and_none_is_missing():
    report = dataclasses.replace(made_up.FULL, steps=12_345)
    steps = [event for event in of("X", events(report)) if event["tid"] == trace.STEPS_THREAD]
    assert len(steps) <= trace.MOST_SLICES
    assert steps[0]["ts"] == 0
    assert steps[-1]["ts"] + steps[-1]["dur"] == pytest.approx(12_345 * 0.25e6)
    assert sum(event["dur"] for event in steps) == pytest.approx(12_345 * 0.25e6)
    short = dataclasses.replace(made_up.FULL, steps=3)
    names = [event["name"] for event in of("X", events(short)) if event["tid"] == trace.STEPS_THREAD]
    assert names == ["step 1", "step 2", "step 3"]


def test_each_meter_is_a_counter_that_keeps_its_peak():
    counters = defaultdict(list)
    for event in of("C", events(made_up.FULL)):
        ((unit, value),) = event["args"].items()
        counters[event["name"], unit].append((event["ts"], value))
    assert set(counters) == {(one.meter, one.unit) for one in made_up.FULL.series if one.readings}
    peak = made_up.GROWING.readings[made_up.PEAK - 1]
    assert (made_up.PEAK * 0.25e6, peak) in counters["cuda:0 allocated", "bytes"]
    assert max(map(len, counters.values())) <= trace.MOST_POINTS


@pytest.mark.parametrize("report", [made_up.FULL, made_up.hostile()])
def test_a_flow_leads_from_the_first_step_to_each_finding(report):
    found = events(report)
    starts, ends = ({event["id"]: event for event in of(kind, found)} for kind in "sf")
    assert set(starts) == set(ends)
    assert len(starts) == len(report.findings) == len(of("i", found))
    slices = of("X", found)
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] <= end["ts"]
        for event in (start, end):
            assert any(
                one["tid"] == event["tid"] and one["ts"] <= event["ts"] <= one["ts"] + one["dur"] for one in slices
            )
        assert end["bp"] == "e"


def test_a_finding_is_found_in_its_step():
    (found,) = [event for event in of("i", events(made_up.FULL)) if event["name"].startswith("LH103")]
    assert found["ts"] == pytest.approx(40 * 0.25e6)
    assert found["args"]["held by"] == "trainer.history[*]['loss']"
    assert found["args"]["statement"] == "train.py:41 in train_epoch()"


def test_it_can_lie_beside_a_trace_of_the_profiler(tmp_path):
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(4).sum()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    theirs = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    ours = json.loads(trace.render(made_up.FULL))
    assert isinstance(theirs["traceEvents"], list)
    for key in ("pid", "id"):
        numbers = [{e[key] for e in whole["traceEvents"] if key in e} for whole in (theirs, ours)]
        assert not numbers[0] & numbers[1]


def test_traces_of_two_processes_do_not_share_a_track():
    other = dataclasses.replace(made_up.FULL, environment={"pid": "4243"})
    first, second = ({event["pid"] for event in events(report)} for report in (made_up.FULL, other))
    assert not first & second


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reports)
def test_every_report_can_be_written(report):
    json.loads(trace.render(dataclasses.replace(report, steps=min(report.steps, 1000))))
