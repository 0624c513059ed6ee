"""An attribute hung on a tensor that leads back to it through a view or a graph."""

from itertools import pairwise

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A stranded cycle through an attribute of a tensor."""
    return case.suspect.state == "stranded" and bool(_attribute(case))


def fix(case: Case) -> Fix:
    """Keep it elsewhere."""
    return Fix(
        f"delete the tensor's attribute {_attribute(case)} when the tensor is done with, or keep the mapping outside "
        "the tensor (torch.utils.weak.WeakIdKeyDictionary)",
        "",
        "gc.collect() cannot free this cycle: a view refers to its base in C++",
    )


def _attribute(case: Case) -> str:
    """The attribute of a tensor through which the cycle runs."""
    pairs = pairwise(link for link in case.links if link.edge != "namespace")
    return next((link.text for before, link in pairs if before.role == "tensor" and link.edge == "attribute"), "")


PATTERN = Pattern(
    "LH814",
    "attribute of a tensor leads back to it",
    "The tensor holds its attribute, and the attribute holds the tensor through C++, where gc does not look.",
    recognise,
    fix,
)
