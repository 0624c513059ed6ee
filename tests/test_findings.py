"""Reports as data: to and from JSON without loss, and a plain sentence for every file that is no report."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakhunter.findings import (
    ACCUSING,
    SCHEMA_VERSION,
    Breakdown,
    Cycle,
    CycleEdge,
    CycleNode,
    Evidence,
    Finding,
    Fix,
    Frame,
    Holder,
    Node,
    Report,
    Series,
    Verdict,
)

FINDING = Finding(
    pattern="LH101",
    name="loss accumulated with its graph",
    severity="leak",
    meter="cuda:0 allocated",
    bytes_per_step=399_360.0,
    bytes_held=14_785_000,
    count=37,
    first_step=4,
    step=40,
    holder=Holder(
        "total_loss", "local", "train.py:38", "train()", (Node("loss", "Tensor", "x", "yes", "old"),)
    ),
    site=(Frame("train.py", 40, "train_epoch", "criterion(net(x), y)"), Frame("main.py", 3, "<module>")),
    evidence=Evidence(("37 graphs", "14 MiB"), "held", 0.98, ((5, 7), (6, 7)), 37, 259, 14_000_000),
    fix=Fix("use loss.item()", "-total += loss\n+total += loss.item()\n", "waits for the device"),
    forecast="cuda:0 is full in about 181,000 steps",
    signature="0a1b2c3d",
    statement=Frame("train.py", 41, "train_epoch", "total_loss += loss"),
    status="resolved at step 60",
)
MALLOC = Series("malloc (glibc)", "bytes", (1, 2), (1e9, 2.5), Verdict("growing", 0.5, 8, 0))
REPORT = Report(
    watched="DataLoader at train.py:37",
    steps=60,
    seconds_per_step=0.25,
    findings=(FINDING, dataclasses.replace(FINDING, statement=None, site=(), status="open")),
    series=(
        MALLOC,
        Series("RSS", "bytes", (), (), Verdict("inconclusive")),
    ),
    notes=("Python's automatic gc is switched off",),
    options={"floor": 32.0, "warmup": None, "on_leak": "log", "enabled": True},
    environment={"torch": "2.13.0", "pid": "1"},
    created="2026-01-02T03:04:05+00:00",
)


def names(folder: pathlib.Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# ----------------------------------------------------------------------------------------------------------
# there and back


def test_a_report_survives_a_dict():
    assert Report.from_dict(REPORT.to_dict()) == REPORT


def test_a_report_survives_a_file(tmp_path):
    REPORT.to_json(tmp_path / "report.json")
    assert Report.from_json(str(tmp_path / "report.json")) == REPORT


def test_a_report_of_defaults_survives():
    report = Report("a loop", 0, 0.0)
    assert Report.from_dict(report.to_dict()) == report


finite = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(-(2**70), 2**70)
frames = st.builds(Frame, code=st.text())
evidences = st.builds(
    Evidence,
    statements=st.tuples(st.text()),
    share=finite,
    births=st.lists(st.tuples(counts, counts), max_size=2).map(tuple),
)
cycles = st.builds(
    Cycle,
    nodes=st.lists(st.builds(CycleNode), max_size=2).map(tuple),
    edges=st.lists(st.builds(CycleEdge), max_size=2).map(tuple),
)
breakdowns = st.builds(Breakdown, categories=st.dictionaries(st.text(), counts, max_size=3))
findings = st.builds(
    Finding,
    cycle=st.none() | cycles,
    bytes_per_step=finite,
    site=st.lists(frames, max_size=2).map(tuple),
    evidence=evidences,
    statement=st.none() | frames,
    holder=st.builds(Holder, nodes=st.lists(st.builds(Node), max_size=2).map(tuple)),
)
made_up = st.builds(
    Series,
    steps=st.lists(counts, max_size=3).map(tuple),
    readings=st.lists(finite, max_size=3).map(tuple),
    verdict=st.builds(Verdict, rate=finite),
)
reports = st.builds(
    Report,
    seconds_per_step=finite,
    findings=st.lists(findings, max_size=2).map(tuple),
    series=st.lists(made_up, max_size=2).map(tuple),
    notes=st.lists(st.text(), max_size=2).map(tuple),
    breakdown=st.lists(breakdowns, max_size=2).map(tuple),
    options=st.dictionaries(st.text(), st.none() | st.booleans() | finite | st.text(), max_size=3),
    environment=st.dictionaries(st.text(), st.text(), max_size=3),
)


@settings(max_examples=40, deadline=None)
@given(reports)
def test_every_report_survives_json(report):
    text = json.dumps(report.to_dict(), allow_nan=False)
    assert Report.from_dict(json.loads(text)) == report


def test_file_names_of_any_bytes_survive(tmp_path):
    report = dataclasses.replace(REPORT, watched=os.fsdecode(b"\xff\n{}\x00") + "\u2028é漢😀")
    report.to_json(tmp_path / "report.json")
    assert Report.from_json(tmp_path / "report.json") == report


def test_the_dict_holds_json_values_only():
    plain = REPORT.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["schema"] == SCHEMA_VERSION
    assert list(plain) == [field.name for field in dataclasses.fields(Report)]


def test_the_dict_is_a_copy():
    plain = REPORT.to_dict()
    plain["options"]["floor"] = 1
    plain["findings"].clear()
    assert REPORT.options["floor"] == 32.0
    assert len(REPORT.findings) == 2


def everywhere(value: object) -> object:
    """The same JSON with a key in every object of ours that nobody knows."""
    if isinstance(value, list):
        return [everywhere(item) for item in value]
    if isinstance(value, dict):
        return {**{key: everywhere(item) for key, item in value.items()}, "invented later": [1, {"x": None}]}
    return value


def test_unknown_keys_are_ignored():
    plain = everywhere(REPORT.to_dict())
    assert isinstance(plain, dict)
    plain["options"], plain["environment"] = REPORT.options, REPORT.environment
    assert Report.from_dict(plain) == REPORT


def test_keys_with_a_default_may_be_missing():
    plain = {"schema": SCHEMA_VERSION, "watched": "a loop", "steps": 3, "seconds_per_step": 1}
    assert Report.from_dict(plain) == Report("a loop", 3, 1.0)


def test_a_whole_number_may_stand_for_a_fraction():
    plain = {"schema": SCHEMA_VERSION, "watched": "a loop", "steps": 3, "seconds_per_step": 2}
    assert type(Report.from_dict(plain).seconds_per_step) is float


# ----------------------------------------------------------------------------------------------------------
# what is no report


def changed(*path: object, value: object = None, drop: bool = False) -> dict:
    plain = REPORT.to_dict()
    *way, last = path
    inner = plain
    for key in way:
        inner = inner[key]
    if drop:
        del inner[last]
    else:
        inner[last] = value
    return plain


DAMAGED = {
    "a key is missing": changed("watched", drop=True),
    "a key of a finding is missing": changed("findings", 0, "holder", drop=True),
    "a number is text": changed("steps", value="60"),
    "a number is a switch": changed("steps", value=True),
    "a fraction is text": changed("seconds_per_step", value="0.25"),
    "a fraction is a switch": changed("seconds_per_step", value=False),
    "a text is a number": changed("watched", value=5),
    "a list is an object": changed("findings", value={}),
    "a list is text": changed("notes", value="abc"),
    "a list is nothing": changed("series", value=None),
    "an object is a list": changed("findings", 0, "holder", value=[]),
    "an object is nothing": changed("findings", 0, "fix", value=None),
    "an item is of another kind": changed("findings", 0, value="LH101"),
    "a frame is text": changed("findings", 0, "site", 0, value="train.py:1"),
    "a pair has three": changed("findings", 0, "evidence", "births", 0, value=[1, 2, 3]),
    "a reading is text": changed("series", 0, "readings", 0, value="1"),
    "options are a list": changed("options", value=[1]),
    "the environment is a list": changed("environment", value=["torch"]),
    "a version is a number": changed("environment", "torch", value=2),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_report_is_refused_in_a_sentence(name):
    with pytest.raises(ValueError, match=r"report is damaged.*: write it again"):
        Report.from_dict(DAMAGED[name])


@pytest.mark.parametrize("schema", [0, SCHEMA_VERSION + 1, "1", None, 1.5, [], True])
def test_a_report_of_another_schema_is_refused_in_a_sentence(schema):
    with pytest.raises(ValueError, match=r"schema.*read it with the version that wrote it"):
        Report.from_dict(changed("schema", value=schema))


@pytest.mark.parametrize("data", [None, 5, "report", [], [REPORT.to_dict()], {}, {"steps": 1}])
def test_data_that_is_no_report_is_refused_in_a_sentence(data):
    with pytest.raises(ValueError, match=r"not a leakhunter report: give a file that Report\.to_json wrote"):
        Report.from_dict(data)


FOREIGN = {
    "empty": b"",
    "text": b"hello",
    "cut short": json.dumps(REPORT.to_dict()).encode()[:-20],
    "a pickle": b"\x80\x04cos\nabort\n(tR.",
    "an archive": b"PK\x03\x04\xff\xfe",
    "another encoding": json.dumps(REPORT.to_dict()).encode("utf-16"),
    "a zero byte": b"\0",
    "nested without end": b"[" * 200_000,
    "nested objects": b'{"a":' * 200_000,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_not_json_is_refused_in_a_sentence(name, tmp_path):
    path = tmp_path / "odd.json"
    path.write_bytes(FOREIGN[name])
    with pytest.raises(ValueError, match=r"odd\.json is not JSON: give a file that Report\.to_json wrote"):
        Report.from_json(path)


@pytest.mark.parametrize("data", [[], {"schema": 99}, {"schema": SCHEMA_VERSION}])
def test_a_json_file_that_is_no_report_is_refused(data, tmp_path):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r": (give|read|write) "):
        Report.from_json(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Report.from_json(tmp_path / "none.json")


# ----------------------------------------------------------------------------------------------------------
# whole or not at all


def test_writing_leaves_the_report_and_nothing_else(tmp_path):
    for _ in range(2):
        REPORT.to_json(tmp_path / "report.json")
    assert names(tmp_path) == ["report.json"]


def half(self, text, *arguments, **options):
    with open(self, "w") as file:
        file.write(text[: len(text) // 2])
    raise OSError(28, "No space left on device")


def refused(self, target):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize(("method", "broken"), [("write_text", half), ("replace", refused)])
def test_the_old_file_stays_when_writing_fails(method, broken, tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    REPORT.to_json(path)
    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, method, broken)
        with pytest.raises(OSError, match=r"No space|Permission"):
            dataclasses.replace(REPORT, steps=61).to_json(path)
    assert names(tmp_path) == ["report.json"]
    assert Report.from_json(path) == REPORT


def test_the_old_file_stays_when_a_number_cannot_be_written(tmp_path):
    path = tmp_path / "report.json"
    REPORT.to_json(path)
    with pytest.raises(ValueError, match="JSON"):
        dataclasses.replace(REPORT, seconds_per_step=math.nan).to_json(path)
    assert names(tmp_path) == ["report.json"]
    assert Report.from_json(path) == REPORT


@pytest.mark.parametrize("place", ["folder", "missing/report.json", "file/report.json", "."])
def test_a_place_that_cannot_be_written_is_an_os_error_without_a_draft(place, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=r"."):
        REPORT.to_json(place)
    assert names(tmp_path) == ["file", "folder"]
    assert not names(tmp_path / "folder")


def test_threads_that_write_to_one_place_do_not_disturb_each_other(tmp_path):
    path, errors, start = tmp_path / "report.json", [], threading.Barrier(3)

    def write() -> None:
        start.wait()
        try:
            for _ in range(40):
                REPORT.to_json(path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert names(tmp_path) == ["report.json"]
    assert Report.from_json(path) == REPORT


# ----------------------------------------------------------------------------------------------------------
# what a finding says of itself


@pytest.mark.parametrize("part", [REPORT, FINDING, FINDING.holder, FINDING.fix, FINDING.evidence, MALLOC])
def test_data_is_frozen(part):
    name = dataclasses.fields(part)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(part, name, "changed")
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(part, name)


@pytest.mark.parametrize(
    ("severity", "status", "accuses"),
    [
        ("leak", "open", True),
        ("growth", "open", True),
        ("note", "open", False),
        ("leak", "resolved at step 9", False),
        ("growth", "resolved at step 9", False),
        ("note", "resolved at step 9", False),
    ],
)
def test_only_open_leaks_and_growth_accuse(severity, status, accuses):
    finding = dataclasses.replace(FINDING, severity=severity, status=status)
    assert finding.accuses is accuses
    assert finding.is_open is (status == "open")
    assert dataclasses.replace(REPORT, findings=(finding,)).open == ((finding,) if accuses else ())


def test_the_severities_that_accuse_are_leak_and_growth():
    assert ACCUSING == ("leak", "growth")


@pytest.mark.parametrize(
    ("given", "location"),
    [
        ({}, "train.py:41"),
        ({"statement": None}, "train.py:40"),
        ({"statement": None, "site": ()}, "train.py:38"),
        ({"statement": None, "site": (), "holder": Holder("memory", "native")}, ""),
    ],
)
def test_the_place_to_look_at_first_is_the_statement_then_the_allocation_then_the_holder(given, location):
    assert dataclasses.replace(FINDING, **given).location == location


def test_a_frame_reads_as_a_line_of_a_stack():
    assert str(Frame("a b.py", 7, "Net.forward", "x")) == "a b.py:7 in Net.forward()"


def test_a_report_prints_as_the_text_for_people():
    from leakhunter.report.text import render

    assert str(REPORT) == render(REPORT)
