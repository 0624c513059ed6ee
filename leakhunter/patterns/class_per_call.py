"""A class that is defined inside a function, and so made anew in every call."""

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern
from leakhunter.patterns.waiting_cycle import severity


def recognise(case: Case) -> bool:
    """A gc-pending cycle that begins with a class."""
    return case.suspect.state == "gc-pending" and case.links[0].role == "class"


def fix(case: Case) -> Fix:
    """Define it once."""
    name = case.links[0].function
    line = source.definition_line(case.links[0].file, name)
    place = f" (line {line})" if line else ""
    return Fix(
        f"define the class {name.rsplit('.', 1)[-1]} once, at module level{place}, and pass what differs to its "
        f"constructor",
        "",
        "",
    )


PATTERN = Pattern(
    "LH802",
    "class made in every call",
    "A class refers to itself through its __mro__ and its descriptors, so it and its attributes wait for gc.",
    recognise,
    fix,
    severity=severity,
)
