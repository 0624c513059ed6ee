"""Futures or tasks kept after their result was used."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A future or a task among what piles up, and not one whose own list of callbacks grows."""
    behind = case.links[max(0, case.suspect.container) + 1 :]
    return case.suspect.state == "held" and any(link.role == "future" for link in behind)


def fix(case: Case) -> Fix:
    """Drop it with its result."""
    return Fix(
        f"take each future out of {case.name} once its result has been read (pop it, or delete entries as they "
        f"complete)",
        "",
        "",
    )


PATTERN = Pattern(
    "LH702",
    "futures kept after use",
    "A future holds its result, or its exception with the frames, as long as it lives itself.",
    recognise,
    fix,
)
