"""One loop from its first step to its last: warm-up, sentry, probe, diagnosis, and what becomes of findings.

This is the only module that knows meters, growth, probe, heap and patterns together.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import datetime
import gc
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from leakhunter import __version__
from leakhunter.findings import Breakdown, Finding, OutOfMemory, Report, Series, Verdict
from leakhunter.growth import BLOCKS, KEEP, Suspicion, Trend, judge
from leakhunter.meters import Meter, Quantity, discover
from leakhunter.options import Options
from leakhunter.series import Recording, StepClock

if TYPE_CHECKING:
    from leakhunter.heap.graph import Heap
    from leakhunter.heap.suspects import Suspect
    from leakhunter.probe.census import Census, Marks
    from leakhunter.probe.cuda_history import Block, History
    from leakhunter.probe.dispatch import Recorder
    from leakhunter.probe.peak import Peak

WARMUP, BLOCK, PROBE = 8, 4, 8
# A loop known to have fewer steps than this gets shorter blocks, so that it can be judged at all.
SHORT = 60
# Steps after which what a step made should be gone.
OF_AGE = 2
# Steps slower than this many seconds are judged in shorter blocks: they are epochs, not batches.
SLOW = 10.0
# A probe may make its steps take this many times as long; then it goes on without call stacks.
PROBE_BUDGET = 2.0
# ... but always this many seconds, which nobody notices and a loop of tiny steps needs.
LEAST_BUDGET = 0.25
# While nothing is added in a probe's window, it waits this many times its length for the next stair.
PATIENCE = 4
# Suspicion of a quantity whose growth is explained needs so many times that growth, and so many floors more.
UNEXPLAINED, SLACK = 1.3, 4

NONE: Mapping[int, Block] = MappingProxyType({})

# One probe at a time in a process: two would record each other.
_probing = threading.Lock()


@dataclass
class Gauge:
    """One quantity of a meter with all that is known of it."""

    quantity: Quantity
    recording: Recording
    trend: Trend | None
    # bytes that leakhunter's own work has added, which readings leave out
    own: float = 0.0
    # growth per step that findings account for
    explained: float = 0.0

    def after(self, step: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Steps and readings later than ``step``."""
        steps, readings = self.recording.points()
        start = bisect.bisect_right(steps, step)
        return steps[start:], readings[start:]

    @property
    def explainable(self) -> float:
        """Growth per step that is not suspect: what findings account for, with room for its own ups and downs."""
        floor = self.trend.floor if self.trend is not None else 0.0
        return UNEXPLAINED * self.explained + SLACK * floor if self.explained else 0.0


@dataclass
class Pursuit:
    """An open finding and when its growth was last seen."""

    finding: Finding
    gauge: Gauge
    rate: float
    patience: int
    # where memory stood when growth was last seen, None until the first look after the diagnosis
    level: float | None
    # where it stood before the growth
    base: float
    seen: int


@dataclass
class Probe:
    """Evidence being gathered because ``gauge`` grew."""

    gauge: Gauge
    suspicion: Suspicion
    recorder: Recorder | None
    history: History | None = None
    peak: Peak | None = None
    began: float = 0.0
    census: Census | None = None
    # of the quantity that grew, and of all that are judged, at the census
    reading: float = 0.0
    readings: dict[str, float] = dataclasses.field(default_factory=dict)
    # collections of the youngest generation so far, and objects that count towards the next
    young: tuple[int, int] = (0, 0)
    # storages seen a little before the diagnosis, and the step of the diagnosis
    aged: Marks | None = None
    due: int = 0


