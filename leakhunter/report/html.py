"""A report as one page of HTML that needs nothing else: no network, and no scripts for what is text or picture."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup

from leakhunter.findings import Finding, Held, OutOfMemory, Report, Series
from leakhunter.origin import shorten
from leakhunter.report import charts, drawing, parts
from leakhunter.report.text import cause, meter_line, place, printable, rate, shown
from leakhunter.units import duration, size

FOLDER = Path(__file__).parent
# Verdicts that give no reason to look any further.
CALM = ("flat", "saturating", "sawtooth", "stepped")
# Points of each meter that one can zoom into: all that a watch keeps of one.
MOST_POINTS = 4200
WIDTHS = (("wide", 760), ("narrow", 350))


def render(report: Report) -> str:
    """The page. Whatever names the report holds are text in it, never markup or script."""
    style = _file("vendor/uPlot.min.css") + _file("page.css")
    # Its licence goes wherever the library goes.
    library = f"/*\n{_file('vendor/uPlot.LICENSE')}*/\n{_file('vendor/uPlot.iife.min.js')}"
    script = library + _file("page.js")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters.update(size=size, short=shorten, count=lambda number: f"{number:,}")
    meters = [_meter(report, number, series) for number, series in enumerate(report.series) if shown(series)]
    page = environment.get_template("page.html.j2").render(
        report=report,
        verdict=verdict(report),
        version=report.environment.get("leakhunter", ""),
        pace=_pace(report.seconds_per_step),
        entries=[_entry(number, found) for number, found in numbered(report)],
        meters=[meter for meter in meters if not meter.calm],
        healthy=[meter for meter in meters if meter.calm],
        splits=list(parts.splits(report.series, list(numbered(report)))),
        devices=list(parts.devices(report.breakdown)),
        full=[_full(one) for one in report.out_of_memory],
        data=_data(report, meters),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
    )
    return page + "\n"


def _file(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A content security policy that lets this style sheet and this script through, and nothing else."""

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    allowed = f"default-src 'none'; style-src {source(style)}; script-src {source(script)}"
    return f"{allowed}; base-uri 'none'; form-action 'none'"


def _pace(seconds: float) -> str:
    if seconds >= 1:
        return duration(seconds)
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


# ----------------------------------------------------------------------------------------------------------
# the verdict


@dataclass(frozen=True)
class Headline:
    """The outcome in a few words. ``kind`` is ``leak``, ``unknown`` or ``ok``."""

    kind: str
    title: str
    reason: str = ""


def verdict(report: Report) -> Headline:
    """What the watch came to; nothing measured is never good news."""
    if report.open:
        count = len(report.open)
        return Headline("leak", f"{count} open finding{'s' * (count > 1)}")
    if report.out_of_memory:
        return Headline("leak", "Out of memory")
    if not report.steps:
        return Headline("unknown", "Nothing was watched", report.notes[0] if report.notes else "")
    if report.notes and "too few" in report.notes[0]:
        return Headline("unknown", "No verdict", report.notes[0])
    if not any(series.readings and series.judged for series in report.series):
        return Headline("unknown", "No verdict", "nothing exact could be measured")
    return Headline("ok", "No leak found")


def numbered(report: Report) -> Iterator[tuple[int, Finding]]:
    """The findings with their numbers on the page: those that accuse first, those taken back last."""
    order = sorted(report.findings, key=lambda found: (not found.accuses, not found.is_open))
    return iter(enumerate(order, 1))


# ----------------------------------------------------------------------------------------------------------
# findings


@dataclass(frozen=True)
class Entry:
    """A finding as the page shows it."""

    number: int
    finding: Finding
    place: str
    rate: str
    held: str
    diff: tuple[tuple[str, str], ...]
    births: Markup
    births_words: str
    cycle: Markup
    cycle_text: str
    cycle_words: str

    @property
    def kind(self) -> str:
        """How it looks: as its severity, unless it was taken back."""
        return self.finding.severity if self.finding.is_open else "resolved"


def _entry(number: int, found: Finding) -> Entry:
    born = found.evidence.births
    about = births_words(born)
    cycle = found.cycle
    return Entry(
        number=number,
        finding=found,
        place=place(found),
        rate=rate(found) if found.bytes_per_step else "",
        held=_held(found),
        diff=tuple(diff_lines(found.fix.diff)),
        births=Markup(charts.births(born, label=f"Survivors by the step they were born in: {about}")),
        births_words=about,
        cycle=Markup(drawing.svg(cycle) if cycle else ""),
        cycle_text=drawing.text(cycle) if cycle else "",
        cycle_words=drawing.summary(cycle) if cycle else "",
    )


