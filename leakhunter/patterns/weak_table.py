"""A weak-key table whose values refer to their own keys."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Growth in a weak dictionary."""
    return case.suspect.state == "held" and any(
        link.type in ("WeakKeyDictionary", "WeakValueDictionary", "WeakIdKeyDictionary")
        for link in case.links
    )


def fix(case: Case) -> Fix:
    """Keep the key out of the value."""
    name = case.name.removesuffix(".data")
    return Fix(
        f"store only data in the values of {name}, or let the value hold its key by weakref.ref",
        "",
        "",
    )


PATTERN = Pattern(
    "LH404",
    "weak table whose values hold their keys",
    "An entry goes when its key is freed, but the value refers to the key, and the table to the value.",
    recognise,
    fix,
)
