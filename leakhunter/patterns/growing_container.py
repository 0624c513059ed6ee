"""A container of anything that gets items and loses none, and whatever else has a holder but no name."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern
from leakhunter.patterns.piled_tensors import emptying_advice


def recognise(case: Case) -> bool:
    """Everything that was not recognised before."""
    return True


def fix(case: Case) -> Fix:
    """Empty it, bound it, or drop the reference."""
    if case.container is not None:
        return Fix(emptying_advice(case), "", "")
    return Fix(f"drop the reference {case.path} once it is no longer needed", "", "")


PATTERN = Pattern(
    "LH299",
    "objects pile up",
    "What holds them refers to every one of them, and nothing lets go.",
    recognise,
    fix,
    severity="growth",
)
