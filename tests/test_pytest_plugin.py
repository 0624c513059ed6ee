"""The pytest plugin, run in pytests of its own."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from importlib import metadata

import pytest

pytest_plugins = ["pytester"]

HEAD = """
import pytest, torch
KEPT = []
net = torch.nn.Linear(8, 8)
"""
LEAKS = """
@pytest.mark.leakhunter
def test_leaks():
    KEPT.append(torch.zeros(1024))
"""
OUTLIVES = """
def test_outlives():
    KEPT.append(torch.zeros(1024))
"""
CLEAN = """
@pytest.mark.leakhunter
def test_clean():
    net(torch.zeros(4, 8)).sum().backward()
    net.zero_grad()

def test_plain():
    assert net(torch.zeros(4, 8)).shape == (4, 8)
"""


@pytest.fixture
def run(pytester):
    """Run tests in a pytest of their own, which knows of other plugins only what it is told."""

    def run_tests(code, *arguments, plugins=()):
        if code is not None:
            pytester.makepyfile(test_it=code)
        ours = ["-p", "no:leakhunter", "-p", "leakhunter.pytest_plugin"]
        others = {"randomly", "rerunfailures", "asyncio", "xdist"} - set(plugins)
        blocked = [word for name in sorted(others) for word in ("-p", f"no:{name}")]
        return pytester.runpytest_subprocess(*ours, *blocked, *arguments)

    return run_tests


def outcomes(result):
    return {kind: count for kind, count in result.parseoutcomes().items() if kind not in ("warnings", "warning")}


# ----------------------------------------------------------------------------------------------------------
# what it says


def test_a_marked_test_whose_body_leaks_fails_with_the_line_the_repeats_and_the_holder(run):
    result = run(HEAD + LEAKS + CLEAN)
    assert result.ret == 1
    assert outcomes(result) == {"failed": 1, "passed": 2}
    result.stdout.fnmatch_lines(
        [
            "*_ test_leaks _*",
            "test_it.py:7: LH206 *, exactly 1 tensor of 4.0 KiB per call, 5 of 5 repeats, held by test_it.KEPT[[]*[]]",
            "  repeat  *  1  *  2  *  3  *  4  *  5  allowed",
            "  tensors  *  +1  *  +1  *  +1  *  +1  *  +1  *  0",
            "  tensor bytes *  +4,096  +4,096  +4,096  +4,096  +4,096  *  0",
            "  held by    module global `test_it.KEPT[[]*[]]` test_it.py:2",
            "*module test_it module  leaking: no*",
            "*KEPT list  *  leaking: unknown*",
            "*Tensor  *  leaking: yes*",
            "  allocated  test_it.py:7 in test_leaks()*",
            "  fix  *",
            "  reproduce  pytest test_it.py::test_leaks --leakhunter-repeats 10",
            "*= leakhunter =*",
            "leakhunter: 2 checked, 1 leaking",
            "FAILED test_it.py::test_leaks - LH206*",
        ],
        consecutive=False,
    )
    # No frame of ours or of a library stands before the user's line.
    text = result.stdout.str()
    assert "leakhunter/" not in text.split("_ test_leaks _")[1].split("= leakhunter =")[0]


def test_what_outlives_a_test_has_an_outcome_of_its_own(run, pytester):
    result = run(HEAD + OUTLIVES + CLEAN, "--leakhunter", "--junitxml=junit.xml")
    assert result.ret == 1
    assert outcomes(result) == {"passed": 3, "leaked": 1}
    result.stdout.fnmatch_lines(
        [
            "leakhunter: *, checks every test; 2 calls to warm up, 5 repeats, device used",
            "test_it.py .L.. *",
            "*_ test_outlives _*",
            "test_it.py:6: LH206 *, exactly 1 tensor of 4.0 KiB per test, 5 of 5 repeats, held by test_it.KEPT*",
            "  reproduce  pytest test_it.py::test_outlives --leakhunter",
            "leakhunter: 3 checked, 1 leaking",
        ]
    )
    suite = ElementTree.parse(pytester.path / "junit.xml").getroot()[0]
    assert suite.get("failures") == "1"
    failed = [case for case in suite.iter("testcase") if case.find("failure") is not None]
    assert [case.get("name") for case in failed] == ["test_outlives"]
    properties = {p.get("name"): p.get("value") for p in failed[0].iter("property")}
    assert properties["leakhunter"] == "leak"
    assert properties["leakhunter.text"].startswith("test_it.py:6: LH206")
    assert "held by" in properties["leakhunter.text"]


def test_a_loop_of_the_tests_own_is_watched_by_the_fixture(run):
    result = run(
        HEAD
        + """
