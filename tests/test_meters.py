"""The meters: allocators count what is kept to the byte, and what cannot be measured is left out and said."""

from __future__ import annotations

import ctypes.util
import functools
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import types

import psutil
import pytest
import torch

import leakhunter
from leakhunter import hunt as hunt_module
from leakhunter import meters
from leakhunter.meters import Meter, Quantity, accelerator, cuda, host, pinned, process, python

pytestmark = pytest.mark.usefixtures("settled")

MIB = 1024 * 1024
SMALL = 1000

LIBRARIES = {
    "glibc": "",
    "jemalloc": "libjemalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
    "mimalloc": "libmimalloc.so.2",
}

# Keeps more in each step, then lets go of all of it, and says what the meter saw.
KEEPING = """
import ctypes, gc, json, threading
import numpy
import torch
from leakhunter.meters import host

MIB = 1024 * 1024
usable = ctypes.CDLL(None).malloc_usable_size
usable.argtypes, usable.restype = [ctypes.c_void_p], ctypes.c_size_t

(meter,), remarks = host.meters()

# A collection in between would free what has nothing to do with the work.
gc.collect()
gc.disable()

def read():
    return meter.read()[0]

def in_thread():
    made = []
    thread = threading.Thread(target=lambda: made.append(torch.ones(MIB // 4)))
    thread.start()
    thread.join()
    return made

WORK = {
    "written tensors": lambda: [torch.ones(MIB // 4)],
    "untouched tensors": lambda: [torch.empty(MIB // 4)],
    "zeros": lambda: [torch.zeros(MIB // 4)],
    "calloc": lambda: [torch.from_numpy(numpy.zeros(MIB // 4, numpy.float32))],
    "made by a thread": in_thread,
    "tensors of 64 bytes": lambda: [torch.ones(16) for _ in range(1000)],
    "tensors of 400 bytes": lambda: [torch.ones(100) for _ in range(1000)],
}

seen = {"names": [quantity.name for quantity in meter.quantities], "remarks": remarks}
for name, make in WORK.items():
    kept = [make(), make()]
    rises, sizes = [], []
    for _ in range(10):
        before = read()
        kept.append(make())
        rises.append(read() - before)
        sizes.append(sum(usable(tensor.data_ptr()) for tensor in kept[-1]))
    top = read()
    del kept[2:]
    seen[name] = {"rises": rises, "sizes": sizes, "fallen": top - read()}

def step():
    return torch.randn(64, 64).mm(torch.randn(64, 64)).relu().sum().item()

readings = []
for number in range(40):
    step()
    if number >= 10:
        readings.append(read())
seen["steady"] = max(readings) - min(readings)
print(json.dumps(seen))
"""


def library(allocator: str) -> str | None:
    """The file of an allocator, empty for the one that is there anyway, None when it is not installed."""
    file = LIBRARIES[allocator]
    if not file:
        return ""
    multiarch = sysconfig.get_config_var("MULTIARCH")
    folders = [f"/usr/lib/{multiarch}", "/usr/lib", "/usr/lib64", "/usr/local/lib"]
    for folder in folders:
        if (pathlib.Path(folder) / file).exists():
            return str(pathlib.Path(folder) / file)
    return ctypes.util.find_library(file.removeprefix("lib").split(".")[0])


@functools.cache
def seen_by(allocator: str) -> dict:
    """What the meter of an allocator shows while ``KEEPING`` runs under it."""
    if sys.platform != "linux":
        pytest.skip("allocators are preloaded on Linux only")
    preload = library(allocator)
    if preload is None:
        pytest.skip(f"{LIBRARIES[allocator]} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", KEEPING],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "LD_PRELOAD": preload},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(params=LIBRARIES)
def allocator(request) -> str:
    return request.param


def test_the_allocator_that_serves_the_process_is_found(allocator):
    seen = seen_by(allocator)
    assert seen["names"] == [f"malloc ({allocator})"]
    assert not seen["remarks"]


