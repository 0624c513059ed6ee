"""``preds = torch.cat([preds, batch])``: one tensor that is replaced by a larger one in every step."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern

# Parts of the names of operators whose result contains their arguments.
JOINING = ("cat", "stack", "pad", "append", "repeat", "resize")


def recognise(case: Case) -> bool:
    """A constant number of storages at one place, each larger than the one before and joined from it."""
    operator = case.suspect.hints.get("operator") or "cat"
    return "replaced" in case.suspect.hints and any(word in operator for word in JOINING)


def fix(case: Case) -> Fix:
    """Reduce before joining."""
    return Fix(
        f"reduce what is joined to {case.path} first (argmax, a sum, a metric), or move it off the device in chunks "
        "and join once at the end",
        "",
        "joining in every step also copies all that was joined before: its cost grows with the square of the steps",
    )


PATTERN = Pattern(
    "LH204",
    "tensor grows by concatenation",
    "Each step builds a new tensor that contains the old one.",
    recognise,
    fix,
    severity="growth",
)
