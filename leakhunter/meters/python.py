"""Memory blocks in use by Python's own small-object allocator, which malloc does not see."""

from __future__ import annotations

import sys

from leakhunter.meters import Meter, Quantity

NAME = "Python objects"


def meters() -> tuple[list[Meter], list[str]]:
    """The meter of ``sys.getallocatedblocks``, counted in blocks of up to 512 bytes (CPython's obmalloc.c)."""
    if not sys.getallocatedblocks():
        return [], [
            "Python's own allocator is switched off (PYTHONMALLOC); its objects are counted by malloc"
        ]

    def read() -> tuple[float]:
        return (sys.getallocatedblocks(),)

    # Counting walks every pool, so it gets a slower beat than the counters that malloc keeps.
    return [Meter((Quantity(NAME, "blocks", least=96.0),), read, beat=4)], []
