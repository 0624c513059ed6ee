"""A function that is wrapped around its former self in every step."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """The same closure inside itself, over and over."""
    return (
        case.suspect.state == "held"
        and case.suspect.route.repeats
        and case.has_edge("closure", "partial", "self")
    )


def fix(case: Case) -> Fix:
    """Wrap once."""
    name = case.name
    return Fix(
        f"wrap once: unwrap {name} before wrapping it again (keep the original, or mark the wrapped one and "
        f"return early)",
        "",
        "every layer also runs: calls get slower and in the end too deep (RecursionError)",
    )


PATTERN = Pattern(
    "LH604",
    "function wrapped again and again",
    "Each wrapper closes over the one before, so all of them and all their variables stay.",
    recognise,
    fix,
)
