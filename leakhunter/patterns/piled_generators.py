"""Generators or coroutines that were started and never finished."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Suspended frames inside a container that grows."""
    position = case.suspect.container
    return position >= 0 and any(link.role == "generator" for link in case.links[position + 1 :])


def fix(case: Case) -> Fix:
    """Close them."""
    return Fix(
        f"close each generator when it is no longer read (generator.close(), contextlib.closing), and take it out "
        f"of {case.name}",
        "",
        "",
    )


PATTERN = Pattern(
    "LH512",
    "suspended generators pile up",
    "A generator that waits at a yield keeps all its local variables.",
    recognise,
    fix,
)
