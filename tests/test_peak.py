"""The peak of a step: which operator it is at, and what the live bytes are for then."""

from __future__ import annotations

import pytest
import torch

import leakhunter
from leakhunter import hunt
from leakhunter.probe.peak import Peak


def go(peak: Peak, use: list[int], readings: dict[str, float], count: int = 1) -> None:
    for _ in range(count):
        for now in use:
            readings["cpu"] = now
            peak.operator()
        peak.quiet_point()


def test_the_device_is_looked_at_once_at_the_operator_of_its_peak():
    readings: dict[str, float] = {}
    seen: list[tuple[list[str], float]] = []
    peak = Peak(lambda: readings, lambda devices: seen.append((list(devices), readings["cpu"])))
    go(peak, [3, 9, 4, 9, 1], readings, count=6)
    assert not seen
    assert peak.look_in_next_step()
    go(peak, [3, 9, 4, 9, 1], readings)
    assert seen == [(["cpu"], 9)]


def test_devices_have_peaks_of_their_own():
    at: list[tuple[str, int]] = []
    now = 0
    peak = Peak(lambda: {"cpu": now, "cuda:0": -now + 10}, lambda devices: at.extend((d, now) for d in devices))
    for step in range(3):
        if step == 2:
            peak.look_in_next_step()
        for now in (1, 2, 3):  # noqa: B007
            peak.operator()
        peak.quiet_point()
    assert sorted(at) == [("cpu", 3), ("cuda:0", 1)]


def test_a_step_that_is_cut_short_is_not_looked_at():
    seen: list[object] = []
    readings: dict[str, float] = {}
    peak = Peak(lambda: readings, seen.append)
    go(peak, [1, 2, 3], readings, count=2)
    peak.look_in_next_step()
    go(peak, [1, 2], readings)
    assert not seen


def test_without_a_scanned_step_there_is_nothing_to_look_at():
    peak = Peak(dict, lambda devices: None)
    go(peak, [1, 2], {}, count=1)
    assert not peak.look_in_next_step()


def test_a_step_of_many_operators_is_read_a_bounded_number_of_times():
    count = 0

    def read():
        nonlocal count
        count += 1
        return {"cpu": 1.0}

    peak = Peak(read, lambda devices: None)
    go(peak, [1] * 10_000, {}, count=4)
    assert 60 <= count <= 70


def test_the_report_tells_activations_at_the_peak_and_none_at_the_quiet_point():
    net = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Sigmoid()) for _ in range(6)))
    kept = []
    loop = leakhunter.watch(range(80))
    for _ in loop:
        x = torch.randn(512, 256)
        loss = net(x).pow(2).mean()
        loss.backward()
        kept.append(torch.ones(10_000))
        del x, loss
    found = {part.moment: part for part in loop.report.breakdown if part.device == "cpu"}
    peak, quiet = found["peak"], found["quiet point"]
    name = "activations saved for backward"
    # Each of six sigmoids saves its result of 512 KiB, all of them alive when backward begins.
    assert peak.categories[name] >= 5 * 512 * 256 * 4
    assert quiet.categories.get(name, 0) < 512 * 256 * 4
    assert sum(peak.categories.values()) > sum(quiet.categories.values())
    assert "not in tensors" in peak.categories


@pytest.mark.parametrize("steps", range(30, 38))
def test_a_diagnosis_after_the_last_step_leaves_nothing_armed_and_nothing_locked(steps):
    kept = []
    # Of a loop whose length is not known.
    for _ in leakhunter.watch(iter(range(steps))):
        kept.append(torch.ones(10_000))
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    assert not hunt._probing.locked()
