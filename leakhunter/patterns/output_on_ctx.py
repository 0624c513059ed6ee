"""A custom autograd Function that keeps its output, or something that leads to it, as an attribute of ``ctx``."""

from itertools import pairwise
from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """A cycle through an attribute of a custom Function's ctx."""
    return case.suspect.state in ("gc-pending", "stranded") and case.holds("autograd function")


def attribute(case: Case) -> str:
    """The attribute of ctx through which the cycle runs."""
    for before, link in pairwise(case.links):
        if before.role == "autograd function" and link.edge == "attribute":
            return link.text[1:]
    for first, second, third in zip(case.links, case.links[1:], case.links[2:], strict=False):
        if first.role == "autograd function" and second.edge == "namespace":
            return third.text.lstrip(".")
    return ""


def fix(case: Case) -> Fix:
    """Use save_for_backward, or keep the output out of reach."""
    name = attribute(case)
    if any(link.type == "CheckpointFunctionBackward" for link in case.links):
        return Fix(
            "do not store the output where the checkpointed function can see it, or use checkpoint(..., use_reentrant=False)",
            _not_reentrant(case),
            "the non-reentrant form recomputes under the same rules but keeps no function on ctx",
        )
    if case.has_edge("self", "closure", "content", "partial"):
        return Fix(
            f"detach the output that is stored where ctx.{name} can reach it, or keep only parameters on ctx",
            "",
            "",
        )
    return Fix(
        f"ctx.save_for_backward({name}) instead of ctx.{name} = {name}, and read it from ctx.saved_tensors in backward",
        _save_for_backward(case, name),
        "save_for_backward replaces what it was given before: pass all tensors in one call",
    )


def _not_reentrant(case: Case) -> str:
    for file in {frame.file for frame in case.site}:
        for call in source.calls(file, "checkpoint"):
            for keyword in call.keywords:
                if keyword.arg == "use_reentrant" and getattr(keyword.value, "value", None) is True:
                    return source.diff(file, [source.replace(keyword.value, "False")])
    return ""


def _save_for_backward(case: Case, name: str) -> str:
    for file in {frame.file for frame in case.site} | {link.file for link in case.links if link.file}:
        for statement in source.statements(file, source.Target("attribute", name)):
            node = statement.node
            if isinstance(node, source.ast.Assign) and isinstance(node.value, source.ast.Name):
                owner = source.segment(file, node.targets[0]).rsplit(".", 1)[0]
                text = f"{owner}.save_for_backward({node.value.id})"
                return source.diff(file, [source.replace(node, text)])
    return ""


PATTERN = Pattern(
    "LH804",
    "custom Function keeps its output on ctx",
    "The output's grad_fn is the ctx itself, so output -> grad_fn -> ctx -> output is a cycle.",
    recognise,
    fix,
)
