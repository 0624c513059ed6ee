"""The text a person reads, made from made-up reports."""

from __future__ import annotations

import dataclasses
import types

import pytest

from leakhunter import __version__
from leakhunter.findings import Evidence, Finding, Fix, Frame, Holder, Node, Report, Series, Verdict
from leakhunter.report import text

DIFF = """--- train.py
+++ train.py
@@ -41 +41 @@
-        total_loss += loss
+        total_loss += loss.item()
"""
FINDING = Finding(
    pattern="LH101",
    name="loss accumulated with its graph",
    severity="leak",
    meter="cuda:0",
    bytes_per_step=390 * 1024,
    bytes_held=14 << 20,
    count=37,
    first_step=4,
    step=40,
    holder=Holder(
        "total_loss", "local", "train.py:38", "train()", (Node("loss", "Tensor", "", "yes", "old"),)
    ),
    site=(Frame("net.py", 40, "forward", "criterion(net(x), y)"),),
    evidence=Evidence(("total_loss holds 37 graphs", "259 nodes"), share=0.976),
    fix=Fix("use loss.item()", DIFF, "loss.item() waits for the device"),
    forecast="cuda:0 is full in about 181,000 steps",
    signature="0a1b2c3d",
    statement=Frame("train.py", 41, "train"),
)
NATIVE = Holder("memory", "native")
MALLOC = Series("malloc (glibc)", "bytes", (1, 2), (1024.0, 4096.0), Verdict("flat"))


def changed(**fields) -> Finding:
    return dataclasses.replace(FINDING, **fields)


def report(*findings: Finding, **fields) -> Report:
    given = {
        "watched": "DataLoader at train.py:37",
        "steps": 1200,
        "seconds_per_step": 0.1,
        "series": (MALLOC,),
    }
    return Report(findings=findings, **{**given, **fields})


# ----------------------------------------------------------------------------------------------------------
# one line that stands alone


@pytest.mark.parametrize(
    "words",
    [
        "train.py:41",
        "LH101 loss accumulated with its graph",
        "390 KiB per step",
        "held by total_loss",
        "use loss.item()",
    ],
)
def test_a_headline_says_place_pattern_rate_holder_and_fix(words):
    assert words in text.headline(FINDING)


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({}, "train.py:41 LH101"),
        ({"statement": None}, "net.py:40 LH101"),
        ({"statement": None, "site": ()}, "train.py:38 LH101"),
        ({"statement": None, "site": (), "holder": NATIVE}, "LH101"),
    ],
)
def test_a_headline_begins_with_the_place_to_look_at(fields, start):
    assert text.headline(changed(**fields)).startswith(start)


@pytest.mark.parametrize("say", [text.headline, text.finding])
def test_the_place_is_written_as_it_would_be_typed_from_here(say, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = changed(statement=Frame(str(tmp_path / "train.py"), 41, "train"))
    assert say(found).startswith("train.py:41 ")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_last_line_counts_open_findings_and_gives_their_headlines(count):
    found = [changed(name=f"mistake {number}", signature=str(number)) for number in range(count)]
    line = text.closing(report(*found))
    said = "open finding: " if count == 1 else "open findings: "
    assert f"1,200 steps of DataLoader at train.py:37: {count} {said}" in line
    assert all(text.headline(item) in line for item in found)
    assert "\n" not in line


@pytest.mark.parametrize("finding", [changed(status="resolved at step 512"), changed(severity="note")])
def test_what_is_resolved_or_a_note_is_no_open_finding(finding):
    line = text.closing(report(finding))
    assert "no leak found" in line
    assert "open finding" not in line


def test_a_healthy_loop_says_what_was_measured():
    rss = dataclasses.replace(MALLOC, meter="RSS", verdict=Verdict("stepped"), judged=False)
    assert text.closing(report(series=(MALLOC, rss))).endswith("no leak found (malloc (glibc) flat)")


@pytest.mark.parametrize(
    "series",
    [
        (),
        (dataclasses.replace(MALLOC, meter="RSS", judged=False),),
        (dataclasses.replace(MALLOC, steps=(), readings=()),),
    ],
    ids=["no meters", "RSS alone", "no reading"],
)
def test_a_loop_of_which_nothing_exact_was_measured_is_not_called_clean(series):
    assert "no leak found" not in text.closing(report(series=series))


def test_too_few_steps_give_no_verdict():
    note = "9 steps are too few for a verdict; at least 36 are needed"
    line = text.closing(report(steps=9, notes=(note,)))
    assert "no verdict" in line
    assert note in line
    assert "no leak found" not in line


def test_too_few_steps_do_not_hide_a_finding():
    note = "9 steps are too few for a verdict; at least 36 are needed"
    assert "1 open finding" in text.closing(report(FINDING, steps=9, notes=(note,)))


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        (("nothing was watched: the loop made no step",), "the loop made no step"),
        (("leakhunter is switched off",), "leakhunter is switched off"),
        ((), "nothing was watched"),
    ],
)
def test_nothing_watched_is_said_and_is_not_clean(notes, words):
    line = text.closing(report(steps=0, notes=notes, series=()))
    assert words in line
    assert "DataLoader at train.py:37" in line
    assert "no leak found" not in line


