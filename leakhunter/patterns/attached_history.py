"""A value of fixed size that is rebuilt from its former self and carries the history of all it ever held."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Any variable or attribute behind which the graphs of finished steps hang."""
    return case.suspect.graph is not None and case.suspect.container < 0


def fix(case: Case) -> Fix:
    """Detach after each update."""
    name = case.path
    return Fix(
        f"detach it after each update ({name} = {name}.detach()), or compute it under torch.no_grad()",
        _diff(case),
        "values stay the same; only gradients into earlier steps are given up",
    )


def _diff(case: Case) -> str:
    if case.growth is None or case.target is None:
        return ""
    file, node = case.growth.file, case.growth.node
    last = max(
        (
            statement
            for statement in source.statements(file, case.target)
            if statement.kind in ("carry", "join", "rebuild", "assign") and statement.function == case.growth.function
        ),
        key=lambda statement: statement.line,
        default=case.growth,
    )
    node = last.node
    if isinstance(node, ast.Assign) and not isinstance(node.targets[0], (ast.Tuple, ast.List)):
        return source.diff(file, [source.called_on(file, node.value, "detach")])
    line = f"{source.indentation(file, last.line)}{case.path} = {case.path}.detach()\n"
    return source.diff(file, [], (last.end_line, line))


PATTERN = Pattern(
    "LH105",
    "value carries the history of all steps",
    "Its size is bounded but its graph is not: what was cut away is still needed by the graph of what was kept.",
    recognise,
    fix,
)
