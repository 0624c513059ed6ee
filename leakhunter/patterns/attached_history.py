"""A value of fixed size that is rebuilt from its former self and carries the history of all it ever held."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.accumulated_loss import detached
from leakhunter.patterns.case import CONSTRUCTORS, UPDATING, Case, Pattern
from leakhunter.patterns.hidden_state import detaching
from leakhunter.source import Statement


def recognise(case: Case) -> bool:
    """Any variable or attribute behind which the graphs of finished steps hang."""
    return case.suspect.graph is not None and case.suspect.container < 0


def fix(case: Case) -> Fix:
    """Detach after each update."""
    return Fix(
        f"detach it after each update ({detaching(case)}), or compute it under torch.no_grad()",
        _diff(case),
        "values stay the same; only gradients into earlier steps are given up",
    )


def _diff(case: Case) -> str:
    if case.growth is None or not case.certain or case.below_name != ():
        return ""
    if source.changes_in_place(case.growth):
        return detached(case, "detach")
    update = _last_update(case)
    if update is None or source.is_read_later(update) or not case.is_once_a_step(update):
        return ""
    if update.kind == "item":
        return _detached_item(update)
    given = source.assignment_to(update.node, update.target)
    if given is None:
        return ""
    if not given.unpacked:
        return _detached_value(update, given.value)
    if not source.stands_alone(update.file, update.node):
        return ""
    place = source.segment(update.file, given.place)
    line = f"{source.indentation(update.file, update.line)}{place} = {place}.detach()\n"
    return source.diff(update.file, [], (update.end_line, line))


def _detached_value(update: Statement, value: ast.expr) -> str:
    branches = (value.body, value.orelse) if isinstance(value, ast.IfExp) else ()
    if source.may_be_number(value) or any(source.refers_to(branch, update.target) for branch in branches):
        return ""
    return source.diff(update.file, [source.called_on(update.file, value, "detach")])


def _detached_item(update: Statement) -> str:
    """The diff where a part of the tensor is written to: what is written there has no graph then."""
    values = [value for value, _ in source.stored(update)]
    if len(values) != 1 or source.may_be_number(values[0]) or isinstance(values[0], source.OPAQUE):
        return ""
    return source.diff(update.file, [source.called_on(update.file, values[0], "detach")])


def _last_update(case: Case) -> Statement | None:
    """The update that every step ends with, None when one cannot be certain which it is."""
    growth = case.growth
    assert growth is not None
    updates = [
        statement
        for statement in source.statements(growth.file, growth.target)
        if statement.kind in UPDATING
        and (statement.function, statement.method_of) == (growth.function, growth.method_of)
        and not _is_beginning(case, statement)
    ]
    always = [statement for statement in updates if not statement.conditional]
    if len(updates) > 1 and (not always or all(statement.kind == "assign" for statement in updates)):
        return None
    return max(always or updates, key=lambda statement: statement.line, default=None)


def _is_beginning(case: Case, statement: Statement) -> bool:
    """Whether a statement gives the value that the first step begins with."""
    if statement.kind != "assign":
        return False
    frames = {link.function.rsplit(".", 1)[-1] for link in case.links if link.role in ("frame", "generator")}
    own = statement.function in frames or not statement.function
    return statement.function in CONSTRUCTORS or (own and not source.loops_around(statement))


PATTERN = Pattern(
    "LH105",
    "value carries the history of all steps",
    "Its size is bounded but its graph is not: what was cut away is still needed by the graph of what was kept.",
    recognise,
    fix,
)
