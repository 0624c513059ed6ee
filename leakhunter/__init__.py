"""Finds what leaks memory in a PyTorch loop, who holds it, and the line to change."""

__version__ = "0.1.0"

from leakhunter.findings import Finding, Report
from leakhunter.options import Options
from leakhunter.reference_cycles import cycles
from leakhunter.watch import LeakError, LeakWarning, Watch, check, watch

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
