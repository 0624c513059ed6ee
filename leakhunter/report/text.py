"""A report as plain text, and the lines that go to the log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from leakhunter.findings import Finding, Node, OutOfMemory, Report, Series
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
    for full in report.out_of_memory:
        lines += ["", out_of_memory(full)]
    for part in report.breakdown:
        lines += ["", *breakdown(f"{part.device} at the {part.moment} of step {part.step:,}", part.categories)]
    lines += ["", *(meter_line(series) for series in report.series if shown(series))]
    lines += [printable(f"note: {note}") for note in report.notes]
    return "\n".join(lines).rstrip()


def opening(hunt: Hunt) -> str:
    """What is watched and what it costs, for the start of the log."""
    from leakhunter import __version__

    meters = ", ".join(hunt.judged)
    return f"leakhunter {__version__} watches {hunt.watched}: {meters}; about {hunt.cost * 1e6:.0f} us a step"


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
    calm = ", ".join(f"{s.meter} {s.verdict.kind}" for s in report.series if s.readings and s.judged)
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
    growth = f"   +{rate(found)}{share}" if found.bytes_per_step else ""
    lines = [f"{title}{severity}{growth}{status}"]
    label = "grows" if found.bytes_per_step else "measured"
    for position, statement in enumerate(found.evidence.statements):
        lines += _field(label if position == 0 else "", statement)
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


def out_of_memory(full: OutOfMemory) -> str:
    """What filled a device, in full."""
    lines = [
        f"{full.device} was out of memory in step {full.step:,}: {size(full.requested)} were asked for, "
        f"{size(full.allocated)} of {size(full.total)} allocated, {size(full.reserved)} reserved"
    ]
    lines += _field("cause", cause(full))
    for position, held in enumerate(full.holders):
        words = f"{held.path}: {size(held.bytes)} in {held.count:,} storages"
        lines += _field("" if position else "held by", words)
    lines += breakdown(full.device, full.breakdown)
    return "\n".join(printable(line) for line in lines)


CAUSES = {
    "leak": "memory grew by {grown} since warm-up, which filled the device",
    "fragmentation": "enough is reserved and not in use, but not in one piece",
    "one large request": "one request of {requested} did not fit; nothing had grown much since warm-up",
    "working set": "what is live is what the program uses at once; nothing had grown much since warm-up",
}


def cause(full: OutOfMemory) -> str:
    """Why a device was full, in words."""
    return CAUSES.get(full.cause, full.cause).format(grown=size(full.grown), requested=size(full.requested))


def breakdown(place: str, parts: Mapping[str, int]) -> list[str]:
    """What live bytes are for, the largest part first."""
    total = sum(parts.values())
    lines = [f"live on {place}: {size(total)}"]
    for name, count in sorted(parts.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:32}{size(count):>10}{count / max(1, total):6.0%}")
    return lines


def shown(series: Series) -> bool:
    """Whether a meter has anything to tell."""
    return bool(series.readings) and (series.judged or any(series.readings))


def meter_line(series: Series) -> str:
    """One meter in one line."""
    show = size if series.unit == "bytes" else (lambda count: f"{count:,.0f}")
    verdict = series.verdict
    rate_text = f" by {show(verdict.rate)} a step since step {verdict.since:,}" if verdict.rate else ""
    period = f" with a period of {verdict.period:,} steps" if verdict.period else ""
    low, high = min(series.readings), max(series.readings)
    return f"{series.meter}: {verdict.kind}{rate_text}{period}, {show(low)} to {show(high)}"
