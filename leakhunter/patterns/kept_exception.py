"""A stored exception keeps its traceback, that the frames, and those every local variable they had."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A traceback or an exception on the path."""
    return case.suspect.state == "held" and case.holds("exception", "traceback")


def fix(case: Case) -> Fix:
    """Store text, or clear the tracebacks."""
    chained = case.has_text(".__cause__", ".__context__")
    text = "store str(error) or traceback.format_exc() instead of the exception"
    if chained:
        text = (
            "clear __traceback__ of every exception in the chain (error.with_traceback(None) before it is raised "
            "from), or "
            "store only the error's text; raising `from None` alone does not free the frames"
        )
    else:
        text += "; if the object is needed, store error.with_traceback(None)"
    return Fix(text, "", "the stack of the error is then known only as text")


PATTERN = Pattern(
    "LH501",
    "exception kept with its frames",
    "An exception refers to its traceback, the traceback to the frames, and the frames to all their local variables.",
    recognise,
    fix,
)
