"""The published JSON schema is what the code says, and what it writes."""

from __future__ import annotations

import copy
import dataclasses
import json
import pathlib

import jsonschema
import made_up
import pytest
from hypothesis import given, settings
from test_findings import REPORT, reports

from leakhunter.findings import Report
from leakhunter.report.schema import schema

FILE = pathlib.Path(__file__).resolve().parent.parent / "docs/report.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(schema())


def test_the_published_schema_is_that_of_the_code():
    written = json.dumps(schema(), indent=1) + "\n"
    assert FILE.read_text(encoding="utf-8") == written, (
        "write it again: python -c 'import json; from leakhunter.report.schema import schema; "
        "print(json.dumps(schema(), indent=1))' > docs/report.schema.json"
    )


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(schema())


def short(report: Report) -> Report:
    """With few readings: to check each of 100,000 takes long and says nothing more."""
    series = tuple(dataclasses.replace(one, steps=one.steps[:9], readings=one.readings[:9]) for one in report.series)
    return dataclasses.replace(report, series=series)


@pytest.mark.parametrize("report", [REPORT, short(made_up.FULL), short(made_up.hostile()), Report("a loop", 0, 0.0)])
def test_it_accepts_reports(report):
    VALIDATOR.validate(json.loads(json.dumps(report.to_dict())))


@settings(max_examples=30, deadline=None)
@given(reports)
def test_it_accepts_every_report(report):
    VALIDATOR.validate(json.loads(json.dumps(report.to_dict())))


def changed(*path, value):
    plain = copy.deepcopy(REPORT.to_dict())
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return plain


@pytest.mark.parametrize(
    "data",
    [
        changed("schema", value=2),
        changed("steps", value="60"),
        changed("findings", 0, "holder", "nodes", 0, "type", value=3),
        changed("findings", 0, "evidence", "births", 0, value=[1, 2, 3]),
        changed("findings", 0, "statement", value="train.py:3"),
        changed("series", 0, "verdict", value=None),
        {key: value for key, value in REPORT.to_dict().items() if key != "schema"},
        [],
    ],
)
def test_it_refuses_what_from_dict_refuses(data):
    assert not VALIDATOR.is_valid(data)
    with pytest.raises(ValueError, match="report"):
        Report.from_dict(data)


def test_it_allows_keys_of_newer_versions():
    VALIDATOR.validate(changed("findings", 0, "invented later", value=1))
