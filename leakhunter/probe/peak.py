"""The moment of a step at which most memory is in use: found in a recorded step, looked at in a later one.

An operator that ends is the finest clock there is without touching the program, and steps are alike: what was the
operator of the peak in one step is so in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

# The first recorded step fills PyTorch's own caches for dispatch modes; the operators are counted in it.
SCANNED = 1
# Readings in that step: a CUDA device takes 25 us for one.
READINGS = 64


class Peak:
    """Told of every operator and every quiet point of a probe, and of the operators of one step after it.

    Args:
        read: Bytes in use now, by device.
        look: Called for the devices whose peak is now, in the step after ``look_in_next_step()``.

    """

    def __init__(self, read: Callable[[], Mapping[str, float]], look: Callable[[Iterable[str]], None]) -> None:
        self._read, self._look = read, look
        self._steps = self._operators = 0
        self._stride = 1
        self._looking = False
        # device -> bytes at its peak and the number of the operator after which it was
        self._tops: dict[str, tuple[float, int]] = {}

    def operator(self) -> None:
        """An operator has ended."""
        self._operators += 1
        if self._looking:
            now = [device for device, (_, number) in self._tops.items() if number == self._operators]
            if now:
                self._look(now)
        elif self._steps == SCANNED and self._operators % self._stride == 0:
            for device, count in self._read().items():
                if count > self._tops.get(device, (0.0, 0))[0]:
                    self._tops[device] = count, self._operators

    def quiet_point(self) -> None:
        """A step has ended."""
        self._stride = max(1, self._operators // READINGS)
        self._steps += 1
        self._operators = 0

    def look_in_next_step(self) -> bool:
        """Whether there is a peak to look at, which will be done in the next step."""
        self._operators = 0
        self._looking = bool(self._tops)
        return self._looking
