"""Made-up series of readings: what is called growth, and what is not."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakhunter.findings import Verdict
from leakhunter.growth import (
    BLOCKS,
    KEEP,
    Suspicion,
    Trend,
    bases,
    block_minima,
    judge,
    sawtooth_period,
    slows,
    steady,
)

KIB = 1024
LEVEL = 1_000_000.0
FLOOR, LEAST = 32.0, 4096.0
quick = settings(max_examples=60, deadline=None)


def series(steps: int, rise: Callable[[int], float]) -> list[float]:
    return [LEVEL + rise(step) for step in range(steps)]


def judged(readings: Sequence[float], beat: int = 1, floor: float = FLOOR, least: float = LEAST) -> Verdict:
    return judge(range(0, len(readings) * beat, beat), readings, floor, least)


def suspicions(
    readings: Sequence[float], beat: int = 1, block: int = 4, floor: float = FLOOR, least: float = LEAST
) -> Iterator[tuple[int, Suspicion]]:
    """How many readings it took, and what was suspected."""
    trend = Trend(beat, block, floor, least)
    for place, reading in enumerate(readings):
        trend.add(place * beat, reading)
        found = trend.suspicion()
        if found is not None:
            yield place + 1, found


def sawtooth(period: int, steps: int, slope: float = 10_000) -> list[float]:
    return series(steps, lambda step: slope * (step % period))


def staircase(stair: int, steps: int) -> list[float]:
    return series(steps, lambda step: 100 * KIB * (step // stair))


def cache(pace: float, steps: int) -> list[float]:
    return series(steps, lambda step: 1e7 * (1 - math.exp(-step / pace)))


def filled(size: int, steps: int) -> list[float]:
    """A replay buffer: a page per step until it is full."""
    return series(steps, lambda step: 4096 * min(step, size))


def noisy(slope: float, spread: float, steps: int, seed: int) -> list[float]:
    noise = random.Random(seed)
    return series(steps, lambda step: slope * step + noise.uniform(0, spread))


def walk(seed: int, steps: int = 400) -> list[float]:
    noise, readings = random.Random(seed), [LEVEL]
    while len(readings) < steps:
        readings.append(readings[-1] + noise.gauss(0, LEAST))
    return readings


def jump(at: int, steps: int = 400, height: float = 1e6) -> list[float]:
    return series(steps, lambda step: height if step >= at else 0)


# ----------------------------------------------------------------------------------------------------------
# leaks are seen


LEAKS = {
    "1 KiB a step": (series(400, lambda step: KIB * step), KIB),
    "64 bytes a step in a little noise": (noisy(64, 200, 400, 1), 64),
    "64 bytes a step in much noise": (noisy(64, 4096, 2000, 2), 64),
    "1 KiB a step in noise": (noisy(KIB, 4096, 400, 3), KIB),
    "a stair every 10 steps": (staircase(10, 400), 10 * KIB),
    "a stair every 100 steps": (staircase(100, 2000), KIB),
    "a leak under a sawtooth": ([a + 500 * i for i, a in enumerate(sawtooth(32, 1000))], 500),
    "a leak after a flat start": (series(500, lambda step: 4096 * max(0, step - 300)), 4096),
    "a leak with one drop": (series(600, lambda step: 4096 * step - 900_000 * (step >= 300)), 4096),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_judged_growing_at_its_rate(name):
    readings, slope = LEAKS[name]
    verdict = judged(readings)
    assert verdict.kind == "growing"
    assert verdict.rate == pytest.approx(slope, rel=0.2)


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_suspected_at_the_end(name):
    readings, slope = LEAKS[name]
    found = [(taken, suspicion) for taken, suspicion in suspicions(readings, block=32)]
    assert found
    taken, last = found[-1]
    assert taken > 0.7 * len(readings)
    assert last.rate == pytest.approx(slope, rel=0.35)


def test_a_kibibyte_a_step_is_suspected_within_twenty_steps():
    taken, suspicion = next(suspicions(LEAKS["1 KiB a step"][0]))
    assert taken == 20
    assert suspicion == Suspicion(rate=KIB, since=0, block=4)


@pytest.mark.parametrize("seed", range(5))
def test_sixty_four_bytes_in_noise_are_suspected_within_two_hundred_steps(seed):
    taken, suspicion = next(suspicions(noisy(64, 2000, 400, seed)))
    assert taken <= 200
    assert suspicion.rate == pytest.approx(64, rel=0.4)


def test_growth_that_began_late_says_since_when():
    verdict = judged(series(500, lambda step: 4096 * max(0, step - 250)))
    assert verdict.kind == "growing"
    assert verdict.since >= 250


@pytest.mark.parametrize("beat", [1, 2, 4, 8])
def test_rates_are_per_step_whatever_the_beat(beat):
    readings = [LEVEL + 100 * beat * place for place in range(400)]
    _, suspicion = next(suspicions(readings, beat=beat))
    assert suspicion.rate == pytest.approx(100)
    assert judged(readings, beat=beat).rate == pytest.approx(100)


# ----------------------------------------------------------------------------------------------------------
# health is left alone


HEALTHY = {
    "constant": [LEVEL] * 400,
    "noise below what counts": noisy(0, 4000, 400, 4),
    "growth below the floor": series(2000, lambda step: 31 * step),
    "one large step": jump(200),
    "one drop": jump(200, height=-5e5),
    "falling": series(400, lambda step: -4096 * step),
    "a spike": series(400, lambda step: 1e6 * (step == 200)),
    "a dip": series(400, lambda step: -1e6 * (step == 200)),
    "a sawtooth of 7": sawtooth(7, 1000),
    "a sawtooth of 13": sawtooth(13, 1000),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_series_is_never_suspected(name):
    assert not list(suspicions(HEALTHY[name]))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_series_is_not_judged_growing(name):
    assert judged(HEALTHY[name]).kind in ("flat", "stepped", "sawtooth")


@pytest.mark.parametrize("period", [5, 16, 24, 32, 64, 100, 250])
def test_blocks_of_the_period_do_not_suspect_a_sawtooth(period):
    assert not list(suspicions(sawtooth(period, 3000), block=period))


@pytest.mark.parametrize("period", [7, 25, 64, 100])
@pytest.mark.parametrize("end", [0.0, 0.3, 0.9])
def test_a_sawtooth_is_called_one_wherever_it_ends(period, end):
    verdict = judged(sawtooth(period, period * 12 + int(end * period)))
    assert (verdict.kind, verdict.period) == ("sawtooth", period)


@pytest.mark.parametrize("pace", [20, 50, 100, 200, 300])
def test_a_cache_that_saturates_is_not_judged_growing(pace):
    assert judged(cache(pace, 600)).kind != "growing"


@pytest.mark.parametrize("pace", [50, 100, 200, 300])
def test_a_cache_that_still_slows_down_is_saturating(pace):
    assert judged(cache(pace, 600)).kind == "saturating"


STOPPED = {
    "a cache": cache(20, 600),
    "a replay buffer": filled(300, 1200),
    "warm-up": series(400, lambda step: 50_000 * min(step, 20)),
}


@pytest.mark.parametrize("name", STOPPED)
def test_growth_that_has_stopped_is_no_longer_suspected(name):
    readings = STOPPED[name]
    assert max((taken for taken, _ in suspicions(readings)), default=0) < 0.4 * len(readings)


@pytest.mark.parametrize("name", STOPPED)
def test_growth_that_has_stopped_is_not_judged_growing(name):
    assert judged(STOPPED[name]).kind != "growing"


@pytest.mark.parametrize("name", STOPPED)
def test_growth_that_has_long_stopped_gets_a_verdict(name):
    assert judged(STOPPED[name]).kind in ("flat", "saturating", "stepped")


@pytest.mark.parametrize("at", [2, 15, 100, 200, 333, 390, 398])
def test_one_large_step_is_called_stepped_wherever_it_is(at):
    assert judged(jump(at)).kind == "stepped"


@pytest.mark.parametrize("seed", range(4))
def test_noise_is_not_called_a_sawtooth(seed):
    noise = random.Random(seed)
    verdict = judged(series(400, lambda step: noise.gauss(0, 20_000)))
    assert verdict.kind in ("flat", "inconclusive")
    assert verdict.period == 0


def test_noise_above_what_counts_is_hardly_ever_suspected():
    found = taken = growing = 0
    for seed in range(50):
        noise = random.Random(seed)
        readings = series(400, lambda step, noise=noise: noise.gauss(0, 20_000))
        found += len(list(suspicions(readings)))
        growing += judged(readings).kind == "growing"
        taken += len(readings)
    assert found < 0.01 * taken
    assert growing <= 2


def test_random_walks_are_seldom_accused():
    walks = [walk(seed) for seed in range(100)]
    assert sum(judged(readings).kind == "growing" for readings in walks) <= 20
    assert sum(len(list(suspicions(readings))) for readings in walks) < 0.05 * sum(map(len, walks))


def test_too_few_readings_are_inconclusive():
    for count in range(2 * BLOCKS):
        assert judged(series(count, lambda step: KIB * step)).kind == "inconclusive"
    assert judged(series(2 * BLOCKS, lambda step: KIB * step)).kind == "growing"


# ----------------------------------------------------------------------------------------------------------
# what holds for every series


numbers = st.integers(-(10**6), 10**6)
whole = st.lists(numbers, min_size=1, max_size=120)


@quick
@given(whole, st.integers(-(10**12), 10**12))
def test_a_constant_added_changes_nothing(readings, constant):
    moved = [reading + constant for reading in readings]
    assert judged(moved) == judged(readings)
    assert list(suspicions(moved)) == list(suspicions(readings))


@quick
@given(whole, st.integers(1, 20))
def test_doubled_units_double_the_rate_and_nothing_else(readings, doublings):
    unit = 2.0**doublings
    scaled, plain = judged([unit * r for r in readings], 1, unit * FLOOR, unit * LEAST), judged(readings)
    assert (scaled.kind, scaled.since, scaled.period) == (plain.kind, plain.since, plain.period)
    assert scaled.rate == pytest.approx(unit * plain.rate)


@quick
@given(whole, st.integers(0, 10**9))
def test_a_later_start_moves_only_the_beginning(readings, late):
    early = judged(readings)
    later = judge(range(late, late + len(readings)), readings, FLOOR, LEAST)
    assert (later.kind, later.since, later.period) == (early.kind, early.since + late, early.period)
    assert later.rate == pytest.approx(early.rate)


@quick
@given(
    st.floats(-1e15, 1e15),
    st.integers(1, 300),
    st.integers(1, 16),
    st.integers(1, 40),
    st.sampled_from([0.0, FLOOR]),
)
def test_a_constant_series_is_never_suspicious(value, count, beat, block, floor):
    assert not list(suspicions([value] * count, beat, block, floor, least=0.0))
    assert judged([value] * count, beat, floor).kind in ("flat", "inconclusive")


@quick
@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=200))
def test_a_series_that_never_rises_is_never_suspicious(readings):
    falling = sorted(readings, reverse=True)
    assert not list(suspicions(falling, floor=0.0, least=0.0))
    assert judged(falling, floor=0.0, least=0.0).kind not in ("growing", "saturating")


@quick
@given(st.integers(32, 10**7), st.integers(1, 12), st.integers(1, 4))
def test_a_line_without_noise_is_always_suspicious(slope, block, beat):
    base = bases(max(-(-block // beat), 2 if beat > 1 else 1))[0]
    while 4 * base * beat * slope < LEAST:
        base *= 2
    readings = [slope * beat * place for place in range(BLOCKS * base)]
    taken, suspicion = next(suspicions(readings, beat, block))
    assert taken <= BLOCKS * base
    assert suspicion.rate == slope


@quick
@given(st.integers(410, 10**7), st.integers(2 * BLOCKS, 200), st.integers(1, 8))
def test_a_line_without_noise_is_always_growing(slope, count, beat):
    verdict = judged([slope * beat * place for place in range(count)], beat, least=2048.0)
    assert verdict.kind == "growing"
    assert verdict.rate == pytest.approx(slope)


@quick
@given(whole)
def test_only_growth_has_a_rate_and_only_a_sawtooth_a_period(readings):
    verdict = judged(readings)
    assert verdict.kind in ("flat", "growing", "saturating", "sawtooth", "stepped", "inconclusive")
    assert (verdict.rate > 0) == (verdict.kind in ("growing", "saturating"))
    assert (verdict.period > 0) == (verdict.kind == "sawtooth")
    assert 0 <= verdict.since < len(readings)


# ----------------------------------------------------------------------------------------------------------
# the readings a trend keeps


def fed(readings: Sequence[float], beat: int = 1, block: int = 1, **limits: float) -> Trend:
    trend = Trend(beat, block, limits.get("floor", 0.0), limits.get("least", 0.0))
    for place, reading in enumerate(readings):
        trend.add(place * beat, reading)
    return trend


def test_a_trend_keeps_the_latest_readings_and_no_more():
    trend = Trend(1, 4, FLOOR, LEAST)
    for step in range(7 * KEEP + 3):
        trend.add(step, step)
        assert len(trend.readings) <= 2 * KEEP
    assert len(trend.readings) >= KEEP
    assert list(trend.readings) == list(range(7 * KEEP + 3 - len(trend.readings), 7 * KEEP + 3))


def test_a_trend_does_not_grow():
    trend = Trend(1, 4, FLOOR, LEAST)
    tracemalloc.start()
    try:
        for step in range(30_000):
            if step == 10_000:
                before = tracemalloc.get_traced_memory()[0]
            trend.add(step, LEVEL + step % 3)
            trend.suspicion()
        assert tracemalloc.get_traced_memory()[0] - before < 2048
    finally:
        tracemalloc.stop()


def test_growth_is_still_seen_after_a_long_history():
    taken = [taken for taken, _ in suspicions(series(6 * KEEP, lambda step: KIB * max(0, step - 5 * KEEP)))]
    assert taken[0] > 5 * KEEP
    assert taken[-1] > 6 * KEEP - 20


def test_a_cleared_trend_knows_nothing():
    trend = fed(series(100, lambda step: KIB * step))
    assert trend.suspicion() is not None
    trend.clear()
    assert not len(trend.readings)
    assert trend.suspicion() is None
    assert trend.rate(20) == 0
    assert not trend.regular(20)


@pytest.mark.parametrize("period", [24, 50, 100])
@pytest.mark.parametrize("beat", [1, 4])
def test_a_trend_told_of_a_period_no_longer_suspects_it(period, beat):
    trend, suspected = Trend(beat, 4, FLOOR, LEAST), []
    trend.clear(period)
    for step in range(0, 3000, beat):
        trend.add(step, 10_000 * (step % period))
        suspected.append(trend.suspicion())
    assert not any(suspected)


def test_a_known_period_is_kept_when_cleared_again():
    trend = Trend(1, 4, FLOOR, LEAST)
    trend.clear(50)
    trend.clear()
    for reading in series(249, lambda step: KIB * step):
        trend.add(0, reading)
        assert trend.suspicion() is None
    trend.add(0, LEVEL + 249 * KIB)
    assert trend.suspicion() is not None


@pytest.mark.parametrize("steps", [2, 3, 4, 5, 7, 20, 25, 33])
@pytest.mark.parametrize("beat", [1, 2])
def test_the_rate_of_a_line_is_its_slope(steps, beat):
    trend = fed([10 * beat * place for place in range(100)], beat)
    assert trend.rate(steps * beat) == pytest.approx(10)


@pytest.mark.parametrize("readings", [[], [5.0], [5.0] * 50, list(range(50, 0, -1))])
def test_the_rate_is_nothing_where_nothing_grows(readings):
    assert fed(readings).rate(20) == 0


def test_the_rate_looks_at_the_latest_steps_only():
    assert fed([0.0] * 100 + [3.0 * step for step in range(40)]).rate(20) == pytest.approx(3)
    assert fed([3.0 * step for step in range(40)] + [120.0] * 40).rate(20) == 0


@pytest.mark.parametrize(
    ("readings", "regular"),
    [
        ([7.0 * step for step in range(40)], True),
        ([100.0 * (step // 10) for step in range(40)], False),
        ([5.0] * 40, False),
        ([float(-step) for step in range(40)], False),
        ([0.0] * 20 + [7.0 * step for step in range(21)], True),
        ([], False),
        ([1.0], False),
    ],
)
def test_regular_growth_adds_about_the_same_in_each_step(readings, regular):
    assert fed(readings).regular(20) is regular


# ----------------------------------------------------------------------------------------------------------
# the pieces


@pytest.mark.parametrize("shortest", [1, 2, 3, 4, 5, 8, 13, 50])
def test_some_block_length_fits_every_period(shortest):
    lengths = bases(shortest)
    assert lengths[0] == shortest
    assert sorted(set(lengths)) == list(lengths)
    for period in range(shortest, 1000):
        assert any(3 * period <= 3 * length << k <= 5 * period for length in lengths for k in range(11))


@quick
@given(st.lists(numbers, max_size=60), st.integers(1, 20))
def test_block_minima_are_the_floors_of_whole_blocks(readings, length):
    minima = block_minima(readings, length)
    assert len(minima) == len(readings) // length
    for place, low in enumerate(minima):
        block = readings[place * length : (place + 1) * length]
        assert low in block
        assert all(low <= reading for reading in block)


@pytest.mark.parametrize(
    ("minima", "gate", "least", "expected"),
    [
        ([0, 10, 20, 30, 40], 10, 40, True),
        ([0, 10, 20, 30, 40], 10, 41, False),
        ([0, 10, 20, 30, 40], 11, 0, False),
        ([0, 0, 0, 0, 0], 0, 0, False),
        ([0, 10, 20, 20, 30], 0, 0, False),
        ([0, 10, 20, 15, 30], 0, 0, False),
        ([0, 10, 11, 21, 31], 0, 0, False),
        ([0, 30, 50, 60, 65], 0, 0, False),
        ([0, 5, 10, 20, 30], 0, 0, True),
        ([40, 30, 20, 10, 0], 0, 0, False),
    ],
)
def test_steady_minima_rise_each_time_evenly_and_do_not_slow_down(minima, gate, least, expected):
    assert steady(minima, gate, least) is expected


@pytest.mark.parametrize(
    ("rises", "expected"),
    [
        ([3, 3, 3, 3], False),
        ([3, 3, 2, 2], True),
        ([30, 30, 21, 21], False),
        ([1, 2, 3, 4], False),
        ([8, 4, 2, 1], True),
    ],
)
def test_growth_slows_when_its_second_half_is_a_third_slower(rises, expected):
    assert slows(rises) is expected


@pytest.mark.parametrize("period", [2, 3, 10, 100])
@pytest.mark.parametrize("beat", [1, 4])
def test_the_period_of_a_sawtooth_is_in_steps(period, beat):
    steps = range(0, 5 * period * beat, beat)
    assert sawtooth_period(steps, [place % period for place in range(5 * period)]) == period * beat


def test_the_period_of_an_uneven_sawtooth_is_its_median():
    readings = [step for gap in (10, 12, 11, 9, 11) for step in range(gap)]
    assert sawtooth_period(range(len(readings)), readings) == 11


@pytest.mark.parametrize("readings", [[5] * 30, list(range(30)), [*range(15), *range(15)], [5]])
def test_fewer_than_two_drops_are_no_sawtooth(readings):
    assert sawtooth_period(range(len(readings)), readings) == 0