@pytest.mark.parametrize("work", ["written tensors", "untouched tensors", "zeros", "calloc"])
def test_a_mebibyte_kept_each_step_is_a_mebibyte_more_each_step_until_it_is_freed(allocator, work):
    seen = seen_by(allocator)[work]
    assert min(seen["sizes"]) >= MIB - 4096
    for rise, size in zip(seen["rises"], seen["sizes"], strict=True):
        assert rise == pytest.approx(size, rel=0.03)
    assert seen["fallen"] == pytest.approx(sum(seen["rises"]), rel=0.01)


@pytest.mark.parametrize("work", ["tensors of 64 bytes", "tensors of 400 bytes"])
def test_thousands_of_small_tensors_count_with_what_they_need_beside_their_data(allocator, work):
    seen = seen_by(allocator)[work]
    rise, size = statistics.median(seen["rises"]), statistics.median(seen["sizes"])
    assert size <= rise <= size + 1024 * SMALL
    assert seen["fallen"] == pytest.approx(rise * len(seen["rises"]), rel=0.02)


@pytest.mark.parametrize("name", ["glibc", "jemalloc", "tcmalloc"])
def test_memory_that_another_thread_allocates_counts(name):
    seen = seen_by(name)["made by a thread"]
    assert statistics.median(seen["rises"]) == pytest.approx(statistics.median(seen["sizes"]), rel=0.03)


def test_a_loop_that_keeps_nothing_reads_the_same_at_every_step(allocator):
    assert seen_by(allocator)["steady"] < 4096


def test_a_library_without_a_counter_is_a_remark(monkeypatch):
    monkeypatch.setattr(host.ctypes, "CDLL", lambda name: object())
    found, remarks = host.meters()
    assert not found
    assert "no exact malloc counter" in remarks[0]


@pytest.mark.parametrize("error", [OSError, TypeError])
def test_a_platform_whose_library_cannot_be_opened_is_a_remark(error, monkeypatch):
    def refuse(name):
        raise error("refused")

    monkeypatch.setattr(host.ctypes, "CDLL", refuse)
    found, remarks = host.meters()
    assert not found
    assert "cannot be read on this platform" in remarks[0]


def test_the_counter_of_macos_is_the_bytes_in_use():
    def mstats():
        return host._Mstats(bytes_total=1, chunks_used=2, bytes_used=3, chunks_free=4, bytes_free=5)

    assert host.macos(types.SimpleNamespace(mstats=mstats))() == (3,)


def reading(found: list[Meter], name: str) -> float:
    """The value of one quantity now."""
    for meter in found:
        for quantity, value in zip(meter.quantities, meter.read(), strict=True):
            if quantity.name == name:
                return value
    raise LookupError(name)


def test_python_objects_are_counted_one_by_one():
    found = python.meters()[0]
    before = reading(found, python.NAME)
    kept = [object() for _ in range(5000)]
    assert reading(found, python.NAME) - before == pytest.approx(5000, abs=200)
    kept.clear()
    assert reading(found, python.NAME) - before == pytest.approx(0, abs=200)


def test_without_the_allocator_of_python_its_objects_are_left_to_malloc(run_python):
    code = """
import gc, json
from leakhunter.meters import host, python
found, remarks = python.meters()
(meter,), _ = host.meters()
before = meter.read()[0]
kept = [bytes(100) for _ in range(10_000)]
print(json.dumps([len(found), remarks, meter.read()[0] - before]))
"""
    done = run_python(code, env={"PYTHONMALLOC": "malloc"})
    assert done.returncode == 0, done.stderr
    count, remarks, grown = json.loads(done.stdout)
    assert count == 0
    assert "PYTHONMALLOC" in remarks[0]
    assert grown > 10_000 * 100


def test_rss_follows_memory_that_is_written():
    found = process.meters()[0]
    before = reading(found, process.RSS)
    kept = b"\1" * (64 * MIB)
    top = reading(found, process.RSS)
    assert top - before > 56 * MIB
    del kept
    assert top - reading(found, process.RSS) > 56 * MIB


