"""Device memory that is used but not by PyTorch's allocator."""

from leakhunter.findings import Fix
from leakhunter.patterns.pool import LEAST, SHARE, Layout, Pool, PoolPattern, Sign, grows
from leakhunter.units import size


def recognise(pool: Pool) -> Sign | None:
    """What the driver counts beside reserved grows steadily, by a tenth of where it was at least."""
    if not pool.outside.readings:
        return None
    return grows(pool.outside, max(LEAST, SHARE * pool.outside.readings[0]))


def sentences(sign: Sign, pool: Pool, layout: Layout | None) -> tuple[str, ...]:
    """The growth."""
    del layout
    return (
        f"the driver says that {size(sign.after)} of {pool.name} are used and not reserved by PyTorch, "
        f"{size(sign.before)} at step {sign.since:,}",
    )


def advice(sign: Sign, pool: Pool, layout: Layout | None) -> Fix:
    """Where to look."""
    del sign, pool, layout
    return Fix(
        "nvidia-smi shows which process has it; if it is this one, look at communicators (NCCL), at libraries with an "
        "allocator of their own, and at CUDA graphs",
        "",
        "others may share the device: this accuses nobody",
    )


PATTERN = PoolPattern(
    "LH923",
    "device memory outside PyTorch grows",
    "Contexts, communicators, other libraries and other processes take memory that PyTorch's allocator does not count.",
    recognise,
    sentences,
    advice,
    "users of {} outside PyTorch",
    " outside PyTorch",
)