def test_loop(leakhunter):
    total = 0
    for _ in leakhunter.watch(range(60)):
        total = total + net(torch.randn(4, 8)).sum()
    assert leakhunter.report.open

def test_clean_loop(leakhunter):
    for _ in leakhunter.watch(range(60)):
        net(torch.randn(4, 8)).sum()
    assert leakhunter.report.steps == 60

def test_function(leakhunter):
    leakhunter.check(lambda: KEPT.append(torch.zeros(1024)), repeats=40)

def test_block(leakhunter):
    with leakhunter.expect_clean():
        KEPT.append(torch.zeros(256))

def test_clean_block(leakhunter):
    with leakhunter.expect_clean():
        net(torch.zeros(4, 8))

def test_nothing(leakhunter):
    with pytest.raises(LookupError, match="nothing was watched yet"):
        leakhunter.report
"""
    )
    assert outcomes(result) == {"failed": 3, "passed": 3}
    result.stdout.fnmatch_lines(
        [
            "test_it.py:8: LH101 loss accumulated with its graph, +* per step, held by total",
            "*- total = total + net(torch.randn(4, 8)).sum()",
            "*+ total = total + net(torch.randn(4, 8)).sum().item()",
            "  reproduce  pytest test_it.py::test_loop",
            "test_it.py:17: LH206 *",
            "test_it.py:19: tensors are left behind, exactly 1 tensor of 1.0 KiB",
            "  held by    test_it.KEPT[[]*[]]: 1.0 KiB",
            "leakhunter: 5 checked, 3 leaking, 1 not checked (the fixture watched nothing: use it around the loop)",
        ]
    )
    result.stdout.no_fnmatch_line("*Captured log*")


def test_a_failed_test_is_not_checked_and_says_so(run):
    result = run(HEAD + OUTLIVES + "    assert 0\n", "--leakhunter")
    assert outcomes(result) == {"failed": 1}
    result.stdout.fnmatch_lines(["not checked for leaks: a test that failed is kept alive by its traceback"])
    result.stdout.fnmatch_lines(["leakhunter: 0 checked, 1 not checked (failed)"])


def test_a_body_that_cannot_be_repeated_says_which_call_failed(run):
    result = run(HEAD + "@pytest.mark.leakhunter\ndef test_once():\n    KEPT.append(1)\n    assert len(KEPT) == 1\n")
    assert outcomes(result) == {"failed": 1}
    result.stdout.fnmatch_lines(["call 2 of this test failed, after others had passed: *fresh_fixtures=True*"])


def test_cycles_that_gc_had_to_free_are_reported(run):
    result = run(
        HEAD
        + """
class Node: pass

def make():
    node = Node()
    node.self, node.data = node, torch.zeros(1000)

@pytest.mark.leakhunter
def test_judged():
    make()

@pytest.mark.leakhunter(cycles="off")
def test_off():
    make()

def test_plain():
    make()