def test_tensors_moved_to_shared_memory_count_until_they_are_freed():
    found = process.meters()[0]
    # The first one brings pages of library code in, which count as shared too.
    torch.ones(4).share_memory_()
    gc.collect()
    before = reading(found, process.SHARED)
    kept = [torch.ones(4 * MIB // 4).share_memory_() for _ in range(4)]
    assert reading(found, process.SHARED) - before == pytest.approx(16 * MIB, rel=0.1)
    kept.clear()
    assert reading(found, process.SHARED) - before == pytest.approx(0, abs=MIB)


def test_shared_memory_is_no_quantity_where_the_system_does_not_count_it(monkeypatch):
    this = types.SimpleNamespace(memory_info=lambda: types.SimpleNamespace(rss=5))
    monkeypatch.setattr(process.psutil, "Process", lambda: this)
    meter = process.meters()[0][0]
    assert [quantity.name for quantity in meter.quantities] == [process.RSS]
    assert meter.read() == (5,)


def test_coarse_quantities_never_raise_suspicion():
    quantities = [quantity for meter in process.meters()[0] for quantity in meter.quantities]
    assert [quantity.name for quantity in quantities if quantity.judged] == [process.SHARED]


HOLD = "kept = b'\\1' * (64 << 20); print('ready', flush=True); input()"
HOLD_BELOW = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {HOLD!r}])"


@pytest.mark.parametrize("code", [HOLD, HOLD_BELOW], ids=["child", "grandchild"])
def test_memory_of_child_processes_counts_while_they_live(code):
    before = reading(process.meters()[0], process.CHILDREN)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:
        assert child.stdout.readline().strip() == b"ready"
        assert reading(process.meters()[0], process.CHILDREN) - before > 60 * MIB
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.wait()
    assert reading(process.meters()[0], process.CHILDREN) - before < 8 * MIB


class Child:
    """A child process that may be gone when it is asked."""

    def __init__(self, size: int | None):
        self.size = size

    def memory_info(self):
        if self.size is None:
            raise psutil.NoSuchProcess(1)
        return types.SimpleNamespace(rss=self.size)


def test_a_child_that_ends_while_it_is_asked_is_left_out():
    children = [Child(3), Child(None), Child(4)]
    read = process._children(types.SimpleNamespace(children=lambda recursive: children))
    assert read() == (7.0,)


def test_children_are_looked_for_again_only_when_that_is_cheap_beside_the_time_passed(monkeypatch):
    now, asked = [0.0], []

    def children(recursive):
        asked.append(now[0])
        now[0] += 1.0
        return [Child(len(asked))]

    monkeypatch.setattr(process, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    read = process._children(types.SimpleNamespace(children=children))
    assert read() == (1.0,)
    now[0] = float(process.CHILDREN_SHARE)
    assert read() == (1.0,)
    now[0] = process.CHILDREN_SHARE + 1.0
    assert read() == (2.0,)
    assert len(asked) == 2


def names(found: list[Meter]) -> list[str]:
    return [quantity.name for meter in found for quantity in meter.quantities]


def test_discovery_does_not_initialise_cuda(run_python):
    code = """
import torch
from leakhunter import meters
found, _ = meters.discover()
print(torch.cuda.is_initialized(), [q.name for m in found for q in m.quantities if "cuda" in q.name])
"""
    done = run_python(code)
    assert done.stdout.split() == ["False", "[]"], done.stderr


@pytest.mark.parametrize("question", ["device_count", "memory_stats_as_nested_dict", "_lazy_init"])
def test_cuda_that_is_not_initialised_is_asked_nothing(question, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, question, lambda *arguments: asked.append(arguments))
    assert not any(name.startswith("cuda") for name in names(meters.discover()[0]))
    assert not asked


@pytest.fixture
def devices(monkeypatch) -> list[dict]:
    """Three CUDA devices, the second of them not in use."""
    stats = [
        {
            "allocated_bytes": {"all": {"current": 10}},
            "reserved_bytes": {"all": {"current": 20}},
            "num_ooms": 3,
            "key of a later version": {"all": 1},
        },
        {},
        {"allocated_bytes": {"all": {"current": 0}}, "reserved_bytes": {"all": {"current": 40}}},
    ]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(stats))
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda index: stats[index])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (500, 1000))
    return stats


