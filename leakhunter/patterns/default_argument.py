"""A mutable default argument that all calls share."""

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Growth in a default value of a function."""
    return (
        case.suspect.state == "held"
        and case.suspect.container >= 0
        and case.has_edge("defaults", "kwdefaults")
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
    file, line = case.target.function
    tree = source.parse(file)
    for node in source.ast.walk(tree) if tree is not None else ():
        if isinstance(node, (source.ast.FunctionDef, source.ast.AsyncFunctionDef)) and node.lineno >= line:
            arguments = [*node.args.posonlyargs, *node.args.args]
            defaults = dict(
                zip(reversed([a.arg for a in arguments]), reversed(node.args.defaults), strict=False)
            )
            default = defaults.get(case.target.name)
            if default is None:
                continue
            name, made = case.target.name, source.segment(file, default)
            indent = source.indentation(file, node.body[0].lineno)
            inside = f"{indent}{name} = {made} if {name} is None else {name}\n"
            return source.diff(file, [source.replace(default, "None")], (node.body[0].lineno - 1, inside))
    return ""


PATTERN = Pattern(
    "LH205",
    "mutable default argument fills up",
    "A default value is made once, when the function is defined, and lives as long as the function.",
    recognise,
    fix,
)
