"""A profiler that was started and never stopped."""

from leakhunter.findings import Fix, Holder, Node
from leakhunter.heap import paths
from leakhunter.origin import shorten
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Native growth while a profiler is on."""
    return case.unheld and bool(case.facts.get("profiler on"))


def fix(case: Case) -> Fix:
    """Give it a schedule."""
    return Fix(
        "use a schedule with a few active steps (torch.profiler.schedule(wait=..., warmup=..., active=..., "
        "repeat=...) and "
        "prof.step()), or stop the profiler",
        "",
        "",
    )


def holder(case: Case) -> Holder:
    """The profiler's own variable, where it has one."""
    links = case.facts.get("profiler path")
    if not links:
        return Holder("native: profiler event buffer", "native", "", "torch.profiler")
    scope = links[paths.scope_position(links)]
    nodes = tuple(Node(link.text or link.function, link.type, link.detail) for link in links)
    return Holder(
        paths.write(links), paths.kind_of(links), f"{shorten(scope.file)}:{scope.line}", scope.function, nodes
    )


PATTERN = Pattern(
    "LH902",
    "profiler records without end",
    "An active profiler buffers every operator event in memory until it is stopped or its schedule ends a cycle.",
    recognise,
    fix,
    holder=holder,
)
