"""Each object refers to the one made before it."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A path that repeats itself."""
    return case.suspect.state == "held" and case.suspect.route.repeats


def fix(case: Case) -> Fix:
    """Cut the chain."""
    return Fix(
        f"cut the chain: set the reference to the former object to None once it is not needed ({case.path})",
        "",
        "",
    )


PATTERN = Pattern(
    "LH605",
    "chain of former objects",
    "The newest object refers to the one before, and so to all of them.",
    recognise,
    fix,
    severity="growth",
)
