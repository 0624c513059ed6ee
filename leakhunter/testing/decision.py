"""Readings after each repeat in, what grows out. Knows nothing of torch, pytest or memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from leakhunter.growth import EVENNESS, slows


@dataclass(frozen=True)
class Track:
    """The readings of one quantity: after the warm-up, and after each repeat.

    ``allowed`` is the growth per repeat that counts as none. An ``exact`` quantity is a count that nothing but the test
    changes; the others, such as bytes in malloc, have small ups and downs of their own.
    """

    name: str
    unit: str
    readings: tuple[float, ...]
    allowed: float = 0.0
    exact: bool = True

    @property
    def rises(self) -> tuple[float, ...]:
        """What each repeat added."""
        return tuple(after - before for before, after in pairwise(self.readings))

    @property
    def each(self) -> float | None:
        """What every repeat added, where all added the same."""
        rises = set(self.rises)
        return rises.pop() if len(rises) == 1 else None


def grows(track: Track) -> bool:
    """Whether every repeat added more than is allowed; one that did not shows that the growth can stop.

    Of quantities that are not exact, the rises must also be even and not slow down.
    """
    rises = track.rises
    if len(rises) < 3 or min(rises) <= track.allowed:
        return False
    return track.exact or (min(rises) >= EVENNESS * sum(rises) / len(rises) and not slows(rises))


def growing(tracks: Sequence[Track]) -> tuple[Track, ...]:
    """The tracks that grow in every repeat."""
    return tuple(track for track in tracks if grows(track))
