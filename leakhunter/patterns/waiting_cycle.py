"""Reference cycles that hold tensors and wait for Python's garbage collector."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Any cycle that gc would free."""
    return case.suspect.state == "gc-pending"


# Cycles that gc comes for within so many steps are a note.
SOON = 100


def severity(case: Case) -> str:
    """A leak where gc does not come: it is off, it will not come soon, or only a full collection would look here."""
    if case.suspect.hints.get("oldest generation", False) or not case.facts.get("gc enabled", True):
        return "leak"
    return "note" if case.facts.get("gc comes in", 0.0) <= SOON else "leak"


def fix(case: Case) -> Fix:
    """Cut the cycle where it is easiest."""
    names = [link.text for link in case.links if link.edge == "attribute"]
    edge = f"{case.links[0].type}{names[0]}" if names else case.path
    # The reference back to the start is the one that a child, callback or helper holds.
    back = f"{_owner(case)}{names[-1]}" if names else case.path
    alone = len(names) == 1 and not case.suspect.route.repeats and case.links[-1].edge == "attribute"
    if case.has_edge("closure", "content"):
        text = "do not capture the object in the lambda or inner function: bind the value, or weakref.ref(object)"
    elif case.has_edge("partial"):
        text = f"let the functools.partial behind {edge} hold weakref.ref(object) instead of the object or its method"
    elif case.has_edge("self"):
        text = f"let {edge} hold a weakref.WeakMethod, or a function given the object, instead of a bound method"
    elif case.has_edge("traceback"):
        name = next((link.text for link in case.links if link.edge == "local"), case.path)
        text = f"delete {name} once the error has been dealt with (del {name}): its traceback holds the frame it is in"
    elif alone:
        text = f"remove the self reference {edge}"
    else:
        text = f"make one reference of the cycle weak: store weakref.ref (or weakref.proxy) in {back}"
    if not case.facts.get("gc enabled", True):
        text += (
            "; or call gc.collect() at a fixed interval, because automatic collection is switched off here"
        )
    return Fix(
        text,
        "",
        "gc.collect() in every step would also free it, at the price of walking all objects each time",
    )


def _owner(case: Case) -> str:
    """The type of the object whose attribute closes the cycle."""
    last = max(position for position, link in enumerate(case.links) if link.edge == "attribute")
    holders = [link for link in case.links[:last] if link.edge not in ("namespace",)]
    return holders[-1].type if holders else case.links[0].type


PATTERN = Pattern(
    "LH801",
    "reference cycle waits for gc",
    "Objects in a cycle are not freed when the last variable lets go, only when the cyclic collector comes; it counts "
    "objects, not bytes.",
    recognise,
    fix,
    severity=severity,
)
