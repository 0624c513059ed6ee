"""One autocast context around a whole loop of short-lived layers."""

import ast

from leakhunter import source
from leakhunter.findings import Fix, Holder
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Casts or their sources that only C++ holds, while autocast with its cache is on between steps."""
    return (
        bool(case.facts.get("autocast cache"))
        and case.unheld
        and case.suspect.hints.get("operator") in ("aten::_to_copy", None)
    )


def fix(case: Case) -> Fix:
    """Enter it per step, or switch the cache off."""
    return Fix(
        "enter torch.autocast inside the step instead of around the loop, or pass cache_enabled=False",
        _diff(case),
        "without the cache, a weight that is used twice in a step is cast twice",
    )


def _diff(case: Case) -> str:
    for frame in case.site:
        call = source.with_item(frame.file, frame.line, "autocast")
        if call is not None and not _may_set_cache(call):
            return source.diff(frame.file, [source.replace(call, _without_cache(frame.file, call))])
    return ""


def _may_set_cache(call: ast.Call) -> bool:
    """Whether the call says something about the cache already: by name, by position, or in ``*`` and ``**``."""
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    return (
        starred
        or len(call.args) > 2
        or any(keyword.arg in ("cache_enabled", None) for keyword in call.keywords)
    )


def _without_cache(file: str, call: ast.Call) -> str:
    text = source.segment(file, call)
    if "\n" in text:  # there may be a comment behind the last argument
        text = ast.unparse(call)
    before = text[:-1].rstrip().removesuffix(",")
    return f"{before}{', ' if source.arguments(call) else ''}cache_enabled=False)"


def holder(case: Case) -> Holder:
    """The cache has no name in Python."""
    return Holder("native: autocast weight cache", "native", "", "torch.autocast")


PATTERN = Pattern(
    "LH901",
    "autocast cache grows",
    "Autocast keeps the low-precision copy of every weight it has cast, and the weight, until its outermost context "
    "exits.",
    recognise,
    fix,
    holder=holder,
)
