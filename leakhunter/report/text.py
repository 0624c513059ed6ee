"""A report as plain text, and the lines that go to the log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from leakhunter.findings import Finding, Node, Report, Series
from leakhunter.origin import shorten
from leakhunter.units import size

if TYPE_CHECKING:
    from leakhunter.hunt import Hunt

WIDTH = 118
LABEL = 11
MOST_NODES = 8


def render(report: Report) -> str:
    """The whole report."""
    lines = [closing(report)]
    for found in report.findings:
        lines += ["", finding(found)]
    lines += ["", *(meter_line(series) for series in report.series if series.readings)]
    lines += [printable(f"note: {note}") for note in report.notes]
    return "\n".join(lines).rstrip()


def opening(hunt: Hunt) -> str:
    """What is watched and what it costs, for the start of the log."""
    from leakhunter import __version__

    names = [gauge.quantity.name for _, gauges in hunt._meters for gauge in gauges]
    return f"leakhunter {__version__} watches {hunt.watched}: {', '.join(names)}; about {hunt.cost * 1e6:.0f} us a step"


def closing(report: Report) -> str:
    """The verdict in one line, for the end of the log."""
    return printable(f"leakhunter: {_outcome(report)}")


def _outcome(report: Report) -> str:
    steps = f"{report.steps:,} step{'s' * (report.steps != 1)} of {report.watched}"
    if not report.steps:
        return f"{report.notes[0] if report.notes else 'nothing was watched'} ({report.watched})"
    if report.open:
        found = "; ".join(headline(item) for item in report.open)
        return f"{steps}: {len(report.open)} open finding{'s' * (len(report.open) > 1)}: {found}"
    if report.notes and "too few" in report.notes[0]:
        return f"{steps}: no verdict, {report.notes[0]}"
    calm = ", ".join(f"{s.meter} {s.verdict.kind}" for s in report.series if s.readings and s.meter != "RSS")
    if not calm:
        return f"{steps}: no verdict, nothing exact could be measured"
    return f"{steps}: no leak found ({calm})"


def printable(line: str) -> str:
    """One line, whatever names it was made of: line breaks and control characters are written as escapes."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def headline(found: Finding) -> str:
    """A finding in one line that stands alone: place, pattern, rate, holder, fix."""
    words = f"{found.pattern} {found.name}, +{rate(found)}, held by {found.holder.path}; fix: {found.fix.text}"
    return printable(f"{place(found)} {words}".lstrip())


def place(found: Finding) -> str:
    """``file:line`` to look at first, as short as it can be written from here."""
    file, colon, line = found.location.rpartition(":")
    return f"{shorten(file)}{colon}{line}" if file else found.location


def rate(found: Finding) -> str:
    """Growth per step in words."""
    return f"{size(found.bytes_per_step)} per step"


def finding(found: Finding) -> str:
    """A finding in full."""
    share = f", {found.evidence.share:.0%} of the growth of {found.meter}"
    title = f"{place(found)}  {found.pattern} {found.name}".strip()
    status = "" if found.is_open else f"  [{found.status}]"
    severity = "" if found.severity == "leak" else f"  ({found.severity})"
    lines = [f"{title}{severity}   +{rate(found)}{share}{status}"]
    for position, statement in enumerate(found.evidence.statements):
        lines += _field("grows" if position == 0 else "", statement)
    lines += _field("held by", _holder_line(found))
    lines += [f"{' ' * (LABEL + 4)}{line}" for line in _nodes(found)]
    for position, frame in enumerate(found.site[:3]):
        lines += _field(
            "allocated" if position == 0 else "",
            f"{shorten(frame.file)}:{frame.line} in {frame.function}()  {frame.code}",
        )
    lines += _fix(found)
    if found.forecast:
        lines += _field("forecast", found.forecast)
    return "\n".join(printable(line) for line in lines)


def _holder_line(found: Finding) -> str:
    holder = found.holder
    scope = f" in {holder.scope}" if holder.scope and holder.kind == "local" else ""
    where = f" {holder.location}" if holder.location else ""
    kind = "" if holder.kind == "native" else f"{holder.kind} "
    return f"{kind}`{holder.path}`{scope}{where}"


def _nodes(found: Finding) -> Iterator[str]:
    nodes: tuple[Node | None, ...] = found.holder.nodes
    if len(nodes) > MOST_NODES:
        nodes = (*nodes[: MOST_NODES // 2], None, *nodes[-MOST_NODES // 2 :])
    width = max((len(f"{n.label} {n.type}") for n in nodes if n is not None), default=0)
    for node in nodes:
        if node is None:
            yield "..."
            continue
        name = f"{node.label} {node.type}".ljust(min(width, 44))
        reason = f"  {node.reason}" if node.reason else ""
        detail = f"  {node.detail}" if node.detail else ""
        yield f"{name}  leaking: {node.leaking}{reason}{detail}"


def _fix(found: Finding) -> Iterator[str]:
    changes = [
        line
        for line in found.fix.diff.splitlines()
        if line[:1] in "+-" and not line.startswith(("+++", "---"))
    ]
    bodies = textwrap.dedent("\n".join(line[1:] for line in changes)).split("\n")
    yield from _field("fix", found.fix.text)
    for change, body in zip(changes, bodies, strict=False):
        yield f"  {'':{LABEL}}{change[0]} {body}"
    if found.fix.caveat:
        yield from _field("", f"({found.fix.caveat})")


def _field(name: str, words: str) -> list[str]:
    wrapped = textwrap.wrap(words, WIDTH - LABEL - 2, break_long_words=False, break_on_hyphens=False) or [""]
    first = f"  {name:{LABEL}}{wrapped[0]}"
    return [first, *(f"  {'':{LABEL}}{line}" for line in wrapped[1:])]


def meter_line(series: Series) -> str:
    """One meter in one line."""
    show = size if series.unit == "bytes" else (lambda count: f"{count:,.0f}")
    verdict = series.verdict
    rate_text = f" by {show(verdict.rate)} a step since step {verdict.since:,}" if verdict.rate else ""
    period = f" with a period of {verdict.period:,} steps" if verdict.period else ""
    low, high = min(series.readings), max(series.readings)
    return f"{series.meter}: {verdict.kind}{rate_text}{period}, {show(low)} to {show(high)}"
