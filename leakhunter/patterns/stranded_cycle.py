"""Any other cycle that runs through C++."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Garbage that gc takes for used."""
    return case.suspect.state == "stranded"


def fix(case: Case) -> Fix:
    """Cut it by hand."""
    return Fix(
        f"cut the cycle before the last reference goes: delete one of its references, or detach the tensor in it "
        f"({case.path})",
        "",
        "gc.collect() cannot free this cycle: it runs through C++",
    )


PATTERN = Pattern(
    "LH810",
    "cycle through C++ that gc cannot free",
    "C++ holds one of the references, so gc takes the objects for used, while only the cycle itself uses them.",
    recognise,
    fix,
)
