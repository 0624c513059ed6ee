"""Kernels kept per input shape, for inputs of ever new shapes."""

from leakhunter.findings import Fix, Holder
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Native growth while operators with a kernel cache see a new shape in nearly every step."""
    return case.unheld and bool(case.facts.get("new shapes"))


def fix(case: Case) -> Fix:
    """Fewer shapes, or a smaller cache."""
    return Fix(
        "pad inputs to a few sizes, or make the cache smaller with the environment variables "
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY "
        "and LRU_CACHE_CAPACITY",
        "",
        "the cache has a capacity (about a thousand kernels), so this growth ends, at a high level",
    )


def holder(case: Case) -> Holder:
    """The cache has no name in Python."""
    return Holder("native: oneDNN primitive cache", "native", "", "oneDNN")


PATTERN = Pattern(
    "LH903",
    "kernel cache grows with every new shape",
    "oneDNN generates code for each distinct input shape and keeps it.",
    recognise,
    fix,
    severity="growth",
    holder=holder,
)
