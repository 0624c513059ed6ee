"""Device memory that the allocator keeps since a peak."""

from leakhunter.findings import Fix
from leakhunter.patterns.pool import Layout, Pool, PoolPattern, Sign, keeps_peak
from leakhunter.units import size


def recognise(pool: Pool) -> Sign | None:
    """Reserved stays where a single peak of allocated left it."""
    return None if pool.pinned else keeps_peak(pool)


def sentences(sign: Sign, pool: Pool, layout: Layout | None) -> tuple[str, ...]:
    """The peak, and what it left behind."""
    del layout
    steps = f"step {sign.since:,}" if sign.since == sign.until else f"steps {sign.since:,} to {sign.until:,}"
    waited = pool.allocated.steps[-1] - sign.until
    return (
        f"allocated was {size(sign.peak)} in {steps}, has not come near that in the {waited:,} steps since and is "
        f"{size(pool.allocated.readings[-1])} now; reserved was {size(sign.before)} before and is {size(sign.after)}",
    )


def advice(sign: Sign, pool: Pool, layout: Layout | None) -> Fix:
    """Only who needs the memory elsewhere has to do something."""
    del pool
    much = size(layout.empty) if layout is not None else f"at most {size(sign.grown)}"
    return Fix(
        f"nothing, unless others need the device: torch.cuda.empty_cache() after step {sign.until:,} would give back "
        f"{much}",
        "",
        "empty_cache() is no cure for a leak: it gives back what nobody uses, and makes the next requests slower",
    )


PATTERN = PoolPattern(
    "LH922",
    "allocator cache after a peak",
    "PyTorch keeps what it has once taken from the driver, because taking it again is slow.",
    recognise,
    sentences,
    advice,
)
