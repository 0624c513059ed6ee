"""Every option: its default, its environment variable, what wins, and the answer to a wrong value."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import re

import pytest

import leakhunter
from leakhunter.options import ACTIONS, PREFIX, Options

DEFAULTS = {
    "enabled": True,
    "warmup": None,
    "block": None,
    "floor": 32.0,
    "probe": None,
    "cooldown": 24,
    "on_leak": "log",
    "report": None,
}
# What the environment says, what that means, and an argument against it.
SET = {
    "enabled": ("0", False, True),
    "warmup": ("5", 5, 6),
    "block": ("2", 2, 3),
    "floor": ("12.5", 12.5, 0),
    "probe": ("4", 4, 5),
    "cooldown": ("0", 0, 7),
    "on_leak": ("raise", "raise", "warn"),
    "report": ("leaks.json", "leaks.json", pathlib.Path("other.json")),
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)


class Callable:
    def __call__(self, finding):
        pass


def variable(name: str) -> str:
    return PREFIX + name.upper()


def says_what_to_do(error: BaseException) -> bool:
    return bool(re.search(r": (give |did you mean |the options are )\S", str(error)))


def test_there_are_no_other_options():
    names = [field.name for field in dataclasses.fields(Options)]
    assert names == list(DEFAULTS) == list(SET)


@pytest.mark.parametrize("name", DEFAULTS)
def test_an_option_has_its_default(name):
    assert getattr(Options(), name) == DEFAULTS[name]
    assert getattr(Options.resolve(), name) == DEFAULTS[name]


@pytest.mark.parametrize("name", SET)
def test_a_variable_wins_over_the_default(name, monkeypatch):
    text, value, _ = SET[name]
    monkeypatch.setenv(variable(name), text)
    assert Options.resolve() == dataclasses.replace(Options(), **{name: value})


@pytest.mark.parametrize("name", SET)
def test_an_argument_wins_over_a_variable(name, monkeypatch):
    text, _, argument = SET[name]
    monkeypatch.setenv(variable(name), text)
    assert getattr(Options.resolve(**{name: argument}), name) == argument


@pytest.mark.parametrize("name", ["warmup", "block", "probe", "report"])
def test_none_given_as_an_argument_wins_too(name, monkeypatch):
    monkeypatch.setenv(variable(name), SET[name][0])
    assert getattr(Options.resolve(**{name: None}), name) is None


@pytest.mark.parametrize("name", SET)
def test_an_options_object_made_by_hand_reads_no_variable(name, monkeypatch):
    monkeypatch.setenv(variable(name), SET[name][0])
    assert getattr(Options(), name) == DEFAULTS[name]


@pytest.mark.parametrize("name", SET)
def test_the_description_names_the_variable(name):
    assert Options.__doc__ is not None
    assert f"``{variable(name)}``" in Options.__doc__


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("1", "true", "YES", "on")),
        *((text, False) for text in ("0", "False", "no", "OFF", " off ")),
    ],
)
def test_a_switch_is_read_in_every_usual_spelling(text, value, monkeypatch):
    monkeypatch.setenv(variable("enabled"), text)
    assert Options.resolve().enabled is value


def test_blanks_around_a_variable_do_not_matter(monkeypatch):
    monkeypatch.setenv(variable("warmup"), " 12\t")
    assert Options.resolve().warmup == 12


def test_an_empty_report_variable_asks_for_no_report(monkeypatch):
    monkeypatch.setenv(variable("report"), "")
    assert Options.resolve().report is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("enabled", "maybe"),
        ("enabled", ""),
        ("warmup", "eight"),
        ("warmup", "2.5"),
        ("block", ""),
        ("floor", "1 KiB"),
        ("probe", "1e1"),
        ("cooldown", "None"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named_with_its_value(name, text, monkeypatch):
    monkeypatch.setenv(variable(name), text)
    with pytest.raises(ValueError, match=f"{variable(name)} is {text!r}") as caught:
        Options.resolve()
    assert says_what_to_do(caught.value)


OUT_OF_RANGE = [
    ("warmup", "-1"),
    ("block", "0"),
    ("floor", "-0.5"),
    ("floor", "nan"),
    ("probe", "2"),
    ("cooldown", "-7"),
    ("on_leak", "explode"),
    ("on_leak", ""),
]


@pytest.mark.parametrize(("name", "text"), OUT_OF_RANGE)
def test_a_variable_out_of_range_is_refused(name, text, monkeypatch):
    monkeypatch.setenv(variable(name), text)
    with pytest.raises(ValueError, match=name) as caught:
        Options.resolve()
    assert says_what_to_do(caught.value)


@pytest.mark.parametrize(("name", "text"), OUT_OF_RANGE)
def test_a_variable_out_of_range_is_named(name, text, monkeypatch):
    monkeypatch.setenv(variable(name), text)
    with pytest.raises(ValueError, match=variable(name)):
        Options.resolve()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("warmup", -1),
        ("warmup", "8"),
        ("warmup", True),
        ("block", 0),
        ("block", float("nan")),
        ("floor", -1e-9),
        ("floor", float("nan")),
        ("floor", "32"),
        ("probe", 2),
        ("probe", [8]),
        ("cooldown", -1),
        ("cooldown", False),
        ("on_leak", "explode"),
        ("on_leak", None),
        ("on_leak", ["log"]),
    ],
)
def test_a_value_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=f"^{name} is {re.escape(repr(value))}") as caught:
        Options(**{name: value})
    assert says_what_to_do(caught.value)


@pytest.mark.parametrize("name", ["warmup", "block", "probe", "cooldown"])
@pytest.mark.parametrize("value", [4.5, float("inf")])
def test_a_number_of_steps_must_be_whole(name, value):
    with pytest.raises(ValueError, match=f"^{name} is") as caught:
        Options(**{name: value})
    assert says_what_to_do(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("enabled", "no"), ("enabled", None), ("report", 5), ("report", True)]
)
def test_a_value_of_the_wrong_kind_is_refused_before_the_loop(name, value):
    with pytest.raises(ValueError, match=f"^{name} is") as caught:
        Options(**{name: value})
    assert says_what_to_do(caught.value)


@pytest.mark.parametrize(
    ("name", "least"), [("warmup", 0), ("block", 1), ("floor", 0), ("probe", 3), ("cooldown", 0)]
)
def test_the_least_value_is_allowed(name, least):
    assert getattr(Options(**{name: least}), name) == least


@pytest.mark.parametrize("action", [*ACTIONS, print, functools.partial(print), Callable()])
def test_what_happens_on_a_leak_is_a_word_or_a_function(action):
    assert Options(on_leak=action).on_leak is action


@pytest.mark.parametrize(
    ("name", "hint"),
    [("warmpu", "'warmup'"), ("onleak", "'on_leak'"), ("reports", "'report'"), ("zzz", "cooldown")],
)
@pytest.mark.parametrize("front", [Options.resolve, leakhunter.watch])
def test_an_unknown_option_is_answered_with_the_ones_there_are(front, name, hint):
    with pytest.raises(TypeError, match=repr(name)) as caught:
        front(**{name: 1})
    assert hint in str(caught.value)
    assert says_what_to_do(caught.value)


def test_options_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().floor = 1.0


def test_options_are_shown_as_json_values():
    shown = Options(on_leak=Callable(), report=pathlib.Path("a") / "b.json").to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert list(shown) == list(DEFAULTS)
    assert shown["on_leak"].endswith("Callable")
    assert shown["report"] == os.path.join("a", "b.json")
    assert Options(on_leak=says_what_to_do).to_dict()["on_leak"] == "says_what_to_do"
    assert Options().to_dict() == DEFAULTS
