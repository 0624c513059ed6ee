"""``backward(create_graph=True)`` leaves gradients that carry their own graph."""

from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A stranded cycle through ``.grad``."""
    return case.suspect.state == "stranded" and case.has_edge("grad")


def fix(case: Case) -> Fix:
    """Drop the gradients, or do not store them."""
    return Fix(
        "set every param.grad to None when the step or fit is done (zero_grad(set_to_none=True)), or use "
        "torch.autograd.grad(..., create_graph=True), which stores nothing on the parameters",
        "",
        "gc.collect() cannot free this cycle: it runs through C++",
    )


PATTERN = Pattern(
    "LH811",
    "gradient keeps the graph that made it",
    "parameter -> .grad -> its grad_fn -> AccumulateGrad -> parameter is a cycle that Python's gc cannot see.",
    recognise,
    fix,
)
