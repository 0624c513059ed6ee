"""Threads that never end, each with the local variables of its frames."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Survivors in frames of other threads, or growth in threading's own table of those alive."""
    if case.suspect.state != "held":
        return False
    return "thread function" in case.suspect.hints or case.path.startswith(("threading._active", "threading._dangling"))


def fix(case: Case) -> Fix:
    """Tell them to stop."""
    name = case.suspect.hints.get("thread function") or "the thread"
    return Fix(
        f"signal {name} to stop when its consumer is done (a threading.Event that it tests, a sentinel in its queue, "
        "put(timeout=...)), and join the thread",
        "",
        "daemon=True does not free anything before the program ends",
    )


PATTERN = Pattern(
    "LH701",
    "threads that never end",
    "A thread that is blocked for ever keeps its stack and every object its functions refer to.",
    recognise,
    fix,
)
