"""What the operating system says of this process and its children: shown, and coarser than any allocator."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from leakhunter.meters import Meter, Quantity

RSS = "RSS"
SHARED = "shared memory"
CHILDREN = "RSS of child processes"

# Looking for children reads every process of the machine: at most one part in this many of the time goes there.
CHILDREN_SHARE = 500
MIB = 1024 * 1024


def meters() -> tuple[list[Meter], list[str]]:
    """RSS, shared pages where the system counts them, and the RSS of children."""
    process = psutil.Process()
    if hasattr(process.memory_info(), "shared"):
        # Files that torch maps for workers are never in malloc; a leak of those shows here, in whole pages.
        quantities: tuple[Quantity, ...] = (Quantity(RSS, judged=False), Quantity(SHARED, least=MIB))

        def read() -> tuple[float, ...]:
            info = process.memory_info()
            return info.rss, info.shared
    else:
        quantities = (Quantity(RSS, judged=False),)

        def read() -> tuple[float, ...]:
            return (process.memory_info().rss,)

    children = Meter((Quantity(CHILDREN, judged=False),), _children(process), beat=8)
    return [Meter(quantities, read, beat=4), children], []


def _children(process: psutil.Process) -> Callable[[], tuple[float]]:
    """A reader that repeats its last answer until asking again is cheap beside the time that has passed."""
    last, due = 0.0, 0.0

    def read() -> tuple[float]:
        nonlocal last, due
        now = time.monotonic()
        if now < due:
            return (last,)
        total = 0
        for child in process.children(recursive=True):
            try:
                total += child.memory_info().rss
            except psutil.Error:
                continue
        last = float(total)
        after = time.monotonic()
        due = after + CHILDREN_SHARE * (after - now)
        return (last,)

    return read
