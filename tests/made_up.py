"""Made-up reports: one with everything a report can hold, one that tries to break out of whatever shows it."""

from __future__ import annotations

import math
from dataclasses import replace

from leakhunter.findings import (
    Breakdown,
    Cycle,
    CycleEdge,
    CycleNode,
    Evidence,
    Finding,
    Fix,
    Frame,
    Held,
    Holder,
    Node,
    OutOfMemory,
    Report,
    Series,
    Verdict,
)

MIB = 1 << 20
STEPS = 100_000
PEAK = 54_321

RING = Cycle(
    nodes=(
        CycleNode("Learner", "train.Learner", "train.py:12", 18 * MIB),
        CycleNode("list", "list"),
        CycleNode("Recorder", "callbacks.Recorder", "callbacks.py:7", 2 * MIB),
        CycleNode("PowBackward0", "PowBackward0"),
    ),
    edges=(
        CycleEdge(0, 1, ".callbacks"),
        CycleEdge(1, 2, "[0]"),
        CycleEdge(2, 3, ".loss.grad_fn", hidden=True),
        CycleEdge(3, 0, "closure cell `self`", cut=True),
    ),
    bytes=20 * MIB,
    tensors=18,
    count=3,
    state="stranded",
    pattern="LH810",
    name="cycle through C++ that gc cannot free",
    fix=Fix("let the hook use a weak reference: weakref.proxy(self)"),
)

