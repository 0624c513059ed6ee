"""Finds what leaks memory in a PyTorch loop, who holds it, and the line to change."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakhunter.findings import Finding, Report
    from leakhunter.options import Options
    from leakhunter.reference_cycles import cycles
    from leakhunter.watching import LeakError, LeakWarning, Watch, check, watch

__version__ = "0.1.0"

__all__ = [
    "Finding",
    "LeakError",
    "LeakWarning",
    "Options",
    "Report",
    "Watch",
    "__version__",
    "check",
    "cycles",
    "watch",
]

_HOMES = {
    "Finding": "leakhunter.findings",
    "LeakError": "leakhunter.watching",
    "LeakWarning": "leakhunter.watching",
    "Options": "leakhunter.options",
    "Report": "leakhunter.findings",
    "Watch": "leakhunter.watching",
    "check": "leakhunter.watching",
    "cycles": "leakhunter.reference_cycles",
    "watch": "leakhunter.watching",
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used: pytest loads our plugin in every run, and torch takes a second."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
