"""A cycle as a person would draw it: objects with their names, references as they are written, and which one to cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leakhunter.findings import Cycle, CycleEdge, CycleNode, Fix
from leakhunter.heap.cycles import Ring
from leakhunter.heap.labels import Link
from leakhunter.origin import shorten

# Dicts in which a module keeps its hooks, by what they are called.
HOOKS = {
    "._forward_hooks": "forward hook",
    "._forward_pre_hooks": "forward pre-hook",
    "._backward_hooks": "backward hook",
    "._backward_pre_hooks": "backward pre-hook",
}


@dataclass(frozen=True)
class Reference:
    """One reference of the drawing: what it is made of, and the role of the object that refers."""

    label: str
    kinds: frozenset[str]
    source: str
    hidden: bool


def cycle_of(
    ring: Ring, state: str, size: int, tensors: int, count: int, pattern: str, name: str, fix: Fix, holder: str = ""
) -> Cycle:
    """The drawing of ``count`` cycles that are like ``ring`` and keep ``size`` bytes in ``tensors`` tensors."""
    nodes, references = _drawn(ring)
    cut = _cut(references)
    edges = tuple(
        CycleEdge(position, (position + 1) % len(nodes), one.label, one.hidden, position == cut)
        for position, one in enumerate(references)
    )
    return Cycle(tuple(nodes), edges, size, tensors, count, state, pattern, name, fix, holder)


def _drawn(ring: Ring) -> tuple[list[CycleNode], list[Reference]]:
    """Objects and references without what lies between: attribute dicts, cells, tuples of cells, dicts of hooks."""
    nodes = [_node(ring.links[0], ring.bytes[0])]
    references: list[Reference] = []
    source, parts, kinds, hidden = ring.links[0], [], set(), False
    last = len(ring.links) - 1
    for position, link in enumerate(ring.links[1:], 1):
        hidden = hidden or ring.hidden[position - 1]
        kinds.add(link.edge)
        parts.append(link)
        if position < last and _is_between(link):
            continue
        references.append(Reference(_words(source, parts), frozenset(kinds), source.role, hidden))
        if position < last:
            nodes.append(_node(link, ring.bytes[position]))
        source, parts, kinds, hidden = link, [], set(), False
    return nodes, references


def _is_between(link: Link) -> bool:
    """Whether an object is only a part of how the one before it refers to the next."""
    return (
        link.edge == "namespace"
        or link.role in ("cell", "storage")
        or (link.edge == "closure" and link.role == "tuple")
        or (link.role == "dict" and (link.edge == "hooks" or link.text in HOOKS))
    )


def _node(link: Link, size: int) -> CycleNode:
    name = link.type
    if link.role in ("function", "generator", "frame", "class"):
        name = link.function or link.type
    elif link.role == "method":
        name = f"bound method {link.function}"
    elif link.role == "autograd function":
        name = f"ctx of {link.type.removesuffix('Backward')}"
    return CycleNode(name, link.type, _place(link), size)


def _place(link: Link) -> str:
    return f"{shorten(link.file)}:{link.line}" if link.file and link.line else shorten(link.file) if link.file else ""


def _words(source: Link, parts: list[Link]) -> str:
    """A reference as a person writes it."""
    written = [part for part in parts if part.edge not in ("namespace", "content")]
    if not written:
        return "refers to"
    first, last = written[0], written[-1]
    hook = next((part for part in written if part.edge == "hooks" or part.text in HOOKS), None)
    if hook is not None:
        what = "metadata" if last.role == "tensor" and hook.edge == "hooks" else HOOKS.get(hook.text, "hook")
        return f"{what} of {source.type}"
    if first.edge == "closure":
        place = f" at {_place(source)}" if source.file else ""
        return f"closure cell `{last.text.strip('[]')}` of {source.function}{place}"
    if first.edge == "local":
        return f"local `{first.text}` of {source.function or 'a frame'}()"
    if first.edge == "saved":
        return f"{first.text.removeprefix('.').replace('_', ' ')} by {source.type}"
    if first.edge == "attribute" and source.role == "autograd function":
        return f"ctx{first.text}"
    return "".join(part.text for part in written) or PLAIN.get(first.edge, first.edge)


PLAIN = {
    "next": "next function",
    "variable": "variable",
    "pack hook": "pack hook beside it",
    "unpack hook": "unpack hook",
    "frame": "frame",
    "other": "refers to",
    "caller": "caller",
}

# Which reference to cut, the best first.
_CUTS: tuple[Callable[[Reference], bool], ...] = (
    lambda one: one.source == "autograd function" and "attribute" in one.kinds,
    lambda one: "grad" in one.kinds,
    lambda one: "closure" in one.kinds,
    lambda one: "partial" in one.kinds,
    lambda one: one.source == "tensor" and "attribute" in one.kinds,
    lambda one: "saved" in one.kinds,
    lambda one: "self" in one.kinds,
    lambda one: "local" in one.kinds,
    lambda one: "traceback" in one.kinds,
    lambda one: bool(one.kinds & {"attribute", "key", "index", "element"}),
)


def _cut(references: list[Reference]) -> int:
    """The position of the reference to cut: of several as good, the one that closes the ring."""
    for fits in _CUTS:
        found = [position for position, one in enumerate(references) if fits(one)]
        if found:
            return found[-1]
    return len(references) - 1
