"""Number series in, verdict out. Knows nothing of torch, memory or findings but their numbers.

Growth is looked for in the minima of equal blocks, not in the readings: the minimum of a block longer than any period
of the loop is the floor to which memory falls back, whatever it peaks at in between. Five blocks in a row must each
rise; trend tests (least squares, Mann-Kendall, CUSUM) accuse warm-up, caches and gc sawtooth in 16 to 100 % of
simulated healthy series, block minima in none.
"""

from __future__ import annotations

import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from leakhunter.findings import Verdict

# Five minima, four rises: fewer accuse random walks, eight or more lose slow leaks in noise.
BLOCKS = 5
# Growth whose second half is this much slower than its first will stop by itself.
SLOWDOWN = 2 / 3
# The weakest rise of a steady leak is near the mean rise, also of a staircase met by longer blocks; chance is not.
EVENNESS = 0.3
# Readings kept for judging: the longest block is a fifth of this.
KEEP = 5 * 512


@dataclass(frozen=True)
class Suspicion:
    """Growth in five blocks in a row: ``rate`` units per step since ``since``, in blocks of ``block`` steps."""

    rate: float
    since: int
    block: int


class Trend:
    """The latest readings of one quantity, judged as they come in.

    Args:
        beat: Steps between two readings.
        block: Steps in the shortest block.
        floor: Growth per step that is ignored.
        least: Growth over five blocks that is ignored.

    """

    def __init__(self, beat: int, block: int, floor: float, least: float) -> None:
        self.beat = beat
        self.floor = floor
        self.least = least
        # A fixed buffer: a list of numbers would itself grow by a block of memory for each reading.
        self._readings = array.array("d", bytes(8 * 2 * KEEP))
        self._steps = array.array("q", bytes(8 * 2 * KEEP))
        self._count = 0
        self._taken = 0
        # A block of one reading has no floor to fall back to.
        self._bases = bases(max(-(-block // beat), 2 if beat > 1 else 1))

    @property
    def readings(self) -> array.array[float]:
        """The readings kept, the oldest first."""
        return self._readings[: self._count]

    def add(self, step: int, reading: float) -> None:
        """Take a reading."""
        if self._count == 2 * KEEP:
            self._readings[:KEEP] = self._readings[KEEP:]
            self._steps[:KEEP] = self._steps[KEEP:]
            self._count = KEEP
        self._readings[self._count] = reading
        self._steps[self._count] = step
        self._count += 1
        self._taken += 1

    def clear(self, block: int = 1) -> None:
        """Forget the readings, and from now on use no block shorter than ``block`` steps."""
        self._count = self._taken = 0
        self._bases = bases(max(self._bases[0], -(-block // self.beat)))

    def rate(self, steps: int) -> float:
        """Growth per step over the last ``steps`` steps, from the lowest reading of either half."""
        readings = self.readings[-max(1, steps // self.beat) :]
        half = len(readings) // 2
        if not half:
            return 0.0
        first, second = min(readings[:half]), min(readings[-half:])
        return max(0.0, (second - first) / ((len(readings) - half) * self.beat))

    def regular(self, steps: int) -> bool:
        """Whether nearly every one of the last ``steps`` steps added about the same."""
        readings = self.readings[-max(1, steps // self.beat) :]
        rises = [after - before for before, after in pairwise(readings)]
        mean = sum(rises) / len(rises) if rises else 0.0
        return mean > 0 and sum(0.5 * mean <= rise <= 1.5 * mean for rise in rises) >= 0.9 * len(rises)

    def suspicion(self) -> Suspicion | None:
        """Growth that ends at the last reading, looked for in every block length that is due now.

        A length is tried once in its own time, so that the cost per step does not depend on their number.
        """
        for length in self._bases:
            while self._taken % length == 0 and length * BLOCKS <= self._count:
                found = self._grows(length)
                if found is not None:
                    return found
                length *= 2
        return None

    def _grows(self, length: int) -> Suspicion | None:
        readings, last = self._readings, self._count - 1
        first = self._count - BLOCKS * length
        if readings[last] - readings[first] < self.least:
            return None
        minima = block_minima(readings[first : last + 1], length)
        steps = length * self.beat
        if not steady(minima, self.floor * steps, self.least):
            return None
        return Suspicion((minima[-1] - minima[0]) / ((BLOCKS - 1) * steps), self._steps[first], steps)


def bases(shortest: int) -> tuple[int, ...]:
    """Block lengths to try, each with its doubles: dense enough that some length fits any period."""
    more = (3, 5) if shortest < 4 else (shortest * 5 // 4, shortest * 3 // 2)
    return (shortest, *(length for length in more if length > shortest))


def block_minima(readings: Sequence[float], length: int) -> list[float]:
    """The minimum of each whole block of ``length`` readings."""
    return [min(readings[i : i + length]) for i in range(0, len(readings) - length + 1, length)]


def steady(minima: Sequence[float], gate: float, least: float) -> bool:
    """Whether every minimum lies above the one before by ``gate`` and the rises are even and not slowing down."""
    rises = [after - before for before, after in pairwise(minima)]
    total = minima[-1] - minima[0]
    weakest = min(rises)
    return (
        weakest > 0
        and weakest >= gate
        and total >= least
        and weakest >= EVENNESS * total / len(rises)
        and not slows(rises)
    )


def slows(rises: Sequence[float]) -> bool:
    """Whether the mean rise of the second half is at most two thirds of that of the first."""
    half = len(rises) // 2
    first, second = sum(rises[:half]) / half, sum(rises[-half:]) / half
    return second <= SLOWDOWN * first


def judge(steps: Sequence[int], readings: Sequence[float], floor: float, least: float) -> Verdict:
    """What a whole series shows, warm-up already left out.

    Args:
        steps: When each reading was taken.
        readings: Their values, in any unit.
        floor: Growth per step that counts as none.
        least: Total growth that counts as none.

    """
    count = len(readings)
    since = steps[0] if steps else 0
    if count < 2 * BLOCKS:
        return Verdict("inconclusive", since=since)
    period = sawtooth_period(steps, readings)
    if period:
        return _judge_teeth(steps, readings, period, floor)
    ends = [start for start in _halvings(count) if count - start >= 2 * BLOCKS]
    for start in ends:
        verdict = _judge_end(steps[start:], readings[start:], floor, least)
        if verdict.kind in ("growing", "saturating"):
            return verdict
    gate = max(least, floor * (steps[-1] - steps[0]))
    if max(readings) - min(readings) >= gate and _is_step(readings):
        return Verdict("stepped", since=since)
    for start in ends:
        if _is_level(readings[start:], max(least, floor * (steps[-1] - steps[start]))):
            return Verdict("flat", since=steps[start])
    return Verdict("inconclusive", since=since)


def _halvings(count: int) -> list[int]:
    """Where to begin: growth may have begun or ended late, so look at the whole, then at ever shorter ends of it."""
    starts, start = [], 0
    while start < count:
        starts.append(start)
        start += max(1, (count - start) // 2)
    return starts


def _is_level(readings: Sequence[float], gate: float) -> bool:
    """Whether the floor to which memory falls back does not rise by ``gate``."""
    minima = block_minima(readings, len(readings) // BLOCKS)
    return minima[-1] - minima[0] < gate


def _judge_teeth(steps: Sequence[int], readings: Sequence[float], period: int, floor: float) -> Verdict:
    """A sawtooth, or growth when every trough lies higher than the one before."""
    width = max(1, round(period * (len(steps) - 1) / (steps[-1] - steps[0])))
    troughs = block_minima(readings, width)
    if len(troughs) >= BLOCKS and steady(troughs, floor * period, 0.0):
        rate = (troughs[-1] - troughs[0]) / (period * (len(troughs) - 1))
        return Verdict("growing", rate, steps[0])
    return Verdict("sawtooth", since=steps[0], period=period)


def _judge_end(steps: Sequence[int], readings: Sequence[float], floor: float, least: float) -> Verdict:
    length = len(readings) // BLOCKS
    first = len(readings) - BLOCKS * length
    minima = block_minima(readings[first:], length)
    span = (steps[-1] - steps[first]) / (len(readings) - first - 1) * length
    rises = [after - before for before, after in pairwise(minima)]
    rate = (minima[-1] - minima[0]) / (span * (BLOCKS - 1))
    if min(rises) <= 0 or min(rises) < floor * span or minima[-1] - minima[0] < least:
        return Verdict("flat", since=steps[first])
    if slows(rises):
        return Verdict("saturating", rate, steps[first])
    if min(rises) < EVENNESS * sum(rises) / len(rises):
        return Verdict("flat", since=steps[first])
    return Verdict("growing", rate, steps[first])


def sawtooth_period(steps: Sequence[int], readings: Sequence[float]) -> int:
    """The median steps between drops by more than half the spread; 0 when they are fewer than two or uneven."""
    low, high = min(readings), max(readings)
    drops = []
    peak = readings[0]
    for step, reading in zip(steps, readings, strict=True):
        peak = max(peak, reading)
        if peak - reading > (high - low) / 2:
            drops.append(step)
            peak = reading
    if len(drops) < 2:
        return 0
    gaps = sorted(after - before for before, after in pairwise(drops))
    period = gaps[len(gaps) // 2]
    even = sum(0.5 * period <= gap <= 1.5 * period for gap in gaps)
    return period if even >= 0.8 * len(gaps) else 0


def _is_step(readings: Sequence[float]) -> bool:
    """Whether most of the change lies between two neighbouring readings and the rest is level."""
    spread = max(readings) - min(readings)
    jump = max(after - before for before, after in pairwise(readings))
    return min(jump, readings[-1] - readings[0]) >= 0.8 * spread
