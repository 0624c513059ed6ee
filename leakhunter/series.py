"""Readings of a whole run in bounded memory: thinned as they grow, without losing a peak or a trough."""

from __future__ import annotations

import array

# Points kept per quantity; 16 bytes each.
MOST = 4096


class Recording:
    """``steps`` and ``readings`` of one quantity. Once ``MOST`` points are there, each bucket keeps its extremes."""

    def __init__(self) -> None:
        self.steps = array.array("q")
        self.readings = array.array("d")
        self._bucket = 1
        self._filled = 0
        self._low = (0, 0.0)
        self._high = (0, 0.0)

    def add(self, step: int, reading: float) -> None:
        """Take a reading."""
        if self._bucket == 1:
            self.steps.append(step)
            self.readings.append(reading)
        else:
            if self._filled == 0 or reading < self._low[1]:
                self._low = (step, reading)
            if self._filled == 0 or reading > self._high[1]:
                self._high = (step, reading)
            self._filled += 1
            if self._filled == self._bucket:
                self._flush()
        if len(self.steps) >= MOST:
            self._thin()

    def points(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """All steps and readings kept, those of the unfinished bucket included."""
        steps, readings = list(self.steps), list(self.readings)
        if self._filled:
            for step, reading in sorted({self._low, self._high}):
                steps.append(step)
                readings.append(reading)
        return tuple(steps), tuple(readings)

    def _flush(self) -> None:
        for step, reading in sorted({self._low, self._high}):
            self.steps.append(step)
            self.readings.append(reading)
        self._filled = 0

    def _thin(self) -> None:
        steps, readings = self.steps, self.readings
        self.steps, self.readings = array.array("q"), array.array("d")
        for start in range(0, len(steps), 4):
            group = range(start, min(start + 4, len(steps)))
            low = min(group, key=lambda i: readings[i])
            high = max(group, key=lambda i: readings[i])
            for position in sorted({low, high}):
                self.steps.append(steps[position])
                self.readings.append(readings[position])
        # Two points stand for four from now on, so a bucket of new readings must be twice as large.
        self._bucket = 4 if self._bucket == 1 else 2 * self._bucket


class StepClock:
    """The autograd sequence number at the end of each step, to date graph nodes; thinned like a recording."""

    def __init__(self) -> None:
        self.steps = array.array("q")
        self.numbers = array.array("q")
        self._stride = 1

    def tick(self, step: int, number: int) -> None:
        """End of a step."""
        if step % self._stride:
            return
        self.steps.append(step)
        self.numbers.append(number)
        if len(self.steps) >= 16 * MOST:
            self._stride *= 2
            # Keep the steps that the new stride would have kept.
            kept = [i for i, s in enumerate(self.steps) if s % self._stride == 0]
            self.steps = array.array("q", (self.steps[i] for i in kept))
            self.numbers = array.array("q", (self.numbers[i] for i in kept))
