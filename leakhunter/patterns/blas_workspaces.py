"""A cuBLAS workspace for every new stream or thread that multiplies matrices."""

from leakhunter.findings import Fix, Holder
from leakhunter.patterns.case import Case, Pattern
from leakhunter.probe.cuda_history import WORKSPACE


def recognise(case: Case) -> bool:
    """Living blocks that belong to no tensor and are, to the byte, as large as such a workspace."""
    return case.unheld and case.suspect.hints.get("operator") == WORKSPACE


def fix(case: Case) -> Fix:
    """Use the same streams again."""
    return Fix(
        "make streams and threads that multiply matrices once, before the loop, and use them again: PyTorch keeps one "
        "workspace for every pair of cuBLAS handle and stream; CUBLAS_WORKSPACE_CONFIG=:16:8 makes each small",
        "",
        "with a smaller workspace some products are slower",
    )


def holder(case: Case) -> Holder:
    """PyTorch's own table of workspaces."""
    return Holder("native: cuBLAS workspaces", "native")


PATTERN = Pattern(
    "LH908",
    "cuBLAS workspaces pile up",
    "PyTorch allocates a workspace for each cuBLAS handle (one a thread) and stream at their first matrix product, and "
    "keeps it; it hands out 32 streams of each priority in turn, so that this stops.",
    recognise,
    fix,
    severity="note",
    holder=holder,
)
