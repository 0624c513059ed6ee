"""``losses.append(loss)``: every element keeps the whole graph it was computed by."""

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Graphs of finished steps behind the elements of a container, or of a tuple that grows by being replaced."""
    joined = any(link.edge == "field" and link.text == "[*]" for link in case.links)
    return case.suspect.graph is not None and (case.suspect.container >= 0 or joined)


def fix(case: Case) -> Fix:
    """Store what is read later, not how it was computed."""
    method = "item" if case.scalar else "detach"
    what = "the number (.item())" if case.scalar else "the values (.detach())"
    caveat = "item() waits for the device" if case.scalar else "the tensors themselves still pile up"
    also = f"; or clear {case.name} when its values have been used" if not case.scalar else " or .detach()"
    return Fix(
        f"store {what} in {case.name}, not the tensor with its graph{also}", _diff(case, method), caveat
    )


def _diff(case: Case, method: str) -> str:
    """A diff that calls ``method`` on the tensors that are stored."""
    if case.growth is None:
        return ""
    file = case.growth.file
    if method == "item" and source.is_used_as_tensor(file, case.growth.target):
        method = "detach"
    return source.diff(file, [source.called_on(file, node, method) for node in case.stored_tensors()])


PATTERN = Pattern(
    "LH103",
    "tensors stored with their graphs",
    "A stored tensor keeps its grad_fn, and that keeps everything its step saved for a backward that never comes.",
    recognise,
    fix,
)
