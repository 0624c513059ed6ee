"""``weakref.finalize(obj, obj.close)``: the finaliser holds the object whose end it waits for."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Held by the registry of ``weakref.finalize``."""
    return (
        case.suspect.state == "held"
        and case.has_text("._registry")
        and any(
            link.type in ("finalize", "finalize._Info") or link.function == "finalize" for link in case.links
        )
    )


def fix(case: Case) -> Fix:
    """Pass a static function and only what it needs."""
    return Fix(
        "pass weakref.finalize a static function and only the resources it needs, not a bound method or anything "
        "else that "
        "refers to the object",
        "",
        "the function then cannot reach the object, which is being freed when it runs",
    )


PATTERN = Pattern(
    "LH403",
    "finaliser holds its own object",
    "weakref.finalize keeps its function and arguments strongly; a bound method among them keeps the object for ever.",
    recognise,
    fix,
)
