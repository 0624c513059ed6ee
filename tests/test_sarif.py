"""SARIF that the standard's own schema and code scanning accept, with nothing in it that could mislead them."""

from __future__ import annotations

import dataclasses
import difflib
import gzip
import json
import pathlib

import jsonschema
import made_up
import pytest
from hypothesis import HealthCheck, given, settings
from test_findings import reports

from leakhunter.findings import Finding, Fix, Frame, Holder, Report
from leakhunter.report import sarif

# Of the standard: docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas.
SCHEMA = json.loads((pathlib.Path(__file__).parent / "schemas/sarif-2.1.0.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft4Validator(SCHEMA)


def run(report: Report, root: str = ".") -> dict:
    log = json.loads(sarif.render(report, root))
    VALIDATOR.validate(log)
    (only,) = log["runs"]
    return only


@pytest.mark.parametrize(
    "report", [made_up.FULL, made_up.hostile(), Report("a loop", 0, 0.0)], ids=["full", "hostile", "empty"]
)
@pytest.mark.parametrize("root", [".", "/home/me"])
def test_the_schema_of_the_standard_accepts_it(report, root):
    run(report, root)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reports)
def test_it_accepts_every_report(report):
    run(report)


def test_levels_follow_severity_and_what_was_taken_back_is_no_result():
    results = run(made_up.FULL)["results"]
    assert [(result["ruleId"], result["level"]) for result in results] == [
        ("LH103", "error"), ("LH810", "warning"), ("LH921", "note"),
    ]  # fmt: skip


def test_a_result_has_what_code_scanning_asks_for():
    whole = run(made_up.FULL)
    driver = whole["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("leakhunter", "0.1.0")
    for result in whole["results"]:
        rule = driver["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        texts = [rule["shortDescription"], rule["fullDescription"], rule["help"], result["message"]]
        assert all(text["text"].strip() for text in texts)
        assert rule["help"]["markdown"].strip()
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        uri = place["artifactLocation"]["uri"]
        assert not uri.startswith(("/", "file:", ".."))
        assert place["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
        assert "primaryLocationLineHash" in result["partialFingerprints"]


def test_it_keeps_code_scannings_limits():
    wordy = dataclasses.replace(made_up.HISTORY, name="x" * 5000)
    many = [dataclasses.replace(wordy, pattern=f"LH{n}", signature=f"{n:08x}") for n in range(500)]
    report = dataclasses.replace(made_up.FULL, findings=tuple(many))
    text = sarif.render(report)
    assert len(gzip.compress(text.encode())) < 10_000_000
    for rule in run(report)["tool"]["driver"]["rules"]:
        assert len(rule["shortDescription"]["text"]) <= 1024
        assert len(rule["properties"]["tags"]) <= 10


def test_the_fingerprint_stays_when_the_line_moves():
    moved = dataclasses.replace(made_up.HISTORY, statement=Frame("train.py", 99, "train_epoch"))
    prints = [
        run(dataclasses.replace(made_up.FULL, findings=(one,)))["results"][0]["partialFingerprints"]
        for one in (made_up.HISTORY, moved)
    ]
    assert prints[0] == prints[1]
    assert made_up.HISTORY.signature in prints[0].values()


def test_holder_and_allocation_are_related_places():
    history = run(made_up.FULL)["results"][0]
    related = [
        (one["message"]["text"], one["physicalLocation"]["artifactLocation"]["uri"], one["physicalLocation"]["region"])
        for one in history["relatedLocations"]
    ]
    assert related == [
        ("held by trainer.history[*]['loss']", "train.py", {"startLine": 38}),
        ("allocated in train_epoch()", "train.py", {"startLine": 40}),
        ("allocated in <module>()", "main.py", {"startLine": 3}),
    ]
    assert [one["id"] for one in history["relatedLocations"]] == [0, 1, 2]


def test_the_rule_says_why_and_not_how_much():
    (rule, *_) = run(made_up.FULL)["tool"]["driver"]["rules"]
    assert rule["fullDescription"]["text"].startswith("A stored tensor keeps its grad_fn")
    assert rule["help"]["markdown"].endswith("store the number (.item()), not the tensor with its graph")


def located(**changes) -> list[dict]:
    blank = {"statement": None, "site": (), "holder": Holder("x", "native")}
    found = dataclasses.replace(made_up.HISTORY, **{**blank, **changes})
    whole = run(dataclasses.replace(made_up.FULL, watched="a loop", findings=(found,)), "/home/me/project")
    return [one["locations"][0]["physicalLocation"] for one in whole["results"]]


def test_a_file_is_named_from_the_root():
    (place,) = located(statement=Frame("/home/me/project/src/a b%.py", 7, "f"))
    assert place["artifactLocation"]["uri"] == "src/a%20b%25.py"
    assert place["region"] == {"startLine": 7}


def test_the_first_place_inside_the_project_is_shown():
    library, own = Frame("/usr/lib/torch/nn.py", 3, "f"), Frame("/home/me/project/train.py", 9, "g")
    (place,) = located(statement=library, site=(library, own))
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("train.py", 9)


@pytest.mark.parametrize("file", ["<stdin>", "", "/elsewhere/x.py", "../x.py"])
def test_what_has_no_place_in_the_project_is_a_notification(file):
    found = dataclasses.replace(made_up.HISTORY, statement=Frame(file, 1, "f"), site=(), holder=Holder("x", "native"))
    report = dataclasses.replace(made_up.FULL, watched="a loop", findings=(found,))
    whole = run(report, "/home/me/project")
    assert whole["results"] == []
    told = whole["invocations"][0]["toolExecutionNotifications"]
    assert told[0]["level"] == "error"
    assert "LH103" in told[0]["message"]["text"]


def test_out_of_memory_and_notes_are_notifications():
    told = run(made_up.FULL)["invocations"][0]["toolExecutionNotifications"]
    texts = " | ".join(one["message"]["text"] for one in told)
    assert "cuda:0 was out of memory in step 100,000" in texts
    assert "Python's automatic gc is switched off" in texts
    assert "resolved at step 60000" in texts


def edited(before: str, fixes: list[dict]) -> str:
    """The file with a fix applied as SARIF says."""
    lines = before.splitlines(keepends=True)
    (fix,) = fixes
    (change,) = fix["artifactChanges"]
    for replacement in sorted(change["replacements"], key=lambda one: -one["deletedRegion"]["startLine"]):
        region = replacement["deletedRegion"]
        assert (region["startColumn"], region["endColumn"]) == (1, 1)
        new = replacement["insertedContent"]["text"]
        lines[region["startLine"] - 1 : region["endLine"] - 1] = new.splitlines(keepends=True)
    return "".join(lines)


@pytest.mark.parametrize("context", [0, 3])
@pytest.mark.parametrize(
    "after",
    ["a\nB\nc\nd\ne\n", "a\nb\nnew\nc\nd\ne\n", "a\nc\nd\ne\n", "A\nb\nc\nd\nmore\nE\n", "a\nb\nc\nd\ne\nlast\n"],
)
def test_a_fix_makes_the_change_of_its_diff(context, after):
    before = "a\nb\nc\nd\ne\n"
    both = before.splitlines(), after.splitlines()
    diff = "\n".join(difflib.unified_diff(*both, "train.py", "train.py", n=context, lineterm=""))
    found = dataclasses.replace(made_up.HISTORY, fix=Fix("change it", diff))
    (result,) = run(dataclasses.replace(made_up.FULL, findings=(found,)))["results"]
    assert edited(before, result["fixes"]) == after


def test_text_never_becomes_a_link():
    found: Finding = dataclasses.replace(made_up.HISTORY, name="see [this](0)")
    (result,) = run(dataclasses.replace(made_up.FULL, findings=(found,)))["results"]
    assert "](" not in result["message"]["text"]
