"""The runs of one test: warm-up, measured repeats, and more of them to find out who holds what they add."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from leakhunter.findings import Finding, Report
from leakhunter.options import Options
from leakhunter.testing.decision import Track
from leakhunter.testing.outcome import CLEAN, INCONCLUSIVE, LEAK, NOTED, Outcome
from leakhunter.testing.readings import TENSORS, Readings, living, quiet, settle, thaw
from leakhunter.testing.settings import Settings

if TYPE_CHECKING:
    from leakhunter.watching import Watch

# Runs watched to find the holder; more of them when the first saw nothing.
NAMING = (24, 48)
# No more runs are begun for that after so many seconds.
LONGEST = 120.0
# What pytest writes down of a test and lets go of when it ends: not the test's own.
OF_PYTEST = {
    "MonkeyPatch",
    "LogCaptureHandler",
    "WarningsRecorder",
    "CaptureFixture",
    "FixtureRequest",
    "MockerFixture",
}


class Repeats:
    """Iterate, and run the test once for each item; then ``outcome`` says what was found.

    Args:
        settings: How the test is checked.
        warmup: Runs that are not measured.
        question: ``grew`` when the body is repeated, ``outlived`` when the whole test is.
        place: File and line of the test, in words.

    """

    def __init__(self, settings: Settings, warmup: int, question: str, place: str) -> None:
        self._settings = settings
        self._warmup = warmup
        self._question = question
        self._place = place
        self.runs = 0
        self.outcome: Outcome | None = None

    def __iter__(self) -> Generator[None, None, None]:
        for _ in range(self._warmup):
            yield from self._run()
        readings = Readings(self._settings, self._settings.repeats)
        readings.take()
        for _ in range(self._settings.repeats):
            yield from self._run()
            readings.take()
            if self._question == "outlived" and not self._outlived(readings):
                self.outcome = self._made(readings, CLEAN)
                return
        tracks = self._relevant(readings.growing())
        waiting = self._waiting(readings)
        if tracks or waiting:
            yield from self._name(readings, tracks)
        else:
            self.outcome = self._made(readings, CLEAN)

    def _run(self) -> Generator[None, None, None]:
        self.runs += 1
        with quiet():
            yield

    def _outlived(self, readings: Readings) -> bool:
        """Whether the last run has left more tensors than there were."""
        return self._relevant(readings.tracks())[0].rises[-1] > self._settings.tensors

    def _relevant(self, tracks: Sequence[Track]) -> tuple[Track, ...]:
        """Of a whole test, tensors only: pytest itself keeps a record of every run."""
        return tuple(track for track in tracks if self._question == "grew" or track.name.startswith("tensor"))

    def _waiting(self, readings: Readings) -> bool:
        """Whether gc had to free cycles of the kind that is asked for after every repeat."""
        counts = {"tensors": readings.cyclic, "all": readings.garbage, "off": ()}[self._settings.cycles]
        return self._question == "grew" and len(counts) > 3 and min(counts[1:]) > 0

    def _name(self, readings: Readings, tracks: tuple[Track, ...]) -> Generator[None, None, None]:
        """Watch more runs until someone is found who holds what they add, or nothing more is added."""
        began = time.perf_counter()
        thaw()
        for count in NAMING:
            before = len(living(self._settings.device))
            watch = _watch(count, self._place)
            with silent():
                for _ in watch:
                    yield from self._run()
                    if time.perf_counter() - began > LONGEST:
                        break
            report = watch.report
            settle()
            added = len(living(self._settings.device)) - before
            self.outcome = self._judge(readings, tracks, report, added > count * self._settings.tensors)
            if self.outcome.kind != INCONCLUSIVE or time.perf_counter() - began > LONGEST:
                break

    def _judge(self, readings: Readings, tracks: tuple[Track, ...], report: Report, went_on: bool) -> Outcome:
        accusing = tuple(found for found in report.open if self._accuses(found))
        if self._question == "outlived":
            accusing = tuple(found for found in accusing if found.evidence.births or "ensor" in str(found.holder.nodes))
        if not tracks and self._settings.cycles != "all":
            accusing = tuple(found for found in accusing if found.evidence.state != "held")
        if accusing:
            return self._made(readings, LEAK, tracks, accusing)
        notes = tuple(found for found in report.findings if found.is_open)
        if notes:
            return self._made(readings, NOTED, tracks, notes, "not counted as a leak")
        if not tracks:
            return self._made(readings, CLEAN)
        if any(track.name == TENSORS for track in tracks) and went_on:
            return self._made(readings, LEAK, tracks)
        return self._made(readings, INCONCLUSIVE, tracks, reason=f"no holder was found in {report.steps} more calls")

    def _accuses(self, found: Finding) -> bool:
        if found.bytes_per_step and found.bytes_per_step <= self._settings.per_call:
            return False
        return OF_PYTEST.isdisjoint(node.type for node in found.holder.nodes)

    def _made(
        self,
        readings: Readings,
        kind: str,
        tracks: tuple[Track, ...] = (),
        findings: tuple[Finding, ...] = (),
        reason: str = "",
    ) -> Outcome:
        cyclic, garbage = readings.cyclic[1:], readings.garbage[1:]
        return Outcome(kind, self._question, tracks, findings, reason, min(cyclic, default=0), min(garbage, default=0))


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """What is found is told in the failure, and need not be in the log as well."""
    logger = logging.getLogger("leakhunter")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _watch(count: int, place: str) -> Watch:
    from leakhunter.watching import Watch

    return Watch(range(count), Options.resolve(enabled=True, on_leak="log", report=None), place)
