"""A recurrent state fed back without ``detach``: the graph of each step contains those of all steps before."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern
from leakhunter.source import Edit, Statement


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
    retains = case.growth is not None and any(
        keyword.arg == "retain_graph"
        for call in source.calls(case.growth.file, "backward")
        for keyword in call.keywords
    )
    text = f"detach the state between steps ({detaching(case)}), or run under torch.no_grad() if nothing is trained"
    if retains:
        text += "; retain_graph=True is then not needed"
    return Fix(
        text, _diff(case), "gradients then stop at the step border: truncated back-propagation through time"
    )


def detaching(case: Case) -> str:
    """The assignment that detaches a state, or each part of a tuple or list of states."""
    name, shape = case.variable, _shape(case)
    if not shape and case.below_name:
        return f"every tensor in {name}"
    return f"{name} = {_detached(name, shape or 'tensor')}"


def _detached(text: str, shape: str) -> str:
    parts = f"part.detach() for part in {text}"
    return {"tensor": f"{text}.detach()", "tuple": f"tuple({parts})", "list": f"[{parts}]"}[shape]


def _shape(case: Case) -> str:
    """``tensor``, or ``tuple`` or ``list`` of tensors; empty when the state is something else."""
    below = case.below_name
    if below is None or len(below) > 1:
        return ""
    return {"field": "tuple", "index": "list"}.get(below[0].edge, "") if below else "tensor"


def _diff(case: Case) -> str:
    growth, shape = case.growth, _shape(case)
    if growth is None or not shape or not case.certain or not case.is_once_a_step(growth):
        return ""
    given = source.assignment_to(growth.node, growth.target)
    starts = source.starts_as(growth.file, growth.target)
    if given is None or growth.conditional or any(start is not None for start in starts):
        return ""
    states = [given.place, *_states_beside(growth)]
    if not {_name(state) for state in states[1:]} <= _rival_names(case):
        return ""
    uses = [use for state in states for use in source.occurrences(given.value, state)]
    edits = [_edit(growth.file, node, parent, shape, None in starts) for node, parent in uses]
    certain = [edit for edit in edits if edit is not None]
    return source.diff(growth.file, certain) if len(certain) == len(edits) else ""


def _states_beside(growth: Statement) -> list[ast.expr]:
    """Other variables that the statement both reads and assigns, as ``c`` of ``h, c = cell(x, (h, c))``."""
    return [
        given.place
        for given in source.assignments(growth.node)
        if not source.refers_to(given.place, growth.target) and source.occurrences(given.value, given.place)
    ]


def _name(state: ast.expr) -> str:
    return ast.unparse(state).rsplit(".", 1)[-1]


def _rival_names(case: Case) -> set[str]:
    """Names of other variables that reach the same graphs."""
    return {route.links[-1].text.lstrip(".") for route in case.suspect.rivals}


def _edit(file: str, node: ast.expr, parent: ast.AST | None, shape: str, may_be_none: bool) -> Edit | None:
    """The change to one use of the state; None where it is used in a way in which its parts cannot be detached."""
    text = source.segment(file, node)
    if isinstance(parent, ast.Starred) and shape != "tensor":
        return source.replace(node, f"(part.detach() for part in {text})")
    if isinstance(parent, ast.Subscript) and parent.value is node and shape != "tensor":
        single = isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, int)
        return source.called_on(file, parent, "detach") if single else None
    if isinstance(parent, (ast.Attribute, ast.BinOp)) and shape != "tensor":
        return None
    whole = isinstance(parent, (ast.Call, ast.keyword, ast.Tuple, ast.List))
    none_first = f"None if {text} is None else " if may_be_none and whole else ""
    return source.replace(node, none_first + _detached(text, shape))


PATTERN = Pattern(
    "LH104",
    "hidden state never detached",
    "The state links each step's graph to the one before, so one unbroken graph grows from the first step on.",
    recognise,
    fix,
)
