"""Exact counters of one kind of memory each, read at quiet points. A reading takes microseconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

# What one meter may cost per step on average, in seconds; a dearer reading is taken less often.
BUDGET = 10e-6


@dataclass(frozen=True)
class Quantity:
    """One number that a meter reads.

    ``judged`` says whether its growth may raise suspicion: only exact counters may, RSS may not. ``least`` is the
    growth in ``unit`` below which nothing is suspected, whatever its shape.
    """

    name: str
    unit: str = "bytes"
    judged: bool = True
    least: float = 4096.0


@dataclass(frozen=True)
class Meter:
    """``read()`` gives one value for each of ``quantities``. It is called every ``beat`` steps.

    ``cost`` is the time of a reading and ``budget`` what it may cost per step on average, both in seconds.
    """

    quantities: tuple[Quantity, ...]
    read: Callable[[], Sequence[float]]
    beat: int = 1
    cost: float = 0.0
    budget: float = BUDGET


def discover(known: Collection[str] = ()) -> tuple[list[Meter], list[str]]:
    """The meters this process offers, each timed, and what cannot be measured, in words.

    Meters whose first quantity is ``known`` are left out.
    """
    from leakhunter.meters import accelerator, cuda, host, pinned, process, python

    found: list[Meter] = []
    missing: list[str] = []
    for module in (host, python, process, cuda, pinned, accelerator):
        try:
            meters, remarks = module.meters()
        except Exception as error:
            missing.append(_unread(module.__name__.rpartition(".")[2], error))
            continue
        missing += remarks
        for meter in meters:
            if meter.quantities[0].name in known:
                continue
            try:
                found.append(timed(meter))
            except Exception as error:
                missing.append(_unread(meter.quantities[0].name, error))
    return found, missing


def _unread(name: str, error: Exception) -> str:
    return f"{name} could not be measured ({type(error).__name__}: {error})"


def timed(meter: Meter) -> Meter:
    """``meter`` with its cost measured and a beat that keeps its average under its budget."""
    meter.read()
    took = []
    for _ in range(3):
        start = time.perf_counter()
        meter.read()
        took.append(time.perf_counter() - start)
    cost = min(took)
    beat = max(meter.beat, _power_of_two(cost / meter.budget))
    return replace(meter, beat=beat, cost=cost)


def _power_of_two(number: float) -> int:
    beat = 1
    while beat < number:
        beat *= 2
    return beat
