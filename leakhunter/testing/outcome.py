"""What became of one test's check, and its text."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from leakhunter.findings import Finding, Report
from leakhunter.origin import shorten
from leakhunter.report import text
from leakhunter.testing.decision import Track
from leakhunter.testing.readings import TENSOR_BYTES, TENSORS
from leakhunter.units import size

# What can become of a check. Only the first two fail.
LEAK, GONE = "leak", "gone"
CLEAN, KNOWN, IGNORED, EXPECTED, NOTED = "clean", "known", "ignored", "expected", "noted"
INCONCLUSIVE, UNMEASURED = "inconclusive", "unmeasured"
# Findings told in full; the others in one line.
MOST_IN_FULL = 3


@dataclass(frozen=True)
class Outcome:
    """What became of the check of one test.

    Attributes:
        kind: One of the words above.
        question: ``grew`` (from call to call), ``outlived`` (the test and its fixtures), ``loop`` (from step to step)
            or ``block`` (after a block).
        tracks: What grew, and how.
        findings: The product's own diagnosis; those that accuse first.
        reason: Why the kind is what it is, in words.
        cyclic: Tensors per call that gc had to free from reference cycles.
        garbage: Objects per call that gc had to free.
        holders: Who holds what no finding explains, in words.

    """

    kind: str
    question: str = "grew"
    tracks: tuple[Track, ...] = ()
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    cyclic: int = 0
    garbage: int = 0
    holders: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether the test fails for it."""
        return self.kind in (LEAK, GONE)


