"""What the checks of a run came to: counted, told in the summary, written to files."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leakhunter.testing.outcome import (
    CLEAN,
    EXPECTED,
    GONE,
    IGNORED,
    INCONCLUSIVE,
    KNOWN,
    LEAK,
    NOTED,
    Told,
    from_plain,
    plain,
    reported,
)

FORMATS = ("json", "html", "sarif")


@dataclass
class Tally:
    """Results of the tests that were checked, and why others were not. Workers send theirs to the controller."""

    results: list[Told] = field(default_factory=list)
    # tests of which something was measured
    checked: list[str] = field(default_factory=list)
    # how many passed without a check, by the reason
    unchecked: Counter[str] = field(default_factory=Counter)
    # tests of which gc had to free tensors, and how many
    cyclic: dict[str, int] = field(default_factory=dict)
    torch: str = ""

    def to_plain(self) -> dict[str, Any]:
        """As the types that can be sent from a worker."""
        return {
            "results": [plain(result) for result in self.results],
            "checked": self.checked,
            "unchecked": dict(self.unchecked),
            "cyclic": self.cyclic,
            "torch": self.torch,
        }

    def add(self, data: Mapping[str, Any]) -> None:
        """Add what a worker sent."""
        self.results += [from_plain(result) for result in data["results"]]
        self.checked += data["checked"]
        self.unchecked.update(data["unchecked"])
        self.cyclic.update(data["cyclic"])
        self.torch = self.torch or data["torch"]

    @property
    def nothing_measured(self) -> bool:
        """Whether checks were asked for and none could say anything."""
        passed = sum(count for reason, count in self.unchecked.items() if reason not in NOT_ASKED)
        return not self.checked and passed > 0

    def of(self, *kinds: str) -> list[Told]:
        """The results of these kinds."""
        return [result for result in self.results if result.kind in kinds]


# A test that failed or was skipped says so itself.
NOT_ASKED = ("failed", "skipped")
_WORDS = {
    LEAK: "leaking",
    GONE: "expected to leak and clean",
    EXPECTED: "leaking as expected",
    KNOWN: "known from the baseline",
    IGNORED: "ignored",
    NOTED: "with a note",
    INCONCLUSIVE: "inconclusive",
}


def closing(tally: Tally) -> str:
    """The run in one line."""
    words = [f"{len(tally.checked)} checked"]
    for kind, word in _WORDS.items():
        count = len({result.nodeid for result in tally.of(kind)})
        if count:
            words.append(f"{count} {word}")
    words += [f"{count} not checked ({reason})" for reason, count in sorted(tally.unchecked.items())]
    return f"leakhunter: {', '.join(words)}"


def summary(tally: Tally, verbosity: int) -> Iterator[str]:
    """The lines of the summary section, but for the texts of leaks and the closing line."""
    for result in tally.of(INCONCLUSIVE):
        yield f"{result.nodeid}: {result.kind}: {result.line}"
    for result in tally.of(KNOWN, IGNORED, EXPECTED):
        yield f"{result.nodeid}: {result.kind}: {result.line}"
    if verbosity > 0:
        for result in tally.of(NOTED):
            yield f"{result.nodeid}: note: {result.line}"
    if tally.cyclic:
        tests = sorted(tally.cyclic.items(), key=lambda item: -item[1])
        shown = tests if verbosity > 0 else tests[:3]
        for nodeid, count in shown:
            yield f"{nodeid}: {count:,} tensor{'s' * (count > 1)} in reference cycles that gc had to free"
        if len(tests) > len(shown):
            yield f"{len(tests) - len(shown)} more tests left tensors in reference cycles: -v lists them"
    if tally.nothing_measured:
        yield f"nothing could be measured: {'; '.join(tally.unchecked)}"


@dataclass(frozen=True)
class ReportFile:
    """A report that was asked for: its format and where to write it."""

    format: str
    path: Path


def report_file(value: str, folder: Path) -> ReportFile:
    """``FORMAT`` or ``FORMAT:PATH``. Raises ``pytest.UsageError`` when it is neither."""
    kind, _, path = value.partition(":")
    if kind not in FORMATS:
        raise pytest.UsageError(f"--leakhunter-report={value}: give one of {', '.join(FORMATS)}, or FORMAT:PATH")
    return ReportFile(kind, folder / (path or f"leakhunter.{kind}"))


def write_report(tally: Tally, wanted: ReportFile) -> str:
    """Write a report of the run; what was done, in one sentence."""
    from leakhunter import __version__

    environment = {"leakhunter": __version__, "python": platform.python_version(), "torch": tally.torch}
    environment |= {"platform": platform.platform(), "pytest": pytest.__version__}
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    watched = f"{len(tally.checked)} tests"
    report = reported([result for result in tally.results if result.kind != CLEAN], watched, environment, created)
    try:
        if wanted.format == "json":
            report.to_json(wanted.path)
        else:
            render = _renderer(wanted.format)
            wanted.path.write_text(render(report), encoding="utf-8")
    except ImportError:
        return f"no {wanted.format} report was written: this leakhunter cannot render {wanted.format}, use json"
    except OSError as error:
        return f"the report could not be written to {wanted.path} ({error.strerror})"
    return f"report: {wanted.path}"


def _renderer(kind: str) -> Any:
    import importlib

    return importlib.import_module(f"leakhunter.report.{kind}").render