def values(found: list[Meter]) -> dict[str, float]:
    """What each quantity reads."""
    return {
        quantity.name: value
        for meter in found
        for quantity, value in zip(meter.quantities, meter.read(), strict=True)
    }


def test_each_device_in_use_has_meters(devices):
    found, remarks = cuda.meters()
    read = values(found)
    assert {name.split(" ")[0] for name in read} == {"cuda:0", "cuda:2"}
    assert (read["cuda:0 allocated"], read["cuda:0 reserved"], read["cuda:0 out of memory"]) == (10, 20, 3)
    assert (read["cuda:2 allocated"], read["cuda:2 reserved"]) == (0, 40)
    assert not remarks


def test_what_is_neither_free_nor_reserved_is_outside_pytorch(devices):
    read = values(cuda.meters()[0])
    assert (read["cuda:0 outside PyTorch"], read["cuda:2 outside PyTorch"]) == (480, 460)


def test_an_allocator_that_keeps_no_counts_is_said_and_not_guessed(devices, monkeypatch):
    def refuse(index):
        raise RuntimeError("no stats")

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", refuse)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "pluggable")
    found, remarks = cuda.meters()
    assert not found
    assert all("pluggable" in remark and "not measured" in remark for remark in remarks)
    assert len(remarks) == 3


def test_a_meter_of_a_device_reads_anew_each_time(devices):
    meter = cuda.meters()[0][0]
    devices[0]["allocated_bytes"]["all"]["current"] = 99
    assert tuple(meter.read())[:2] == (99, 20)