""",
        "--leakhunter",
    )
    assert outcomes(result) == {"failed": 1, "passed": 2}
    result.stdout.fnmatch_lines(
        [
            "test_it.py:9: LH801 *, 1 tensor per call in cycles that gc had to free, held by Node.self",
            "test_it.py::test_plain: 1 tensor in reference cycles that gc had to free",
        ]
    )
    result.stdout.no_fnmatch_line("test_it.py::test_off: *")


# ----------------------------------------------------------------------------------------------------------
# options


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("repeat=3", "*test_it.py::test_a: leakhunter has no option 'repeat': did you mean 'repeats'?"),
        ("zzz=3", "*leakhunter has no option 'zzz': the options are per_call, tensors, *"),
        ("per_call='4 sacks'", "*per_call is '4 sacks': give bytes, or a size such as \"4 KiB\""),
        ("per_call=-1", "*per_call is -1: *"),
        ("tensors=True", "*tensors is True: give a whole number of at least 0"),
        ("warmup=0", "*warmup is 0: give a whole number of at least 1"),
        ("repeats=2", "*repeats is 2: give at least 3*"),
        ("cycles='some'", "*cycles is 'some': give one of tensors, all, off"),
        ("ignore=['LH206']", "*ignore is ['LH206']: give what is ignored and why*"),
        ("ignore={'LH206': ''}", "*ignore is {'LH206': ''}: give what is ignored and why*"),
        ("expect_leak=True", "*expect_leak is True: give the reason*"),
        ("fresh_fixtures='maybe'", "*fresh_fixtures is 'maybe': give True or False"),
        ("device=0", '*device is 0: give "cpu"*'),
        ("'4 KiB'", "*the leakhunter marker takes keywords only: write per_call=..."),
    ],
)
def test_a_wrong_option_is_an_error_before_anything_runs(run, marker, message):
    result = run(f"import pytest\n@pytest.mark.leakhunter({marker})\ndef test_a(): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message.replace("['LH206']", "[[]'LH206'[]]")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--leakhunter-per-call=x"], "*--leakhunter-per-call: per_call is 'x': *"),
        (["--leakhunter-repeats=1"], "*--leakhunter-repeats: repeats is '1': *"),
        (["--leakhunter-report=pdf"], "*--leakhunter-report=pdf: give one of json, html, sarif, or FORMAT:PATH"),
        (["--leakhunter-baseline=none.json"], "*none.json cannot be read (*): add --leakhunter-update-baseline*"),
        (["--leakhunter-baseline=bad.json"], "*bad.json is no baseline: *"),
        (["--leakhunter-update-baseline"], "*needs --leakhunter-baseline FILE*"),
        (["-o", "leakhunter_cycles=x"], "*leakhunter_cycles in the ini file: cycles is 'x': *"),
    ],
)
def test_a_wrong_argument_is_an_error(run, pytester, arguments, message):
    (pytester.path / "bad.json").write_text("{}")
    result = run("def test_a(): pass\n", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_command_line_then_marker_then_ini_then_default(run, pytester):
    code = """
from leakhunter.pytest_plugin import CHECK
def pytest_collection_finish(session):
    for item in session.items:
        settings = item.stash[CHECK].settings
        print(item.name, settings.warmup, settings.repeats, settings.tensors, settings.cycles, dict(settings.ignore))
"""
    pytester.makeconftest(code)
    pytester.makeini(
        "[pytest]\nleakhunter_repeats = 7\nleakhunter_warmup = 3\nleakhunter_ignore =\n  LH1=a reason\n  LH2=b\n"
    )
    tests = """
import pytest
pytestmark = pytest.mark.leakhunter(warmup=4, tensors=1)
@pytest.mark.leakhunter(tensors=2, repeats=9)
def test_a(): pass
def test_b(): pass
"""
    result = run(tests, "--collect-only", "-q", "-s", "--leakhunter-repeats=4", "--leakhunter-cycles=all")
    ignored = "{'LH1': 'a reason', 'LH2': 'b'}"
    result.stdout.fnmatch_lines([f"test_a 4 4 2 all {ignored}", f"test_b 4 4 1 all {ignored}"])
    result = run(None, "--collect-only", "-q", "-s")
    result.stdout.fnmatch_lines([f"test_a 4 9 2 tensors {ignored}", f"test_b 4 7 1 tensors {ignored}"])


def test_leaks_can_be_allowed_ignored_and_expected(run):
    result = run(
        HEAD
        + """
@pytest.mark.leakhunter(tensors=1)
def test_allowed():
    KEPT.append(torch.zeros(1))

@pytest.mark.leakhunter(tensors=1)
def test_more_than_allowed():
    KEPT.extend([torch.zeros(1), torch.zeros(1)])

@pytest.mark.leakhunter(per_call="64 KiB")
def test_small():
    KEPT.append(torch.zeros(1000))

@pytest.mark.leakhunter(ignore={"test_it.KEPT": "issue 7"})
def test_ignored():
    KEPT.append(torch.zeros(1))

@pytest.mark.leakhunter(expect_leak="issue 8")
def test_expected():
    KEPT.append(torch.zeros(1))

