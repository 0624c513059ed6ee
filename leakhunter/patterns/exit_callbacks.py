"""Objects kept by functions registered with ``atexit``."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Held from outside by a function, while the number of exit functions grows."""
    return "atexit" in case.suspect.hints


def fix(case: Case) -> Fix:
    """Unregister, or hold weakly."""
    first = case.links[0]
    name = first.function or "the function"
    return Fix(
        f"call atexit.unregister({_bound(name)}) in {name}() itself, or register a function that holds the object "
        f"weakly "
        "(weakref.WeakMethod)",
        "",
        "the clean-up at exit is then skipped for objects that are already gone",
    )


def _bound(name: str) -> str:
    return f"self.{name.rsplit('.', 1)[-1]}" if "." in name else name


PATTERN = Pattern(
    "LH405",
    "objects registered with atexit",
    "atexit keeps every registered function until the interpreter ends; a bound method keeps its object too.",
    recognise,
    fix,
)
