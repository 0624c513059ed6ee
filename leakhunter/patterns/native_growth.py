"""Memory that grows while nothing in Python or autograd holds it."""

from leakhunter.findings import Fix, Holder
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Any native growth."""
    return case.unheld


def fix(case: Case) -> Fix:
    """How to go on."""
    operator = case.suspect.hints.get("operator")
    where = f"; the memory is allocated by {operator}" if operator else ""
    return Fix(
        f"no Python object and no autograd node holds it: look for native caches, extension modules and handles that "
        f"are never closed{where}; run the loop with parts left out until the growth stops",
        "",
        "",
    )


def holder(case: Case) -> Holder:
    """Unknown."""
    operator = case.suspect.hints.get("operator")
    return Holder(f"native: {operator}" if operator else "native: unknown", "native")


PATTERN = Pattern(
    "LH909",
    "memory grows outside Python and autograd",
    "The allocator's own count rises, and nothing that Python or autograd can show refers to the memory.",
    recognise,
    fix,
    severity="growth",
    holder=holder,
)