@pytest.mark.leakhunter(expect_leak="issue 9")
def test_gone():
    pass

@pytest.mark.leakhunter(device="cuda:7")
def test_elsewhere():
    KEPT.append(torch.zeros(1))
"""
    )
    assert outcomes(result) == {"passed": 3, "failed": 2, "xfailed": 1, "skipped": 1}
    result.stdout.fnmatch_lines(
        [
            "test_it.py:11: LH206 *, exactly 2 tensors per call, *",
            "*: the expected leak is gone: take expect_leak away (issue 9)",
            "test_it.py::test_ignored: ignored: LH206 *(issue 7)",
            "test_it.py::test_expected: expected: LH206 *(issue 8)",
        ]
    )


def test_fixtures_are_kept_for_all_calls_unless_fresh_ones_are_asked_for(run):
    result = run(
        HEAD
        + """
made = []

@pytest.fixture
def history():
    made.append(1)
    return []

@pytest.mark.leakhunter
def test_same(history):
    history.append(torch.zeros(1))
    assert len(made) == 1

@pytest.mark.leakhunter(fresh_fixtures=True)
def test_fresh(history):
    history.append(torch.zeros(1))
    assert len(history) == 1

@pytest.mark.leakhunter(fresh_fixtures=True)
def test_fresh_and_leaking(history):
    KEPT.append(torch.zeros(1))

@pytest.mark.leakhunter(fresh_fixtures=True, expect_leak="issue 1")
def test_fresh_and_expected(history):
    KEPT.append(torch.zeros(1))
"""
    )
    assert outcomes(result) == {"passed": 3, "failed": 1, "leaked": 1}
    result.stdout.fnmatch_lines(
        ["*exactly 1 tensor of 4 B per call*held by history[[]*[]]", "*_ test_fresh_and_leaking _*"]
    )
    result.stdout.fnmatch_lines(["test_it.py::test_fresh_and_expected: expected: LH206 *(issue 1)"])


# ----------------------------------------------------------------------------------------------------------
# kinds of tests

KINDS = (
    HEAD
    + """
import asyncio, logging, subprocess, sys, unittest, warnings

class TestCase(unittest.TestCase):
    def setUp(self):
        self.x = torch.zeros(100)

    def test_leaks(self):
        KEPT.append(self.x + 1)

    def test_clean(self):
        self.y = self.x + 1

class TestAwaited(unittest.IsolatedAsyncioTestCase):
    async def test_leaks(self):
        await asyncio.sleep(0)
        KEPT.append(torch.zeros(100))

    async def test_clean(self):
        await asyncio.sleep(0)

class TestPlain:
    @pytest.fixture(scope="class")
    def of_class(self):
        return torch.zeros(100)

    def setup_method(self):
        self.model = torch.nn.Linear(10, 10)

    def test_clean(self, of_class):
        self.out = self.model(torch.zeros(3, 10))

    def test_clean_too(self, of_class):
        assert of_class.shape == (100,)

@pytest.fixture(scope="session")
def of_session():
    return torch.nn.Linear(20, 20)

def test_session(of_session, tmp_path):
    of_session(torch.zeros(1, 20))

@pytest.mark.parametrize("leaks", [False, True])
def test_parametrised(leaks):
    if leaks:
        KEPT.append(torch.zeros(100))

def test_chatty(monkeypatch, caplog, capsys):
    logging.getLogger("x").warning("said")
    warnings.warn("warned")
    print("printed")
    monkeypatch.setattr(torch, "made_up", 1, raising=False)

def test_cached():
    if not KEPT:
        KEPT.append(torch.zeros(100))

def test_subprocess():
    subprocess.run([sys.executable, "-c", "pass"], check=True)
"""
)


@pytest.mark.parametrize("way", ["marked", "asked"])
def test_every_kind_of_test_is_checked(run, way):
    marker = "\npytestmark = pytest.mark.leakhunter\n" if way == "marked" else ""
    arguments = ["--leakhunter"] if way == "asked" else []
    result = run(KINDS + marker, "-v", "--strict-markers", "-p", "no:cacheprovider", *arguments)
    bad = "failed" if way == "marked" else "leaked"
    # What was reported as leaked had passed.
    assert outcomes(result) == {bad: 3, "passed": 9 if way == "marked" else 12}
    told = [
        line
        for line in result.outlines
        if re.search(f"test_leaks {bad.upper()}|leaks_True.* {bad.upper()}|\\[True\\] {bad.upper()}", line)
    ]
    assert len(told) == 3


def test_examples_of_hypothesis_are_the_repeats(run):
    result = run(
        HEAD
        + """
