"""Memory in a MemPool of the program that belongs to no tensor."""

from leakhunter.findings import Fix, Holder
from leakhunter.patterns.case import Case, Pattern
from leakhunter.probe.cuda_history import MEM_POOL


def recognise(case: Case) -> bool:
    """Living blocks of such a pool that belong to no tensor."""
    return case.unheld and case.suspect.hints.get("operator") == MEM_POOL


def fix(case: Case) -> Fix:
    """Give back what was allocated."""
    return Fix(
        "free what is allocated under torch.cuda.use_mem_pool() (caching_allocator_delete, or the library that asked "
        "for it), or make the pool in each step and delete it after its last tensor",
        "",
        "a pool gives its memory back to the driver only when it is deleted and empty",
    )


def holder(case: Case) -> Holder:
    """Which of the program's pools it is, the allocator does not say by name."""
    return Holder("native: MemPool", "native")


PATTERN = Pattern(
    "LH907",
    "memory in a MemPool grows",
    "Blocks that were allocated in a torch.cuda.MemPool belong to no tensor and are not freed.",
    recognise,
    fix,
    holder=holder,
)
