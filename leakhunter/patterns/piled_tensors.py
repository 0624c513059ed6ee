"""Tensors that pile up in a list, dict, deque or set."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A container that gets tensors and loses none."""
    return case.suspect.state == "held" and case.container is not None and case.suspect.sample.numel > 0


def fix(case: Case) -> Fix:
    """Empty it, bound it, or keep less."""
    return Fix(emptying_advice(case), "", "moving the tensors to the CPU only moves the growth there")


def emptying_advice(case: Case) -> str:
    """How to stop a container from growing: by the program's own means where it has some."""
    name = case.name
    call = case.emptying_call()
    if call:
        return f"call {call}, which empties {name}, once its values have been used; nothing calls it in this loop"
    unreached = [statement for statement in case.emptied if statement.conditional]
    if unreached:
        first = unreached[0]
        return f"drain {name} in every step: line {first.line} empties it, but on a branch that is not taken"
    container = case.container
    if container is not None and container.role == "list":
        return (
            f"keep only what is read later (a number, a reduced tensor) in {name}, clear it when its values have been "
            "used, for instance at the end of the epoch, or make it collections.deque(maxlen=N)"
        )
    if container is not None and container.role == "dict":
        return f"delete entries of {name} that are no longer needed, or bound it to the newest N"
    return f"take items out of {name} once they have been used, or bound it"


PATTERN = Pattern(
    "LH201",
    "tensors pile up in a container",
    "The container refers to every tensor ever put into it, and nothing takes them out.",
    recognise,
    fix,
    severity="growth",
)
