"""``total += loss``: the sum of tensors is a tensor, and its graph holds the graph of every step."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern
from leakhunter.source import Statement


def recognise(case: Case) -> bool:
    """A number that is added to, with the graphs of finished steps behind it."""
    suspect = case.suspect
    if suspect.graph is None or suspect.container >= 0 or not case.scalar:
        return False
    if case.growth is None:
        return case.links[-1].edge in ("local", "global")
    return case.growth.kind == "accumulate" and is_sum(case.growth)


def is_sum(statement: Statement) -> bool:
    """Whether a growing statement adds to its target as it is, not to a part of it as an average does."""
    if isinstance(statement.node, ast.AugAssign):
        return isinstance(statement.node.op, ast.Add)
    given = source.assignment_to(statement.node, statement.target)
    value = given.value if given is not None else None
    while isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        if any(source.refers_to(side, statement.target) for side in (value.left, value.right)):
            return True
        value = value.left
    return False


def fix(case: Case) -> Fix:
    """Add the number instead of the tensor."""
    number = _example(case)
    return Fix(
        f"add the number, not the tensor with its graph: {case.path} += {number}",
        detached(case, "item"),
        "item() waits for the device; where that costs too much, add .detach() and read the sum now and then",
    )


def _example(case: Case) -> str:
    """What is to be added, as the user would write it."""
    if case.growth is None or not isinstance(case.growth.node, (ast.AugAssign, ast.Assign, ast.AnnAssign)):
        return "loss.item()"
    parts = source.added(case.growth)
    if not parts or source.may_be_number(parts[0]):
        return "loss.item()"
    return source.called(case.growth.file, parts[0], "item")


def detached(case: Case, method: str) -> str:
    """A diff that calls ``method`` on what is added; none where it is not certain that a tensor is added there."""
    growth = case.growth
    if growth is None or not case.certain or case.below_name != ():
        return ""
    if source.is_differentiated(growth.file, growth.target):
        return ""
    if source.is_used_as_tensor(growth.file, growth.target):
        method = "detach"
    changes = [_changes(case, statement, method) for statement in (growth, *case.also)]
    several = sum(map(bool, changes)) > 1
    if None in changes or (several and not all(map(_adds_tensors, (growth, *case.also)))):
        return ""
    edits = [source.called_on(growth.file, *change) for found in changes for change in found or ()]
    return source.diff(growth.file, edits)


def _adds_tensors(statement: Statement) -> bool:
    return all(source.is_tensor(part, statement.scope) for part in source.added(statement))


def _changes(case: Case, statement: Statement, method: str) -> list[tuple[ast.expr, str]] | None:
    """Expressions of a statement, each with the method to call on it; None where that may be wrong.

    A part that is alone is certainly the tensor. Of several that may be numbers, the sum is.
    """
    parts = source.added(statement)
    if any(source.may_be_number(part) for part in parts):
        return None
    if len(parts) <= 1 or _adds_tensors(statement):
        return [(part, method) for part in parts]
    if isinstance(statement.node, ast.AugAssign):
        return [(statement.node.value, method)]
    given = source.assignment_to(statement.node, statement.target)
    if given is None or source.is_read_later(statement) or not case.is_once_a_step(statement):
        return None
    # Its target may have to remain a tensor, as a buffer of a module has.
    return [(given.value, "detach")]


PATTERN = Pattern(
    "LH101",
    "loss accumulated with its graph",
    "A sum of tensors that require grad is itself a node of the graph, and keeps the graphs of all its terms.",
    recognise,
    fix,
)
