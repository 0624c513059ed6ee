"""The numbers of one memory pool, and what can be seen in them. Nothing here asks torch.

A pool is a device as PyTorch's CUDA allocator counts it, or the page-locked host memory of its pinned allocator. Both
keep what is given back for the next request, so that what they keep says little of what the program uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any

from leakhunter.findings import Fix
from leakhunter.growth import BLOCKS, block_minima, judge
from leakhunter.probe.cuda_history import COMMON_POOL

MIB = 1 << 20
# The allocator takes 20 MiB at a time for requests of 1 to 10 MiB: less than one such segment is its rounding.
LEAST = 20 * MIB
# Rounding and splitting leave about this part of what is reserved unused in healthy loops.
SHARE = 0.10
# Use that grows by more than this part of what is kept is not flat: it goes along.
SLACK = 0.10
# What more than half of the growth never was needed for is not explained by need.
UNNEEDED = 0.5
# A peak stands out when all other readings stay below this part of its height.
OUTSTANDS = 0.25
# max_split_size_mb must be larger than a segment of 20 MiB; the allocator refuses less.
LEAST_SPLIT = 21

PINNED = "pinned memory"


@dataclass(frozen=True)
class Curve:
    """Readings of one quantity and the steps in which they were taken."""

    steps: tuple[int, ...] = ()
    readings: tuple[float, ...] = ()

    def before(self, step: int) -> tuple[float, ...]:
        """Readings before a step."""
        return tuple(reading for at, reading in zip(self.steps, self.readings, strict=True) if at < step)

    def since(self, step: int) -> tuple[float, ...]:
        """Readings in a step and after it."""
        return tuple(reading for at, reading in zip(self.steps, self.readings, strict=True) if at >= step)


@dataclass(frozen=True)
class Pool:
    """What one allocator had in use and what it kept, in bytes, warm-up left out.

    Attributes:
        name: The device (``cuda:0``), or ``pinned memory``.
        allocated: In use at the end of a step.
        reserved: Taken from the driver, in use or kept for later.
        outside: What the driver says is used beside ``reserved``.
        peak: The most that was ever in use at once, also inside a step; 0 when unknown.

    """

    name: str
    allocated: Curve = Curve()
    reserved: Curve = Curve()
    outside: Curve = Curve()
    peak: float = 0.0

    @property
    def pinned(self) -> bool:
        """Whether this is host memory."""
        return self.name == PINNED

    @property
    def least(self) -> float:
        """Bytes below which nothing is worth a word."""
        return max(LEAST, SHARE * self.reserved.readings[-1]) if self.reserved.readings else LEAST

    @property
    def most(self) -> float:
        """The most that was in use at once. A program may have reset the allocator's own peak."""
        return max((self.peak, *self.allocated.readings))


@dataclass(frozen=True)
class Sign:
    """What a pattern saw: ``before`` bytes became ``after``, at ``rate`` bytes a step or at once, from step ``since``.

    ``peak`` is what was in use at a peak that began in step ``since`` and was over after step ``until``.
    """

    since: int
    before: float
    after: float
    rate: float = 0.0
    peak: float = 0.0
    until: int = 0

    @property
    def grown(self) -> float:
        """Bytes more than before."""
        return self.after - self.before


@dataclass(frozen=True)
class Segment:
    """One piece of memory that the allocator has from the driver, and the sizes of its blocks."""

    live: tuple[int, ...] = ()
    free: tuple[int, ...] = ()
    private: bool = False
    expandable: bool = False


@dataclass(frozen=True)
class Layout:
    """The segments of one device."""

    segments: tuple[Segment, ...] = ()

    @property
    def empty(self) -> int:
        """Bytes in segments without a live block, which ``empty_cache()`` gives back."""
        return sum(sum(segment.free) for segment in self.segments if not segment.live and not segment.private)

    @property
    def caught(self) -> int:
        """Free bytes between live blocks: a larger request cannot use them, and they cannot be given back."""
        return sum(sum(segment.free) for segment in self.segments if segment.live)

    @property
    def private(self) -> int:
        """Free bytes in pools of CUDA graphs and the like, which nothing else may use."""
        return sum(sum(segment.free) for segment in self.segments if segment.private)

    @property
    def free(self) -> int:
        """All free bytes."""
        return sum(sum(segment.free) for segment in self.segments)

    @property
    def largest(self) -> int:
        """The largest free block."""
        return max((block for segment in self.segments for block in segment.free), default=0)

    @property
    def expandable(self) -> bool:
        """Whether expandable segments are in use."""
        return any(segment.expandable for segment in self.segments)

    @property
    def split_limit(self) -> int:
        """A ``max_split_size_mb`` that keeps the small live blocks out of large segments; 0 if none does."""
        torn = [segment for segment in self.segments if segment.live and max(segment.free, default=0) > LEAST]
        small = [block for segment in torn for block in segment.live if block < max(segment.free)]
        limit = max(LEAST_SPLIT, ceil(max(small, default=0) / MIB) + 1)
        return limit if small and max(max(segment.free) for segment in torn) > limit * MIB else 0


