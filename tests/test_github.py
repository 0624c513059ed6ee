"""Workflow commands: one line each, whatever names are in them, on the line to change."""

from __future__ import annotations

import dataclasses
import re

import made_up
from hypothesis import given, settings
from test_findings import reports

from leakhunter.findings import Frame
from leakhunter.report import github

COMMAND = re.compile(r"::(?P<name>error|warning|notice) (?P<properties>[^:]*)::(?P<message>.*)")


def decoded(text: str) -> str:
    for code, sign in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, sign)
    return text


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    found = []
    for line in text.split("\n")[:-1]:
        match = COMMAND.fullmatch(line)
        assert match, line
        properties = dict(pair.split("=", 1) for pair in match["properties"].split(","))
        read = {key: decoded(value) for key, value in properties.items()}
        found.append((match["name"], read, decoded(match["message"])))
    return found


def test_one_for_each_open_finding_the_worst_first():
    found = commands(github.render(made_up.FULL))
    assert [(name, where.get("file"), where.get("line")) for name, where, _ in found] == [
        ("error", "train.py", "41"),
        ("warning", "model.py", "9"),
        ("notice", "train.py", "37"),
        ("error", None, None),
    ]
    assert found[0][1]["title"] == "LH103 tensors stored with their graphs"
    assert "held by trainer.history[*]['loss']" in found[0][2]
    assert found[0][2].endswith("fix: store the number (.item()), not the tensor with its graph")
    assert found[3][1]["title"] == "cuda:0 was out of memory in step 100,000"


def test_nothing_to_say_is_nothing():
    calm = dataclasses.replace(made_up.FULL, findings=(made_up.RESOLVED,), out_of_memory=())
    assert github.render(calm) == ""


def test_hostile_names_stay_inside_their_line():
    text = github.render(made_up.hostile(), "/home/me")
    found = commands(text)
    assert len(found) == 4
    assert found[0][1]["file"] == "<img src=x onerror=alert(1)>.py"
    assert "%0A::error::," in found[0][2]
    text.encode("utf-8")


def test_files_are_named_from_the_root_and_others_are_not_named():
    inside = dataclasses.replace(made_up.HISTORY, statement=Frame("/src/a,b:c.py", 5, "f"))
    report = dataclasses.replace(made_up.FULL, findings=(inside,), out_of_memory=())
    ((_, where, _),) = commands(github.render(report, "/src"))
    assert (where["file"], where["line"]) == ("a,b:c.py", "5")
    outside = dataclasses.replace(report, watched="a loop", findings=(dataclasses.replace(inside, site=()),))
    ((_, where, _),) = commands(github.render(outside, "/other"))
    assert where["file"] == "train.py"


@settings(max_examples=30, deadline=None)
@given(reports)
def test_every_report_gives_whole_lines(report):
    github.render(report).encode("utf-8")
    assert all(line.startswith("::") for line in github.render(report).split("\n")[:-1])
