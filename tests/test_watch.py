"""The front doors: iterables, blocks, generators, functions, threads, coroutines, and how a loop may end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import threading
import warnings

import pytest
import torch
from torch import nn

import leakhunter
from leakhunter import Report

pytestmark = pytest.mark.usefixtures("settled")

KEPT: list[torch.Tensor] = []


@pytest.fixture(autouse=True)
def _nothing_kept():
    KEPT.clear()
    yield
    KEPT.clear()


def leak() -> None:
    KEPT.append(torch.ones(4096))


def paths(report: Report) -> list[str]:
    return [found.holder.path for found in report.open]


# ----------------------------------------------------------------------------------------------------------
# ways in


def test_an_iterable_is_handed_through_and_its_leak_found():
    seen = []
    loop = leakhunter.watch(range(60))
    for item in loop:
        seen.append(item)
        leak()
    assert seen == list(range(60))
    assert "KEPT[*]" in paths(loop.report)[0]


def test_a_block_of_code_is_watched_step_by_step():
    with leakhunter.watch() as hunt:
        for _ in range(60):
            leak()
            hunt.step()
    assert "KEPT[*]" in paths(hunt.report)[0]


def test_steps_without_a_block_are_watched_too():
    hunt = leakhunter.watch()
    for _ in range(60):
        leak()
        hunt.step()
    assert paths(hunt.report)


def test_a_function_is_checked():
    report = leakhunter.check(leak)
    assert report.steps == 20
    assert "KEPT[*]" in paths(report)[0]


def test_a_function_that_keeps_nothing_is_clean():
    net = nn.Linear(16, 16)
    report = leakhunter.check(lambda: net(torch.ones(8, 16)).sum().backward(), repeats=40)
    assert not report.open


def test_a_decorated_generator_is_watched_in_every_call(log):
    @leakhunter.watch
    def batches(count):
        yield from range(count)

    for _ in batches(60):
        leak()
    assert any("KEPT[*]" in text for text in log.texts(logging.WARNING))
    assert batches.__name__ == "batches"


def test_a_decorator_takes_options():
    found = []

    @leakhunter.watch(on_leak=found.append)
    def batches():
        yield from range(60)

    for _ in batches():
        leak()
    assert found


def test_next_can_be_called_by_hand():
    loop = leakhunter.watch(range(3))
    assert [next(loop), next(loop), next(loop)] == [0, 1, 2]
    with pytest.raises(StopIteration):
        next(loop)
    assert loop.report.steps == 3


def test_length_and_attributes_are_those_of_the_iterable():
    loader = torch.utils.data.DataLoader(torch.zeros(12, 2), batch_size=4)
    loop = leakhunter.watch(loader)
    assert len(loop) == 3
    assert loop.batch_size == 4
    assert loop.dataset is loader.dataset
    with pytest.raises(AttributeError, match="no_such_thing"):
        loop.no_such_thing


def test_a_loop_without_length_has_none():
    with pytest.raises(TypeError):
        len(leakhunter.watch(iter([1])))


def test_a_watch_may_be_iterated_over_again():
    loop = leakhunter.watch(range(5))
    assert list(loop) == list(loop) == [0, 1, 2, 3, 4]
    assert loop.report.steps == 10


def test_an_old_style_sequence_is_watched():
    class Old:
        def __getitem__(self, index):
            if index == 4:
                raise IndexError
            return index

    assert list(leakhunter.watch(Old())) == [0, 1, 2, 3]


@pytest.mark.parametrize("wrong", [5, None.__class__, object()])
def test_what_cannot_be_iterated_over_is_refused_in_a_sentence(wrong):
    with pytest.raises(TypeError, match=r"give it what you iterate over"):
        leakhunter.watch(wrong)


def test_a_watch_that_wraps_nothing_cannot_be_iterated_over():
    with pytest.raises(TypeError, match=r"use watch\(iterable\), or call step\(\)"):
        list(leakhunter.watch())


def test_check_wants_a_function_and_a_number():
    with pytest.raises(TypeError, match="give it a function"):
        leakhunter.check(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1"):
        leakhunter.check(leak, repeats=0)


def test_plain_functions_are_not_decorated():
    with pytest.raises(TypeError, match=r"use check\(function\)"):
        leakhunter.watch(warmup=2)(leak)


# ----------------------------------------------------------------------------------------------------------
# where the loop stands


def test_a_loop_in_a_method_names_the_attribute():
    class Trainer:
        def __init__(self):
            self.history = []

        def fit(self):
            loop = leakhunter.watch(range(60))
            for _ in loop:
                self.history.append({"loss": torch.ones(2048)})
            return loop.report

    assert "history[*]['loss']" in paths(Trainer().fit())[0]


def test_the_holder_may_stand_in_a_base_class():
    class Base:
        seen: list = []

    class Child(Base):
        def step(self):
            self.seen.append(torch.ones(2048))

    report = leakhunter.check(Child().step, repeats=40)
    assert "Base.seen[*]" in paths(report)[0]


def test_the_holder_may_be_a_variable_of_the_caller():
    def fit(store):
        loop = leakhunter.watch(range(60))
        for _ in loop:
            store.append(torch.ones(2048))
        return loop.report

    results = []
    report = fit(results)
    assert "results[*]" in paths(report)[0] or "store[*]" in paths(report)[0]


def test_the_holder_may_be_a_closure():
    def make():
        kept = []

        def step():
            kept.append(torch.ones(2048))

        return step

    step = make()
    assert "kept" in paths(leakhunter.check(step, repeats=40))[0]


def test_a_module_level_loop_and_the_statement_on_its_line(run_python, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        "import leakhunter, torch\n"
        "history = []\n"
        "for step in leakhunter.watch(range(60)):\n"
        "    history.append(torch.ones(2048))\n"
    )
    done = run_python(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert not done.returncode, done.stderr
    assert "train.py:4" in done.stderr
    assert "history[*]" in done.stderr


def test_a_notebook_cell_is_shown_with_its_line(log):
    import linecache

    name = "<ipython-input-7-abcdef>"
    source = "for _ in leakhunter.watch(range(60)):\n    cell_history.append(torch.ones(2048))\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope = {"leakhunter": leakhunter, "torch": torch, "cell_history": []}
    exec(compile(source, name, "exec"), scope)
    found = log.texts(logging.WARNING)
    assert "cell_history" in found[0]
    assert f"{name}:2" in found[0]


def test_a_loop_in_another_thread_is_watched():
    reports = []

    def work():
        mine = []
        loop = leakhunter.watch(range(60))
        for _ in loop:
            mine.append(torch.ones(2048))
        reports.append(loop.report)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "mine[*]" in paths(reports[0])[0]


def test_loops_in_several_threads_do_not_disturb_each_other():
    reports = []

    def work(count):
        loop = leakhunter.watch(range(count))
        total = torch.zeros(8)
        for _ in loop:
            total = total + 1
        reports.append((loop.report.steps, count, float(total[0])))

    threads = [threading.Thread(target=work, args=(40 + number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reports) == [(count, count, float(count)) for count in range(40, 44)]


def test_an_asynchronous_loop_is_watched():
    async def batches():
        for number in range(60):
            await asyncio.sleep(0)
            yield number

    async def train():
        loop = leakhunter.watch(batches())
        async for _ in loop:
            leak()
            await asyncio.sleep(0)
        return loop.report

    report = asyncio.run(train())
    assert report.steps == 60
    assert paths(report)


def test_two_coroutines_may_watch_at_once():
    async def train(count):
        loop = leakhunter.watch(range(count))
        for _ in loop:
            await asyncio.sleep(0)
        return loop.report.steps

    async def both():
        return await asyncio.gather(train(30), train(40))

    assert asyncio.run(both()) == [30, 40]


def test_a_leak_in_evaluation_alone_is_found_by_the_epoch_watch():
    scores = []
    epochs = leakhunter.watch(range(20))
    for _ in epochs:
        steps = leakhunter.watch(range(10))
        for _ in steps:
            torch.ones(64).sum()
        scores.append([torch.ones(4096) for _ in range(3)])
        assert not steps.report.open
    assert any("scores[*]" in path for path in paths(epochs.report))


def test_a_leak_inside_an_epoch_is_logged_once(log):
    for _ in leakhunter.watch(range(3)):
        for _ in leakhunter.watch(range(60)):
            leak()
    titles = [text for text in log.texts(logging.WARNING) if not text.startswith("leakhunter:")]
    assert len(titles) == 1


# ----------------------------------------------------------------------------------------------------------
# ways out


def test_a_break_ends_the_watch_with_a_summary(log):
    for item in leakhunter.watch(range(100)):
        if item == 70:
            break
        leak()
    gc.collect()
    assert log.texts()[-1].startswith("leakhunter: 70 steps")


def test_a_return_ends_the_watch_with_a_summary(log):
    def find():
        for item in leakhunter.watch(range(100)):
            if item == 3:
                return item
        return None

    assert find() == 3
    gc.collect()
    assert "3 steps" in log.texts()[-1]


def test_the_users_exception_goes_through_unchanged(log):
    error = ValueError("mine")

    def run():
        for item in leakhunter.watch(range(100)):
            if item == 5:
                raise error

    with pytest.raises(ValueError, match="mine") as caught:
        run()
    assert caught.value is error
    assert error.__cause__ is None
    assert error.__context__ is None


def test_an_exception_in_a_block_goes_through_unchanged():
    with pytest.raises(KeyError), leakhunter.watch() as hunt:
        hunt.step()
        raise KeyError
    assert hunt.report.steps == 1


def test_an_exception_of_the_iterable_goes_through_unchanged():
    def broken():
        yield 1
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(leakhunter.watch(broken()))


@pytest.mark.parametrize("empty", [[], iter(()), {}])
def test_a_loop_that_yields_nothing_was_not_watched(empty, log):
    loop = leakhunter.watch(empty)
    assert list(loop) == []
    assert "nothing was watched" in str(loop.report)
    assert "nothing was watched" in log.texts()[-1]


def test_a_watch_that_never_ran_says_so():
    assert "nothing was watched" in str(leakhunter.watch(range(5)).report)


def test_too_few_steps_are_no_verdict():
    loop = leakhunter.watch(range(2))
    for _ in loop:
        leak()
    assert "no verdict" in str(loop.report)


def test_the_report_can_be_read_during_the_loop():
    loop = leakhunter.watch(range(60))
    for item in loop:
        assert loop.report.steps == item
        leak()
    assert loop.report.series[0].readings


# ----------------------------------------------------------------------------------------------------------
# what happens with a finding


def test_a_healthy_loop_logs_a_line_at_the_start_and_one_at_the_end(log):
    for _ in leakhunter.watch(range(40)):
        torch.ones(8).sum()
    texts = log.texts(logging.INFO)
    assert len(texts) == 2
    assert texts[0].startswith("leakhunter ")
    assert "us a step" in texts[0]
    assert "no leak found" in texts[1]


def test_a_finding_is_a_warning_on_the_logger(log):
    for _ in leakhunter.watch(range(60)):
        leak()
    found, summary = log.texts(logging.WARNING)
    assert "LH" in found
    assert "KEPT" in found
    assert summary.startswith("leakhunter: 60 steps")


def test_warn_gives_a_python_warning():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in leakhunter.watch(range(60), on_leak="warn"):
            leak()
    assert [one.category for one in seen] == [leakhunter.LeakWarning]
    assert "KEPT" in str(seen[0].message)


def test_raise_gives_an_exception_with_the_finding():
    with pytest.raises(leakhunter.LeakError, match="KEPT") as caught:
        for _ in leakhunter.watch(range(60), on_leak="raise"):
            leak()
    assert caught.value.finding.accuses


def test_warnings_that_are_errors_stop_the_loop_as_the_user_asked():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(leakhunter.LeakWarning):
            for _ in leakhunter.watch(range(60), on_leak="warn"):
                leak()


def test_a_function_is_called_with_each_finding_once():
    found = []
    for _ in leakhunter.watch(range(100), on_leak=found.append):
        leak()
    assert len(found) == 1
    assert found[0].holder.path.endswith("KEPT[*]")


def test_an_error_in_that_function_does_not_reach_the_loop(log):
    def broken(finding):
        raise RuntimeError("mail server")

    for _ in leakhunter.watch(range(60), on_leak=broken):
        leak()
    assert any("mail server" in text for text in log.texts(logging.ERROR))


def test_the_report_is_written_when_the_loop_ends(tmp_path):
    place = tmp_path / "report.json"
    for _ in leakhunter.watch(range(60), report=place):
        leak()
    report = Report.from_json(place)
    assert report.open
    assert json.loads(place.read_text())["schema"] == 1


def test_a_report_that_cannot_be_written_is_said_and_nothing_else(log, tmp_path):
    for _ in leakhunter.watch(range(12), report=tmp_path / "missing" / "report.json"):
        pass
    assert any("could not write its report" in text for text in log.texts(logging.ERROR))


def test_switched_off_it_hands_the_items_through_and_says_so(log):
    loop = leakhunter.watch(range(60), enabled=False)
    for _ in loop:
        leak()
    assert loop.report.steps == 0
    assert "switched off" in str(loop.report)
    assert not log.texts()


def test_the_environment_switches_it_off(monkeypatch):
    monkeypatch.setenv("LEAKHUNTER_ENABLED", "0")
    loop = leakhunter.watch(range(60))
    for _ in loop:
        leak()
    assert not loop.report.findings


def test_growth_that_stops_is_taken_back():
    loop = leakhunter.watch(range(200))
    for item in loop:
        if item < 50:
            leak()
    report = loop.report
    assert not report.open
    assert [found.status[:16] for found in report.findings] == ["resolved at step"]


def test_a_known_bound_is_a_note_that_says_where_growth_stops():
    import collections

    window: collections.deque = collections.deque(maxlen=5000)
    loop = leakhunter.watch(range(60))
    for _ in loop:
        window.append(torch.ones(4096))
    report = loop.report
    assert not report.open
    assert [found.severity for found in report.findings] == ["note"]
    assert "stops at 5,000 items" in str(report)


def test_a_finding_says_what_the_issue_is_in_every_field():
    class Log:
        def __init__(self):
            self.total = 0.0

    log, net = Log(), nn.Linear(64, 1)
    loop = leakhunter.watch(range(60))
    for _ in loop:
        loss = net(torch.randn(256, 64)).square().mean()
        log.total += loss
    (found,) = loop.report.open
    assert found.pattern == "LH101"
    assert found.severity == "leak"
    assert found.status == "open"
    assert found.bytes_per_step > 64 * 256
    assert found.bytes_held > 20 * found.bytes_per_step
    assert found.first_step < found.step <= 60
    assert found.holder.path.endswith("log.total")
    assert found.evidence.graph_steps > 20
    assert found.evidence.saved_bytes > 0
    assert found.statement is not None
    assert found.statement.code.strip() == "log.total += loss"
    assert found.site[0].file == __file__
    assert "+        log.total += loss.item()" in found.fix.diff
    assert found.fix.caveat
    assert "host memory is full" in found.forecast
    assert len(found.signature) == 8


def test_a_second_leak_is_found_beside_the_first():
    first, second = [], []
    loop = leakhunter.watch(range(150))
    for item in loop:
        first.append(torch.ones(1024))
        if item > 70:
            second.append(torch.ones(8192))
    together = " ".join(paths(loop.report))
    assert "first[*]" in together
    assert "second[*]" in together


def test_the_loops_item_is_not_kept_by_the_watch():
    import weakref

    class Item:
        pass

    def items():
        for _ in range(5):
            yield Item()

    last = None
    for item in leakhunter.watch(items()):
        assert last is None or last() is None
        last = weakref.ref(item)
        del item


def test_a_watch_left_in_the_middle_lets_go_when_it_dies():
    loop = iter(leakhunter.watch(range(100)))
    next(loop)
    with contextlib.closing(loop):
        next(loop)
    assert list(loop) == []


def test_a_finished_watch_needs_no_gc_to_go():
    import weakref

    loop = leakhunter.watch(range(60))
    for _ in loop:
        leak()
    assert loop.report.findings
    reference = weakref.ref(loop)
    del loop
    assert reference() is None
