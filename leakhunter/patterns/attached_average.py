"""A running average or total in an attribute or buffer that stays attached to the graphs it was computed from."""

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.accumulated_loss import detached
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A value that is added to or averaged, not a plain variable of one number."""
    suspect = case.suspect
    if suspect.graph is None or suspect.container >= 0:
        return False
    if case.growth is not None:
        return case.growth.kind == "accumulate" and not source.changes_in_place(case.growth)
    return case.links[-1].edge == "attribute"


def fix(case: Case) -> Fix:
    """Average numbers, or detached tensors."""
    name = case.path
    if case.scalar:
        return Fix(
            f"average plain numbers: use .item() on what is added to {name}",
            detached(case, "item"),
            "item() waits for the device; .detach() does not, and also drops the graph",
        )
    return Fix(
        f"detach what is added to {name} before the update, or update it under torch.no_grad()",
        detached(case, "detach"),
        "gradients no longer flow through earlier steps; that is what a running statistic wants",
    )


PATTERN = Pattern(
    "LH102",
    "running value kept with its graph",
    "Each new value is computed from the one before, so the newest graph contains those of all steps so far.",
    recognise,
    fix,
)
