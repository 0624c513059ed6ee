"""A queue that is filled faster than it is emptied."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Growth inside a queue."""
    return case.suspect.state == "held" and case.suspect.container >= 0 and case.holds("queue")


def fix(case: Case) -> Fix:
    """Drain or bound it."""
    name = case.name.removesuffix(".queue")
    return Fix(
        f"drain {name} and keep the newest item, or bound it (maxsize=N) so that the producer waits",
        "",
        "with maxsize, put() blocks when nobody reads: use put_nowait() and drop items if the producer must not wait",
    )


PATTERN = Pattern(
    "LH202",
    "queue filled faster than it is emptied",
    "Every item not taken out stays in the queue with all it refers to.",
    recognise,
    fix,
    severity="growth",
)
