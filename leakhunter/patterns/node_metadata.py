"""A tensor in the ``metadata`` of the autograd node that made it."""

from itertools import pairwise

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A stranded cycle through a dict of a node that leads to a tensor, and through no function."""
    pairs = pairwise(case.links)
    straight = any(before.edge == "hooks" and link.role == "tensor" for before, link in pairs)
    return case.suspect.state == "stranded" and straight


def fix(case: Case) -> Fix:
    """Store something else there."""
    return Fix(
        "store a number or tensor.detach() in grad_fn.metadata, not a tensor from which the node is reached",
        "",
        "gc.collect() cannot free this cycle: C++ holds the dict",
    )


PATTERN = Pattern(
    "LH815",
    "metadata of a node holds its own tensor",
    "The tensor holds its grad_fn, and grad_fn.metadata, which C++ keeps, holds the tensor.",
    recognise,
    fix,
)
