"""A batch, a sequence or an image that happens to be larger in each step than in the one before."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Storages at one place, each larger than the one before, that nothing joins from their former selves."""
    return "replaced" in case.suspect.hints


def fix(case: Case) -> Fix:
    """Say where the size comes from."""
    return Fix(
        f"bound the size of {case.path} if it is meant to be bounded: pad or cut batches to a few sizes",
        "",
        "sizes that wander up and down again need nothing",
    )


PATTERN = Pattern(
    "LH208",
    "tensor is larger in each step",
    "It replaces the one before, so no more than the largest is ever held; only its size grows.",
    recognise,
    fix,
    severity="note",
)
