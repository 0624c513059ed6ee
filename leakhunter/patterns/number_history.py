"""A growing record of plain numbers: what a loop that logs its losses properly looks like."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern

# Records of numbers that grow by more than this many bytes per step are reported as growth.
LARGE = 64 * 1024


def recognise(case: Case) -> bool:
    """A container of numbers, short texts, or small records of them."""
    return "python" in case.suspect.hints and case.suspect.sample.plain


def fix(case: Case) -> Fix:
    """Nothing, usually."""
    return Fix(
        f"nothing needs to change for a run of usual length; to bound it, make {case.name} collections.deque(maxlen=N) "
        "or write the values to a log",
        "",
        "",
    )


def severity(case: Case) -> str:
    """A note unless it is large."""
    window = max(1, case.facts.get("window", 1))
    return "growth" if case.suspect.bytes / window > LARGE else "note"


PATTERN = Pattern(
    "LH210",
    "history of plain numbers",
    "Each step adds a few numbers, which is cheap and usually wanted.",
    recognise,
    fix,
    severity=severity,
)
