"""The pytest plugin: tests that leak fail. Loaded in every run, so it imports no torch until a check needs it.

``--leakhunter`` checks every test, ``@pytest.mark.leakhunter`` repeats a test, and the fixture ``leakhunter`` watches a
loop of its own. What grows while the body is repeated fails the test; what outlives the test and its fixtures, more
with every run of it, is reported as ``leaked``.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leakhunter.testing import settings as asked

if TYPE_CHECKING:
    from leakhunter.testing.baseline import Baseline
    from leakhunter.testing.check import Check
    from leakhunter.testing.loops import Loops
    from leakhunter.testing.outcome import Outcome, Told
    from leakhunter.testing.tally import ReportFile, Tally

CHECK: pytest.StashKey[Check] = pytest.StashKey()
RUN: pytest.StashKey[Run] = pytest.StashKey()
MARKER = (
    "leakhunter(per_call=None, tensors=None, warmup=2, repeats=5, device='used', ignore={}, expect_leak='', "
    "cycles='tensors', fresh_fixtures=False): repeat the test, and fail it when memory grows with every call."
)


@dataclass
class Run:
    """What is asked of this run, and what it came to."""

    every: bool
    command: dict[str, Any]
    ini: dict[str, Any]
    baseline_file: Path | None
    updates: bool
    reports: list[ReportFile]
    baseline: Baseline | None = None
    tally: Tally | None = None
    remarks: list[str] = field(default_factory=list)

    def knows(self, signatures: Collection[str]) -> bool:
        """Whether leaks are known: by the baseline, or because the run writes them there."""
        return self.updates or (self.baseline is not None and self.baseline.knows(signatures))

    def counted(self) -> Tally:
        """The tally, loaded when something is first counted."""
        if self.tally is None:
            from leakhunter.testing.tally import Tally

            self.tally = Tally()
        return self.tally


# ----------------------------------------------------------------------------------------------------------
# what is asked


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line and the ini file."""
    group = parser.getgroup("leakhunter", asked.GROUP)
    group.addoption(
        "--leakhunter", action="store_true", default=None, help="check every test for memory it leaves behind"
    )
    asked.add_options(parser)
    group.addoption(
        "--leakhunter-report",
        action="append",
        metavar="FORMAT[:PATH]",
        help="write what was found as json, html or sarif, to leakhunter.FORMAT where no path is given",
    )
    group.addoption("--leakhunter-baseline", metavar="FILE", help="leaks in this file are known and do not fail")
    group.addoption(
        "--leakhunter-update-baseline", action="store_true", help="write the leaks of this run to the baseline file"
    )
    parser.addini("leakhunter", "check every test for memory it leaves behind", type="bool", default=False)
    parser.addini("leakhunter_baseline", "leaks in this file are known and do not fail", default="")
    parser.addini("leakhunter_report", "reports to write, FORMAT[:PATH]", type="args", default=[])
    parser.addini("verbosity_leakhunter", "verbosity of leakhunter's summary", default="auto")


def pytest_configure(config: pytest.Config) -> None:
    """Read the options, register the marker."""
    config.addinivalue_line("markers", MARKER)
    command, ini = asked.from_configuration(config)
    option = config.option
    file = option.leakhunter_baseline or config.getini("leakhunter_baseline")
    path = config.invocation_params.dir / file if file else None
    if option.leakhunter_update_baseline and path is None:
        raise pytest.UsageError("--leakhunter-update-baseline needs --leakhunter-baseline FILE, the file to write")
    reports = []
    wanted = option.leakhunter_report or config.getini("leakhunter_report")
    if wanted:
        from leakhunter.testing.tally import report_file

        reports = [report_file(value, config.invocation_params.dir) for value in wanted]
    every = bool(option.leakhunter or config.getini("leakhunter"))
    run = Run(every, command, ini, path, option.leakhunter_update_baseline, reports)
    if path is not None and (path.exists() or not run.updates):
        from leakhunter.testing import baseline

        run.baseline = baseline.read(path)
    config.stash[RUN] = run


def pytest_report_header(config: pytest.Config) -> str | None:
    """One line, where anything was asked for."""
    from leakhunter import __version__

    run = config.stash[RUN]
    if not (run.every or run.command or run.ini or run.baseline_file or run.reports):
        return None
    how = asked.Settings(**{**run.ini, **run.command})
    what = "every test" if run.every else "marked tests"
    calls = f"{how.warmup} calls to warm up, {how.repeats} repeats"
    return f"leakhunter: {__version__}, checks {what}; {calls}, device {how.device}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Decide which tests are checked, and how: wrong options are errors before anything has run."""
    run = config.stash[RUN]
    for item in items:
        marked = item.get_closest_marker("leakhunter") is not None
        loops = "leakhunter" in getattr(item, "fixturenames", ())
        if not (marked or loops or run.every):
            continue
        from leakhunter.testing.check import Check

        item.stash[CHECK] = Check(asked.settings_of(item, run.command, run.ini), marked, run.knows)


