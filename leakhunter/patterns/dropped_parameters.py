"""Optimizer state of parameters that were replaced."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Growth in the state of an optimizer that has state for parameters it no longer optimises."""
    return case.suspect.state == "held" and bool(case.suspect.hints.get("dropped parameters"))


def fix(case: Case) -> Fix:
    """Delete the state with the parameter."""
    count = case.suspect.hints["dropped parameters"]
    name = case.name if case.name.endswith(".state") else "optimizer.state"
    return Fix(
        f"del {name}[old] when a parameter is swapped for a new one: it holds state of {count:,} parameters that "
        f"no param "
        "group has",
        "",
        "carry exp_avg and the like over to the new parameter first if training should go on from them",
    )


PATTERN = Pattern(
    "LH601",
    "optimizer state of dropped parameters",
    "The state is a dict keyed by parameter, and the key keeps the old parameter, its gradient and its moments.",
    recognise,
    fix,
)