from hypothesis import given, settings, strategies as st

@pytest.mark.leakhunter
@settings(deadline=None)
@given(st.floats(0, 1))
def test_leaks(x):
    KEPT.append(torch.full((1024,), x))

@pytest.mark.leakhunter
@settings(deadline=None)
@given(st.floats(0, 1))
def test_clean(x):
    torch.full((1024,), x)
"""
    )
    assert outcomes(result) == {"failed": 1, "passed": 1}
    result.stdout.fnmatch_lines(["test_it.py:11: LH206 *, +* per step, held by test_it.KEPT[[]*[]]"])


def test_doctests_are_checked(run, pytester):
    pytester.makepyfile(
        module='import torch\nKEPT = []\ndef f():\n    """\n    >>> KEPT.append(torch.zeros(9))\n    """\n'
    )
    result = run(None, "--doctest-modules", "--leakhunter", "module.py")
    assert outcomes(result) == {"passed": 1, "leaked": 1}


def test_random_numbers_go_on_as_if_nothing_had_been_repeated(run):
    result = run(
        HEAD
        + """
import random
@pytest.mark.leakhunter
def test_first():
    torch.manual_seed(0); random.seed(0)
    torch.rand(1); random.random()

def test_second():
    torch_now, python_now = torch.rand(1).item(), random.random()
    torch.manual_seed(0); random.seed(0)
    torch.rand(1); random.random()
    assert (torch_now, python_now) == (torch.rand(1).item(), random.random())
"""
    )
    assert outcomes(result) == {"passed": 2}


# ----------------------------------------------------------------------------------------------------------
# with other plugins


@pytest.mark.parametrize("arguments", [["-n", "2"], ["-n", "1", "--dist=loadfile"]])
def test_workers_of_xdist_send_what_they_find(run, pytester, arguments):
    report = ["--leakhunter-report=json"]
    result = run(HEAD + LEAKS + CLEAN + OUTLIVES, "--leakhunter", *report, *arguments, plugins=["xdist"])
    assert result.ret == 1
    assert outcomes(result) == {"failed": 1, "passed": 3, "leaked": 1}
    result.stdout.fnmatch_lines(["*_ test_outlives _*", "test_it.py:*: LH206 *", "leakhunter: 4 checked, 2 leaking"])
    found = json.loads((pytester.path / "leakhunter.json").read_text())
    assert found["watched"] == "4 tests"
    assert len(found["findings"]) == 1
    assert sorted(note.split(":")[2] for note in found["notes"]) == ["test_leaks", "test_outlives"]


def test_a_leak_is_run_again_by_rerunfailures_and_counts_once(run):
    pytest.importorskip("pytest_rerunfailures")
    code = HEAD + LEAKS + "@pytest.mark.leakhunter\ndef test_flaky():\n    if len(KEPT) < 1000:\n"
    code += "        KEPT.extend(map(torch.zeros, [1] * 500))\n        assert 0\n"
    result = run(code, "--reruns=2", plugins=["rerunfailures"])
    assert outcomes(result) == {"failed": 1, "passed": 1, "rerun": 4}
    result.stdout.fnmatch_lines(["leakhunter: 2 checked, 1 leaking"])


def test_random_order_changes_nothing(run):
    pytest.importorskip("pytest_randomly")
    for seed in ("1", "2"):
        result = run(HEAD + LEAKS + CLEAN + OUTLIVES, "--leakhunter", f"--randomly-seed={seed}", plugins=["randomly"])
        assert outcomes(result) == {"failed": 1, "passed": 3, "leaked": 1}


def test_coroutines_of_asyncio_are_repeated(run):
    pytest.importorskip("pytest_asyncio")
    code = """
import asyncio
@pytest.mark.asyncio
@pytest.mark.leakhunter
async def test_leaks():
    await asyncio.sleep(0)
    KEPT.append(torch.zeros(1024))

