"""Device memory in pieces that the next request does not fit into."""

from leakhunter.findings import Fix
from leakhunter.patterns.pool import Layout, Pool, PoolPattern, Sign, grows_unneeded
from leakhunter.units import size

SETTING = "PYTORCH_CUDA_ALLOC_CONF"


def recognise(pool: Pool) -> Sign | None:
    """Reserved grows, and what is in use explains it neither between steps nor inside them."""
    return None if pool.pinned else grows_unneeded(pool)


def sentences(sign: Sign, pool: Pool, layout: Layout | None) -> tuple[str, ...]:
    """The growth, the use, and the pieces."""
    found = (
        f"reserved went from {size(sign.before)} to {size(sign.after)} since step {sign.since:,}, while "
        f"{size(pool.allocated.readings[-1])} are allocated and never more than {size(pool.most)} were in use at once",
    )
    if layout is None:
        return found
    pieces = (
        f"of {len(layout.segments):,} segments, {size(layout.caught)} are free between live blocks and "
        f"{size(layout.empty)} in segments without any; the largest free block has {size(layout.largest)}"
    )
    return (*found, pieces)


def advice(sign: Sign, pool: Pool, layout: Layout | None) -> Fix:
    """Segments that can grow; else a limit to splitting that fits the sizes found; else fewer sizes."""
    del sign, pool
    padding = "pad inputs to a few sizes, or run the largest one first"
    if layout is not None and 2 * layout.private > layout.free:
        return Fix(
            f"{size(layout.private)} of it are free in private pools: capture fewer CUDA graphs, or let them share one"
        )
    if layout is not None and layout.expandable:
        return Fix(f"expandable segments are in use already: {padding}")
    text = f"start with {SETTING}=expandable_segments:True, so that a segment grows where a new one would be taken"
    if layout is not None and layout.split_limit:
        text += (
            f"; where that is not supported, max_split_size_mb:{layout.split_limit} keeps the small blocks that live "
            "now out of large segments"
        )
    return Fix(f"{text}; or {padding}", "", _caveat(layout))


def _caveat(layout: Layout | None) -> str:
    given = f"the {size(layout.empty)} in segments" if layout is not None else "segments"
    return f"torch.cuda.empty_cache() gives back only {given} without a live block, and the next steps take them again"


PATTERN = PoolPattern(
    "LH921",
    "fragmented device memory",
    "A request needs one piece that is large enough; where the free ones are too small, the allocator takes another "
    "segment.",
    recognise,
    sentences,
    advice,
)