class Hunt:
    """Watches one loop. ``step()`` is called at every quiet point, ``finish()`` after the last.

    Args:
        options: How to watch.
        watched: What is watched, in words.
        planned: How many steps there will be, None when that is not known.

    """

    def __init__(self, options: Options, watched: str, planned: int | None) -> None:
        self.options = options
        self.watched = watched
        self.steps = 0
        self.findings: dict[str, Finding] = {}
        self.coarse = False
        self._fresh: list[Finding] = []
        self._planned = planned
        self._created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._clock = StepClock()
        self._probe: Probe | None = None
        # records one step more, to see its peak
        self._look: Recorder | None = None
        self._pursuits: list[Pursuit] = []
        self._notes: list[str] = []
        self._breakdown: tuple[Breakdown, ...] = ()
        self._pools: list[str] = []
        self._out_of_memory: list[OutOfMemory] = []
        self._fruitless = 0
        # step and reading of a quantity whose growth a probe could not explain
        self._unexplained: dict[str, tuple[int, float]] = {}
        self._next_probe = 0
        self._began = time.perf_counter()
        self._away = 0.0
        self._sequence = getattr(torch._C._autograd, "_get_sequence_nr", None)
        meters, missing = discover()
        self._notes += missing
        self.cost = sum(meter.cost / meter.beat for meter in meters)
        self._plan()
        self._meters: list[tuple[Meter, tuple[Gauge, ...]]] = []
        for meter in meters:
            self._add_meter(meter)

    # ----------------------------------------------------------------------------------------------------------
    # the sentry

    def _plan(self) -> None:
        """Lengths of warm-up, block and probe, for the number of steps there will be."""
        warmup, block, probe = WARMUP, BLOCK, PROBE
        count = 20 if self.coarse else self._planned
        if count is not None and count < SHORT:
            probe = max(3, min(PROBE, count // 6))
            warmup = max(2, min(WARMUP, count // 7))
            block = max(1, min(BLOCK, (count - probe - warmup - 1) // (BLOCKS + 1)))
        self.warmup = warmup if self.options.warmup is None else self.options.warmup
        self.block = block if self.options.block is None else self.options.block
        self.probe_length = probe if self.options.probe is None else self.options.probe

    def _add_meter(self, meter: Meter) -> None:
        if self.block < BLOCK:
            meter = dataclasses.replace(meter, beat=1)
        gauges = tuple(
            Gauge(quantity, Recording(), self._trend(meter, quantity)) for quantity in meter.quantities
        )
        self._meters.append((meter, gauges))

    def _trend(self, meter: Meter, quantity: Quantity) -> Trend | None:
        if not quantity.judged:
            return None
        return Trend(meter.beat, self.block, self._floor(quantity), quantity.least)

    def _floor(self, quantity: Quantity) -> float:
        """Growth per step that counts as none."""
        # A block of Python's allocator has up to 512 bytes; one in two steps is worth a look.
        return self.options.floor if quantity.unit == "bytes" else 0.5

    def _verdict(self, gauge: Gauge) -> Verdict:
        """What the readings since the warm-up show."""
        quantity = gauge.quantity
        return judge(*gauge.after(self.warmup), self._floor(quantity), quantity.least)

    @property
    def judged(self) -> list[str]:
        """The names of the quantities whose growth is looked into."""
        return [gauge.quantity.name for gauge in self._gauges() if gauge.quantity.judged]

    def fresh_findings(self) -> list[Finding]:
        """The findings made since the last time this was asked."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def step(self) -> None:
        """End of a step: read the meters and act on what they show."""
        step = self.steps = self.steps + 1
        if self._sequence is not None:
            self._clock.tick(step, self._sequence())
        judged = step > self.warmup and self._probe is None
        for meter, gauges in self._meters:
            if step % meter.beat:
                continue
            for gauge, value in zip(gauges, meter.read(), strict=True):
                value -= gauge.own
                gauge.recording.add(step, value)
                if judged and gauge.trend is not None:
                    gauge.trend.add(step, value)
        if step == self.warmup + 1:
            self._end_warmup()
        self._end_look()
        if self._probe is not None:
            self._probe_step()
        elif judged:
            if self._pursuits and step % self.block == 0:
                self._follow()
            if step >= self._next_probe:
                self._suspect()

    def _end_warmup(self) -> None:
        if (
            (self.coarse or self.seconds_per_step > SLOW)
            and self.block == BLOCK
            and self.options.block is None
        ):
            self.coarse = True
            self._plan()
            self._meters = [(dataclasses.replace(meter, beat=1), gauges) for meter, gauges in self._meters]
            for meter, gauges in self._meters:
                for gauge in gauges:
                    gauge.trend = self._trend(meter, gauge.quantity)
        self._find_devices()

    def _find_devices(self) -> None:
        """Meters of devices that were not in use when the loop began."""
        for meter in discover({gauge.quantity.name for gauge in self._gauges()})[0]:
            self._add_meter(meter)

    @property
    def seconds_per_step(self) -> float:
        """Mean time of a step, our own long work left out; 0 before the first."""
        return (time.perf_counter() - self._began - self._away) / self.steps if self.steps else 0.0

    def _suspect(self) -> None:
        """Start a probe when a judged quantity grows and that is not explained yet."""
        for _, gauges in self._meters:
            for gauge in gauges:
                suspicion = gauge.trend.suspicion() if gauge.trend is not None else None
                if suspicion is None or suspicion.rate < gauge.explainable:
                    continue
                if _probing.acquire(blocking=False):
                    self._start_probe(gauge, suspicion)
                return

    # ----------------------------------------------------------------------------------------------------------
    # the probe

    def _start_probe(self, gauge: Gauge, suspicion: Suspicion) -> None:
        with self._own_work():
            # Loaded now, so that nothing of ours is taken for growth between census and capture.
            import scipy.sparse.csgraph  # noqa: F401

            from leakhunter.heap import autograd, suspects  # noqa: F401
            from leakhunter.patterns import conclude  # noqa: F401
            from leakhunter.probe import cuda_history, dispatch
            from leakhunter.probe.peak import Peak

            peak = Peak(self._in_use, self._at_peak)
            recorder = dispatch.Recorder(peak.operator) if not self.coarse and dispatch.may_arm() else None
            needed = not self.coarse and self._device_grows(suspicion)
            history = cuda_history.History() if needed and cuda_history.can_arm() else None
            self._probe = Probe(gauge, suspicion, recorder, history, peak)
        # On a clock that stands still while we work for ourselves.
        self._probe.began = time.perf_counter() - self._away
        if recorder is None:
            self._take_census()
        else:
            recorder.arm(self.steps + 1)
        if history is not None:
            history.arm(self.steps + 1)

    def _device_grows(self, suspicion: Suspicion) -> bool:
        """Whether a CUDA device has grown too: its history costs host memory, which would be taken for growth there."""
        return any(
            gauge.trend is not None and gauge.trend.rate(BLOCKS * suspicion.block) > 0
            for gauge in self._gauges()
            if gauge.quantity.name.startswith("cuda:")
        )

    def _probe_step(self) -> None:
        probe = self._probe
        assert probe is not None
        recorder = probe.recorder
        if recorder is not None and recorder.armed:
            recorder.quiet_point(self.steps)
            if recorder.error is not None:
                raise recorder.error
            if probe.peak is not None:
                probe.peak.quiet_point()
            if self._over_budget(probe):
                recorder.disarm()
            else:
                recorder.births.armed_steps.add(self.steps + 1)
        elif recorder is not None:
            recorder.quiet_point(self.steps)
        if probe.history is not None:
            probe.history.quiet_point(self.steps)
        if probe.census is None:
            # The first recorded step fills PyTorch's own caches for dispatch modes; the window begins after it.
            self._take_census()
            return
        window = self.steps - probe.census.step
        if probe.aged is not None:
            if self.steps >= probe.due:
                self._diagnose()
        elif window >= self.probe_length - 1 - OF_AGE:
            grown = self._read(probe.gauge) - probe.reading
            if grown >= 0.25 * probe.suspicion.rate * window:
                self._let_age()
            elif window >= PATIENCE * max(self.probe_length, probe.suspicion.block):
                self._end_probe(fruitful=False)

    def _let_age(self) -> None:
        """What lives now and still lives when the diagnosis comes has outlived its step."""
        from leakhunter.probe import census

        assert self._probe is not None
        assert self._probe.census is not None
        with self._own_work():
            self._probe.aged = census.mark(self._probe.census)
        self._probe.due = self.steps + OF_AGE

    def _over_budget(self, probe: Probe) -> bool:
        allowed = PROBE_BUDGET * self.probe_length * self.seconds_per_step
        return time.perf_counter() - probe.began - self._away > max(allowed, LEAST_BUDGET)

    def _take_census(self) -> None:
        from leakhunter.probe import census

        assert self._probe is not None
        with self._own_work():
            self._probe.census = census.take(self.steps)
        self._probe.readings = {
            gauge.quantity.name: self._read(gauge) for gauge in self._gauges() if gauge.trend is not None
        }
        self._probe.young = _young_generation()
        self._probe.reading = self._probe.readings[self._probe.gauge.quantity.name]

    def _read(self, gauge: Gauge) -> float:
        for meter, gauges in self._meters:
            if gauge in gauges:
                return meter.read()[gauges.index(gauge)] - gauge.own
        raise LookupError(gauge.quantity.name)

    def _in_use(self) -> dict[str, float]:
        """Bytes in use now, by the name storages give to the place."""
        return {
            place_of(gauge.quantity.name): value - gauge.own
            for meter, gauges in self._meters
            if meter.quantities[0].judged and meter.quantities[0].unit == "bytes"
            for gauge, value in zip(gauges, meter.read(), strict=True)
            if gauge.quantity.judged
        }

    def _look_at_peak(self, peak: Peak | None) -> None:
        """Once something was found, see in the next step what fills the devices at their peak."""
        from leakhunter.probe import dispatch

        if peak is None or not dispatch.may_arm() or not _probing.acquire(blocking=False):
            return
        if peak.look_in_next_step():
            self._look = dispatch.Recorder(peak.operator)
            self._look.arm(self.steps + 1)
        else:
            _probing.release()

    def _end_look(self) -> None:
        look, self._look = self._look, None
        if look is not None:
            _probing.release()
            look.close()

    def _at_peak(self, devices: Iterable[str]) -> None:
        in_use = self._in_use()
        with self._own_work():
            self._capture_peak({device: in_use[device] for device in devices})

    def _capture_peak(self, in_use: Mapping[str, float]) -> None:
        # A function of its own: what it used is freed before the own work is reckoned up.
        from leakhunter.heap.graph import captured

        with captured() as heap:
            self._break_down(heap, "peak", self.steps + 1, in_use)

    def _break_down(
        self, heap: Heap, moment: str, step: int, in_use: Mapping[str, float], blocks: Mapping[int, Block] = NONE
    ) -> None:
        """Keep what live bytes are for now, of the devices of which is known how many are in use."""
        from leakhunter.heap.breakdown import breakdown, with_remainder

        parts = breakdown(heap, blocks.values())
        kept = [old for old in self._breakdown if old.moment != moment or old.device not in in_use]
        found = [
            Breakdown(device, moment, step, with_remainder(parts[device], count))
            for device, count in in_use.items()
            if device in parts
        ]
        self._breakdown = (*kept, *found)

    @contextlib.contextmanager
    def _own_work(self) -> Iterator[None]:
        """Time and memory that go here are ours, and left out of what is said of the loop."""
        start = time.perf_counter()
        before = [
            (gauge, value)
            for meter, gauges in self._meters
            for gauge, value in zip(gauges, meter.read(), strict=True)
        ]
        try:
            yield
        finally:
            after = [value for meter, _ in self._meters for value in meter.read()]
            for (gauge, value), now in zip(before, after, strict=True):
                gauge.own += now - value
            self._away += time.perf_counter() - start

    def _end_probe(self, fruitful: bool) -> None:
        period = 0 if fruitful else self._note_failure()
        if self._probe is not None and self._probe.history is not None:
            self._probe.history.disarm()
        with self._own_work():
            self.abandon_probe()
        self._fruitless = 0 if fruitful else self._fruitless + 1
        pause = 0 if fruitful else self.options.cooldown * 2 ** (self._fruitless - 1)
        self._next_probe = self.steps + pause
        for gauge in self._gauges():
            if gauge.trend is not None:
                gauge.trend.clear(period)

    def _note_failure(self) -> int:
        """Remember growth that a probe could not explain; if memory fell back meanwhile, the period of the loop."""
        probe = self._probe
        assert probe is not None
        gauge = probe.gauge
        reading = self._read(gauge)
        if reading < probe.reading:
            self._unexplained.pop(gauge.quantity.name, None)
            return self.steps - probe.suspicion.since
        self._unexplained.setdefault(gauge.quantity.name, (self.steps, reading))
        return 1

    # ----------------------------------------------------------------------------------------------------------
    # the diagnosis

    def _diagnose(self) -> None:
        from leakhunter.probe.census import uncollected
        from leakhunter.probe.cuda_history import pool_remarks

        probe = self._probe
        assert probe is not None
        if probe.recorder is not None:
            probe.recorder.disarm()
        assert probe.census is not None
        # Asked before we switch gc off ourselves.
        collecting = {
            "gc enabled": gc.isenabled(),
            "gc comes in": _steps_to_collection(probe.young, self.steps - probe.census.step),
        }
        with uncollected():
            # What waits for gc must still be there when the heap is captured.
            blocks: dict[int, Block] = {}
            if probe.history is not None:
                with self._own_work():
                    blocks = probe.history.blocks()
                self._pools = pool_remarks(blocks.values())
                # Not as work of ours: it gives back what recording has added, which was none of it either.
                probe.history.disarm()
            with self._own_work():
                findings = self._findings(probe, blocks, collecting)
        if findings:
            self._explain_growth(probe)
        peak = probe.peak
        self._end_probe(fruitful=bool(findings))
        if findings:
            self._look_at_peak(peak)
        for finding in findings:
            self._take_up(finding, probe)

    def _findings(
        self, probe: Probe, blocks: Mapping[int, Block], collecting: Mapping[str, Any]
    ) -> list[Finding]:
        from leakhunter.heap.graph import captured
        from leakhunter.heap.suspects import Clock, Diagnosis
        from leakhunter.patterns.conclude import Growth, conclude
        from leakhunter.probe.census import Marks
        from leakhunter.probe.dispatch import Births

        assert probe.census is not None
        births = probe.recorder.births if probe.recorder is not None else Births()
        clock = Clock(self._clock.steps, self._clock.numbers)
        window = self.steps - probe.census.step
        added = self._read(probe.gauge) - probe.reading
        measured = probe.suspicion.rate
        if probe.gauge.quantity.unit == "bytes":
            # The recorder's own objects would count among blocks.
            measured = max(measured, added / window)
        # Read before the capture, whose own memory would be counted.
        rates, in_use = self._rates(probe, window), self._in_use()
        facts = self._facts(births, window) | dict(collecting)
        aged = probe.aged if probe.aged is not None else Marks(set(), {})
        with captured() as heap:
            diagnosis = Diagnosis(
                heap, probe.census, births, aged, clock, self.steps, probe.suspicion.since, blocks
            )
            suspects = diagnosis.suspects()
            facts |= diagnosis.facts()
            self._notes += [remark for remark in heap.remarks if remark not in self._notes]
            self._break_down(heap, "quiet point", self.steps, in_use, blocks)
            del diagnosis
        growth = Growth(
            meter=probe.gauge.quantity.name,
            unit=probe.gauge.quantity.unit,
            rate=measured,
            since=probe.suspicion.since,
            window=window,
            step=self.steps,
            seconds_per_step=self.seconds_per_step,
            free=self._free(),
            went_on=added >= 0.75 * probe.suspicion.rate * window,
            rates=rates,
            trends=self._trends(probe),
            facts=facts,
        )
        suspects += self._unseen(suspects, growth, births)
        return conclude(suspects, growth)

    def _rates(self, probe: Probe, window: int) -> dict[str, float]:
        """Growth per step of each place that is counted exactly, by the name storages give to the place."""
        rates = {}
        for gauge in self._gauges():
            if gauge.trend is None:
                continue
            lately = gauge.trend.rate(BLOCKS * probe.suspicion.block)
            if gauge.quantity.unit == "bytes":
                # The recorder's own objects would count among blocks.
                lately = max(lately, (self._read(gauge) - probe.readings[gauge.quantity.name]) / window)
            rates[place_of(gauge.quantity.name)] = lately
        return rates

    def _trends(self, probe: Probe) -> dict[str, float]:
        """Growth per step, over the blocks that raised suspicion, of the other places that are counted."""
        return {
            place_of(gauge.quantity.name): gauge.trend.rate(BLOCKS * probe.suspicion.block)
            for gauge in self._gauges()
            if gauge.trend is not None and gauge is not probe.gauge
        }

    def _facts(self, births: Any, window: int) -> dict[str, Any]:
        """What the state of PyTorch and Python says about growth that no object shows."""
        devices = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
        profiling = getattr(torch._C._autograd, "_profiler_enabled", lambda: False)()
        armed = len(births.armed_steps)
        return {
            "window": window,
            "autocast cache": torch.is_autocast_cache_enabled()
            and any(_autocast_enabled(device) for device in devices),
            "profiler on": profiling,
            "compiled graphs": "torch._inductor.cudagraph_trees" in sys.modules,
            "new shapes": armed > 2 and len(births.new_shapes) >= armed - 2,
            "traced": armed > 2 and len(births.traced_steps) >= armed - 2,
        }

    def _unseen(self, suspects: list[Suspect], growth: Any, births: Any) -> list[Suspect]:
        """A suspect for growth in bytes that no other explains, once it is certain or its cause is known."""
        from leakhunter.heap.labels import Link
        from leakhunter.heap.paths import Route
        from leakhunter.heap.suspects import Sample, Suspect
        from leakhunter.patterns.conclude import share_with_objects

        if growth.unit != "bytes" or sum(share_with_objects(suspect, growth) for suspect in suspects) >= 0.5:
            return []
        known = any(
            growth.facts.get(name) for name in ("profiler on", "new shapes", "traced", "autocast cache")
        )
        if not known and not self._still_unexplained(growth):
            return []
        route = Route((Link("root", "native", "memory", "native"),), False)
        shaped = births.shaped_site if growth.facts.get("new shapes") else -1
        return [
            Suspect(
                state="native",
                route=route,
                count=0,
                bytes=int(growth.rate * growth.window),
                bytes_per_step=growth.rate,
                held_bytes=int(growth.rate * (growth.step - growth.since)),
                stacks=(births.stacks[shaped],) if shaped >= 0 else (),
                sample=Sample("memory"),
            )
        ]

    def _still_unexplained(self, growth: Any) -> bool:
        """Whether each step adds the same, or an earlier probe found nothing and nothing was given back since."""
        gauge = next(gauge for gauge in self._gauges() if gauge.quantity.name == growth.meter)
        if self._verdict(gauge).kind == "saturating":
            return False
        if gauge.trend is not None and gauge.trend.regular(BLOCKS * self.block) and growth.went_on:
            return True
        if growth.meter not in self._unexplained:
            return False
        step, reading = self._unexplained[growth.meter]
        return bool(self._read(gauge) - reading >= 0.5 * growth.rate * (growth.step - step))

    def _free(self) -> dict[str, float]:
        """Bytes still free on the host and on each CUDA device that is watched."""
        import psutil

        free = {"cpu": float(psutil.virtual_memory().available)}
        for gauge in self._gauges():
            device = place_of(gauge.quantity.name)
            if device.startswith("cuda:") and gauge.trend is not None:
                free[device] = float(torch.cuda.mem_get_info(int(device[5:]))[0])
        return free

    # ----------------------------------------------------------------------------------------------------------
    # what becomes of findings

    def _take_up(self, finding: Finding, probe: Probe) -> None:
        known = self.findings.get(finding.signature)
        if known is not None and known.is_open:
            return
        self.findings[finding.signature] = finding
        gauge = self._pursued(finding)
        rate = probe.suspicion.rate
        if gauge is not probe.gauge:
            rate = finding.bytes_per_step if gauge.quantity.unit == "bytes" else gauge.explained
        patience = max(4 * self.block, 3 * probe.suspicion.block)
        self._pursuits.append(Pursuit(finding, gauge, rate, patience, None, 0.0, self.steps))
        self._fresh.append(finding)

    def _pursued(self, finding: Finding) -> Gauge:
        """The gauge that shows whether the growth of a finding goes on.

        Objects that were no tensor's are mostly in Python's own blocks, also where malloc's noise raised the suspicion.
        """
        gauges = {gauge.quantity.name: gauge for gauge in self._gauges()}
        blocks = next((gauge for gauge in gauges.values() if gauge.quantity.unit == "blocks" and gauge.trend), None)
        evidence = finding.evidence
        of_objects = evidence.state == "held" and not finding.site and not evidence.graph_nodes
        if of_objects and blocks is not None and blocks.explained >= 0.5:
            return blocks
        return gauges[finding.meter]

    def _explain_growth(self, probe: Probe) -> None:
        """All growth of the blocks that raised suspicion is taken to be explained by what was found."""
        for gauge in self._gauges():
            if gauge.trend is not None:
                gauge.explained = max(gauge.explained, gauge.trend.rate(BLOCKS * probe.suspicion.block))
        probe.gauge.explained = max(probe.gauge.explained, probe.suspicion.rate)

    def _gauges(self) -> list[Gauge]:
        return [gauge for _, gauges in self._meters for gauge in gauges]

    def _follow(self, last: bool = False) -> None:
        """Take back findings whose growth is over."""
        for pursuit in list(self._pursuits):
            trend = pursuit.gauge.trend
            assert trend is not None
            recent = trend.readings[-max(1, self.block // trend.beat) :]
            if not len(recent):
                continue
            low = min(recent)
            waited = self.steps - pursuit.seen
            if pursuit.level is None:
                pursuit.level, pursuit.seen = low, self.steps
                pursuit.base = low - pursuit.rate * (self.steps - pursuit.finding.first_step)
                continue
            grown = pursuit.level - pursuit.base
            if low - pursuit.level >= 0.25 * pursuit.rate * max(waited, 1):
                pursuit.level, pursuit.seen = low, self.steps
            elif abs(low - pursuit.base) <= 0.25 * grown:
                # Memory fell back to where it was: the loop has a period, and only longer blocks show a leak.
                self._resolve(pursuit, period=self.steps - pursuit.finding.first_step)
            elif low < pursuit.level - 0.25 * grown:
                # Another amount was given back than had been added: something else has ended.
                pursuit.base -= pursuit.level - low
                pursuit.level, pursuit.seen = low, self.steps
            elif waited >= (max(2 * self.block, pursuit.patience // 2) if last else pursuit.patience):
                self._resolve(pursuit)

    def _resolve(self, pursuit: Pursuit, period: int = 0) -> None:
        self._pursuits.remove(pursuit)
        finding = dataclasses.replace(pursuit.finding, status=f"resolved at step {self.steps}")
        self.findings[finding.signature] = finding
        gauge = pursuit.gauge
        gauge.explained = max((p.rate for p in self._pursuits if p.gauge is gauge), default=0.0)
        if gauge.trend is not None:
            # A period too long for the readings kept cannot be waited for.
            gauge.trend.clear(period if period * BLOCKS <= KEEP else 1)

    def out_of_memory(self, device: str, requested: int, total: int) -> OutOfMemory | None:
        """What fills ``device``, asked while an allocation of ``requested`` bytes fails; None when told enough."""
        from leakhunter import oom

        if len(self._out_of_memory) >= oom.MOST_REPORTS:
            return None
        gauge = next((gauge for gauge in self._gauges() if gauge.quantity.name == f"{device} allocated"), None)
        after = gauge.after(self.warmup)[1] if gauge is not None else ()
        full = oom.record(device, requested, total, self.steps + 1, after[-1] - after[0] if after else 0.0)
        self._out_of_memory.append(full)
        return full

    def finish(self) -> None:
        """After the last step: conclude a probe that has seen enough, look at open findings once more."""
        probe = self._probe
        if probe is not None:
            if probe.census is not None and self.steps - probe.census.step > OF_AGE:
                self._diagnose()
            else:
                self.abandon_probe()
        elif self._pursuits:
            self._follow(last=True)
        # There is no step any more whose peak could be looked at.
        self._end_look()

    def abandon_probe(self) -> None:
        """End a probe and let go of its evidence."""
        self._end_look()
        probe, self._probe = self._probe, None
        if probe is not None:
            if probe.recorder is not None:
                probe.recorder.close()
            if probe.history is not None:
                probe.history.disarm()
                self._notes += [remark for remark in probe.history.remarks if remark not in self._notes]
            if probe.aged is not None:
                probe.aged.release()
            # Whoever still has the probe must not have its evidence.
            probe.recorder = probe.history = probe.peak = probe.census = probe.aged = None
            _probing.release()

    # ----------------------------------------------------------------------------------------------------------
    # the report

    def report(self) -> Report:
        """All that is known now."""
        notes = [*self._notes, *self._pools]
        if not self.steps:
            notes.insert(0, "nothing was watched: the loop made no step")
        elif self.steps < self.warmup + BLOCKS * self.block and not self.findings:
            need = self.warmup + BLOCKS * self.block + self.probe_length
            notes.insert(0, f"too few steps for a verdict: at least {need} are needed")
        if not gc.isenabled():
            notes.append("Python's automatic gc is switched off")
        series = tuple(self._series())
        findings = list(self.findings.values())
        if any(one.meter.startswith(("cuda:", "pinned memory")) for one in series):
            from leakhunter.patterns import allocator

            findings += allocator.notes_of(series, self.warmup, self.steps)
        return Report(
            watched=self.watched,
            steps=self.steps,
            seconds_per_step=self.seconds_per_step,
            findings=tuple(findings),
            series=series,
            notes=tuple(notes),
            breakdown=self._breakdown,
            out_of_memory=tuple(self._out_of_memory),
            options=self.options.to_dict(),
            environment=environment(),
            created=self._created,
        )

    def _series(self) -> Iterator[Series]:
        for gauge in self._gauges():
            quantity = gauge.quantity
            points = gauge.recording.points()
            yield Series(quantity.name, quantity.unit, *points, self._verdict(gauge), quantity.judged)


def _young_generation() -> tuple[int, int]:
    """How often the youngest generation was collected, and how many objects count towards the next time."""
    return gc.get_stats()[0]["collections"], gc.get_count()[0]


def _steps_to_collection(before: tuple[int, int], window: int) -> float:
    """Steps until the youngest generation is collected again, at the pace of the last ``window`` steps."""
    collections, count = _young_generation()
    threshold = gc.get_threshold()[0]
    if not gc.isenabled() or not threshold:
        return math.inf
    if collections > before[0]:
        return window / (collections - before[0])
    pace = (count - before[1]) / window
    return max(0.0, threshold - count) / pace if pace > 0 else math.inf


def place_of(quantity: str) -> str:
    """Where a quantity is: ``cpu``, ``shared memory`` or a device, as storages name it, or ``Python objects``."""
    return "cpu" if quantity.startswith("malloc") else quantity.removesuffix(" allocated")


def _autocast_enabled(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # before torch 2.4 there was one question per device
        return torch.is_autocast_enabled()


def environment() -> dict[str, str]:
    """Versions and settings that a reader of the report will ask for."""
    return {
        "leakhunter": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(),
        "pid": str(os.getpid()),
        "gc": f"{'on' if gc.isenabled() else 'off'} {gc.get_threshold()}",
    }