@dataclass(frozen=True)
class PoolPattern:
    """A verdict on an allocator that is no mistake of the loop.

    Attributes:
        id: ``LH`` and three digits.
        name: The verdict in a few words.
        why: How it comes, in a sentence.
        recognise: What of it a pool shows, None when nothing.
        sentences: The numbers in words.
        advice: What can be done.
        holder: Who keeps the memory, of a pool's name.
        quantity: The name of the quantity that shows it, after the pool's.
        severity: Always ``note``: it accuses nobody.

    """

    id: str
    name: str
    why: str
    recognise: Callable[[Pool], Sign | None]
    sentences: Callable[[Sign, Pool, Layout | None], tuple[str, ...]]
    advice: Callable[[Sign, Pool, Layout | None], Fix]
    holder: str = "CUDA allocator of {}"
    quantity: str = " reserved"
    severity: str = "note"


def grows(curve: Curve, least: float) -> Sign | None:
    """Steady growth by ``least`` bytes or more that still goes on."""
    verdict = judge(curve.steps, curve.readings, 0.0, least)
    if verdict.kind != "growing":
        return None
    before, after = curve.since(verdict.since)[0], curve.readings[-1]
    return Sign(verdict.since, before, after, verdict.rate) if after - before >= least else None


def grows_unneeded(pool: Pool) -> Sign | None:
    """Growth of what is kept, while use is flat at quiet points and was never high enough inside a step either."""
    sign = grows(pool.reserved, pool.least)
    if sign is None or not pool.peak or rise(pool.allocated.since(sign.since)) > SLACK * sign.grown:
        return None
    return sign if sign.after - pool.most >= max(pool.least, UNNEEDED * sign.grown) else None


def rise(readings: Sequence[float]) -> float:
    """How much the floor to which memory falls back has risen; infinite when there are too few readings to say."""
    if len(readings) < BLOCKS:
        return float("inf")
    minima = block_minima(readings, len(readings) // BLOCKS)
    return minima[-1] - minima[0]


def keeps_peak(pool: Pool) -> Sign | None:
    """What is kept since a single peak of use that is over."""
    found = _single_peak(pool.allocated, pool.least)
    if found is None:
        return None
    first, last = found
    before, after = pool.reserved.before(first), pool.reserved.since(last + 1)
    if not before or not after:
        return None
    used_more = max(pool.allocated.since(last + 1)) - max(pool.allocated.before(first))
    if min(after) - max(before) - max(0.0, used_more) < pool.least:
        return None
    return Sign(first, max(before), after[-1], peak=max(pool.allocated.readings), until=last)


def _single_peak(curve: Curve, least: float) -> tuple[int, int] | None:
    """First and last step of the only peak that is higher than ``least``, once it is certain that it was the only one.

    What comes every n steps has come again by step 2n, so the loop must be twice as old as the peak.
    """
    if not curve.readings:
        return None
    low, top = min(curve.readings), max(curve.readings)
    high = [place for place, reading in enumerate(curve.readings) if reading > low + OUTSTANDS * (top - low)]
    if top - low < least or high[-1] - high[0] >= len(high):
        return None
    first, last = curve.steps[high[0]], curve.steps[high[-1]]
    enough = high[0] >= BLOCKS and len(curve.readings) - high[-1] > 2 * BLOCKS
    return (first, last) if enough and curve.steps[-1] > 2 * last else None


def single_step(curve: Curve) -> Sign | None:
    """A single step up, to the byte: level before it and level after it."""
    if len(curve.readings) < 2 * BLOCKS:
        return None
    rises = [after - before for before, after in pairwise(curve.readings)]
    place = rises.index(max(rises)) + 1
    before, after = curve.readings[:place], curve.readings[place:]
    if place < 2 or len(after) < 2 * BLOCKS or max(before) > min(before) or max(after) > min(after):
        return None
    return Sign(curve.steps[place], before[-1], after[0])


def read_layout(snapshot: Mapping[str, Any], device: int) -> Layout:
    """The segments of a device in a raw snapshot of the allocator."""
    return Layout(tuple(_segment(found) for found in snapshot.get("segments", ()) if found.get("device", 0) == device))


def _segment(found: Mapping[str, Any]) -> Segment:
    live: list[int] = []
    free: list[int] = []
    for block in found["blocks"]:
        # What waits for another stream (active_pending_free) is not free yet.
        (live if str(block.get("state")).startswith("active") else free).append(block["size"])
    private = tuple(found.get("segment_pool_id", COMMON_POOL)) != COMMON_POOL
    return Segment(tuple(live), tuple(free), private, bool(found.get("is_expandable")))
