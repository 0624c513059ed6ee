"""Memory in the private pools of CUDA graphs, which nothing else may use."""

from leakhunter.findings import Fix, Holder
from leakhunter.patterns.case import Case, Pattern
from leakhunter.probe.cuda_history import GRAPH_POOL


def recognise(case: Case) -> bool:
    """Living blocks of such a pool that belong to no tensor."""
    return case.unheld and case.suspect.hints.get("operator") == GRAPH_POOL


def fix(case: Case) -> Fix:
    """Capture less often, let go of what is no longer replayed."""
    text = "capture one graph and replay it in every step; CUDAGraph.reset() gives back one that is not needed"
    if case.facts.get("compiled graphs"):
        text = (
            "mark sizes that change with torch._dynamo.mark_dynamic, or compile with "
            'mode="max-autotune-no-cudagraphs", so that no graph is recorded for each; torch._dynamo.reset() gives '
            "back those that there are"
        )
    return Fix(text, "", "every tensor that a graph wrote into its pool must be let go too")


def holder(case: Case) -> Holder:
    """A pool has no name in Python."""
    return Holder("native: private pool of CUDA graphs", "native")


PATTERN = Pattern(
    "LH906",
    "private pools of CUDA graphs grow",
    "A captured graph, also one that torch.compile records, keeps the memory of its intermediate results for the next "
    "replay, in a pool of its own.",
    recognise,
    fix,
    holder=holder,
)
