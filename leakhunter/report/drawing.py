"""A cycle of references as plain text, as DOT for Graphviz, and as SVG. The reference to cut stands out in each."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

from leakhunter.findings import Cycle, CycleEdge, CycleNode
from leakhunter.report.svg import element, picture, shortened, words
from leakhunter.report.text import printable
from leakhunter.units import size

# What Graphviz draws for us.
DRAWN = (".svg", ".png", ".pdf")

UNSEEN = "gc does not see it"

# The ladder of the SVG, in its units: a box for each object, a gap for each reference, a way back beside them.
WIDTH, BOX, GAP, LANE = 350, 44, 46, 30
# Characters that fit into a box, and beside an arrow.
MOST_IN_BOX, MOST_IN_GAP = 42, 36


def text(cycle: Cycle) -> str:
    """One line for each reference, the last one back to the first object; the one to cut is marked with the fix."""
    rows = [
        (_name(cycle, edge.source), printable(edge.label), _name(cycle, edge.target), _remark(cycle, edge))
        for edge in cycle.edges
    ]
    source, label = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    return "\n".join(f"{a:{source}}  {b:{label}}  -> {c}{remark}" for a, b, c, remark in rows)


def _name(cycle: Cycle, index: int) -> str:
    return printable(cycle.nodes[index].name) if 0 <= index < len(cycle.nodes) else "?"


def _remark(cycle: Cycle, edge: CycleEdge) -> str:
    unseen = f"  ({UNSEEN})" if edge.hidden else ""
    return f"{unseen}  <- cut here: {printable(cycle.fix.text)}" if edge.cut else unseen


def summary(cycle: Cycle) -> str:
    """What the cycles keep, in one line."""
    many = f"{cycle.count:,} cycles like this keep" if cycle.count != 1 else "this cycle keeps"
    last = f", held by {cycle.holder_of_last_reference}" if cycle.holder_of_last_reference else ""
    return f"{many} {cycle.tensors:,} tensor{'s' * (cycle.tensors != 1)}, {size(cycle.bytes)} ({cycle.state}{last})"


def dot(cycle: Cycle) -> str:
    """A graph for Graphviz: the objects of the cycle with the bytes of their tensors, and their references."""
    lines = ["digraph cycle {", f"  label={_quoted(summary(cycle))};", "  node [shape=box];"]
    lines += [f"  n{index} [label={_quoted(*_lines(node))}];" for index, node in enumerate(cycle.nodes)]
    for edge in cycle.edges:
        label = _quoted(f"cut: {edge.label}" if edge.cut else edge.label)
        looks = ", style=dashed" * edge.hidden + ", color=red, fontcolor=red, penwidth=2" * edge.cut
        lines.append(f"  n{edge.source} -> n{edge.target} [label={label}{looks}];")
    return "\n".join([*lines, "}", ""])


def _quoted(*lines: str) -> str:
    """A label of these lines; in DOT a backslash begins an escape of its own."""
    escaped = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'


def _lines(node: CycleNode) -> Iterator[str]:
    yield node.name
    if node.type != node.name:
        yield node.type
    if node.location:
        yield node.location
    if node.bytes:
        yield size(node.bytes)


def write(cycle: Cycle, path: str | os.PathLike[str]) -> None:
    """Write the drawing of a cycle: ``.txt``, ``.dot``, or with Graphviz ``.svg``, ``.png`` and ``.pdf``.

    Without Graphviz an ``.svg`` is drawn by ourselves. Raises ``ValueError`` for other names, and where Graphviz is
    needed and not there.
    """
    target = pathlib.Path(path)
    program = shutil.which("dot")
    if target.suffix == ".txt":
        target.write_text(f"{summary(cycle)}\n{text(cycle)}\n", encoding="utf-8")
    elif target.suffix == ".dot":
        target.write_text(dot(cycle), encoding="utf-8")
    elif target.suffix in DRAWN and program is not None:
        command = [program, f"-T{target.suffix[1:]}", "-o", os.fspath(target)]
        subprocess.run(command, input=dot(cycle), text=True, encoding="utf-8", check=True)
    elif target.suffix == ".svg":
        target.write_text(svg(cycle), encoding="utf-8")
    else:
        reason = "Graphviz is not installed" if target.suffix in DRAWN else "that is no drawing"
        raise ValueError(f"{target} cannot be written ({reason}): give a name that ends in .svg, .dot or .txt")


def svg(cycle: Cycle) -> str:
    """A ladder: the objects from top to bottom, each refers to the next, and the last one back to the first.

    It is as wide as a phone, so that its text is never scaled down. Its colours come from the page.
    """
    height = len(cycle.nodes) * (BOX + GAP) + LANE
    parts = [_box(node, position) for position, node in enumerate(cycle.nodes)]
    parts += [_reference(edge, position, len(cycle.nodes)) for position, edge in enumerate(cycle.edges)]
    label = f"Cycle of references: {summary(cycle)}. " + "; ".join(line.strip() for line in text(cycle).splitlines())
    return picture(*parts, label=label, width=WIDTH, height=height, class_="cycle")


def _box(node: CycleNode, position: int) -> str:
    top = position * (BOX + GAP) + 8
    place = "  ".join(part for part in (node.type, node.location) if part and part != node.name)
    held = size(node.bytes) if node.bytes else ""
    room = MOST_IN_BOX - len(held)
    return element(
        "g",
        element("title", words("  ".join(_lines(node)))),
        element("rect", x=1, y=top, width=WIDTH - LANE - 1, height=BOX, rx=6, class_="object"),
        element("text", words(shortened(node.name, room)), x=12, y=top + 18, class_="name"),
        element("text", words(shortened(place, MOST_IN_BOX)), x=12, y=top + 35, class_="small"),
        element("text", words(held), x=WIDTH - LANE - 12, y=top + 18, text_anchor="end", class_="small"),
    )


def _reference(edge: CycleEdge, position: int, count: int) -> str:
    bottom = position * (BOX + GAP) + 8 + BOX
    looks = "arrow" + " hidden" * edge.hidden + " cut" * edge.cut
    if position < count - 1:
        end = bottom + GAP
        way, head = f"M24 {bottom}V{end - 6}", f"M20 {end - 8}h8l-4 8z"
    else:
        middle, right = 8 + BOX // 2, WIDTH - LANE
        way = f"M24 {bottom}v28H{WIDTH - 8}V{middle}H{right + 6}"
        head = f"M{right + 8} {middle - 4}v8l-8 -4z"
    remark = f"cut here: {edge.label}" if edge.cut else edge.label
    return element(
        "g",
        element("title", words(edge.label + f" ({UNSEEN})" * edge.hidden)),
        element("path", d=way, class_=looks),
        element("path", d=head, class_=f"head{' cut' * edge.cut}"),
        element("text", words(shortened(remark, MOST_IN_GAP)), x=36, y=bottom + 18, class_=looks),
    )
