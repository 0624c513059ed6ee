"""A mutable default argument that all calls share."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Growth in a default value of a function."""
    return (
        case.suspect.state == "held"
        and case.suspect.container >= 0
        and any(link.edge in ("defaults", "kwdefaults") for link in case.links[: case.suspect.container + 1])
    )


def fix(case: Case) -> Fix:
    """Make the container inside the function."""
    name = case.target.name if case.target is not None else "the argument"
    return Fix(
        f"use None as the default of {name} and create the container inside the function",
        _diff(case),
        "callers that relied on the shared value must pass it",
    )


def _diff(case: Case) -> str:
    if case.target is None or case.target.function is None:
        return ""
    (file, line), name = case.target.function, case.target.name
    function = source.function_at(file, line)
    default = source.defaults_of(function.args).get(name) if function is not None else None
    if function is None or default is None or not _is_made_here(default, function):
        return ""
    first = next((part for part in function.body if not _is_docstring(part)), None)
    if first is None:
        return ""
    text = source.segment(file, default)
    made = text if "\n" not in text else ast.unparse(default)
    making = f"{name} = {made} if {name} is None else {name}"
    return source.diff(file, [source.replace(default, "None"), _before(file, first, making)])


def _before(file: str, statement: ast.stmt, text: str) -> source.Edit:
    """A statement put before another: on a line of its own, or on the same line where that one follows a colon."""
    line, column = source.first_line_of(statement), statement.col_offset
    if source.lines_of(file)[statement.lineno - 1].encode()[:column].strip():
        return source.Edit(line, column, line, column, f"{text}; ")
    return source.Edit(line, 0, line, 0, f"{source.indentation(file, statement.lineno)}{text}\n")


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_made_here(default: ast.expr, function: source.FunctionNode) -> bool:
    """Whether the default, written inside the function, makes a new container in each call and means the same."""
    parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    shadowed = any(isinstance(node, ast.Name) and node.id in parameters for node in ast.walk(default))
    makes = isinstance(default, (*source.DISPLAYS, ast.Call, ast.ListComp, ast.SetComp, ast.DictComp))
    return makes and not shadowed


PATTERN = Pattern(
    "LH205",
    "mutable default argument fills up",
    "A default value is made once, when the function is defined, and lives as long as the function.",
    recognise,
    fix,
)
