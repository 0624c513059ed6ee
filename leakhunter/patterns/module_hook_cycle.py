"""A module's own hook closes over the module."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern
from leakhunter.patterns.piled_hooks import HOOKS
from leakhunter.patterns.waiting_cycle import severity


def recognise(case: Case) -> bool:
    """A gc-pending cycle through a module's dict of hooks."""
    return case.suspect.state == "gc-pending" and case.has_text(*HOOKS) and case.holds("module")


def fix(case: Case) -> Fix:
    """Use the argument."""
    return Fix(
        "use the hook's own module argument instead of self (hook(module, args, output)), or close over "
        "weakref.ref(self)",
        "",
        "",
    )


PATTERN = Pattern(
    "LH803",
    "module hook closes over its module",
    "The module holds its hooks, the hook its closure, and the closure the module: only the cyclic gc can free it.",
    recognise,
    fix,
    severity=severity,
)
