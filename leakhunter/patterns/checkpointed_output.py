"""A checkpointed function that can reach its own output."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A stranded cycle through what ``torch.utils.checkpoint`` keeps to compute again."""
    return case.suspect.state == "stranded" and any(link.type == "_CheckpointFrame" for link in case.links)


def fix(case: Case) -> Fix:
    """Let the function not see it."""
    where = f" in {case.cells[-1]}" if case.cells else ""
    return Fix(
        f"do not store the output{where} where the checkpointed function can see it; pass what it needs as arguments",
        "",
        "gc.collect() cannot free this cycle: the output's graph keeps the function in C++",
    )


PATTERN = Pattern(
    "LH816",
    "checkpointed function reaches its output",
    "The output's graph keeps the function to run it again in backward, and the function's closure keeps the output.",
    recognise,
    fix,
)
