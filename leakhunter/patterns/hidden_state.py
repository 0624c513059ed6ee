"""A recurrent state fed back without ``detach``: the graph of each step contains those of all steps before."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A value that is passed to the call that computes the next one."""
    suspect = case.suspect
    return (
        suspect.graph is not None
        and suspect.container < 0
        and case.growth is not None
        and case.growth.kind == "carry"
    )


def fix(case: Case) -> Fix:
    """Detach the state between steps."""
    name = case.path
    retains = case.growth is not None and any(
        keyword.arg == "retain_graph"
        for call in source.calls(case.growth.file, "backward")
        for keyword in call.keywords
    )
    text = f"detach the state between steps ({name} = {name}.detach()), or run under torch.no_grad() if nothing is trained"
    if retains:
        text += "; retain_graph=True is then not needed"
    return Fix(
        text, _diff(case), "gradients then stop at the step border: truncated back-propagation through time"
    )


def _diff(case: Case) -> str:
    if case.growth is None or case.target is None:
        return ""
    file, statement = case.growth.file, case.growth.node
    in_tuple = any(link.role == "tuple" for link in case.links[-2:])
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            if source.refers_to(argument, case.target):
                if in_tuple:
                    text = source.segment(file, argument)
                    edit = source.replace(argument, f"tuple(part.detach() for part in {text})")
                else:
                    edit = source.called_on(file, argument, "detach")
                return source.diff(file, [edit])
    return ""


PATTERN = Pattern(
    "LH104",
    "hidden state never detached",
    "The state links each step's graph to the one before, so one unbroken graph grows from the first step on.",
    recognise,
    fix,
)
