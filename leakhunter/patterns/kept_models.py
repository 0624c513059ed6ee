"""Whole models or optimizers that pile up in a list of results, trials or prepared objects."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern
from leakhunter.patterns.piled_tensors import emptying_advice


def recognise(case: Case) -> bool:
    """A module or optimizer behind the elements of a container that grows."""
    position = case.suspect.container
    behind = case.links[position + 1 :] if position >= 0 else ()
    return case.suspect.state == "held" and any(link.role in ("module", "optimizer") for link in behind)


def fix(case: Case) -> Fix:
    """Store the result, not the model."""
    if case.emptying_call():
        call = case.emptying_call()
        text = f"call {call} between trainings: it empties {case.name}, and nothing calls it in this loop"
    elif any(statement.conditional for statement in case.emptied):
        text = emptying_advice(case)
    else:
        text = (
            f"store the score and the settings in {case.name}, not the model; save its state_dict to a file if it is "
            "needed, and delete the model after its trial"
        )
    return Fix(text, "", "")


PATTERN = Pattern(
    "LH603",
    "models pile up",
    "A stored model keeps its parameters, its gradients and, through the optimizer, their moments.",
    recognise,
    fix,
    severity="growth",
)
