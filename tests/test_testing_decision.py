"""The rule by which repeats of a test are judged, on made-up and on published series."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakhunter.testing.decision import Track, growing, grows
from leakhunter.testing.outcome import LEAK, Outcome, amount, table
from leakhunter.testing.readings import TENSOR_BYTES, TENSORS
from leakhunter.testing.repeats import went_on


def track(rises, allowed=0.0, exact=True, start=1000.0, name="tensors", unit="tensors"):
    return Track(name, unit, tuple(accumulate(rises, initial=start)), allowed, exact)


# Each repeat's change in reference counts, from the discussion of how CPython hunts leaks in its own tests.
@pytest.mark.parametrize(
    ("rises", "leaks"),
    [([3, 0, 0], False), ([0, 1, 0], False), ([8, -8, 1], False), ([5, 5, 6], True), ([10, 1, 1], True)],
)
def test_counts_that_cpython_judges_are_judged_alike(rises, leaks):
    assert grows(track(rises)) is leaks


@pytest.mark.parametrize(
    ("rises", "leaks"),
    [
        ([1, 1, 1, 1, 1], True),
        ([1, 1, 1, 1, 0], False),
        ([0, 1, 1, 1, 1], False),
        ([5, 4, 3, 2, 1], True),
        ([2, 0, 2, 0, 2], False),
        ([-1, -1, -1, -1, -1], False),
        ([0, 0, 0, 0, 0], False),
        ([1, 1], False),
        ([], False),
    ],
)
def test_a_count_leaks_when_every_repeat_adds(rises, leaks):
    assert grows(track(rises)) is leaks


@pytest.mark.parametrize(
    ("rises", "leaks"),
    [
        ([4096, 4096, 4096, 4096, 4096], True),
        ([4224, 4320, 4944, 4816, 4320], True),
        # a cache that fills: every repeat adds less than the one before
        ([4096, 2048, 1024, 512, 300], False),
        # one large rise among ups and downs
        ([300, 300, 90_000, 300, 300], False),
        ([200, 180, 220, 190, 200], False),
        ([8192, 0, 8192, 0, 8192], False),
    ],
)
def test_bytes_of_malloc_must_rise_evenly_and_above_their_noise(rises, leaks):
    assert grows(track(rises, allowed=256, exact=False)) is leaks


def test_rss_that_rose_by_kilobytes_is_not_growth_where_kilobytes_are_noise():
    # Five readings of a process that leaked nothing; a first version of a leak test called them increasing.
    readings = (1951924224.0, 1951936512.0, 1951944704.0, 1951961088.0, 1951985664.0)
    assert not grows(Track("RSS", "bytes", readings, allowed=100_000, exact=False))


def test_what_is_allowed_is_none():
    assert not grows(track([1] * 5, allowed=1))
    assert grows(track([2] * 5, allowed=1))


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=30), st.integers(0, 29))
def test_one_repeat_that_adds_nothing_acquits(rises, position):
    assert grows(track(rises))
    rises[position % len(rises)] = 0
    assert not grows(track(rises))


@given(st.lists(st.integers(-(10**6), 10**6), max_size=30), st.integers(-(10**9), 10**9))
def test_where_the_readings_start_does_not_matter(rises, start):
    assert grows(track(rises)) == grows(track(rises, start=float(start)))


def test_tensors_that_stop_piling_up_are_not_accused_without_a_holder():
    tracks = [track([2] * 5, name=TENSORS)]
    assert went_on(tracks, added=48, runs=24)
    assert not went_on(tracks, added=14, runs=24)
    assert not went_on([], added=48, runs=24)


def test_only_what_grows_is_told():
    tracks = [track([1] * 5), track([0] * 5, name="malloc")]
    assert growing(tracks) == (tracks[0],)


# ----------------------------------------------------------------------------------------------------------
# how it is said


@pytest.mark.parametrize(
    ("count", "bytes_each", "words"),
    [
        ([1] * 5, [4096] * 5, "exactly 1 tensor of 4.0 KiB per call, 5 of 5 repeats"),
        ([2] * 5, [8192] * 5, "exactly 2 tensors, 8.0 KiB in all, per call, 5 of 5 repeats"),
        ([1] * 3, [4096, 4096, 8192], "exactly 1 tensor per call, 3 of 3 repeats"),
        ([1, 2, 1], [4096] * 3, "at least 1 tensors per call, 3 of 3 repeats"),
        (None, [512] * 5, "exactly 512 B of tensor bytes per call, 5 of 5 repeats"),
    ],
)
def test_integers_are_said_to_be_exact(count, bytes_each, words):
    tracks = [track(count, name=TENSORS)] if count else []
    tracks.append(track(bytes_each, name=TENSOR_BYTES, unit="bytes"))
    assert amount(Outcome(LEAK, tracks=tuple(tracks))) == words


def test_the_table_has_a_column_for_each_repeat():
    tracks = (track([1, 1, 1], name=TENSORS), track([4096, 4096, 4096], name=TENSOR_BYTES, unit="bytes"))
    assert list(table(Outcome(LEAK, tracks=tracks))) == [
        "  repeat             1       2       3  allowed",
        "  tensors           +1      +1      +1        0",
        "  tensor bytes  +4,096  +4,096  +4,096        0",
    ]
