"""Pictures of numbers as SVG: a meter over steps, parts of a whole, and survivors by birth step.

Colours and line widths come from the page's style sheet, so that a picture is right in light and in dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from leakhunter.findings import Series
from leakhunter.report.svg import element, picture, shortened, words
from leakhunter.report.text import printable
from leakhunter.report.thinning import thin

# Readings beyond this are no memory of this world, and one more or less is no number there.
LARGEST = 1e15
# Colours that tell parts apart; those after them share one.
COLOURS = 8
MOST_BARS = 120
# Labels of marks: rows and their height, and about how wide a letter is.
MOST_ROWS, ROW, LETTER = 6, 16, 6.5


@dataclass(frozen=True)
class Mark:
    """A step to point at. ``kind`` is ``began``, ``found`` or ``resolved``."""

    step: int
    label: str
    kind: str


@dataclass(frozen=True)
class Scale:
    """A stretch of numbers, and where it lies in the picture (in its units)."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where ``value`` lies; what is outside of the stretch lies at its end."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def points(series: Series, most: int) -> tuple[list[int], list[float]]:
    """At most ``most`` points of a meter that can be drawn."""
    pairs = [
        (step, reading)
        for step, reading in zip(series.steps, series.readings, strict=False)
        if abs(step) <= LARGEST and abs(reading) <= LARGEST
    ]
    return thin([step for step, _ in pairs], [reading for _, reading in pairs], most)


def memory(
    series: Series, *, label: str, from_zero: bool, warmup: int = 0, marks: Sequence[Mark] = (), width: int = 760
) -> str:
    """The readings of a meter over the steps, ``width`` units wide; a screen reader reads ``label``.

    ``warmup`` steps are shaded, ``marks`` are lines. Empty when there is nothing to draw.
    """
    steps, readings = points(series, 2 * width)
    if not steps:
        return ""
    height, left, right, bottom = 240, 78, 26, 26
    x = Scale(*_apart(min(steps), max(steps)), left, width - right)
    placed = _rows(x, marks)
    top = 10 + ROW * (1 + max((row for _, row in placed), default=-1))
    rises = ticks(min(0.0, *readings) if from_zero else min(readings), max(readings), 4, series.unit == "bytes")
    y = Scale(rises[0], rises[-1], height - bottom, top)
    line = "M" + "L".join(f"{x(step):.1f} {y(reading):.1f}" for step, reading in zip(steps, readings, strict=True))
    area = f"{line}V{y.start:.1f}H{x(steps[0]):.1f}z"
    parts = [
        *_warmup(x, y, warmup),
        *_grid(x, y, rises, series.unit),
        element("path", d=area, class_="area"),
        element("path", d=line, class_="line"),
        *_marks(x, y, placed),
    ]
    return picture(*parts, label=label, width=width, height=height, class_="memory")


def _apart(low: float, high: float) -> tuple[float, float]:
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _warmup(x: Scale, y: Scale, warmup: int) -> Iterator[str]:
    if warmup > x.low:
        end = x(warmup)
        yield element("rect", x=x.start, y=y.end, width=end - x.start, height=y.start - y.end, class_="warmup")
        if end - x.start > 60:
            yield element("text", "warm-up", x=x.start + 4, y=y.end + 14)


