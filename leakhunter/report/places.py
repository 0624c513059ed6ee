"""Files as other programs name them: relative to the folder of the whole project."""

from __future__ import annotations

import os
from collections.abc import Iterator

from leakhunter.findings import Finding, Frame, Report


def relative(file: str, root: str) -> str:
    """``file`` as seen from ``root``, with ``/``; empty when it does not lie beneath it or is no file at all."""
    if not file or file.startswith("<"):
        return ""
    top = os.path.abspath(root)
    whole = os.path.normpath(os.path.join(top, file))
    try:
        real = (os.path.realpath(whole), os.path.realpath(top))
    except (ValueError, OSError):  # no name that a file could have
        return ""
    for path, folder in ((whole, top), real):
        if path.startswith(os.path.join(folder, "")):
            return os.path.relpath(path, folder).replace(os.sep, "/")
    return ""


def split(location: str) -> tuple[str, int]:
    """A file and its line; no file where there is no line."""
    file, _, line = location.rpartition(":")
    return (file, int(line)) if line.isdecimal() else ("", 0)


def candidates(report: Report, found: Finding) -> Iterator[tuple[str, int]]:
    """Where a finding can be shown, the best place first: statement, allocation, holder, the loop that was watched."""
    for frame in (found.statement, *found.site):
        if isinstance(frame, Frame):
            yield frame.file, frame.line
    yield split(found.holder.location)
    yield split(report.watched.rpartition(" at ")[2])


def best(report: Report, found: Finding, root: str) -> tuple[str, int]:
    """The first of these places that lies beneath ``root``, with a line of at least 1; ``("", 0)`` when none does."""
    for file, line in candidates(report, found):
        path = relative(file, root)
        if path:
            return path, max(1, line)
    return "", 0
