"""The runs of one test: warm-up, measured repeats, and more of them to find out who holds what they add."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import re
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
NAMING = (24, 60)
# No more runs are begun for that after so many seconds.
LONGEST = 60.0
# Part of the pace at which tensors must go on being added where nobody is found who holds them.
WENT_ON = 0.75
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
        return self._relevant(readings.tracks())[0].rises[-1] > self._settings.most_tensors

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
        _prepare()
        # Cycles that wait for gc are to be seen waiting, and only a longer loop shows that gc does not come for them.
        for count in NAMING if tracks else NAMING[1:]:
            before = len(living(self._settings.device))
            watch = _watch(count, self._place)
            with silent():
                for _ in watch:
                    yield from self._run()
                    if tracks:
                        # What a run leaves is young.
                        gc.collect(1)
                    if time.perf_counter() - began > LONGEST:
                        break
            report = watch.report
            settle()
            added = len(living(self._settings.device)) - before
            self.outcome = self._judge(readings, tracks, report, went_on(tracks, added, report.steps))
            if self.outcome.findings or self.outcome.kind == CLEAN or time.perf_counter() - began > LONGEST:
                break

    def _judge(self, readings: Readings, tracks: tuple[Track, ...], report: Report, still_grows: bool) -> Outcome:
        findings = tuple(of_test(found) for found in report.findings if found.is_open)
        if not tracks:
            findings = tuple(found for found in findings if found.evidence.state in ("gc-pending", "stranded"))
        elif self._question == "outlived":
            findings = tuple(found for found in findings if _is_of_tensors(found))
        if report.steps < NAMING[1]:
            # So few steps show that nobody holds the memory only where that is so in more of them, too.
            findings = tuple(found for found in findings if found.evidence.state != "native")
        accusing = tuple(found for found in findings if accuses(found, self._settings))
        if accusing:
            # What leads to a line of the test is told first.
            accusing = tuple(sorted(accusing, key=lambda found: not found.location))
            return self._made(readings, LEAK, tracks, accusing)
        if findings:
            return self._made(readings, NOTED, tracks, findings, "not counted as a leak")
        if not tracks:
            return self._made(readings, CLEAN)
        if still_grows:
            return self._made(readings, LEAK, tracks)
        return self._made(readings, INCONCLUSIVE, tracks, reason=f"no holder was found in {report.steps} more calls")

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


def went_on(tracks: Sequence[Track], added: int, runs: int) -> bool:
    """Whether so many runs have added tensors at the pace of the repeats: a cache of some size does not for long."""
    paces = [min(track.rises) for track in tracks if track.name == TENSORS]
    return bool(paces) and added >= WENT_ON * paces[0] * runs


def accuses(found: Finding, settings: Settings) -> bool:
    """Whether a finding fails a test: not where it is allowed, and not where pytest itself keeps a record."""
    allowed = settings.per_call is not None and found.bytes_per_step <= settings.per_call
    return found.accuses and not allowed and OF_PYTEST.isdisjoint(node.type for node in found.holder.nodes)


def _is_of_tensors(found: Finding) -> bool:
    return bool(found.evidence.births or found.site) or any("Tensor" in node.type for node in found.holder.nodes)


def of_test(found: Finding) -> Finding:
    """A finding whose holder begins with what the test calls it, not with pytest's record of the test."""
    match = _INSTANCE.search(found.holder.path) or _FIXTURE.search(found.holder.path)
    if match is None:
        return found
    name, kind = ("self", "test object") if match.re is _INSTANCE else (match[1], "fixture")
    nodes = found.holder.nodes
    start = next((place for place, node in enumerate(nodes) if node.label in ("._instance", f"[{match[1]!r}]")), 0)
    if start:
        nodes = (dataclasses.replace(nodes[start], label=name), *nodes[start + 1 :])
    holder = dataclasses.replace(found.holder, path=name + found.holder.path[match.end() :], kind=kind, nodes=nodes)
    return dataclasses.replace(found, holder=holder)


_INSTANCE = re.compile(r"^.*\._instance()(?=[.\[]|$)")
_FIXTURE = re.compile(r"^.*\bfuncargs\['(\w+)'\]")


def _prepare() -> None:
    """All objects are listed again, and what a diagnosis loads is loaded before it, so that it is not in the way."""
    import scipy.sparse.csgraph  # noqa: F401

    from leakhunter.heap import breakdown, suspects  # noqa: F401
    from leakhunter.patterns import allocator, conclude  # noqa: F401
    from leakhunter.probe import census, cuda_history, dispatch  # noqa: F401

    thaw()
    settle()


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