def _held(found: Finding) -> str:
    objects = f"{found.count:,} object{'s' * (found.count != 1)}" if found.count else ""
    return " in ".join(filter(None, (size(found.bytes_held) if found.bytes_held else "", objects)))


def births_words(born: Sequence[tuple[int, int]]) -> str:
    """Survivors by birth step in words."""
    if not born:
        return ""
    steps, counts = [step for step, _ in born], [count for _, count in born]
    each = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
    return f"{each} from each of {len(born):,} steps, {min(steps):,} to {max(steps):,}"


def diff_lines(diff: str) -> Iterator[tuple[str, str]]:
    """The lines of a unified diff as (kind, text): ``file``, ``place``, ``added``, ``removed`` or ``same``."""
    kinds = {"@": "place", "+": "added", "-": "removed"}
    head = True
    for line in diff.splitlines():
        head = head and line.startswith(("--- ", "+++ "))
        yield "file" if head else kinds.get(line[:1], "same"), line


# ----------------------------------------------------------------------------------------------------------
# meters


@dataclass(frozen=True)
class Meter:
    """A meter with its picture for wide and for narrow screens."""

    number: int
    series: Series
    line: str
    marks: tuple[charts.Mark, ...]
    pictures: tuple[tuple[str, Markup], ...]

    @property
    def calm(self) -> bool:
        """Whether nothing about it needs a look."""
        return self.series.verdict.kind in CALM and not self.marks


def _meter(report: Report, number: int, series: Series) -> Meter:
    line = meter_line(series)
    marks = tuple(_marks(report, series.meter))
    label = "; ".join([f"{series.meter} over the steps. {line}", *(f"{m.label} in step {m.step:,}" for m in marks)])
    pictures = tuple(
        (
            name,
            Markup(
                charts.memory(
                    series, label=label, from_zero=from_zero(series), warmup=warmup(report), marks=marks, width=width
                )
            ),
        )
        for name, width in WIDTHS
    )
    return Meter(number, series, line, marks, pictures)


def from_zero(series: Series) -> bool:
    """Whether the axis begins at zero: so that the noise of a calm meter does not look like mountains."""
    return series.verdict.kind in CALM


def warmup(report: Report) -> int:
    """Steps that were never judged, as far as the report says; 0 when it does not."""
    value = report.options.get("warmup")
    return value if type(value) is int and value > 0 else 0


def _marks(report: Report, meter: str) -> Iterator[charts.Mark]:
    for number, found in numbered(report):
        if found.meter == meter and (found.accuses or not found.is_open):
            yield charts.Mark(found.first_step, f"{number} begins", "began")
            yield charts.Mark(found.step, f"{number} {found.pattern} found", "found")
            if not found.is_open and found.status.rpartition(" ")[2].isdecimal():
                yield charts.Mark(int(found.status.rpartition(" ")[2]), f"{number} resolved", "resolved")


def _data(report: Report, meters: Iterable[Meter]) -> Markup:
    """The readings for the script, as JSON in which nothing can end the element that it stands in."""
    entries = []
    for meter in meters:
        steps, readings = charts.points(meter.series, MOST_POINTS)
        entries.append(
            {
                "number": meter.number,
                "unit": meter.series.unit,
                "zero": from_zero(meter.series),
                "steps": steps,
                "readings": readings,
                "marks": [{"step": m.step, "label": printable(m.label), "kind": m.kind} for m in meter.marks],
            }
        )
    # ASCII has no line separators, and without these three no tag and no entity can begin.
    text = json.dumps({"warmup": warmup(report), "meters": entries}, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}))


# ----------------------------------------------------------------------------------------------------------
# out of memory


@dataclass(frozen=True)
class Full:
    """A device that was out of memory."""

    record: OutOfMemory
    cause: str
    sizes: tuple[tuple[str, str], ...]
    device: parts.Device | None
    holders: tuple[Held, ...]


def _full(one: OutOfMemory) -> Full:
    sizes = (
        ("asked for", one.requested),
        ("size of the device", one.total),
        ("free, as the driver counts", one.free),
        ("allocated by PyTorch", one.allocated),
        ("reserved by PyTorch", one.reserved),
        ("grown since warm-up", one.grown),
    )
    device = parts.device(one.device, [("when it was full", one.breakdown)]) if one.breakdown else None
    return Full(one, cause(one), tuple((name, size(count)) for name, count in sizes), device, one.holders)
