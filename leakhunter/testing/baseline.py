"""Leaks that are known and do not fail, in a file that is kept with the tests."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from leakhunter.testing.outcome import KNOWN, LEAK, Told

SCHEMA = 1


@dataclass(frozen=True)
class Entry:
    """One known leak: its signature, what it is, and the tests in which it was seen."""

    signature: str
    leak: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Baseline:
    """The entries of a baseline file, by signature."""

    entries: dict[str, Entry]

    def knows(self, signatures: Collection[str]) -> bool:
        """Whether all of a test's leaks are known."""
        return bool(signatures) and all(signature in self.entries for signature in signatures)

    def gone(self, results: Iterable[Told], checked: Collection[str]) -> list[Entry]:
        """Known leaks that were seen in none of their tests, though one of these was checked."""
        seen = {signature for result in results for signature in result.signatures}
        return [
            entry
            for entry in self.entries.values()
            if entry.signature not in seen and not set(checked).isdisjoint(entry.tests)
        ]

    def renewed(self, results: Iterable[Told], checked: Collection[str]) -> Baseline:
        """What the tests that were checked show now, and what is known of the others."""
        again, kept = set(checked), {}
        for entry in self.entries.values():
            others = tuple(test for test in entry.tests if test not in again)
            if others:
                kept[entry.signature] = replace(entry, tests=others)
        for result in results:
            if result.kind in (LEAK, KNOWN):
                for signature in result.signatures:
                    tests = kept[signature].tests if signature in kept else ()
                    kept[signature] = Entry(signature, result.line, (*tests, result.nodeid))
        return Baseline(kept)


def read(path: Path) -> Baseline:
    """The baseline in a file. Raises ``pytest.UsageError`` when it is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(data["schema"])
        entries = [Entry(leak["signature"], leak["leak"], tuple(leak["tests"])) for leak in data["leaks"]]
    except OSError as error:
        raise pytest.UsageError(
            f"--leakhunter-baseline: {path} cannot be read ({error.strerror}): "
            "add --leakhunter-update-baseline to write it"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise pytest.UsageError(
            f"--leakhunter-baseline: {path} is no baseline: give a file that --leakhunter-update-baseline wrote"
        ) from None
    return Baseline({entry.signature: entry for entry in entries})


def write(path: Path, baseline: Baseline) -> None:
    """Write a baseline, the same bytes for the same leaks."""
    leaks = [
        {"signature": entry.signature, "leak": entry.leak, "tests": sorted(entry.tests)}
        for entry in sorted(baseline.entries.values(), key=lambda entry: entry.signature)
    ]
    path.write_text(json.dumps({"schema": SCHEMA, "leaks": leaks}, indent=1) + "\n", encoding="utf-8")
