"""The moment of a step at which most memory is in use: found in one recorded step, looked at in the next.

An operator that ends is the finest clock there is without touching the program, and steps are alike: what was the
operator of the peak in one step is so in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

# The first recorded step fills PyTorch's own caches for dispatch modes.
SCANNED, LOOKED_AT = 1, 2


class Peak:
    """Told of every operator and every quiet point of a probe.

    Args:
        read: Bytes in use now, by device.
        look: Called once for the devices whose peak is now.

    """

    def __init__(self, read: Callable[[], Mapping[str, float]], look: Callable[[Iterable[str]], None]) -> None:
        self._read, self._look = read, look
        self._steps = self._operators = 0
        # device -> bytes at its peak and the number of the operator after which it was
        self._tops: dict[str, tuple[float, int]] = {}

    def operator(self) -> None:
        """An operator has ended."""
        self._operators += 1
        if self._steps == SCANNED:
            for device, count in self._read().items():
                if count > self._tops.get(device, (0.0, 0))[0]:
                    self._tops[device] = count, self._operators
        elif self._steps == LOOKED_AT:
            now = [device for device, (_, number) in self._tops.items() if number == self._operators]
            if now:
                self._look(now)

    def quiet_point(self) -> None:
        """A step has ended."""
        self._steps += 1
        self._operators = 0