@pytest.mark.asyncio
@pytest.mark.leakhunter
async def test_clean():
    await asyncio.sleep(0)
"""
    result = run(HEAD + code, plugins=["asyncio"])
    assert outcomes(result) == {"failed": 1, "passed": 1}


def test_the_time_limit_of_timeout_holds_for_all_calls(run):
    pytest.importorskip("pytest_timeout")
    code = "import time\n@pytest.mark.leakhunter\ndef test_slow():\n    time.sleep(0.5)\n"
    result = run(HEAD + code + CLEAN, "--timeout=2")
    assert outcomes(result) == {"failed": 1, "passed": 2}


def test_annotations_of_github_lead_to_the_line(run, monkeypatch):
    pytest.importorskip("pytest_github_actions_annotate_failures")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run(HEAD + LEAKS + OUTLIVES, "--leakhunter")
    result.stderr.fnmatch_lines(["::error file=test_it.py,line=7::*LH206*", "::error file=test_it.py,line=10::*LH206*"])


# ----------------------------------------------------------------------------------------------------------
# the run


def test_known_leaks_are_listed_and_new_ones_fail(run, pytester):
    code = HEAD + LEAKS
    result = run(code, "--leakhunter-baseline=known.json", "--leakhunter-update-baseline")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["baseline: 1 known leaks written to *known.json"])
    known = json.loads((pytester.path / "known.json").read_text())
    assert [entry["tests"] for entry in known["leaks"]] == [["test_it.py::test_leaks"]]

    more = "OTHER = {}\n@pytest.mark.leakhunter\ndef test_new():\n    OTHER[len(OTHER)] = torch.zeros(1024)\n"
    result = run(code + more, "--leakhunter-baseline=known.json")
    assert outcomes(result) == {"passed": 1, "failed": 1}
    result.stdout.fnmatch_lines(
        ["test_it.py::test_leaks: known: LH206 *", "leakhunter: 2 checked, 1 leaking, 1 known from the baseline"]
    )

    result = run(HEAD + LEAKS.replace("KEPT.append(torch.zeros(1024))", "pass"), "--leakhunter-baseline=known.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["gone from the baseline: LH206 *"])


def test_a_run_that_measured_nothing_does_not_pass(run):
    result = run("def test_a(): pass\n", "--leakhunter")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["nothing could be measured: torch was not loaded", "leakhunter: 0 checked, 1 not checked*"]
    )


def test_nothing_is_said_where_nothing_was_asked(run):
    result = run(HEAD + OUTLIVES)
    assert result.ret == 0
    assert "leakhunter" not in "".join(line for line in result.outlines if not line.startswith("plugins:"))


def test_torch_is_not_imported_until_a_check_needs_it(run):
    code = "import sys\ndef test_a():\n    assert 'torch' not in sys.modules\n    assert 'numpy' not in sys.modules\n"
    assert run(code).ret == 0
    assert outcomes(run(None, "--leakhunter")) == {"passed": 1}


def test_reports_are_written_in_the_format_that_is_asked_for(run, pytester):
    result = run(HEAD + LEAKS, "--leakhunter-report=json:leaks.json", "--leakhunter-report=html")
    found = json.loads((pytester.path / "leaks.json").read_text())
    assert [finding["pattern"] for finding in found["findings"]] == ["LH206"]
    assert found["environment"]["pytest"] == pytest.__version__
    result.stdout.fnmatch_lines(["report: *leaks.json"])
    told = [line for line in result.outlines if "html" in line and "report" in line]
    assert len(told) == 1


def test_the_options_are_explained(run):
    result = run("", "--help")
    result.stdout.fnmatch_lines(["leakhunter: memory leaks *:", "*--leakhunter-baseline=FILE*"])
    result.stdout.fnmatch_lines(["*leakhunter_per_call (string):*"])
    assert "@pytest.mark.leakhunter(per_call=None" in run("", "--markers").stdout.str()


def test_pytest_finds_the_plugin_by_itself():
    text = metadata.distribution("leakhunter").entry_points
    assert [(entry.group, entry.value) for entry in text if entry.name == "leakhunter"] == [
        ("pytest11", "leakhunter.pytest_plugin")
    ]
