"""What leakhunter must never do: change a result, raise into the loop, keep an object, grow itself."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn

import leakhunter
from leakhunter import hunt as hunt_module
from leakhunter.heap import graph, suspects
from leakhunter.meters import Meter, Quantity
from leakhunter.patterns import conclude
from leakhunter.probe import census, dispatch

pytestmark = pytest.mark.usefixtures("settled")

STEPS = 60


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return Square.apply(self.linear(x))


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)), (8, 16)


def cnn():
    body = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 7 * 7, 4)]
    return nn.Sequential(*body), (4, 3, 16, 16)


def transformer():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
    return nn.TransformerEncoder(layer, 2), (4, 6, 16)


def lstm():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(16, 16, batch_first=True, num_layers=2, dropout=0.1)

        def forward(self, x):
            return self.rnn(x)[0]

    return Last(), (4, 6, 16)


def custom():
    return Custom(), (8, 16)


def losses(make, watched: bool, leak: bool) -> list[float]:
    """The losses of a training loop whose leak, when it has one, makes leakhunter go through all its phases."""
    torch.manual_seed(0)
    net, shape = make()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    kept, found = [], []

    def step():
        out = net(torch.randn(shape))
        loss = out.pow(2).mean() + out.softmax(-1).amax()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if leak:
            kept.append(torch.zeros(4096))
        found.append(loss.item())

    if watched:
        hunt = leakhunter.watch(range(STEPS))
        for _ in hunt:
            step()
        assert bool(hunt.report.open) == leak
    else:
        for _ in range(STEPS):
            step()
    return found


@pytest.mark.parametrize("leak", [False, True], ids=["healthy", "leaking"])
@pytest.mark.parametrize("make", [mlp, cnn, transformer, lstm, custom])
def test_results_are_the_same_bit_for_bit(make, leak):
    assert losses(make, True, leak) == losses(make, False, leak)


def defaults():
    of_torch = (torch.is_grad_enabled(), torch.get_num_threads())
    return (torch.get_rng_state(), *of_torch, gc.isenabled(), gc.get_threshold())


def test_random_state_and_defaults_are_left_alone():
    torch.manual_seed(0)
    kept = []
    before = defaults()
    interval = sys.getswitchinterval()
    for _ in leakhunter.watch(range(STEPS)):
        kept.append(torch.zeros(1024))
    after = defaults()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert sys.getswitchinterval() == interval
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def leaking_loop(hunt) -> int:
    kept, steps = [], 0
    for _ in hunt:
        kept.append(torch.zeros(4096))
        steps += 1
    return steps


def broken(*arguments, **options):
    raise RuntimeError("injected")


PHASES = {
    "discovery of meters": (hunt_module, "discover"),
    "a reading": (Meter, "read"),
    "the trend": (hunt_module.Trend, "suspicion"),
    "arming the recorder": (dispatch.Recorder, "arm"),
    "recording an operator": (dispatch.Recorder, "_record"),
    "a quiet point of the recorder": (dispatch.Recorder, "quiet_point"),
    "the census": (census, "take"),
    "ageing": (census, "mark"),
    "the capture": (graph, "_snapshot"),
    "the diagnosis": (suspects.Diagnosis, "suspects"),
    "the conclusion": (conclude, "conclude"),
    "following a finding": (hunt_module.Hunt, "_follow"),
    "the end": (hunt_module.Hunt, "finish"),
    "the report": (hunt_module.Hunt, "report"),
}


@pytest.mark.parametrize("phase", PHASES)
def test_an_error_of_ours_never_reaches_the_loop(phase, monkeypatch, log):
    owner, name = PHASES[phase]
    if phase == "a reading":
        meter = Meter((Quantity("broken"),), broken)
        monkeypatch.setattr(hunt_module, "discover", lambda: ([meter], []))
    else:
        monkeypatch.setattr(owner, name, broken)
    hunt = leakhunter.watch(range(STEPS))
    assert leaking_loop(hunt) == STEPS
    errors = log.texts(logging.ERROR)
    assert len(errors) == 1
    assert "switched itself off" in errors[0]
    assert "injected" in errors[0]
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    assert gc.isenabled()
    # Another watch is not affected: nothing was left locked.
    monkeypatch.undo()
    second = leakhunter.watch(range(STEPS))
    leaking_loop(second)
    assert second.report.open


def test_an_error_in_the_on_leak_function_is_logged_and_the_watch_goes_on(log):
    hunt = leakhunter.watch(range(STEPS), on_leak=broken)
    assert leaking_loop(hunt) == STEPS
    assert any("on_leak" in text and "injected" in text for text in log.texts(logging.ERROR))
    assert hunt.report.open


class Batch:
    """An object that can be watched for."""

    def __init__(self):
        self.data = torch.zeros(64)


def test_no_object_of_the_user_outlives_the_watch():
    batches, leaked = [], []

    def source():
        for _ in range(STEPS):
            batch = Batch()
            batches.append(weakref.ref(batch))
            yield batch
            del batch

    def loop():
        loader = source()
        hunt = leakhunter.watch(loader)
        kept = []
        for batch in hunt:
            kept.append(torch.zeros(4096))
            leaked.append(weakref.ref(kept[-1]))
            del batch
        assert hunt.report.open
        return hunt

    gc.disable()
    try:
        hunt = loop()
        assert not any(reference() for reference in batches)
        assert not any(reference() for reference in leaked)
        assert hunt.report.open
    finally:
        gc.enable()


def test_a_batch_is_let_go_before_the_next_is_asked_for():
    alive = []

    class Source:
        def __iter__(self):
            return self

        def __init__(self):
            self.last = None
            self.count = 0

        def __next__(self):
            if self.last is not None:
                alive.append(self.last() is not None)
            self.count += 1
            if self.count > 20:
                raise StopIteration
            batch = Batch()
            self.last = weakref.ref(batch)
            return batch

    for batch in leakhunter.watch(Source()):
        del batch
    assert alive
    assert not any(alive)


def test_a_deleted_local_is_freed_while_frames_are_read():
    """Reading the locals of a running frame must leave no copy of them in it."""
    freed = []

    def loop():
        kept = []
        for _ in leakhunter.watch(range(STEPS)):
            batch = Batch()
            reference = weakref.ref(batch)
            kept.append(torch.zeros(4096))
            del batch
            freed.append(reference() is None)

    loop()
    assert all(freed)


def test_a_namespace_that_the_program_holds_is_not_emptied():
    def loop():
        kept = []
        snapshot = None
        for step in leakhunter.watch(range(STEPS)):
            kept.append(torch.zeros(4096))
            if step == 5:
                snapshot = locals()
        return snapshot

    snapshot = loop()
    assert "kept" in snapshot


def test_memory_of_the_watch_itself_is_flat():
    from leakhunter.meters import host, python

    meters = [*host.meters()[0], *python.meters()[0]]

    def readings() -> list[float]:
        gc.collect()
        return [value for meter in meters for value in meter.read()]

    with leakhunter.watch() as hunt:
        for _ in range(2000):
            hunt.step()
        before = readings()
        for _ in range(20_000):
            hunt.step()
        grown = [after - was for was, after in zip(before, readings(), strict=True)]
    assert max(grown) < 20_000, f"{grown} bytes and blocks more after 20,000 steps"
    assert hunt.report.steps == 22_000
    assert not hunt.report.findings


def test_the_report_stays_bounded():
    with leakhunter.watch() as hunt:
        for _ in range(20_000):
            hunt.step()
    assert all(len(series.steps) <= 4200 for series in hunt.report.series)


def test_attributes_of_user_objects_are_never_run():
    """A heap of hostile objects in the way of the walk: each would raise if it were asked anything."""

    class Hostile:
        __slots__ = ("__weakref__", "tensor")

        def __init__(self):
            object.__setattr__(self, "tensor", torch.zeros(512))

        def __getattribute__(self, name):
            raise AssertionError(f"asked for {name}")

        def __eq__(self, other):
            raise AssertionError("compared")

        def __hash__(self):
            raise AssertionError("hashed")

        def __repr__(self):
            raise AssertionError("shown")

        def __len__(self):
            raise AssertionError("measured")

        def __sizeof__(self):
            raise AssertionError("weighed")

        @property
        def __dict__(self):
            raise AssertionError("opened")

        @property
        def __class__(self):
            raise AssertionError("classified")

    class Meta(type):
        def __getattribute__(cls, name):
            if name in ("__mro__", "__qualname__", "__module__", "__dict__", "__name__"):
                raise AssertionError(f"type asked for {name}")
            return super().__getattribute__(name)

    class Odd(metaclass=Meta):
        pass

    class OddDict(dict):
        def __len__(self):
            raise AssertionError("measured")

        def __iter__(self):
            raise AssertionError("iterated")

        def items(self):
            raise AssertionError("listed")

    kept, odd = [], []
    table = OddDict()
    hunt = leakhunter.watch(range(STEPS))
    for step in hunt:
        kept.append(Hostile())
        odd.append(Odd())
        dict.__setitem__(table, step, torch.zeros(64))
    found = hunt.report
    assert any("kept" in finding.holder.path for finding in found.open), str(found)


def test_warnings_of_torch_are_not_provoked():
    kept = []
    y = torch.ones(3, requires_grad=True) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in leakhunter.watch(range(STEPS)):
            kept.append(torch.zeros(1024))
    assert y is not None


def test_keyboard_interrupt_passes_through():
    kept = []
    with pytest.raises(KeyboardInterrupt):
        for step in leakhunter.watch(range(STEPS)):
            kept.append(torch.zeros(4096))
            if step == 31:
                raise KeyboardInterrupt
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def test_threads_and_watches_do_not_disturb_each_other():
    reports, errors = [], []

    def work():
        try:
            kept = []
            hunt = leakhunter.watch(range(80))
            for _ in hunt:
                kept.append(torch.zeros(4096))
                torch.randn(64, 64).mm(torch.randn(64, 64))
            reports.append(hunt.report)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(reports) == 3
    assert any(report.open for report in reports)


def test_a_fork_in_the_loop_works():
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.randn(512, 8)), batch_size=8, num_workers=2)
    kept = []
    hunt = leakhunter.watch(loader)
    for (x,) in hunt:
        kept.append(torch.zeros(4096))
        x.sum().item()
    assert hunt.report.steps == 64
    # The loader starts workers while the recorder is on, in the next round.
    for _ in hunt:
        kept.append(torch.zeros(4096))
    assert hunt.report.steps == 128
    assert hunt.report.open


def test_no_code_of_a_report_is_run(tmp_path):
    path = tmp_path / "report.json"
    path.write_text('{"schema": 1, "watched": "__import__(\'os\').abort()", "steps": 1, "seconds_per_step": 0.1}')
    assert leakhunter.Report.from_json(path).watched.startswith("__import__")
    path.write_bytes(b"\x80\x04cos\nabort\n(tR.")
    with pytest.raises(ValueError, match="not JSON"):
        leakhunter.Report.from_json(path)
