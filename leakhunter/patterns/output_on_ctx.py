"""A custom autograd Function that keeps its output, or something that leads to it, as an attribute of ``ctx``."""

import ast
from itertools import pairwise

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.origin import is_user_file
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
            "do not store the output where the checkpointed function can see it, or use "
            "checkpoint(..., use_reentrant=False)",
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
    found = [
        (file, keyword.value)
        for file in dict.fromkeys(frame.file for frame in case.site)
        for call in source.calls(file, "checkpoint")
        for keyword in call.keywords
        if keyword.arg == "use_reentrant" and getattr(keyword.value, "value", None) is True
    ]
    if len(found) != 1:
        return ""
    file, value = found[0]
    return source.diff(file, [source.replace(value, "False")])


def _save_for_backward(case: Case, name: str) -> str:
    """The attribute is saved where it was assigned, and read from what was saved; nothing else may be saved there."""
    for file in _files(case):
        function = _function_class(case, file)
        if function is not None:
            edits = _edits(file, function, name)
            return source.diff(file, edits) if edits else ""
    return ""


def _files(case: Case) -> list[str]:
    files = [*(link.file for link in case.links), *(frame.file for frame in case.site)]
    return [file for file in dict.fromkeys(files) if file and is_user_file(file)]


def _function_class(case: Case, file: str) -> ast.ClassDef | None:
    """The class of the Function whose ctx is in the cycle: PyTorch calls the ctx of ``Square`` ``SquareBackward``."""
    link = next(link for link in case.links if link.role == "autograd function")
    wanted = link.type.rsplit(".", 1)[-1].removesuffix("Backward")
    tree = source.parse(file)
    classes = [
        node for node in (ast.walk(tree) if tree is not None else ()) if isinstance(node, ast.ClassDef)
    ]
    found = [node for node in classes if node.name == wanted]
    return found[0] if len(found) == 1 else None


def _edits(file: str, function: ast.ClassDef, name: str) -> list[source.Edit]:
    target = source.Target("attribute", name)
    assigned = [
        (node, given)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for given in source.assignments(node)
        if source.refers_to(given.place, target)
    ]
    saved = [node for node in ast.walk(function) if getattr(node, "attr", "") == "save_for_backward"]
    if len(assigned) != 1 or saved or len(assigned[0][0].targets) != 1:
        return []
    node, given = assigned[0]
    if not isinstance(given.value, ast.Name) or not isinstance(node.targets[0], ast.Attribute):
        return []
    ctx = source.segment(file, node.targets[0].value)
    reads = _reads(function, target)
    if any(_method_of(function, read) is _method_of(function, node) for read in reads):
        return []
    text = f"{ctx}.save_for_backward({given.value.id})"
    first = [source.replace(read, f"{source.segment(file, read.value)}.saved_tensors[0]") for read in reads]
    return [source.replace(node, text), *first]


def _reads(function: ast.ClassDef, target: source.Target) -> list[ast.Attribute]:
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and source.refers_to(node, target)
    ]


def _method_of(function: ast.ClassDef, node: ast.AST) -> ast.stmt | None:
    """The statement of the class body, a method as a rule, that a node is in."""
    return next((part for part in function.body if any(inner is node for inner in ast.walk(part))), None)


PATTERN = Pattern(
    "LH804",
    "custom Function keeps its output on ctx",
    "The output's grad_fn is the ctx itself, so output -> grad_fn -> ctx -> output is a cycle.",
    recognise,
    fix,
)