def _grid(x: Scale, y: Scale, rises: Sequence[float], unit: str) -> Iterator[str]:
    for rise, name in zip(rises, names(rises, unit), strict=True):
        height = y(rise)
        yield element("path", d=f"M{x.start:.1f} {height:.1f}H{x.end:.1f}", class_="grid")
        yield element("text", words(name), x=x.start - 6, y=height + 4, text_anchor="end")
    room = max(1, int((x.end - x.start) // 90))
    steps = [step for step in ticks(x.low, x.high, room, False) if x.low <= step <= x.high and step == int(step)]
    for step in steps:
        place = x(step)
        anchor = "end" if place > x.end - 20 else "middle"
        yield element("path", d=f"M{place:.1f} {y.start:.1f}v4", class_="grid")
        yield element("text", f"{step:,.0f}", x=place, y=y.start + 18, text_anchor=anchor)


def _rows(x: Scale, marks: Sequence[Mark]) -> list[tuple[Mark, int]]:
    """Each mark with the row of its label above the curve, so that labels do not lie on one another."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(MOST_ROWS)]
    placed = []
    for mark in marks:
        start, end = sorted((x(mark.step), x(mark.step) + _side(x, mark) * LETTER * (len(_label(mark)) + 2)))
        free = (row for row, spans in enumerate(taken) if all(end < left or right < start for left, right in spans))
        row = next(free, MOST_ROWS - 1)
        taken[row].append((start, end))
        placed.append((mark, row))
    return placed


def _side(x: Scale, mark: Mark) -> int:
    """On which side of its line a label stands: 1 right, -1 left."""
    return -1 if x(mark.step) > (x.start + x.end) / 2 else 1


def _label(mark: Mark) -> str:
    return shortened(printable(mark.label), 30)


def _marks(x: Scale, y: Scale, placed: Sequence[tuple[Mark, int]]) -> Iterator[str]:
    for mark, row in placed:
        place, height, side = x(mark.step), 14 + ROW * row, _side(x, mark)
        yield element("path", d=f"M{place:.1f} {y.start:.1f}V{height - 10}", class_=f"mark {mark.kind}")
        anchor = "start" if side > 0 else "end"
        yield element("text", words(_label(mark)), x=place + 4 * side, y=height, text_anchor=anchor)


def ticks(low: float, high: float, count: int, binary: bool) -> list[float]:
    """About ``count`` round numbers, evenly spaced, from one at or below ``low`` to one at or above ``high``.

    Their distance is a power of two where ``binary``, else 1, 2 or 5 times a power of ten, and at least 1.
    """
    wanted = max((high - low) / count, 1.0)
    if binary:
        distance = 2.0 ** round(math.log2(wanted))
    else:
        power = 10.0 ** math.floor(math.log10(wanted))
        distance = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted * 0.999)
    first = math.floor(low / distance)
    last = max(first + 1, math.ceil(high / distance))
    return [number * distance for number in range(first, last + 1)]


def names(values: Sequence[float], unit: str) -> list[str]:
    """Evenly spaced numbers in one unit, with as many decimals as tell them apart."""
    largest = max(abs(value) for value in values)
    scale, suffix = 1.0, ""
    if unit == "bytes":
        for suffix in ("B", "KiB", "MiB", "GiB", "TiB"):
            if largest < 1024 * scale or suffix == "TiB":
                break
            scale *= 1024
    distance = (values[1] - values[0]) / scale
    decimals = next((n for n in range(6) if abs(round(distance, n) - distance) <= distance / 1000), 6)
    return [f"{value / scale:,.{decimals}f} {suffix}".rstrip() for value in values]


def stack(parts: Iterable[tuple[str, float]], *, label: str, whole: float = 0.0) -> str:
    """A bar of ``parts`` (class, amount) from left to right, as long as it is of ``whole`` (at least their sum)."""
    amounts = [(looks, max(0.0, amount)) for looks, amount in parts if math.isfinite(amount)]
    scale = 1000 / max(whole, sum(amount for _, amount in amounts), 1e-12)
    left, pieces = 0.0, []
    for looks, amount in amounts:
        length = amount * scale
        pieces.append(element("rect", x=left, y=0, width=length, height=20, class_=looks))
        left += length
    return picture(*pieces, label=label, width=1000, height=20, class_="stack", preserveAspectRatio="none")


def colour(index: int) -> str:
    """The class of the part with this index."""
    return f"c{min(index, COLOURS - 1)}"


def births(pairs: Sequence[tuple[int, int]], *, label: str) -> str:
    """A bar for the survivors of each step (step, survivors); neighbours share one when there are many steps."""
    if not pairs:
        return ""
    first, last = min(step for step, _ in pairs), max(step for step, _ in pairs)
    bars = min(MOST_BARS, last - first + 1)
    heights = [0] * bars
    for step, count in pairs:
        heights[(step - first) * bars // (last - first + 1)] += max(0, count)
    most = max(1, *heights)
    pieces = [
        element("rect", x=index * 10 + 1, y=100 - 100 * height / most, width=8, height=100 * height / most)
        for index, height in enumerate(heights)
        if height
    ]
    return picture(*pieces, label=label, width=bars * 10, height=100, class_="births", preserveAspectRatio="none")
