"""Fewer points for the same picture: what a curve's peaks and troughs are is kept, what lies between may go."""

from __future__ import annotations

from collections.abc import Sequence


def thin(steps: Sequence[int], readings: Sequence[float], most: int) -> tuple[list[int], list[float]]:
    """At most ``most`` (at least 4) of the points, in their order: both ends, and the extremes of equal buckets."""
    count = min(len(steps), len(readings))
    if count <= most:
        return list(steps[:count]), list(readings[:count])
    kept = {0, count - 1}
    buckets = max(1, (most - 2) // 2)
    for bucket in range(buckets):
        group = range(bucket * count // buckets, (bucket + 1) * count // buckets)
        kept |= {min(group, key=readings.__getitem__), max(group, key=readings.__getitem__)}
    positions = sorted(kept)
    return [steps[position] for position in positions], [readings[position] for position in positions]
