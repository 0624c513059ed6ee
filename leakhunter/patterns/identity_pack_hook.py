"""``saved_tensors_hooks`` whose pack hook returns the tensor it was given."""

import ast

from leakhunter import source
from leakhunter.findings import Fix, Holder, Node
from leakhunter.heap import paths
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A stranded cycle through a saved tensor that has an unpack hook."""
    return case.suspect.state == "stranded" and case.has_edge("saved") and "pack hook" in case.suspect.hints


def fix(case: Case) -> Fix:
    """Pack a detached tensor."""
    name, file, line = case.suspect.hints["pack hook"]
    example = f": {name.rsplit('.', 1)[-1]} = lambda t: t.detach()" if name else ""
    return Fix(
        f"let the pack hook return t.detach(), not the tensor itself{example}",
        _diff(file, line),
        "unpack then gives a detached tensor, which is all that backward needs",
    )


def _diff(file: str, line: int) -> str:
    tree = source.parse(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and node.lineno == line:
            arguments = {argument.arg for argument in node.args.args}
            body = (
                [node.body]
                if isinstance(node, ast.Lambda)
                else [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value]
            )
            edits = [
                source.called_on(file, value, "detach")
                for value in body
                if isinstance(value, ast.Name) and value.id in arguments
            ]
            return source.diff(file, edits)
    return ""


def holder(case: Case) -> Holder:
    """The hook is what to change, so it is named first."""
    name, file, line = case.suspect.hints["pack hook"]
    nodes = tuple(Node(link.text, link.type, link.detail) for link in case.links)
    return Holder(
        f"{name}() -> {paths.write(case.links)}",
        "cycle",
        f"{file}:{line}",
        name,
        (
            Node(name, "pack hook", f"{file}:{line}", "no", "runs for every tensor that an operator saves"),
            *nodes,
        ),
    )


PATTERN = Pattern(
    "LH812",
    "pack hook returns the live tensor",
    "An operator's saved output then refers to its own grad_fn, which refers to it: a cycle through C++.",
    recognise,
    fix,
    holder=holder,
)
