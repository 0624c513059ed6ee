"""``functools.lru_cache`` on a method: the class-wide cache has ``self`` in every key."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern
from leakhunter.patterns.unbounded_cache import decorated


def recognise(case: Case) -> bool:
    """An lru_cache that is an attribute of a class."""
    positions = [p for p, link in enumerate(case.links) if link.role == "lru_cache"]
    return bool(positions) and any(link.role == "class" for link in case.links[: positions[0]])


def fix(case: Case) -> Fix:
    """Cache on the instance."""
    cache = next(link for link in case.links if link.role == "lru_cache")
    return Fix(
        f"cache per instance: store the result of {cache.function or 'the method'} on self (functools.cached_property, "
        "or a dict made in __init__) instead of functools.lru_cache on the method",
        without_decorator(cache.file, cache.line),
        "the diff only drops the cache; where the result is dear, keep it in an attribute of self",
    )


def without_decorator(file: str, line: int) -> str:
    """A diff that removes the caching decorator of the function at a line."""
    tree = source.parse(file) if file else None
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if node.decorator_list[0].lineno == line and source.name_of(called) in ("lru_cache", "cache"):
                whole = source.Edit(
                    decorator.lineno, 0, (decorator.end_lineno or decorator.lineno) + 1, 0, ""
                )
                return source.diff(file, [whole])
    return ""


PATTERN = Pattern(
    "LH301",
    "lru_cache on a method keeps every instance",
    "The cache belongs to the class and its keys contain self, so no instance that was called is ever freed.",
    recognise,
    fix,
    statement=decorated,
)
