"""``total += loss``: the sum of tensors is a tensor, and its graph holds the graph of every step."""

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A number that is added to, with the graphs of finished steps behind it."""
    suspect = case.suspect
    if suspect.graph is None or suspect.container >= 0 or not case.scalar:
        return False
    if case.growth is None:
        return case.links[-1].edge in ("local", "global")
    return case.growth.kind == "accumulate" and is_sum(case)


def is_sum(case: Case) -> bool:
    """Whether the growing statement adds to its target as it is, not to a part of it as an average does."""
    assert case.growth is not None
    node = case.growth.node
    if isinstance(node, source.ast.AugAssign):
        return isinstance(node.op, source.ast.Add)
    value = getattr(node, "value", None)
    while isinstance(value, source.ast.BinOp) and isinstance(value.op, source.ast.Add):
        sides = (value.left, value.right)
        if any(case.target is not None and source.refers_to(side, case.target) for side in sides):
            return True
        value = value.left
    return False


def fix(case: Case) -> Fix:
    """Add the number instead of the tensor."""
    name = case.path
    added = added_parts(case)
    first = source.segment(case.growth.file, added[0]) if case.growth is not None and added else "loss"
    return Fix(
        f"add the number, not the tensor with its graph: {name} += {first}.item()",
        detached(case, "item"),
        "item() waits for the device; where that costs too much, add .detach() and read the sum now and then",
    )


def added_parts(case: Case) -> list[source.ast.expr]:
    """The parts of the growing statement that are added to the target."""
    if case.growth is None or case.target is None:
        return []
    node = case.growth.node
    if isinstance(node, source.ast.AugAssign):
        return source.self_reference_free(node.value, case.target) or [node.value]
    if isinstance(node, (source.ast.Assign, source.ast.AnnAssign)) and node.value is not None:
        return source.self_reference_free(node.value, case.target)
    return []


def detached(case: Case, method: str) -> str:
    """A diff that calls ``method`` on what is added."""
    if case.growth is None:
        return ""
    file = case.growth.file
    return source.diff(file, [source.called_on(file, part, method) for part in added_parts(case)])


PATTERN = Pattern(
    "LH101",
    "loss accumulated with its graph",
    "A sum of tensors that require grad is itself a node of the graph, and keeps the graphs of all its terms.",
    recognise,
    fix,
)