def test_the_first_line_of_the_log_names_version_meters_and_cost():
    hunt = types.SimpleNamespace(
        watched="range at a.py:3", cost=12.4e-6, judged=["malloc (glibc)", "Python objects"]
    )
    expected = "watches range at a.py:3: malloc (glibc), Python objects; about 12 us a step"
    assert text.opening(hunt) == f"leakhunter {__version__} {expected}"



# ----------------------------------------------------------------------------------------------------------
# a finding in full


def test_a_finding_in_full():
    assert text.finding(FINDING).splitlines() == [
        "train.py:41  LH101 loss accumulated with its graph   +390 KiB per step, 98% of the growth of cuda:0",
        "  grows      total_loss holds 37 graphs",
        "             259 nodes",
        "  held by    local `total_loss` in train() train.py:38",
        "               loss Tensor  leaking: yes  old",
        "  allocated  net.py:40 in forward()  criterion(net(x), y)",
        "  fix        use loss.item()",
        "             - total_loss += loss",
        "             + total_loss += loss.item()",
        "             (loss.item() waits for the device)",
        "  forecast   cuda:0 is full in about 181,000 steps",
    ]


BARE = changed(
    site=(), statement=None, holder=NATIVE, evidence=Evidence(share=1.0), fix=Fix("call empty()"), forecast=""
)


def test_a_finding_leaves_out_what_is_not_known():
    assert text.finding(BARE).splitlines() == [
        "LH101 loss accumulated with its graph   +390 KiB per step, 100% of the growth of cuda:0",
        "  held by    `memory`",
        "  fix        call empty()",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"status": "resolved at step 512"}, "[resolved at step 512]"),
        ({"severity": "growth"}, "(growth)"),
        ({"severity": "note"}, "(note)"),
    ],
)
def test_the_title_says_status_and_severity(fields, words):
    assert words in text.finding(changed(**fields)).splitlines()[0]
    assert words not in text.finding(FINDING)


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        (Holder("a.b", "local", "x.py:3", "f()"), "local `a.b` in f() x.py:3"),
        (Holder("a.b", "local"), "local `a.b`"),
        (Holder("net.cache", "module global", "x.py:3", "f()"), "module global `net.cache` x.py:3"),
        (NATIVE, "`memory`"),
    ],
)
def test_the_holder_is_named_with_its_kind_and_place(holder, words):
    lines = text.finding(changed(holder=holder)).splitlines()
    assert f"  held by    {words}" in lines


@pytest.mark.parametrize("count", [0, 1, 8, 9, 40])
def test_a_long_chain_of_nodes_is_cut_in_the_middle(count):
    nodes = tuple(Node(f".link{number}", "dict") for number in range(count))
    lines = text.finding(changed(holder=Holder("a", "local", nodes=nodes))).splitlines()
    shown = [line for line in lines if ".link" in line]
    assert len(shown) == min(count, text.MOST_NODES)
    assert any(line.strip() == "..." for line in lines) is (count > text.MOST_NODES)
    if count:
        assert ".link0 " in shown[0]
        assert f".link{count - 1} " in shown[-1]


def test_a_deep_stack_shows_its_innermost_frames():
    site = tuple(Frame(f"deep{number}.py", number, "f") for number in range(9))
    shown = [line for line in text.finding(changed(site=site)).splitlines() if "deep" in line]
    assert shown[0].startswith("  allocated  deep0.py:0 in f()")
    assert len(shown) == 3


def test_the_lines_of_a_fix_keep_their_indentation_to_each_other():
    diff = "@@ -1 +1,2 @@\n-    def f(x=[]):\n+    def f(x=None):\n+        x = [] if x is None else x\n"
    lines = text.finding(changed(fix=Fix("make it anew", diff))).splitlines()
    assert lines[-4:-1] == [
        "             - def f(x=[]):",
        "             + def f(x=None):",
        "             +     x = [] if x is None else x",
    ]


def test_only_changed_lines_of_a_diff_are_shown():
    diff = DIFF.replace("-  ", " before = 1\n-  ") + " after = 2\n"
    shown = text.finding(changed(fix=Fix("use item()", diff)))
    assert "= 1" not in shown
    assert "= 2" not in shown
    assert "@@" not in shown
    assert "train.py" not in shown.split("  fix  ", 1)[1]
    assert "- total_loss += loss\n" in shown


# ----------------------------------------------------------------------------------------------------------
# long and hostile text


SENTENCE = " ".join(f"word{number}" for number in range(80))
LONG = {
    "a statement": {"evidence": Evidence((SENTENCE,), share=1.0)},
    "a path": {"holder": Holder(SENTENCE, "local", "x.py:1", "f()")},
    "a line of code": {"site": (Frame("net.py", 1, "f", SENTENCE),)},
    "a fix": {"fix": Fix(SENTENCE)},
    "a caveat": {"fix": Fix("do it", "", SENTENCE)},
    "a forecast": {"forecast": SENTENCE},
}


