"""Workflow commands: GitHub Actions shows each as an annotation on the line to change."""

from __future__ import annotations

import os

from leakhunter.findings import Finding, OutOfMemory, Report
from leakhunter.report import places
from leakhunter.report.text import cause, printable, rate
from leakhunter.units import size

COMMANDS = {"leak": "error", "growth": "warning", "note": "notice"}


def render(report: Report, root: str | os.PathLike[str] = ".") -> str:
    """A line for each open finding, the worst first (GitHub shows the first ten of a kind), and each full device.

    ``root`` is the folder of the repository, which paths are relative to. Empty when there is nothing to say.
    """
    found = [one for kind in COMMANDS for one in report.findings if one.is_open and one.severity == kind]
    lines = [_annotation(report, one, os.fspath(root)) for one in found]
    return "".join(f"{line}\n" for line in [*lines, *map(_full, report.out_of_memory)])


def _annotation(report: Report, found: Finding, root: str) -> str:
    file, line = places.best(report, found, root)
    growth = f"+{rate(found)}, " if found.bytes_per_step else ""
    message = [f"{growth}held by {found.holder.path}", *found.evidence.statements, f"fix: {found.fix.text}"]
    return _command(COMMANDS[found.severity], f"{found.pattern} {found.name}", message, file, line)


def _full(one: OutOfMemory) -> str:
    holders = [f"{held.path}: {size(held.bytes)}" for held in one.holders]
    return _command("error", f"{one.device} was out of memory in step {one.step:,}", [cause(one), *holders])


def _command(name: str, title: str, message: list[str], file: str = "", line: int = 0) -> str:
    place = f"file={_property(file)},line={line}," if file else ""
    text = "%0A".join(_escaped(part) for part in message)
    return f"::{name} {place}title={_property(title)}::{text}"


def _escaped(text: str) -> str:
    # A line break has become two visible characters by then.
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
