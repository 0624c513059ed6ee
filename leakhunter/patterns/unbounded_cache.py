"""``functools.lru_cache`` without a useful bound on a function that is given large or ever new arguments."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Anything held by an lru_cache."""
    return case.holds("lru_cache")


def fix(case: Case) -> Fix:
    """Bound it, clear it, or pass something smaller."""
    cache = next(link for link in case.links if link.role == "lru_cache")
    name = cache.function or case.name
    return Fix(
        f"drop the cache, clear it when its entries are no longer needed ({name}.cache_clear()), or bound it with a small "
        "maxsize; a cached function should be passed names and shapes, not models or tensors",
        "",
        "a bound keeps that many arguments and results alive for good",
    )


PATTERN = Pattern(
    "LH302",
    "cache without bound",
    "The cache keeps the arguments and the result of every distinct call.",
    recognise,
    fix,
)
