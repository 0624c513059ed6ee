"""Tensors or modules as keys of a dict or members of a set: the key itself is kept."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Survivors that are keys of the dict that grows."""
    position = case.suspect.container
    if case.suspect.state != "held" or position < 0 or position + 1 >= len(case.links):
        return False
    return case.links[position + 1].edge == "as key"


def fix(case: Case) -> Fix:
    """Key by identity, weakly."""
    return Fix(
        f"key {case.name} by id() with weak references (weakref.ref or weakref.WeakKeyDictionary does for "
        f"modules; tensors "
        "compare by value, so use torch.utils.weak.WeakIdKeyDictionary), or by a name",
        "",
        "an id() may be used again after its object is gone: remove the entry in the weak reference's callback",
    )


PATTERN = Pattern(
    "LH304",
    "dict keeps its keys alive",
    "A dict refers to its keys as strongly as to its values.",
    recognise,
    fix,
)
