"""An interactive shell keeps every value it has displayed."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern

HISTORIES = {".Out", "Out", "_oh", "._oh", ".user_ns_hidden"}


def recognise(case: Case) -> bool:
    """Growth in the output history of IPython or a shell like it."""
    return case.suspect.state == "held" and case.suspect.container >= 0 and case.has_text(*HISTORIES)


def fix(case: Case) -> Fix:
    """Show nothing, or empty the history."""
    return Fix(
        "end the cell with a semicolon so that the value is not displayed, or empty the history: %reset out, "
        "%xdel NAME",
        "",
        "del of the variable does not help: the history holds the value too",
    )


PATTERN = Pattern(
    "LH207",
    "output history of the shell",
    "Every value displayed at the end of a cell stays in the output history until it is reset.",
    recognise,
    fix,
)
