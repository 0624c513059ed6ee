"""A forward hook stores activations that only a backward hook takes away, and no backward ever comes."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A container that is filled by a function registered as a forward hook."""
    growth = case.growth
    if case.suspect.state != "held" or case.suspect.container < 0 or growth is None or not growth.function:
        return False
    return _registered(growth.file, growth.function, "register_forward_hook", "register_forward_pre_hook")


def _registered(file: str, function: str, *registrars: str) -> bool:
    for registrar in registrars:
        for call in source.calls(file, registrar):
            for argument in source.arguments(call):
                if any(
                    source.name_of(part) == function
                    for part in ast.walk(argument)
                    if isinstance(part, ast.expr)
                ):
                    return True
    return False


def fix(case: Case) -> Fix:
    """Do not store when nothing will be taken away."""
    assert case.growth is not None
    emptied = next((statement for statement in case.emptied if statement.function), None)
    where = (
        f"; {emptied.function}() at line {emptied.line} empties it, and is not called"
        if emptied is not None
        else ""
    )
    return Fix(
        f"do not store in {case.growth.function}() when gradients are disabled (return early if not "
        f"torch.is_grad_enabled()), or remove the hook for evaluation{where}",
        "",
        "",
    )


PATTERN = Pattern(
    "LH402",
    "forward hook stores what no backward takes away",
    "The hook runs in every forward, also under no_grad and in evaluation, where no backward follows.",
    recognise,
    fix,
)
