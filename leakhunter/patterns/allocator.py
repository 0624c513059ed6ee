"""What an allocator does that looks like a leak and is none: notes made from the numbers of a whole watch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

import torch

from leakhunter.findings import Evidence, Finding, Holder, Series
from leakhunter.patterns import allocator_cache, first_workspace, fragmentation, outside_memory, pinned_cache
from leakhunter.patterns.pool import PINNED, Curve, Layout, Pool, PoolPattern, Sign, read_layout
from leakhunter.probe import cuda_history

PATTERNS: tuple[PoolPattern, ...] = tuple(
    module.PATTERN for module in (fragmentation, allocator_cache, outside_memory, pinned_cache, first_workspace)
)


def notes_of(series: Iterable[Series], warmup: int, step: int) -> list[Finding]:
    """The notes that the series of a watch give rise to at ``step``, whose first ``warmup`` steps do not count."""
    return [note for pool in pools(series, warmup) for note in notes(pool, step, layout_of)]


def notes(pool: Pool, step: int, layout: Callable[[Pool], Layout | None] = lambda pool: None) -> list[Finding]:
    """The notes on one pool. ``layout`` is asked for its segments only when there is something to say."""
    found = [(pattern, sign) for pattern in PATTERNS if (sign := pattern.recognise(pool)) is not None]
    segments = layout(pool) if found else None
    return [_note(pattern, sign, pool, segments, step) for pattern, sign in found]


def _note(pattern: PoolPattern, sign: Sign, pool: Pool, layout: Layout | None, step: int) -> Finding:
    holder = pattern.holder.format(pool.name)
    return Finding(
        pattern=pattern.id,
        name=pattern.name,
        severity=pattern.severity,
        meter=f"{pool.name}{pattern.quantity}",
        bytes_per_step=sign.rate,
        bytes_held=int(sign.grown),
        count=0,
        first_step=sign.since,
        step=step,
        holder=Holder(holder, "native"),
        site=(),
        evidence=Evidence((*pattern.sentences(sign, pool, layout), pattern.why), "native", 1.0 if sign.rate else 0.0),
        fix=pattern.advice(sign, pool, layout),
        forecast="",
        signature=hashlib.sha1(f"{pattern.id}\0{holder}".encode()).hexdigest()[:8],
    )


def pools(series: Iterable[Series], warmup: int) -> Iterator[Pool]:
    """The pools that a watch has readings of."""
    curves = {one.meter: _after(one, warmup) for one in series}
    if PINNED in curves:
        in_use = curves.get(f"{PINNED} in use", Curve())
        yield Pool(PINNED, in_use, curves[PINNED], peak=_pinned_peak())
    for device in (name.removesuffix(" reserved") for name in curves if name.endswith(" reserved")):
        if device.startswith("cuda:"):
            allocated, outside = (curves.get(f"{device} {name}", Curve()) for name in ("allocated", "outside PyTorch"))
            yield Pool(device, allocated, curves[f"{device} reserved"], outside, _peak(_index(device)))


def _after(series: Series, warmup: int) -> Curve:
    start = next((place for place, step in enumerate(series.steps) if step > warmup), len(series.steps))
    return Curve(series.steps[start:], series.readings[start:])


def _index(device: str) -> int:
    return int(device.removeprefix("cuda:"))


def _peak(index: int) -> float:
    """The most that was active at once on a device: what waits for a stream is not free either."""
    try:
        stats = torch.cuda.memory_stats_as_nested_dict(index)
    except RuntimeError:
        return 0.0
    peak: float = stats.get("active_bytes", {}).get("all", {}).get("peak", 0)
    return peak


def _pinned_peak() -> float:
    stats = torch.cuda.host_memory_stats()
    return float(stats.get("active_bytes.peak", 0))


def layout_of(pool: Pool) -> Layout | None:
    """The segments of a device now, None where they cannot be had."""
    if pool.pinned or not cuda_history.can_arm():
        return None
    try:
        with cuda_history.without_inductor():
            snapshot = torch._C._cuda_memorySnapshot(None)
    except RuntimeError:
        return None
    return read_layout(snapshot, _index(pool.name))