@dataclass(frozen=True)
class Told:
    """An outcome in plain words and numbers, as it travels between processes."""

    nodeid: str
    kind: str
    question: str
    line: str
    text: str
    signatures: tuple[str, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()


def told(outcome: Outcome, nodeid: str, place: tuple[str, int]) -> Told:
    """An outcome in words. ``place`` is the file and line of the test."""
    return Told(
        nodeid,
        outcome.kind,
        outcome.question,
        headline(outcome),
        full(outcome, nodeid, place),
        signatures(outcome, nodeid),
        tuple(Report("", 0, 0.0, findings=outcome.findings).to_dict()["findings"]),
    )


def signatures(outcome: Outcome, nodeid: str) -> tuple[str, ...]:
    """By what a baseline knows the leak: the findings' own signatures, else the test and what grew."""
    if outcome.findings:
        return tuple(dict.fromkeys(found.signature for found in outcome.findings))
    if not outcome.tracks:
        return ()
    name = "\0".join([nodeid, outcome.question, *(track.name for track in outcome.tracks)])
    return (hashlib.sha1(name.encode()).hexdigest()[:8],)


def location(outcome: Outcome, place: tuple[str, int]) -> tuple[str, int]:
    """The file and line to look at first: those of the first finding, else of the test."""
    if outcome.findings and outcome.kind != GONE:
        file, colon, line = outcome.findings[0].location.rpartition(":")
        if colon and line.isdigit():
            return shorten(file), int(line)
    return place


def headline(outcome: Outcome) -> str:
    """The outcome in one line, without the place."""
    if outcome.kind == GONE:
        return f"the expected leak is gone: take expect_leak away ({outcome.reason})"
    if not outcome.tracks and not outcome.findings:
        return outcome.reason or outcome.kind
    found = outcome.findings[0] if outcome.findings else None
    words = [f"{found.pattern} {found.name}" if found is not None else _WITHOUT_NAME[outcome.question]]
    words.append(amount(outcome))
    if found is not None:
        words.append(f"held by {found.holder.path}")
    if len(outcome.findings) > 1:
        words.append(f"and {len(outcome.findings) - 1} more")
    line = ", ".join(word for word in words if word)
    return text.printable(f"{line} ({outcome.reason})" if outcome.reason else line)


_WITHOUT_NAME = {
    "grew": "memory grows from call to call",
    "outlived": "tensors outlive the test",
    "loop": "memory grows from step to step",
    "block": "tensors are left behind",
}


def amount(outcome: Outcome) -> str:
    """How much is added, exactly where it was counted."""
    tracks = {track.name: track for track in outcome.tracks}
    call = "test" if outcome.question == "outlived" else "call"
    if not tracks:
        if not outcome.findings or not outcome.findings[0].bytes_per_step:
            return ""
        return f"+{text.rate(outcome.findings[0])}" if outcome.question == "loop" else _cycles(outcome, call)
    count, weight = tracks.get(TENSORS), tracks.get(TENSOR_BYTES)
    track = count or weight or next(iter(tracks.values()))
    repeats = f"{len(track.rises)} of {len(track.rises)} repeats"
    if count is not None and count.each is not None:
        number = int(count.each)
        if outcome.question == "block":
            kept = size(weight.each) if weight is not None and weight.each is not None else "unknown size"
            return f"exactly {number:,} tensor{'s' * (number > 1)}{', together' * (number > 1)} of {kept}"
        tensors = f"exactly {number:,} tensor{'s' * (number > 1)}"
        if weight is not None and weight.each is not None:
            tensors += f" of {size(weight.each / number)}" if number == 1 else f", {size(weight.each)} in all,"
        return f"{tensors} per {call}, {repeats}"
    least = min(track.rises)
    exactly = "exactly " if track.each is not None and track.exact else "at least "
    if track.unit == "bytes":
        return f"{exactly}{size(least)} of {track.name} per {call}, {repeats}"
    what = "tensors" if track.unit == "tensors" else f"blocks of {track.name}"
    return f"{exactly}{least:,.0f} {what} per {call}, {repeats}"


def _cycles(outcome: Outcome, call: str) -> str:
    if outcome.cyclic:
        return f"{outcome.cyclic:,} tensor{'s' * (outcome.cyclic > 1)} per {call} in cycles that gc had to free"
    return f"+{size(outcome.findings[0].bytes_per_step)} per {call}"


def full(outcome: Outcome, nodeid: str, place: tuple[str, int]) -> str:
    """The whole text: place, repeats, holder, call site, fix, and how to see it again."""
    file, line = location(outcome, place)
    lines = [f"{file}:{line}: {headline(outcome)}", *table(outcome)]
    for position, found in enumerate(outcome.findings):
        if position >= MOST_IN_FULL:
            lines.append(f"  also       {text.headline(found)}")
        elif position:
            lines += ["", text.finding(found)]
        else:
            lines += text.finding(found).split("\n")[1:]
    if outcome.kind == LEAK and not outcome.findings:
        holders = outcome.holders or ("no object that Python or autograd shows",)
        lines += [f"  {'' if place else 'held by':11}{holder}" for place, holder in enumerate(holders)]
    lines.append(f"  reproduce  pytest {shlex.quote(nodeid)}{_OPTIONS.get(outcome.question, '')}")
    return "\n".join(lines)


_OPTIONS = {"outlived": " --leakhunter", "grew": " --leakhunter-repeats 10"}


def table(outcome: Outcome) -> Iterator[str]:
    """What each repeat added."""
    if not outcome.tracks or outcome.question == "block":
        return
    rows = [("repeat", *(str(number + 1) for number in range(len(outcome.tracks[0].rises))), "allowed")]
    rows += [
        (track.name, *(f"{rise:+,.0f}" for rise in track.rises), f"{track.allowed:,.0f}") for track in outcome.tracks
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(max(widths[0], 9)), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        yield "  " + "  ".join(cells)


def reported(results: list[Told], watched: str, environment: Mapping[str, str], created: str) -> Report:
    """All that a run found, as one report. Findings of several tests with one signature are one."""
    findings: dict[str, Mapping[str, Any]] = {}
    notes = []
    for result in results:
        for found in result.findings:
            findings.setdefault(str(found["signature"]), found)
        if result.kind != CLEAN:
            notes.append(f"{result.nodeid}: {result.kind}: {result.line}")
    plain = Report(watched, len(results), 0.0, notes=tuple(notes), environment=environment, created=created).to_dict()
    return Report.from_dict({**plain, "findings": list(findings.values())})


def plain(result: Told) -> dict[str, Any]:
    """A result as the types that can be sent from a worker."""
    return dataclasses.asdict(result)


def from_plain(data: Mapping[str, Any]) -> Told:
    """The result that ``plain`` gave."""
    return Told(**{**data, "signatures": tuple(data["signatures"]), "findings": tuple(data["findings"])})
