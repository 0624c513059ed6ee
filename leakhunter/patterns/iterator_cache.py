"""``itertools.cycle`` and ``tee`` keep every element they have handed out."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Survivors in the memory of an iterator."""
    return case.suspect.state == "held" and (
        case.has_edge("saved items")
        or any(link.type in ("cycle", "_tee", "_tee_dataobject") for link in case.links)
    )


def fix(case: Case) -> Fix:
    """Restart the source instead of remembering it."""
    if any(link.type == "cycle" for link in case.links):
        return Fix(
            "write a generator that restarts the loader, `while True: yield from loader`, instead of itertools.cycle",
            _diff(case),
            "each pass then reads the data again, which also shuffles it again",
        )
    return Fix(
        "iterate twice over the source, or advance both iterators of itertools.tee together and drop the one not used",
        "",
        "",
    )


def _diff(case: Case) -> str:
    for file in dict.fromkeys(link.file for link in case.links if link.file):
        calls = [call for call in source.calls(file, "cycle") if _is_of_itertools(file, call)]
        if calls:
            return _restarting(file, calls[0]) if len(calls) == 1 else ""
    return ""


def _is_of_itertools(file: str, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return isinstance(call.func.value, ast.Name) and call.func.value.id == "itertools"
    tree = source.parse(file)
    imports = [
        node for node in (ast.walk(tree) if tree is not None else ()) if isinstance(node, ast.ImportFrom)
    ]
    names = {(node.module, alias.asname or alias.name) for node in imports for alias in node.names}
    return ("itertools", "cycle") in names


def _restarting(file: str, call: ast.Call) -> str:
    if len(call.args) != 1 or isinstance(call.args[0], ast.Starred) or _is_read_once(file, call.args[0]):
        return ""
    text = f"(item for _ in iter(int, 1) for item in {source.segment(file, call.args[0])})"
    return source.diff(file, [source.replace(call, text)])


def _is_read_once(file: str, loader: ast.expr) -> bool:
    """Whether a variable may stand for an iterator, which gives nothing in a second pass. A call makes a new one."""
    if not isinstance(loader, (ast.Name, ast.Attribute)):
        return False
    tree = source.parse(file)
    values = [
        given.value
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.stmt)
        for given in source.assignments(node)
        if ast.unparse(given.place) == ast.unparse(loader)
    ]
    return not all(
        isinstance(value, (*source.DISPLAYS, ast.ListComp)) or _is_constructor(value) for value in values
    )


def _is_constructor(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and source.name_of(value.func)[:1].isupper()


PATTERN = Pattern(
    "LH511",
    "iterator remembers all it handed out",
    "itertools.cycle saves the whole first pass, and tee all that one of its iterators has not seen yet.",
    recognise,
    fix,
)