def test_pinned_memory_in_use_is_judged_and_what_is_kept_is_not(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    stats = {"active_bytes.current": 5, "allocated_bytes.current": 8}
    monkeypatch.setattr(torch.cuda, "host_memory_stats", lambda: stats, raising=False)
    (meter,) = pinned.meters()[0]
    assert values([meter]) == {"pinned memory in use": 5, "pinned memory": 8}
    assert [quantity.judged for quantity in meter.quantities] == [True, False]


def test_pinned_memory_is_not_asked_for_before_cuda_is_initialised(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert pinned.meters() == ([], [])


class Device:
    def __init__(self, kind: str) -> None:
        self.type = kind


def fake(monkeypatch, kind: str, **functions) -> types.SimpleNamespace:
    """An accelerator's module, as torch would have it."""
    module = types.SimpleNamespace(**functions)
    monkeypatch.setattr(torch, kind, module, raising=False)
    current = types.SimpleNamespace(current_accelerator=lambda: Device(kind))
    monkeypatch.setattr(torch, "accelerator", current, raising=False)
    return module


def test_an_accelerator_is_read_by_the_functions_of_its_module(monkeypatch):
    fake(
        monkeypatch,
        "xpu",
        is_initialized=lambda: True,
        device_count=lambda: 2,
        memory_allocated=lambda index: 10 + index,
        memory_reserved=lambda index: 20 + index,
    )
    found, remarks = accelerator.meters()
    assert values(found) == {
        "xpu:0 allocated": 10,
        "xpu:0 reserved": 20,
        "xpu:1 allocated": 11,
        "xpu:1 reserved": 21,
    }
    assert not remarks


def test_an_accelerator_of_one_device_takes_no_index(monkeypatch):
    fake(monkeypatch, "mps", current_allocated_memory=lambda: 7, driver_allocated_memory=lambda: 9)
    assert values(accelerator.meters()[0]) == {"mps:0 allocated": 7, "mps:0 reserved": 9}


def test_an_accelerator_that_is_not_initialised_is_not_asked(monkeypatch):
    asked = []
    fake(monkeypatch, "xpu", is_initialized=lambda: False, memory_allocated=asked.append)
    assert accelerator.meters() == ([], [])
    assert not asked


def test_an_accelerator_that_tells_nothing_is_said(monkeypatch):
    fake(monkeypatch, "mtia", is_initialized=lambda: True)
    found, remarks = accelerator.meters()
    assert not found
    assert "torch.mtia" in remarks[0]


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_cuda_and_no_accelerator_are_not_for_this_module(kind, monkeypatch):
    current = types.SimpleNamespace(current_accelerator=lambda: Device(kind) if kind == "cuda" else None)
    monkeypatch.setattr(torch, "accelerator", current, raising=False)
    assert accelerator.meters() == ([], [])


def test_only_allocated_bytes_of_a_device_are_judged(devices):
    judged = [quantity.name for meter in cuda.meters()[0] for quantity in meter.quantities if quantity.judged]
    assert judged == ["cuda:0 allocated", "cuda:2 allocated"]


def refuse(*arguments):
    raise RuntimeError("injected")


BROKEN = {
    "reading": lambda: ([Meter((Quantity("broken"),), refuse)], []),
    "looking": refuse,
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize(
    "module", [host, python, process, cuda, pinned, accelerator], ids=lambda module: module.__name__[18:]
)
def test_a_meter_that_raises_is_left_out_and_the_others_remain(module, fault, monkeypatch):
    lost = names(module.meters()[0])
    whole, remarks = meters.discover()
    monkeypatch.setattr(module, "meters", BROKEN[fault])
    found, said = meters.discover()
    assert names(found) == [name for name in names(whole) if name not in lost]
    assert len(said) == len(remarks) + 1


def test_discovery_gives_each_quantity_one_name():
    found = names(meters.discover()[0])
    assert len(found) == len(set(found))
    assert {python.NAME, process.RSS, process.CHILDREN} <= set(found)


def timed_at(monkeypatch, costs: list[float], beat: int) -> Meter:
    """A meter whose readings take ``costs``, after the discovery has timed it."""
    now, left = [0.0], list(costs)

    def read():
        now[0] += left.pop(0) if len(left) > 1 else left[0]
        return (1.0,)

    monkeypatch.setattr(meters, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    return meters.timed(Meter((Quantity("some"),), read, beat))


@pytest.mark.parametrize(
    ("cost", "own", "beat"),
    [(1e-6, 1, 1), (9e-6, 1, 1), (11e-6, 1, 2), (25e-6, 1, 4), (1e-3, 1, 128), (1e-6, 4, 4), (25e-6, 8, 8)],
)
def test_a_dearer_meter_is_read_less_often(cost, own, beat, monkeypatch):
    meter = timed_at(monkeypatch, [cost], own)
    assert meter.beat == beat
    assert meter.cost == pytest.approx(cost)
    assert meter.cost / meter.beat <= meters.BUDGET


def test_one_slow_reading_does_not_make_a_meter_dear(monkeypatch):
    assert timed_at(monkeypatch, [1.0, 1.0, 2e-6, 1.0], 1).beat == 1


def test_a_meter_keeps_its_quantities_and_its_reading_when_it_is_timed(monkeypatch):
    meter = timed_at(monkeypatch, [1e-3], 1)
    assert [quantity.name for quantity in meter.quantities] == ["some"]
    assert meter.read() == (1.0,)


def test_a_slow_meter_is_read_at_its_beat_only(monkeypatch):
    asked = []

    def read():
        asked.append(None)
        return (1.0,)

    meter = Meter((Quantity("slow"),), read, beat=8)
    monkeypatch.setattr(hunt_module, "discover", lambda known=(): ([meter] if not known else [], []))
    hunt = leakhunter.watch(range(80))
    for _ in hunt:
        pass
    assert len(asked) == 10
    (series,) = (series for series in hunt.report.series if series.meter == "slow")
    assert list(series.steps) == list(range(8, 81, 8))