@pytest.fixture
def leakhunter(request: pytest.FixtureRequest) -> Iterator[Loops]:
    """Watch a loop in a test: ``watch``, ``check``, ``expect_clean`` and ``report``."""
    from leakhunter.testing.loops import Loops
    from leakhunter.testing.repeats import silent

    item = request.node
    check = item.stash.get(CHECK, None)
    if check is None:  # asked for by request.getfixturevalue
        from leakhunter.testing.check import Check

        run = request.config.stash[RUN]
        check = item.stash[CHECK] = Check(asked.settings_of(item, run.command, run.ini), False, run.knows)
    check.loops = Loops(check.settings)
    with silent():
        yield check.loops


# ----------------------------------------------------------------------------------------------------------
# the test


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Around a test with all its attempts: what was there before, and what is left when its fixtures are gone."""
    check = item.stash.get(CHECK, None)
    if check is None:
        return (yield)
    run = item.config.stash[RUN]
    if run.every or check.marked:
        # A loop that a test watches itself is long, and not run again; its holders are looked for in all that lives.
        check.begin(item, "leakhunter" not in getattr(item, "fixturenames", ()))
    done = yield
    try:
        check.finish(item, nextitem)
        if not run.every:
            check.end()
    except Exception as error:
        run.remarks.append(
            f"{item.nodeid}: not checked after an error of leakhunter's own ({type(error).__name__}: {error})"
        )
    if check.after is not None and check.after.fails:
        _log_leaked(item, check.after)
    _count(run, item, check)
    return done


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test of a device that is not here is skipped."""
    check = item.stash.get(CHECK, None)
    if check is not None and check.settings.device not in ("used", "all", "cpu"):
        import torch

        kind = check.settings.device.partition(":")[0]
        module = getattr(torch, kind, None)
        if module is None or not module.is_available():
            reason = f"leakhunter: there is no {check.settings.device} here"
            raise pytest.skip.Exception(reason, _use_item_location=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Tests whose body pytest does not call itself are repeated from inside."""
    check = item.stash.get(CHECK, None)
    if check is None or check.repeating or not check.marked:
        return (yield)
    from leakhunter.testing.foreign import repeated_inside

    with repeated_inside(item, check):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """After its first run the body of a marked test is run again, by whoever ran it the first time."""
    done = yield
    check = pyfuncitem.stash.get(CHECK, None)
    if check is not None and not check.repeating and not check.inner:
        check.repeat(pyfuncitem, lambda: pyfuncitem.ihook.pytest_pyfunc_call(pyfuncitem=pyfuncitem))
    return done


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """What the body showed goes into the report of the call."""
    report: pytest.TestReport = yield
    check = item.stash.get(CHECK, None)
    if check is None or check.repeating:
        return report
    if not report.passed or report.when == "call":
        check.unchecked = "" if report.passed else report.outcome
    if report.when == "call":
        _conclude(item, check, report)
    return report


def _conclude(item: pytest.Item, check: Check, report: pytest.TestReport) -> None:
    if not report.passed:
        if report.failed and check.broken:
            said = (
                f"call {check.broken} of this test failed, after others had passed: the body cannot be repeated with "
            )
            said += "the same fixtures, so give the marker fresh_fixtures=True, or use the fixture leakhunter"
        elif report.failed:
            said = "not checked for leaks: a test that failed is kept alive by its traceback"
        else:
            return
        report.sections.append(("leakhunter", said))
        return
    outcome = check.conclude_body(item)
    if outcome is None:
        return
    told = _told(item, outcome)
    _add_properties(item, report, told)
    if outcome.fails:
        report.outcome = "failed"
        report.longrepr = _longrepr(item, outcome, told)
    elif outcome.kind == "expected":
        report.outcome = "skipped"
        report.wasxfail = f"leak: {outcome.reason}"


def _told(item: pytest.Item, outcome: Outcome) -> Told:
    from leakhunter.testing.check import place_of
    from leakhunter.testing.outcome import told

    return told(outcome, item.nodeid, place_of(item))


def _add_properties(item: pytest.Item, report: pytest.TestReport, told: Told) -> None:
    """Into JUnit: those of the last attempt only."""
    item.user_properties[:] = [pair for pair in item.user_properties if not pair[0].startswith("leakhunter")]
    item.user_properties.append(("leakhunter", told.kind))
    if told.kind != "clean":
        item.user_properties.append(("leakhunter.text", told.text))
    report.user_properties = list(item.user_properties)


def _longrepr(item: pytest.Item, outcome: Outcome, told: Told) -> Any:
    """A failure whose place is the line to change, for those who read places: editors, JUnit, annotations."""
    from _pytest._code.code import ReprEntry, ReprExceptionInfo, ReprFileLocation, ReprTraceback

    from leakhunter.testing.check import place_of
    from leakhunter.testing.outcome import headline, location

    file, line = location(outcome, place_of(item))
    place = ReprFileLocation(file, line, headline(outcome))
    rest = told.text.split("\n")[1:]
    entry = ReprEntry(rest, None, None, place, "short")
    return ReprExceptionInfo(ReprTraceback([entry], None, "short"), place)


def _log_leaked(item: pytest.Item, outcome: Outcome) -> None:
    """A report of its own for what outlived the test, whose reports are out already."""
    told = _told(item, outcome)
    call = pytest.TestReport(item.nodeid, item.location, {}, "failed", _longrepr(item, outcome, told), "call")
    # Reports may have more attributes, which workers send along.
    vars(call)["leakhunter_leaked"] = told.kind == "leak"
    _add_properties(item, call, told)
    done = pytest.TestReport(item.nodeid, item.location, {}, "passed", None, "teardown")
    done.user_properties = list(item.user_properties)
    for report in (call, done):
        item.ihook.pytest_runtest_logreport(report=report)


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport, config: pytest.Config) -> Any:
    """A test that outlives itself has an outcome of its own."""
    if getattr(report, "leakhunter_leaked", False):
        return "leaked", "L", ("LEAKED", {"red": True})
    return None


def _count(run: Run, item: pytest.Item, check: Check) -> None:
    tally = run.counted()
    if check.unchecked:
        tally.unchecked[check.unchecked] += 1
        return
    outcomes = [outcome for outcome in (check.inside, check.after) if outcome is not None]
    if outcomes and outcomes[0].kind != "unmeasured":
        tally.checked.append(item.nodeid)
    elif outcomes:
        tally.unchecked[outcomes[0].reason] += 1
    cyclic = max((outcome.cyclic for outcome in outcomes), default=0)
    if cyclic and check.settings.cycles != "off":
        tally.cyclic[item.nodeid] = cyclic
    tally.results += [_told(item, outcome) for outcome in outcomes if outcome.kind not in ("clean", "unmeasured")]


# ----------------------------------------------------------------------------------------------------------
# the run


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Send what was found to the controller, or write it."""
    run = session.config.stash[RUN]
    tally = run.tally
    output = getattr(session.config, "workeroutput", None)
    if tally is not None and output is not None:
        output["leakhunter"] = tally.to_plain()
    if output is not None or (tally is None and not run.reports and not run.updates):
        return
    tally = run.counted()
    if tally.nothing_measured and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if run.baseline_file is not None:
        from leakhunter.testing import baseline

        known = run.baseline or baseline.Baseline({})
        for entry in known.gone(tally.results, tally.checked):
            run.remarks.append(f"gone from the baseline: {entry.leak} ({entry.signature})")
        if run.updates:
            renewed = known.renewed(tally.results, tally.checked)
            baseline.write(run.baseline_file, renewed)
            run.remarks.append(f"baseline: {len(renewed.entries)} known leaks written to {run.baseline_file}")
    if run.reports:
        from leakhunter.testing.tally import write_report

        run.remarks += [write_report(tally, wanted) for wanted in run.reports]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """A worker of pytest-xdist has sent its tally."""
    sent = getattr(node, "workeroutput", {}).get("leakhunter")
    if sent is not None:
        node.config.stash[RUN].counted().add(sent)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One section, where something was checked."""
    run = config.stash[RUN]
    if run.tally is None:
        return
    from leakhunter.testing.tally import closing, summary

    verbosity = config.get_verbosity("leakhunter")
    leaked = terminalreporter.getreports("leaked")
    lines = list(summary(run.tally, verbosity)) + run.remarks
    if not (leaked or lines) and verbosity < 0:
        return
    terminalreporter.write_sep("=", "leakhunter")
    for report in leaked:
        terminalreporter.write_sep("_", report.head_line or report.nodeid, red=True, bold=True)
        report.longrepr.toterminal(terminalreporter._tw)
    for line in lines:
        terminalreporter.write_line(line)
    terminalreporter.write_line(closing(run.tally))
