"""How long a diagnosis takes on a large heap: ``python benchmarks/heap.py --objects 1000000``.

A leak is planted in a program that also holds so many objects; the time is that of a whole diagnosis, from capture to
findings, and that of the census before it. The memory is what the process gained at its peak.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import time
from typing import Any

import torch

import leakhunter
from leakhunter.hunt import Hunt


class Record:
    """An object with an attribute dict, as programs have many."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pair = [number, (number, str(number))]


def fill(objects: int) -> list[Any]:
    """About ``objects`` objects that gc tracks: records, each with a list and a tuple."""
    before = len(gc.get_objects())
    kept: list[Any] = []
    while len(gc.get_objects()) - before < objects:
        kept += [Record(number) for number in range(max(1000, objects // 40))]
    return kept


def timed(name: str, took: dict[str, list[float]]) -> None:
    """Note how long a method of ``Hunt`` takes each time it is called."""
    method = getattr(Hunt, name)

    def measure(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return method(*arguments)
        finally:
            took.setdefault(name, []).append(time.perf_counter() - start)

    setattr(Hunt, name, measure)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="How long a diagnosis takes on a large heap.")
    parser.add_argument("--objects", type=int, default=1_000_000, help="objects in the heap (default: 1,000,000)")
    parser.add_argument("--runs", type=int, default=3, help="diagnoses, of which the median is told (default: 3)")
    options = parser.parse_args()
    kept = fill(options.objects)
    took: dict[str, list[float]] = {}
    timed("_diagnose", took)
    timed("_take_census", took)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = 0
    for _ in range(options.runs):
        history: list[torch.Tensor] = []
        loop = leakhunter.watch(range(60))
        for _ in loop:
            history.append(torch.ones(1024))
        found += bool(loop.report.open)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    count = len(gc.get_objects())
    diagnosis, census = statistics.median(took["_diagnose"]), statistics.median(took["_take_census"])
    print(f"{count:,} objects ({len(kept):,} records): found {found} of {options.runs} planted leaks")
    print(f"diagnosis {diagnosis:.2f} s, census {census:.2f} s, {peak:.0f} MiB at the peak")
    print(json.dumps({"objects": count, "diagnosis_s": diagnosis, "census_s": census, "peak_mib": peak}))


if __name__ == "__main__":
    main()
