"""A hook of a tensor or of an autograd node that closes over the tensor or its owner."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A stranded cycle through hooks that C++ holds."""
    return case.suspect.state == "stranded" and case.has_edge("hooks")


def fix(case: Case) -> Fix:
    """Hold the owner weakly."""
    owner = next((link.type for link in case.links if link.role in ("instance", "module")), "the owner")
    return Fix(
        f"hold the owner weakly in the hook: bind weakref.ref(self) instead of self ({owner}), or remove the hook "
        f"with its "
        "handle when it is no longer needed",
        "",
        "gc.collect() cannot free this cycle: C++ holds the hooks",
    )


PATTERN = Pattern(
    "LH813",
    "hook closes over its own tensor",
    "C++ holds the hook, the hook its closure, and the closure the tensor to which the hook belongs.",
    recognise,
    fix,
)