HISTORY = Finding(
    pattern="LH103",
    name="tensors stored with their graphs",
    severity="leak",
    meter="cuda:0 allocated",
    bytes_per_step=3.0 * MIB,
    bytes_held=111 * MIB,
    count=37,
    first_step=4,
    step=40,
    holder=Holder(
        "trainer.history[*]['loss']",
        "local",
        "train.py:38",
        "train_epoch()",
        (
            Node("train_epoch()", "frame", "train.py:52", "no", "is running"),
            Node("trainer", "Trainer"),
            Node(".history", "list", "36 items", "unknown", "7 items more in 7 steps"),
            Node("['loss']", "Tensor", "float32 ()", "yes", "reaches graphs of steps 4 to 38; the loop is at step 40"),
        ),
    ),
    site=(Frame("train.py", 40, "train_epoch", "criterion(net(x), y)"), Frame("main.py", 3, "<module>", "main()")),
    evidence=Evidence(
        (
            "the items of trainer.history hold the autograd graphs of 35 finished steps",
            "A stored tensor keeps its grad_fn, and that keeps everything its step saved.",
        ),
        "held",
        0.75,
        tuple((step, 7 + step % 3) for step in range(28, 39)),
        35,
        259,
        14_000_000,
    ),
    fix=Fix(
        "store the number (.item()), not the tensor with its graph",
        "--- train.py\n+++ train.py\n@@ -41 +41 @@\n-    trainer.history.append(loss)\n"
        "+    trainer.history.append(loss.item())\n",
        "item() waits for the device",
    ),
    forecast="cuda:0 is full in about 181,000 steps (11 h at this pace)",
    signature="0a1b2c3d",
    statement=Frame("train.py", 41, "train_epoch", "trainer.history.append(loss)"),
)
CYCLE = Finding(
    pattern="LH810",
    name="cycle through C++ that gc cannot free",
    severity="growth",
    meter="cuda:0 allocated",
    bytes_per_step=0.8 * MIB,
    bytes_held=20 * MIB,
    count=3,
    first_step=30,
    step=900,
    holder=Holder("cycle of Learner, list, Recorder", "cycle", "train.py:12"),
    site=(Frame("model.py", 9, "Net.forward", "x ** 2"),),
    evidence=Evidence(("3 cycles like this hold 20 MiB and are stranded",), "stranded", 0.2),
    fix=RING.fix,
    forecast="",
    signature="11112222",
    cycle=RING,
)
FRAGMENTATION = Finding(
    pattern="LH921",
    name="reserved memory in pieces",
    severity="note",
    meter="cuda:0 reserved",
    bytes_per_step=0.0,
    bytes_held=300 * MIB,
    count=0,
    first_step=100,
    step=STEPS,
    holder=Holder("the allocator of cuda:0", "native"),
    site=(),
    evidence=Evidence(("300 MiB are reserved and not in use", "Freed blocks lie between used ones."), "native"),
    fix=Fix("set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    forecast="",
    signature="33334444",
)
RESOLVED = Finding(
    pattern="LH201",
    name="tensors pile up in a container",
    severity="growth",
    meter="malloc (glibc)",
    bytes_per_step=4096.0,
    bytes_held=409_600,
    count=100,
    first_step=20_000,
    step=21_000,
    holder=Holder("buffer.items", "module global", "replay.py:5", "replay"),
    site=(Frame("replay.py", 30, "push", "state.clone()"),),
    evidence=Evidence(("buffer.items got 100 items in 100 steps", "The container refers to every tensor."), share=1.0),
    fix=Fix("give the buffer a bound: deque(maxlen=...)"),
    forecast="",
    signature="55556666",
    status="resolved at step 60000",
)


def _series(meter: str, verdict: Verdict, value, judged: bool = True, unit: str = "bytes") -> Series:
    steps = tuple(range(1, STEPS + 1))
    return Series(meter, unit, steps, tuple(float(value(step)) for step in steps), verdict, judged)


GROWING = _series(
    "cuda:0 allocated",
    Verdict("growing", 4.0 * MIB, 11),
    lambda step: 2e9 + step * 4 * MIB + 3e8 * math.sin(step / 900) + (9e10 if step == PEAK else 0),
)
FULL = Report(
    watched="DataLoader at train.py:37",
    steps=STEPS,
    seconds_per_step=0.25,
    findings=(RESOLVED, HISTORY, CYCLE, FRAGMENTATION),
    series=(
        GROWING,
        _series("cuda:0 reserved", Verdict("stepped", 0.0, 11), lambda step: 3e9 + 2e8 * (step // 20_000)),
        _series("malloc (glibc)", Verdict("flat", 0.0, 11), lambda step: 130e6 + 300 * (step % 7)),
        _series("Python objects", Verdict("sawtooth", 0.0, 11, 700), lambda step: 1e6 + step % 700, unit="blocks"),
        _series("RSS", Verdict("saturating", 0.0, 11), lambda step: 2e9 * (1 - math.exp(-step / 9000)), judged=False),
        Series("shared memory", "bytes", (), (), Verdict("inconclusive")),
    ),
    notes=("Python's automatic gc is switched off",),
    breakdown=(
        Breakdown(
            "cuda:0",
            "quiet point",
            900,
            {"parameters": 400 * MIB, "gradients": 400 * MIB, "optimizer state": 800 * MIB, "not in tensors": 90 * MIB},
        ),
        Breakdown(
            "cuda:0",
            "peak",
            901,
            {
                "activations saved for backward": 3000 * MIB,
                "parameters": 400 * MIB,
                "gradients": 400 * MIB,
                "optimizer state": 800 * MIB,
                "inputs saved for backward": 64 * MIB,
                "other tensors": 300 * MIB,
                "not in tensors": 120 * MIB,
            },
        ),
    ),
    out_of_memory=(
        OutOfMemory(
            "cuda:0", STEPS, 512 * MIB, 81_920 * MIB, 100 * MIB, 80_000 * MIB, 81_000 * MIB, 60_000 * MIB, "leak",
            {"activations saved for backward": 61_000 * MIB, "parameters": 19_000 * MIB},
            (Held("trainer.history", 60_000 * MIB, 900), Held("net.weight", 19_000 * MIB, 12)),
        ),
    ),
    options={"enabled": True, "warmup": 10_000, "floor": 32.0, "on_leak": "log", "report": None},
    environment={"leakhunter": "0.1.0", "torch": "2.13.0", "python": "3.11.7", "pid": "4242"},
    created="2026-01-02T03:04:05+00:00",
)  # fmt: skip

# Text that means something to HTML, scripts, DOT, workflow commands, URIs, terminals and file systems.
NASTY = (
    "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'`&amp;{{7*7}}%0A::error::,"
    "\\N\n\r\0\u2028\u202e\udcff😀"
)
FILE = "/home/me/<img src=x onerror=alert(1)>.py"


def hostile() -> Report:
    """A report in which every text is ``NASTY``, and fewer readings."""
    series = tuple(replace(one, steps=one.steps[:2000], readings=one.readings[:2000]) for one in FULL.series)
    return Report.from_dict(_poisoned(replace(FULL, series=series).to_dict()))


def _poisoned(value: object, key: str = "") -> object:
    kept = ("severity", "status", "leaking", "kind", "cause", "state", "moment", "signature")
    if isinstance(value, dict):
        end = NASTY if key in ("categories", "options") else ""
        return {name + end: _poisoned(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_poisoned(item, key) for item in value]
    if isinstance(value, str) and key == "file":
        return FILE
    return value + NASTY if isinstance(value, str) and key not in kept else value
