"""A whole in parts, for the page: what the growth of a meter is made of, and what live memory is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakhunter.findings import Breakdown, Finding, Series
from leakhunter.report import charts
from leakhunter.units import size

# The category of what is allocated and belongs to no tensor.
REMAINDER = "not in tensors"


@dataclass(frozen=True)
class Part:
    """A part of a bar: its name, its amount in words, its share of the whole, its colour, and where it is told of."""

    name: str
    amount: str
    share: float
    looks: str
    link: str = ""


@dataclass(frozen=True)
class Split:
    """A whole in parts, as a bar."""

    title: str
    whole: str
    parts: tuple[Part, ...]
    bar: Markup


def splits(meters: Sequence[Series], findings: Sequence[tuple[int, Finding]]) -> Iterator[Split]:
    """The growth of each meter by finding (with its number). The parts add up: what none explains is the last one."""
    for series in meters:
        own = [(number, one) for number, one in findings if one.meter == series.meter and one.is_open]
        found = [(number, one) for number, one in own if one.evidence.share > 0]
        growth = _growth(series, [one for _, one in found])
        if found and growth > 0:
            yield _split(series, growth, found)


def _growth(series: Series, found: Sequence[Finding]) -> float:
    """Growth of a meter per step in its unit, as it was last seen, else as the findings tell it; 0 if neither does."""
    if not found or series.verdict.rate > 0 or series.unit != "bytes":
        return series.verdict.rate
    return sum(one.bytes_per_step for one in found) / sum(one.evidence.share for one in found)


def _split(series: Series, growth: float, found: Sequence[tuple[int, Finding]]) -> Split:
    explained = sum(one.evidence.share for _, one in found)
    # Two findings that share survivors may explain more than there is.
    scale = 1 / max(1.0, explained)

    def amount(share: float) -> str:
        value = growth * share
        return size(value) if series.unit == "bytes" else f"{value:,.3g} {series.unit}"

    parts = [
        Part(f"{number} {one.pattern} {one.name}", amount(one.evidence.share * scale), one.evidence.share * scale,
             charts.colour(position), f"#finding-{number}")
        for position, (number, one) in enumerate(found)
    ]  # fmt: skip
    rest = max(0.0, 1 - explained * scale)
    if rest > 1e-9:
        parts.append(Part("unexplained", amount(rest), rest, "rest"))
    return _bar(series.meter, f"{amount(1.0)} per step", parts)


def _bar(title: str, whole: str, parts: Sequence[Part], scale: float = 1.0) -> Split:
    told = ", ".join(f"{part.name} {part.amount} ({part.share:.0%})" for part in parts)
    amounts = ((part.looks, part.share) for part in parts)
    bar = charts.stack(amounts, label=f"{title}: {whole}, of which {told}", whole=1 / scale if scale else 0.0)
    return Split(title, whole, tuple(parts), Markup(bar))


@dataclass(frozen=True)
class Device:
    """What live memory of one device was for: a bar for each moment, and a row for each category."""

    name: str
    bars: tuple[Split, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]


def devices(breakdown: Sequence[Breakdown]) -> Iterator[Device]:
    """The breakdowns by device, drawn to one scale, so that the quiet point and the peak can be compared."""
    for name in dict.fromkeys(one.device for one in breakdown):
        own = [one for one in breakdown if one.device == name]
        yield device(name, [(f"{one.moment} of step {one.step:,}", one.categories) for one in own])


def device(name: str, moments: Sequence[tuple[str, Mapping[str, int]]]) -> Device:
    """Bytes by category at each of these moments."""
    largest = {
        category: max(parts.get(category, 0) for _, parts in moments)
        for category in dict.fromkeys(category for _, parts in moments for category in parts)
    }
    order = sorted(largest, key=lambda category: (category == REMAINDER, -largest[category]))
    colours = {category: charts.colour(position) for position, category in enumerate(order)}
    colours[REMAINDER] = "rest"
    whole = max(1, *(sum(parts.values()) for _, parts in moments))
    bars = []
    for moment, parts in moments:
        total = sum(parts.values())
        pieces = [
            Part(category, size(parts[category]), parts[category] / max(1, total), colours[category])
            for category in order
            if category in parts
        ]
        bars.append(_bar(moment, size(total), pieces, total / whole))
    rows = tuple(
        (category, colours[category], tuple(size(parts.get(category, 0)) for _, parts in moments)) for category in order
    )
    return Device(name, tuple(bars), rows)
