"""Page-locked host memory that the pinned allocator keeps."""

from leakhunter.findings import Fix
from leakhunter.patterns.pool import Layout, Pool, PoolPattern, Sign, grows_unneeded, keeps_peak
from leakhunter.units import size


def recognise(pool: Pool) -> Sign | None:
    """What is kept grows while what is in use is flat, or stays where a single peak left it."""
    return (grows_unneeded(pool) or keeps_peak(pool)) if pool.pinned else None


def sentences(sign: Sign, pool: Pool, layout: Layout | None) -> tuple[str, ...]:
    """What is kept and what is in use."""
    del layout
    used = f"{size(pool.allocated.readings[-1])} are in use now, and never more than {size(pool.most)} were at once"
    if sign.until:
        return (
            f"{size(sign.after)} are kept since a peak in step {sign.since:,}, {size(sign.before)} were before; {used}",
        )
    return (f"what is kept went from {size(sign.before)} to {size(sign.after)} since step {sign.since:,}; {used}",)


def advice(sign: Sign, pool: Pool, layout: Layout | None) -> Fix:
    """Few sizes, used again."""
    del sign, pool, layout
    return Fix(
        "allocate pinned buffers once, for the largest batch, and copy into slices of them; pad batches to a few sizes",
        "",
        "the operating system cannot swap pinned memory out, and torch.cuda.empty_cache() does not give it back",
    )


PATTERN = PoolPattern(
    "LH924",
    "pinned memory kept by its allocator",
    "Blocks are rounded up to powers of two and kept for requests of that size; other sizes need blocks of their own.",
    recognise,
    sentences,
    advice,
    "allocator of pinned memory",
    "",
)
