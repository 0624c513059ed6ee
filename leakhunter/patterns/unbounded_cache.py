"""``functools.lru_cache`` without a useful bound on a function that is given large or ever new arguments."""

from leakhunter import source
from leakhunter.findings import Fix, Frame
from leakhunter.origin import is_user_file
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Anything held by an lru_cache."""
    return case.holds("lru_cache")


def fix(case: Case) -> Fix:
    """Bound it, clear it, or pass something smaller."""
    cache = next(link for link in case.links if link.role == "lru_cache")
    name = cache.function or case.name
    return Fix(
        f"drop the cache, clear it when its entries are no longer needed ({name}.cache_clear()), or bound it with "
        f"a small "
        "maxsize; a cached function should be passed names and shapes, not models or tensors",
        "",
        "a bound keeps that many arguments and results alive for good",
    )


def decorated(case: Case) -> Frame | None:
    """The line of the decorator, where that is the program's own."""
    cache = next(link for link in case.links if link.role == "lru_cache")
    if not cache.line or not is_user_file(cache.file):
        return None
    return Frame(cache.file, cache.line, cache.function, source.line_text(cache.file, cache.line))


PATTERN = Pattern(
    "LH302",
    "cache without bound",
    "The cache keeps the arguments and the result of every distinct call.",
    recognise,
    fix,
    statement=decorated,
)
