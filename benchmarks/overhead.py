"""What watching costs while all is well: ``python benchmarks/overhead.py``.

Three figures. The sentry: microseconds per step of an empty loop under a watch. The whole watch: the time of a healthy
training loop of about 10 ms a step, watched, over the same loop bare; both run in turns in one process, and the median
of the paired ratios is told with its quartiles, since a single ratio on a shared machine says little. The probe: the
steps that are recorded, of a loop that leaks and makes 1,000 tensors a step, over the others, and how many those are.
"""

from __future__ import annotations

import argparse
import array
import json
import statistics
import time
from collections.abc import Iterable

import torch
from torch import nn
from torch.utils import _python_dispatch

import leakhunter

# Numbers in each of the tensors that a probe records: what it costs is the same for small ones and large ones.
SIZES = (4096, 65_536)


def sentry(steps: int) -> dict[str, float]:
    """Microseconds per step that ``Watch.step`` takes: the median, and the mean with all rare beats in it."""
    hunt = leakhunter.watch()
    # Made beforehand: a list that grows would be a finding.
    took = array.array("d", bytes(8 * steps))
    for step in range(steps):
        start = time.perf_counter()
        hunt.step()
        took[step] = time.perf_counter() - start
    return {"median_us": 1e6 * statistics.median(took), "mean_us": 1e6 * statistics.fmean(took)}


class Loop:
    """A healthy training loop whose step takes about ``milliseconds``."""

    def __init__(self, milliseconds: float) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.batch = 64
        while self.step_time(5) < milliseconds / 1000 and self.batch < 65_536:
            self.batch *= 2
        # Between two powers of two the time of a step is close to proportional to the batch.
        self.batch = max(1, int(self.batch * milliseconds / 1000 / self.step_time(20)))

    def step(self) -> None:
        """One update on random data."""
        data, wanted = torch.randn(self.batch, 256), torch.randint(10, (self.batch,))
        loss = nn.functional.cross_entropy(self.net(data), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def run(self, steps: Iterable[int]) -> float:
        """Seconds that all ``steps`` take."""
        start = time.perf_counter()
        for _ in steps:
            self.step()
        return time.perf_counter() - start

    def step_time(self, steps: int) -> float:
        """Seconds of a step: the median of ``steps``."""
        return statistics.median(self.run(range(1)) for _ in range(steps))


def whole_watch(pairs: int, steps: int, milliseconds: float) -> dict[str, float]:
    """Watched over bare time of the same loop, pair by pair."""
    loop = Loop(milliseconds)
    ratios, bare = [], []
    for pair in range(pairs):
        # Each order as often as the other, so that what drifts meanwhile falls on both.
        if pair % 2:
            watched = loop.run(leakhunter.watch(range(steps)))
            bare.append(loop.run(range(steps)))
        else:
            bare.append(loop.run(range(steps)))
            watched = loop.run(leakhunter.watch(range(steps)))
        ratios.append(watched / bare[-1])
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"step_ms": 1000 * statistics.median(bare) / steps, "ratio": middle, "low": low, "high": high}


def probe(device: str, numbers: int, steps: int = 45, tensors: int = 1000) -> dict[str, float]:
    """Recorded over bare steps of a leaking loop, in the median, and how many steps were recorded."""
    kept, source = [], torch.ones(numbers, device=device)
    recorded, bare = [], []
    for _ in leakhunter.watch(range(steps)):
        start = time.perf_counter()
        for _ in range(tensors):
            last = source + 1
        kept.append(last)
        if device != "cpu":
            torch.cuda.synchronize()
        took = time.perf_counter() - start
        (recorded if _python_dispatch._get_current_dispatch_mode_stack() else bare).append(took)
    middle = statistics.median(bare)
    return {
        "step_ms": 1000 * middle,
        "ratio": statistics.median(recorded) / middle if recorded else 1.0,
        "steps": len(recorded),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What watching costs while all is well.")
    parser.add_argument("--pairs", type=int, default=20, help="paired runs (default: 20)")
    parser.add_argument("--steps", type=int, default=100, help="steps of a run (default: 100)")
    parser.add_argument("--milliseconds", type=float, default=10.0, help="time of a step (default: 10)")
    parser.add_argument("--device", default="cpu", help="where the probe's loop runs (default: cpu)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cost, watch = sentry(20_000), whole_watch(options.pairs, options.steps, options.milliseconds)
    print(f"sentry       {cost['median_us']:.1f} us a step in the median, {cost['mean_us']:.1f} us in the mean")
    print(
        f"whole watch  {watch['ratio']:.4f} of the bare time (quartiles {watch['low']:.4f} to {watch['high']:.4f}) "
        f"at {watch['step_ms']:.1f} ms a step, {options.pairs} pairs of {options.steps} steps"
    )
    recorded = {numbers: probe(options.device, numbers) for numbers in SIZES}
    for numbers, found in recorded.items():
        print(
            f"probe        {found['ratio']:.2f} of the bare time in each of {found['steps']:.0f} recorded steps of "
            f"1,000 tensors of {4 * numbers // 1024} KiB and {found['step_ms']:.1f} ms on {options.device}"
        )
    print(json.dumps({"sentry": cost, "watch": watch, "probe": recorded}))


if __name__ == "__main__":
    main()
