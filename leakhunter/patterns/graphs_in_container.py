"""``losses.append(loss)``: every element keeps the whole graph it was computed by."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Graphs of finished steps behind the elements of a container."""
    return case.suspect.graph is not None and case.suspect.container >= 0


def fix(case: Case) -> Fix:
    """Store what is read later, not how it was computed."""
    method = "item" if case.scalar else "detach"
    what = "the number (.item())" if case.scalar else "the values (.detach())"
    caveat = "item() waits for the device" if case.scalar else "the tensors themselves still pile up"
    also = f"; or clear {case.name} when its values have been used" if not case.scalar else " or .detach()"
    return Fix(
        f"store {what} in {case.name}, not the tensor with its graph{also}", detached(case, method), caveat
    )


def detached(case: Case, method: str) -> str:
    """A diff that calls ``method`` on the tensors that the growing statement stores."""
    if case.growth is None:
        return ""
    stored = stored_expression(case.growth.node)
    if stored is None:
        return ""
    file = case.growth.file
    keys = {link.text[1:-1] for link in (*case.links, *_rival_links(case)) if link.edge == "key"}
    parts = [part for part in _tensors(stored, keys) if not isinstance(part, ast.Constant)]
    return source.diff(file, [source.called_on(file, part, method) for part in parts])


def stored_expression(statement: ast.stmt) -> ast.expr | None:
    """What ``x.append(e)``, ``x.put(e)``, ``x[k] = e`` or ``x += [e]`` stores."""
    if isinstance(statement, (ast.Assign, ast.AugAssign)):
        return statement.value
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and statement.value.args:
        return statement.value.args[-1]
    return None


def _rival_links(case: Case) -> list[source.ast.AST]:
    return [link for route in case.suspect.rivals for link in route.links]  # type: ignore[misc]


def _tensors(stored: ast.expr, keys: set[str]) -> list[ast.expr]:
    """The stored expression, or those members of a stored dict, tuple or list that hold the tensors."""
    if isinstance(stored, ast.Dict):
        chosen = [
            value
            for key, value in zip(stored.keys, stored.values, strict=True)
            if not keys or (isinstance(key, ast.Constant) and repr(key.value) in keys)
        ]
        return chosen or list(stored.values)
    if isinstance(stored, (ast.Tuple, ast.List)):
        return [member for member in stored.elts if isinstance(member, (ast.Name, ast.Attribute, ast.Call))]
    return [stored]


PATTERN = Pattern(
    "LH103",
    "tensors stored with their graphs",
    "A stored tensor keeps its grad_fn, and that keeps everything its step saved for a backward that never comes.",
    recognise,
    fix,
)
