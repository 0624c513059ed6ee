"""The fixture for a test that owns its loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

from leakhunter.findings import Report
from leakhunter.testing.decision import Track
from leakhunter.testing.outcome import CLEAN, INCONCLUSIVE, LEAK, NOTED, UNMEASURED, Outcome
from leakhunter.testing.readings import TENSOR_BYTES, TENSORS, living, settle
from leakhunter.testing.repeats import accuses, of_test
from leakhunter.testing.settings import Settings
from leakhunter.units import size
from leakhunter.watching import Watch, check, watch


def _holders(storages: Collection[int]) -> tuple[str, ...]:
    """The variables that keep storages alive, by the addresses of these."""
    from leakhunter.heap.graph import captured
    from leakhunter.heap.holders import largest

    with captured() as heap:
        return tuple(f"{held.path}: {size(held.bytes)}" for held in largest(heap, only=storages, most=3))


class Loops:
    """The value of the fixture ``leakhunter``. The test fails when what it watched leaks."""

    def __init__(self, settings: Settings) -> None:
        # Garbage of earlier tests would be freed in the middle of a loop, and hide what the loop adds.
        settle()
        self._settings = settings
        self._watches: list[Watch] = []
        self._reports: list[Report] = []
        self._dirty: list[Outcome] = []
        self._blocks = 0

    def watch(self, iterable: Any = None, /, **options: Any) -> Any:
        """Watch a loop, as :func:`leakhunter.watch` does; a decorated generator function is watched and not judged."""
        watched = watch(iterable, **options)
        if isinstance(watched, Watch):
            self._watches.append(watched)
        return watched

    def check(self, function: Callable[[], Any], repeats: int = 20, **options: Any) -> Report:
        """Call a function again and again, as :func:`leakhunter.check` does."""
        report = check(function, repeats, **options)
        self._reports.append(report)
        return report

    @contextlib.contextmanager
    def expect_clean(self) -> Iterator[None]:
        """The block leaves no tensor behind that was not there before, and the test fails at its end if it does."""
        device = self._settings.device
        settle()
        before = living(device)
        yield
        settle()
        left = living(device).since(before)
        self._blocks += 1
        if len(left) > self._settings.most_tensors:
            tracks = (
                Track(TENSORS, "tensors", (0, len(left)), self._settings.most_tensors),
                Track(TENSOR_BYTES, "bytes", (0, sum(left.values()))),
            )
            self._dirty.append(Outcome(LEAK, "block", tracks, holders=_holders(left)))

    @property
    def report(self) -> Report:
        """The report of the latest watch or check."""
        reports = self.reports
        if not reports:
            raise LookupError("nothing was watched yet: use leakhunter.watch(...) or leakhunter.check(...) first")
        return reports[-1]

    @property
    def reports(self) -> list[Report]:
        """The reports of all of them."""
        return [*self._reports, *(watched.report for watched in self._watches)]

    def outcome(self) -> Outcome:
        """What the loops of the test show."""
        if self._dirty:
            return self._dirty[0]
        reports = self.reports
        findings = tuple(of_test(found) for report in reports for found in report.findings if found.is_open)
        accusing = tuple(found for found in findings if accuses(found, self._settings))
        if accusing:
            return Outcome(LEAK, "loop", findings=accusing)
        if findings:
            return Outcome(NOTED, "loop", findings=findings, reason="not counted as a leak")
        if not any(report.steps for report in reports):
            if self._blocks:
                return Outcome(CLEAN, "loop")
            return Outcome(UNMEASURED, "loop", reason="the fixture watched nothing: use it around the loop")
        if all(report.notes and "too few steps" in report.notes[0] for report in reports):
            return Outcome(INCONCLUSIVE, "loop", reason=reports[-1].notes[0])
        return Outcome(CLEAN, "loop")
