"""A container in a class attribute or module global, which outlives every instance that fills it."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern
from leakhunter.patterns.piled_tensors import emptying_advice


def recognise(case: Case) -> bool:
    """Growth in an attribute of a class, or in a global of a module."""
    position = case.suspect.container
    if case.suspect.state != "held" or position < 1:
        return False
    return (
        any(link.role == "class" for link in case.links[:position]) or case.links[position].edge == "global"
    )


def fix(case: Case) -> Fix:
    """Take entries out, or give each instance its own container."""
    owner = next((link for link in case.links if link.role == "class"), None)
    text = f"remove entries from {case.name} when their owner is done with them"
    if owner is not None:
        text += ", or make it an instance attribute created in __init__"
    if case.emptying_call() or any(statement.conditional for statement in case.emptied):
        text = emptying_advice(case)
    return Fix(text, "", "")


PATTERN = Pattern(
    "LH206",
    "registry that is never emptied",
    "A class or module lives as long as the program, and so does what its containers refer to.",
    recognise,
    fix,
    severity="growth",
)
