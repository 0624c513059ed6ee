"""Readings of a whole run in bounded memory: thinned as they grow, without losing a peak or a trough."""

from __future__ import annotations

import array

# Points kept per quantity; 16 bytes each.
MOST = 4096


class Recording:
    """``steps`` and ``readings`` of one quantity. Once ``MOST`` points are there, each bucket keeps its extremes."""

    def __init__(self) -> None:
        # Fixed buffers, so that what watches memory does not grow itself.
        self._steps = array.array("q", bytes(8 * MOST))
        self._readings = array.array("d", bytes(8 * MOST))
        self._count = 0
        self._bucket = 1
        self._filled = 0
        self._low = (0, 0.0)
        self._high = (0, 0.0)

    def add(self, step: int, reading: float) -> None:
        """Take a reading."""
        if self._bucket == 1:
            self._keep(step, reading)
            return
        if self._filled == 0 or reading < self._low[1]:
            self._low = (step, reading)
        if self._filled == 0 or reading > self._high[1]:
            self._high = (step, reading)
        self._filled += 1
        if self._filled == self._bucket:
            for point in sorted({self._low, self._high}):
                self._keep(*point)
            self._filled = 0

    def points(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """All steps and readings kept, those of the unfinished bucket included."""
        pending = sorted({self._low, self._high}) if self._filled else []
        steps = (*self._steps[: self._count], *(step for step, _ in pending))
        return steps, (*self._readings[: self._count], *(reading for _, reading in pending))

    def _keep(self, step: int, reading: float) -> None:
        if self._count == MOST:
            self._thin()
        self._steps[self._count] = step
        self._readings[self._count] = reading
        self._count += 1

    def _thin(self) -> None:
        """Keep the lowest and the highest of every four points."""
        steps, readings = self._steps, self._readings
        kept = 0
        for start in range(0, self._count, 4):
            group = range(start, min(start + 4, self._count))
            low, high = min(group, key=readings.__getitem__), max(group, key=readings.__getitem__)
            for position in sorted({low, high}):
                steps[kept], readings[kept] = steps[position], readings[position]
                kept += 1
        self._count = kept
        # Two points stand for four from now on, so a bucket of new readings must be twice as large.
        self._bucket = 4 if self._bucket == 1 else 2 * self._bucket


class StepClock:
    """The autograd sequence number at the end of each step, to date graph nodes; thinned like a recording."""

    def __init__(self) -> None:
        self._steps = array.array("q", bytes(8 * 4 * MOST))
        self._numbers = array.array("q", bytes(8 * 4 * MOST))
        self._count = 0
        self._stride = 1

    def tick(self, step: int, number: int) -> None:
        """End of a step."""
        if step % self._stride:
            return
        if self._count == 4 * MOST:
            self._stride *= 2
            # Those that the new stride would have kept.
            kept = [i for i in range(self._count) if self._steps[i] % self._stride == 0]
            for place, i in enumerate(kept):
                self._steps[place], self._numbers[place] = self._steps[i], self._numbers[i]
            self._count = len(kept)
            if step % self._stride:
                return
        self._steps[self._count] = step
        self._numbers[self._count] = number
        self._count += 1

    @property
    def steps(self) -> array.array[int]:
        """The steps kept."""
        return self._steps[: self._count]

    @property
    def numbers(self) -> array.array[int]:
        """Their sequence numbers."""
        return self._numbers[: self._count]
