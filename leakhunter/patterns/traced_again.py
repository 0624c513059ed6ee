"""``torch.jit.trace`` or ``script`` in every step."""

from leakhunter.findings import Fix, Holder
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Native growth while functions are traced or scripted."""
    return case.unheld and bool(case.facts.get("traced"))


def fix(case: Case) -> Fix:
    """Trace once."""
    return Fix(
        "trace or script once before the loop and call the result; pass what differs between steps as an argument",
        "",
        "",
    )


def holder(case: Case) -> Holder:
    """The compilation unit is TorchScript's own."""
    return Holder("native: TorchScript compilation unit", "native", "", "torch.jit")


PATTERN = Pattern(
    "LH904",
    "traced or scripted in every step",
    "Every traced or scripted function stays in TorchScript's compilation unit with its constants, for good.",
    recognise,
    fix,
    holder=holder,
)
