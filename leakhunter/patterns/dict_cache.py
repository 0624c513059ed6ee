"""A dict used as a cache: entries are made on a miss and never dropped."""

import ast

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A dict that is written to only when a key is missing, or that is called a cache."""
    container = case.container
    if case.suspect.state != "held" or container is None or container.role != "dict":
        return False
    name = case.name.lower()
    if "cache" in name or "memo" in name:
        return True
    growth = case.growth
    return growth is not None and growth.conditional and growth.kind == "item" and _tests_membership(growth)


def _tests_membership(growth: source.Statement) -> bool:
    tree = source.parse(growth.file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.If) and node.lineno <= growth.line <= (node.end_lineno or node.lineno):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.NotIn):
                    return any(source.refers_to(other, growth.target) for other in part.comparators)
    return False


def fix(case: Case) -> Fix:
    """Bound it or clear it."""
    return Fix(
        f"bound the cache {case.name} (drop the oldest entry beyond N), or clear it where its entries stop being "
        "useful, for instance between files or epochs",
        "",
        "if keys can only take few values the growth will end by itself; then this finding is taken back",
    )


PATTERN = Pattern(
    "LH303",
    "cache that never evicts",
    "Every new key adds an entry, and keys do not repeat often enough for the cache to fill up.",
    recognise,
    fix,
    severity="growth",
)
