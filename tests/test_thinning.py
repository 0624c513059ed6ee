"""Fewer points never lose a peak, a trough or an end, and never come in another order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leakhunter.report.thinning import thin

curves = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=300)


@given(curves, st.integers(4, 400))
def test_it_is_short_enough_and_keeps_extremes_and_ends(readings, most):
    steps, kept = thin(range(len(readings)), readings, most)
    assert len(steps) == len(kept) <= max(most, 4)
    assert (min(kept), max(kept)) == (min(readings), max(readings))
    assert (steps[0], steps[-1]) == (0, len(readings) - 1)
    assert kept == [readings[step] for step in steps]
    assert steps == sorted(set(steps))


@given(curves)
def test_a_short_series_stays_as_it_is(readings):
    assert thin(range(len(readings)), readings, len(readings)) == (list(range(len(readings))), readings)


def test_every_bucket_keeps_its_own_peak():
    # One spike in each of ten stretches of a thousand steps.
    readings = [100.0 if step % 1000 == 517 else float(step % 7) for step in range(10_000)]
    steps, kept = thin(range(10_000), readings, 200)
    peaks = [step for step, reading in zip(steps, kept, strict=True) if reading == 100.0]
    assert peaks == list(range(517, 10_000, 1000))


def test_nothing_stays_nothing():
    assert thin((), (), 10) == ([], [])