@pytest.mark.parametrize("name", LONG)
def test_long_text_wraps_under_its_field(name):
    lines = text.finding(changed(**LONG[name])).splitlines()
    assert all(len(line) <= text.WIDTH for line in lines)
    shown = [line for line in lines if "word" in line]
    assert len(shown) > 3
    assert all(line.startswith(" " * (text.LABEL + 2)) for line in shown[1:])
    assert " ".join(part.strip() for part in shown).count("word") == 80


@pytest.mark.parametrize("length", [50, 118, 300])
def test_a_long_file_name_is_never_broken(length):
    file = "/far/" + "x" * length + "/net.py"
    lines = text.finding(changed(site=(Frame(file, 40, "forward", "a = b"),))).splitlines()
    assert sum(f"{file}:40" in line for line in lines) == 1
    assert all(len(line) <= text.WIDTH or file in line for line in lines)


HOSTILE = ["{0}{x!r}{", "%s%d%(a)s%", "`'\"\\", "<b>&amp;</b>", "漢字 é 😀"]


@pytest.mark.parametrize("name", HOSTILE)
def test_odd_signs_are_shown_as_they_are(name):
    odd = changed(
        statement=Frame(f"{name}.py", 1, "f"),
        holder=Holder(name, "local", f"{name}:2", f"{name}()", (Node(name, name, name, "yes", name),)),
        site=(Frame(f"{name}.py", 3, name, name),),
        evidence=Evidence((name,), share=1.0),
        fix=Fix(name, f"-{name}\n+{name}2\n", name),
    )
    shown = str(report(odd, watched=f"range at {name}.py:1", notes=(name,)))
    assert shown.count(name) >= 12
    assert text.headline(odd).startswith(f"{name}.py:1 LH101")


@pytest.mark.parametrize("sign", ["\n", "\r", "\x1b[2J"], ids=["newline", "return", "escape"])
@pytest.mark.parametrize(
    "fields",
    [
        lambda name: {"statement": Frame(name, 1, "f")},
        lambda name: {"holder": Holder(f"table['{name}']", "local", f"{name}:3")},
    ],
    ids=["file", "path"],
)
def test_a_headline_is_one_line_whatever_the_names(fields, sign):
    line = text.headline(changed(**fields(f"a{sign}b.py")))
    assert line.isprintable()
    assert "LH101" in line


@pytest.mark.parametrize("sign", ["\n", "\r"], ids=["newline", "return"])
def test_a_name_with_a_line_break_adds_no_line(sign):
    def shown(name: str) -> list[str]:
        odd = changed(
            statement=Frame(name, 1, "f"),
            site=(Frame(name, 1, name, name),),
            holder=Holder(name, "local", name, name, (Node(name, name, name, "yes", name),)),
            evidence=Evidence((name,), share=1.0),
        )
        return text.finding(odd).splitlines()

    assert len(shown(f"a{sign}b.py")) == len(shown("a_b.py"))


def test_a_watched_file_with_a_line_break_leaves_the_verdict_in_one_line():
    assert len(text.closing(report(watched="range at a\nleakhunter: b.py:3")).splitlines()) == 1


# ----------------------------------------------------------------------------------------------------------
# the whole report


@pytest.mark.parametrize(
    ("series", "line"),
    [
        (MALLOC, "malloc (glibc): flat, 1.0 KiB to 4.0 KiB"),
        (
            dataclasses.replace(MALLOC, verdict=Verdict("growing", 2048.0, 1200)),
            "malloc (glibc): growing by 2.0 KiB a step since step 1,200, 1.0 KiB to 4.0 KiB",
        ),
        (
            Series("Python objects", "blocks", (1, 2), (1234567.0, 1e3), Verdict("sawtooth", 0.0, 5, 1500)),
            "Python objects: sawtooth with a period of 1,500 steps, 1,000 to 1,234,567",
        ),
    ],
)
def test_a_meter_is_one_line_in_its_unit(series, line):
    assert text.meter_line(series) == line


def test_a_report_has_its_verdict_findings_meters_and_notes_in_this_order():
    resolved = changed(status="resolved at step 512", signature="1")
    whole = report(FINDING, resolved, notes=("gc is off", "no CUDA"))
    shown = str(whole)
    parts = [
        text.closing(whole),
        text.finding(FINDING),
        text.finding(resolved),
        text.meter_line(MALLOC),
        "note: gc is off",
        "note: no CUDA",
    ]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)
    assert places[0] == 0


def test_a_meter_without_readings_is_left_out():
    assert "idle" not in str(
        report(series=(MALLOC, Series("idle", "bytes", (), (), Verdict("inconclusive"))))
    )


def test_a_report_can_be_shown_after_it_was_read_from_json():
    whole = report(FINDING, notes=("gc is off",))
    assert str(Report.from_dict(whole.to_dict())) == str(whole)


@pytest.mark.parametrize("whole", [report(), report(FINDING), report(steps=0, series=(), notes=("off",))])
def test_lines_do_not_end_in_blanks(whole):
    assert all(line == line.rstrip() for line in str(whole).splitlines())
    assert str(whole) == str(whole).strip()
