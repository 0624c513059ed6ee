"""Contexts of ``contextvars`` kept by callbacks that are still to come."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A context on the path."""
    return case.suspect.state == "held" and case.holds("context")


def fix(case: Case) -> Fix:
    """Reset the variable, or schedule in an empty context."""
    return Fix(
        "reset the context variable at the end of the run, before anything is scheduled, or schedule with an empty "
        "contextvars.Context()",
        "",
        "copies made earlier keep the old value: resetting the variable later does not reach them",
    )


PATTERN = Pattern(
    "LH703",
    "context variables kept by callbacks",
    "Scheduling a callback copies the current context, and the copy keeps the values of all context variables.",
    recognise,
    fix,
)
