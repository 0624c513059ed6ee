"""A report as SARIF 2.1.0, as code scanning reads it: findings that still hold, on the lines to change."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from leakhunter.findings import Finding, Frame, Report
from leakhunter.report import places
from leakhunter.report.svg import shortened
from leakhunter.report.text import cause, printable, rate

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
HOME = "https://pypi.org/project/leakhunter/"
ROOT = "%SRCROOT%"
LEVELS = {"leak": "error", "growth": "warning", "note": "note"}
SEVERITIES = {"error": "error", "warning": "warning", "note": "recommendation"}
MOST_LETTERS = 1024
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")

Json = dict[str, Any]


def render(report: Report, root: str | os.PathLike[str] = ".") -> str:
    """The log. ``root`` is the folder of the repository, which paths are relative to.

    A finding that was taken back is no result: memory stopped growing, so there is nothing to change. One that has no
    place in a file beneath ``root`` is a notification, since code scanning takes no result without a place; so are
    the notes of the report and devices that were out of memory.
    """
    folder = os.fspath(root)
    found = [one for one in report.findings if one.is_open]
    placed = [one for one in found if places.best(report, one, folder)[0]]
    rules = list({one.pattern: one for one in reversed(placed)}.values())[::-1]
    run = {
        "tool": {"driver": _driver(report, rules)},
        "invocations": [
            {"executionSuccessful": True, "toolExecutionNotifications": list(_notifications(report, placed))}
        ],
        "originalUriBaseIds": {ROOT: {"description": _text("the folder of the repository")}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(report, one, [rule.pattern for rule in rules], folder) for one in placed],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _text(words: str) -> Json:
    """A message. Code scanning takes no empty ones and no longer ones."""
    return {"text": shortened(printable(words), MOST_LETTERS) or "-"}


def _driver(report: Report, rules: Iterable[Finding]) -> Json:
    from leakhunter import __version__

    version = report.environment.get("leakhunter") or __version__
    return {
        "name": "leakhunter",
        "version": printable(version),
        "informationUri": HOME,
        "rules": [_rule(found) for found in rules],
    }


def _rule(found: Finding) -> Json:
    level = _level(found)
    why = _why(found)
    return {
        "id": printable(found.pattern),
        "shortDescription": _text(found.name),
        "fullDescription": _text(why),
        "help": {
            "text": f"{printable(why)} Fix: {printable(found.fix.text)}",
            "markdown": f"{_markdown(why)}\n\n**Fix:** {_markdown(found.fix.text)}",
        },
        "defaultConfiguration": {"level": level},
        "properties": {
            "tags": ["memory", "pytorch"],
            "precision": "high",
            "problem.severity": SEVERITIES[level],
        },
    }


def _level(found: Finding) -> str:
    return LEVELS.get(found.severity, "note")


def _why(found: Finding) -> str:
    """Why the mistake holds memory: the last statement that is no number of this run."""
    reasons = [words for words in found.evidence.statements if not words.startswith("it is bounded")]
    return reasons[-1] if reasons else found.name


def _markdown(words: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|&!])", r"\\\1", printable(words))


def _result(report: Report, found: Finding, rules: list[str], root: str) -> Json:
    file, line = places.best(report, found, root)
    growth = f", +{rate(found)}" if found.bytes_per_step else ""
    first, last = f"{found.name}{growth}, held by {found.holder.path}", f"Fix: {found.fix.text}"
    result = {
        "ruleId": printable(found.pattern),
        "ruleIndex": rules.index(found.pattern),
        "level": _level(found),
        "message": {"text": " ".join(map(_sentence, (first, *found.evidence.statements, last)))},
        "locations": [_location(file, line)],
        "relatedLocations": list(_related(found, root)),
        # The signature knows no line, so that an alert stays the same alert when lines are added above it.
        "partialFingerprints": {"primaryLocationLineHash": f"{found.signature}:1", "leakhunter/v1": found.signature},
        "fixes": list(_fixes(found, root)),
    }
    return {key: value for key, value in result.items() if value != []}


def _sentence(words: str) -> str:
    # Text in brackets before a parenthesis would be a link.
    text = printable(words).replace("](", "]\\(")
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _location(file: str, line: int, words: str = "", number: int | None = None) -> Json:
    artifact = {"uri": quote(os.fsencode(file)), "uriBaseId": ROOT}
    location: Json = {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}}}
    if number is not None:
        location = {"id": number, **location, "message": _text(words)}
    return location


def _related(found: Finding, root: str) -> Iterator[Json]:
    """Where the holder is, and where what it holds was allocated."""
    spots = [(f"held by {found.holder.path}", *places.split(found.holder.location))]
    spots += [(f"allocated in {frame.function}()", frame.file, frame.line) for frame in found.site]
    known = [(words, places.relative(file, root), line) for words, file, line in spots]
    for number, (words, file, line) in enumerate(spot for spot in known if spot[1]):
        yield _location(file, max(1, line), words, number)


def _fixes(found: Finding, root: str) -> Iterator[Json]:
    """The diff as replacements of whole lines."""
    file = places.relative(_file_of(found), root)
    replacements = list(_replacements(found.fix.diff))
    if file and replacements:
        artifact = {"uri": quote(os.fsencode(file)), "uriBaseId": ROOT}
        change = {"artifactLocation": artifact, "replacements": replacements}
        yield {"description": _text(found.fix.text), "artifactChanges": [change]}


def _file_of(found: Finding) -> str:
    """The file that a diff changes: the one of the statement where they are the same, as its name is whole."""
    name = next((line[4:] for line in found.fix.diff.splitlines() if line.startswith("--- ")), "")
    frame: Frame | None = found.statement
    same = frame is not None and name and Path(frame.file).parts[-len(Path(name).parts) :] == Path(name).parts
    return frame.file if frame is not None and same else name


def _replacements(diff: str) -> Iterator[Json]:
    hunk: tuple[int, int] | None = None
    added: list[str] = []
    for line in [*diff.splitlines(), "@@"]:
        if line.startswith("@@"):
            if hunk is not None:
                yield _replacement(*hunk, added)
            match = _HUNK.match(line)
            hunk, added = (_lines_of(match) if match else None), []
        elif hunk is not None and line[:1] in "+ ":
            added.append(line[1:])


def _lines_of(match: re.Match[str]) -> tuple[int, int]:
    """The first line that goes, and how many go. Where none goes, the diff names the line before."""
    start, count = int(match[1]), int(match[2] or 1)
    return (start, count) if count else (start + 1, 0)


def _replacement(start: int, count: int, added: list[str]) -> Json:
    region = {"startLine": max(1, start), "startColumn": 1, "endLine": max(1, start + count), "endColumn": 1}
    return {"deletedRegion": region, "insertedContent": {"text": "".join(f"{printable(line)}\n" for line in added)}}


def _notifications(report: Report, placed: list[Finding]) -> Iterator[Json]:
    """What is worth saying and has no place in a file."""
    for found in report.findings:
        if found not in placed:
            status = "" if found.is_open else f" ({found.status})"
            words = f"{found.pattern} {found.name}{status}, held by {found.holder.path}. Fix: {found.fix.text}"
            yield {"level": _level(found) if found.is_open else "note", "message": _text(words)}
    for full in report.out_of_memory:
        words = f"{full.device} was out of memory in step {full.step:,}: {cause(full)}"
        yield {"level": "error", "message": _text(words)}
    for note in report.notes:
        yield {"level": "note", "message": _text(note)}
