"""Readings of a whole run: thinned without losing a peak or a trough, in memory that does not grow."""

from __future__ import annotations

import math
import random
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakhunter.series import MOST, Recording, StepClock

LONG = 100_000
noise = random.Random(0)
SHAPES = {
    "constant": [5.0] * LONG,
    "rising": [float(step) for step in range(LONG)],
    "falling": [float(-step) for step in range(LONG)],
    "noise": [noise.random() for _ in range(LONG)],
    "a wave": [math.sin(step / 700) for step in range(LONG)],
    "a sawtooth": [float(step % 997) for step in range(LONG)],
    "alternating": [float(step % 2) for step in range(LONG)],
}


def recorded(readings, first: int = 1) -> Recording:
    recording = Recording()
    for step, reading in enumerate(readings, first):
        recording.add(step, reading)
    return recording


@pytest.fixture(scope="module", params=SHAPES)
def long(request):
    readings = SHAPES[request.param]
    return readings, recorded(readings, first=0).points()


def test_a_hundred_thousand_readings_fit_in_the_buffer(long):
    _, (steps, kept) = long
    # The unfinished bucket adds its lowest and its highest.
    assert len(steps) == len(kept) <= MOST + 2


def test_steps_stay_in_order(long):
    _, (steps, _) = long
    assert all(before < after for before, after in pairwise(steps))


def test_every_point_kept_is_a_reading_of_its_step(long):
    readings, (steps, kept) = long
    assert all(readings[step] == reading for step, reading in zip(steps, kept, strict=True))


def test_the_extremes_of_the_whole_run_are_kept(long):
    readings, (_, kept) = long
    assert (min(kept), max(kept)) == (min(readings), max(readings))


def test_no_part_of_the_run_is_left_out(long):
    readings, (steps, _) = long
    gaps = [after - before for before, after in zip((0, *steps), (*steps, len(readings)), strict=True)]
    assert max(gaps) <= len(readings) / 200


def test_a_short_run_is_kept_whole():
    readings = [noise.random() for _ in range(MOST)]
    assert recorded(readings).points() == (tuple(range(1, MOST + 1)), tuple(readings))


def test_nothing_recorded_has_no_points():
    assert Recording().points() == ((), ())


@pytest.mark.parametrize("place", [0, 1, 50, 20_000, 49_999, 77_777, LONG - 2, LONG - 1])
@pytest.mark.parametrize("spike", [1e6, -1e6])
def test_a_single_spike_survives_at_its_step(place, spike):
    recording = Recording()
    for step in range(LONG):
        recording.add(step, spike if step == place else 0.0)
    steps, readings = recording.points()
    assert (place, spike) in zip(steps, readings, strict=True)


def test_reading_the_points_disturbs_nothing():
    asked, left = Recording(), Recording()
    for step, reading in enumerate(SHAPES["noise"][:20_000]):
        asked.add(step, reading)
        left.add(step, reading)
        if step % 501 == 0:
            assert asked.points() == asked.points()
    assert asked.points() == left.points()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 4 * MOST), st.integers(0, 2**32), st.integers(1, 64))
def test_extremes_are_kept_at_every_length(count, seed, levels):
    source = random.Random(seed)
    readings = [float(source.randrange(levels)) for _ in range(count + 1)]
    _, kept = recorded(readings).points()
    assert (min(kept), max(kept)) == (min(readings), max(readings))


@pytest.mark.parametrize("make", [Recording, StepClock])
def test_what_records_does_not_grow(make):
    kept = make()
    add = kept.add if make is Recording else kept.tick
    tracemalloc.start()
    try:
        for step in range(60_000):
            if step == 20_000:
                before = tracemalloc.get_traced_memory()[0]
            add(step, step % 1000)
        assert tracemalloc.get_traced_memory()[0] - before < 4096
    finally:
        tracemalloc.stop()


def ticked(count: int, first: int = 1) -> StepClock:
    clock = StepClock()
    for step in range(first, first + count):
        clock.tick(step, 7 * step)
    return clock


@pytest.mark.parametrize("first", [0, 1, 12_345])
def test_a_clock_is_bounded_and_reaches_to_the_end(first):
    clock = ticked(LONG, first)
    steps = list(clock.steps)
    gaps = {after - before for before, after in pairwise(steps)}
    assert len(steps) <= 4 * MOST
    assert len(gaps) == 1
    assert max(gaps) <= 2 * LONG / (4 * MOST) + 2
    assert steps[0] - first < max(gaps)
    assert first + LONG - 1 - steps[-1] < max(gaps)


@pytest.mark.parametrize("count", [0, 1, 100, 4 * MOST, 4 * MOST + 1, LONG])
def test_a_clock_keeps_the_number_of_each_step(count):
    clock = ticked(count)
    assert [7 * step for step in clock.steps] == list(clock.numbers)


def test_a_clock_keeps_every_step_of_a_short_run():
    assert list(ticked(4 * MOST).steps) == list(range(1, 4 * MOST + 1))


def test_what_a_clock_has_shown_does_not_change():
    clock = ticked(3)
    shown = clock.steps
    clock.tick(4, 28)
    assert list(shown) == [1, 2, 3]
