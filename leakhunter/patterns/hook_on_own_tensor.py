"""A hook of a tensor or of an autograd node that closes over the tensor or its owner."""

from leakhunter.findings import Fix
from leakhunter.patterns import waiting_cycle
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A stranded cycle through hooks that C++ holds, or one that gc frees through the hooks of a leaf."""
    of_leaf = case.suspect.state == "gc-pending" and case.has_text("._backward_hooks") and not case.holds("module")
    return of_leaf or (case.suspect.state == "stranded" and case.has_edge("hooks"))


def fix(case: Case) -> Fix:
    """Hold the owner weakly."""
    owner = next((link.type for link in case.links if link.role in ("instance", "module")), "")
    if owner:
        text = f"hold the owner weakly in the hook: bind weakref.ref(self) instead of self ({owner})"
    elif case.cells:
        name = case.cells[-1]
        text = f"let the hook use its own argument, or close over weakref.ref({name}) instead of {name}"
    else:
        text = "let the hook refer to its tensor through weakref.ref"
    return Fix(
        f"{text}, or remove the hook with its handle when it is no longer needed",
        "",
        "" if case.suspect.state == "gc-pending" else "gc.collect() cannot free this cycle: C++ holds the hooks",
    )


def severity(case: Case) -> str:
    """A leak where C++ holds the hooks; those of a leaf wait for gc."""
    return "leak" if case.suspect.state == "stranded" else waiting_cycle.severity(case)


PATTERN = Pattern(
    "LH813",
    "hook closes over its own tensor",
    "C++ holds the hook, the hook its closure, and the closure the tensor to which the hook belongs.",
    recognise,
    fix,
    severity=severity,
)
