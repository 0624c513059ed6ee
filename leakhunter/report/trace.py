"""A report as a trace for Perfetto and chrome://tracing: meters as counters, steps as slices, findings as flows.

The report knows the mean time of a step and not when each one ended, so that every step is as long as the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from leakhunter.findings import Finding, Report, Series
from leakhunter.report.text import printable, rate
from leakhunter.report.thinning import thin

# Microseconds of a step whose time is not known.
STEP = 1000.0
# Seconds: no step takes longer, and no product with a number of steps is infinite.
LONGEST = 1e9
# A process of its own beside those of torch.profiler, whichever process it was: their numbers end at 4,194,304.
FIRST_PROCESS = 10_000_000
STEPS_THREAD = 1
FIRST_FINDING_THREAD = 2
MOST_SLICES = 5_000
MOST_POINTS = 5_000

Event = dict[str, Any]


def render(report: Report) -> str:
    """The trace, in microseconds from the begin of the first step."""
    seconds = report.seconds_per_step
    trace = _Trace(report, seconds * 1e6 if 0 < seconds < LONGEST else STEP)
    events = sorted(trace.events(), key=lambda event: event.get("ts", -1.0))
    about = {"watched": printable(report.watched), "created": printable(report.created)}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}, allow_nan=False) + "\n"


class _Trace:
    """The events of one report, whose steps are ``step`` microseconds long."""

    def __init__(self, report: Report, step: float) -> None:
        number = report.environment.get("pid", "")
        self._process = FIRST_PROCESS + (int(number) % FIRST_PROCESS if number.isdecimal() else 0)
        self._report, self._step = report, step

    def events(self) -> Iterator[Event]:
        """All of them, in no order."""
        yield self._named("process_name", 0, f"leakhunter: {self._report.watched}")
        yield self._named("thread_name", STEPS_THREAD, "steps")
        # As many steps in each slice, so that a long run opens quickly.
        each = max(1, math.ceil(self._report.steps / MOST_SLICES))
        for first in range(1, self._report.steps + 1, each):
            yield self._steps(first, min(first + each - 1, self._report.steps))
        for series in self._report.series:
            yield from self._counter(series)
        for number, found in enumerate(self._report.findings):
            yield from self._finding(found, number)

    def _event(self, kind: str, name: str, thread: int, step: float, **more: Any) -> Event:
        """Something that happens at the end of ``step``."""
        time = max(0.0, step * self._step)
        where = {"pid": self._process, "tid": thread, "ts": time}
        return {"ph": kind, "name": printable(name), "cat": "leakhunter", **where, **more}

    def _named(self, what: str, thread: int, name: str) -> Event:
        return {"ph": "M", "name": what, "pid": self._process, "tid": thread, "args": {"name": printable(name)}}

    def _steps(self, first: int, last: int) -> Event:
        name = f"step {first}" if first == last else f"steps {first} to {last}"
        return self._event("X", name, STEPS_THREAD, first - 1, dur=(last - first + 1) * self._step)

    def _counter(self, series: Series) -> Iterator[Event]:
        for step, reading in zip(*thin(series.steps, series.readings, MOST_POINTS), strict=True):
            yield self._event("C", series.meter, 0, step, args={printable(series.unit): reading})

    def _finding(self, found: Finding, number: int) -> Iterator[Event]:
        """A track with the time the growth was seen for, a sign at the diagnosis, and an arrow from where it began."""
        thread = FIRST_FINDING_THREAD + number
        name = f"{found.pattern} {found.name}"
        began, seen = max(0, found.first_step - 1), max(found.step, found.first_step)
        yield self._named("thread_name", thread, f"{name}: {found.holder.path}")
        about = _about(found)
        yield self._event("X", "grows", thread, began, dur=(max(seen, 1) - began) * self._step, args=about)
        yield self._event("i", f"{name} found", thread, seen, s="p", args=about)
        # An arrow joins two slices: the step that it began in, and this finding's own just before its end.
        flow = {"id": f"{self._process}-{number}"}
        yield self._event("s", name, STEPS_THREAD, began + 0.5, **flow)
        yield self._event("f", name, thread, max(seen - 0.25, began + 0.5), bp="e", **flow)


def _about(found: Finding) -> dict[str, str]:
    words: Sequence[tuple[str, str]] = (
        ("severity", found.severity),
        ("status", found.status),
        ("growth", f"{rate(found)} of {found.meter}"),
        ("held by", found.holder.path),
        ("statement", str(found.statement or "")),
        ("allocated", "; ".join(map(str, found.site))),
        ("fix", found.fix.text),
        ("signature", found.signature),
    )
    return {name: printable(text) for name, text in words if text}
