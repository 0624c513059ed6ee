"""Bytes and seconds as a person says them, and whose code a file is."""

from __future__ import annotations

import json
import os
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import leakhunter
from leakhunter import growth
from leakhunter.origin import (
    caller,
    is_ours,
    is_user_file,
    is_user_module,
    library_folders,
    module_file,
    shorten,
)
from leakhunter.units import duration, size, three_digits

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (64.4, "64 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (390 * 2**10, "390 KiB"),
        (2**20, "1.0 MiB"),
        (14.1 * 2**20, "14.1 MiB"),
        (2**30, "1.0 GiB"),
        (5000 * 2**30, "5000 GiB"),
        (-2048, "-2.0 KiB"),
        (-5, "-5 B"),
    ],
)
def test_bytes_are_said_in_the_unit_that_fits(count, text):
    assert size(count) == text


@given(st.floats(1, 1e15))
def test_a_size_said_is_near_the_size_meant(count):
    number, unit = size(count).split()
    assert float(number) * UNITS[unit] == pytest.approx(count, rel=0.06, abs=0.51)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (40.4, "40 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3600, "60 min"),
        (7200, "2 h"),
        (11 * 3600, "11 h"),
        (48 * 3600, "2 days"),
        (12 * 86400, "12 days"),
        (999 * 86400, "999 days"),
        (1000 * 86400, "3 years"),
        (36_500 * 86400, "100 years"),
    ],
)
def test_seconds_are_said_in_the_unit_that_fits(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        (0, 0),
        (7, 7),
        (999, 999),
        (1234, 1230),
        (181_499, 181_000),
        (181_501, 182_000),
        (999_999, 1_000_000),
        (-1236, -1240),
    ],
)
def test_three_digits_are_enough(number, rounded):
    assert three_digits(number) == rounded
    assert isinstance(three_digits(float(number)), int)


# ----------------------------------------------------------------------------------------------------------
# whose code it is


PACKAGE = os.path.dirname(os.path.abspath(leakhunter.__file__))


@pytest.mark.parametrize("file", [growth.__file__, os.path.join(PACKAGE, "heap", "graph.py")])
def test_our_own_files_are_ours_and_not_the_users(file):
    assert is_ours(file)
    assert not is_user_file(file)


@pytest.mark.parametrize(
    "file", [PACKAGE + "_extra/train.py", PACKAGE + ".py", "leakhunter.py", __file__, ""]
)
def test_files_with_a_name_like_ours_are_not_ours(file):
    assert not is_ours(file)


@pytest.mark.parametrize(
    "file",
    [json.__file__, os.__file__, pytest.__file__, torch.__file__, torch.nn.functional.__file__],
)
def test_files_of_libraries_are_not_the_users(file):
    assert not is_user_file(file)


def test_a_file_beside_a_library_is_the_users():
    for folder in library_folders():
        assert folder.endswith(os.sep)
        assert not is_user_file(folder + "thing.py")
    folder = os.path.dirname(os.path.abspath(torch.__file__))
    assert folder + os.sep in library_folders()


@pytest.mark.parametrize("name", ["train.py", "json.py", "torch/train.py", "my site-packages/train.py"])
def test_files_of_a_project_are_the_users(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_user_file(str(tmp_path / name))


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("<stdin>", True),
        ("<string>", True),
        ("<ipython-input-3-abc>", True),
        ("<cell line: 1>", True),
        ("<console>", True),
        ("<frozen importlib._bootstrap>", False),
        ("<frozen runpy>", False),
        ("<eval_with_key>.3", False),
        ("<__array_function__ internals>", False),
        ("<attrs generated init x>", False),
    ],
)
def test_code_typed_in_is_the_users_and_generated_code_is_not(file, users):
    assert is_user_file(file) is users


@pytest.mark.parametrize(
    ("module", "users"),
    [
        ("__main__", True),
        ("json", False),
        ("torch", False),
        ("leakhunter.growth", False),
        ("sys", False),
        ("no such module", False),
        ("", False),
    ],
)
def test_a_module_is_the_users_when_its_file_is(module, users):
    assert is_user_module(module) is users


def test_a_module_of_the_project_is_the_users(tmp_path, monkeypatch):
    module = type(sys)("made_up_project")
    module.__file__ = str(tmp_path / "made_up_project.py")
    monkeypatch.setitem(sys.modules, "made_up_project", module)
    assert is_user_module("made_up_project")
    assert module_file("made_up_project") == module.__file__


@pytest.mark.parametrize("file", [None, 5, ["a.py"]])
def test_a_module_with_an_odd_file_has_none(file, monkeypatch):
    module = type(sys)("made_up_odd")
    module.__file__ = file
    monkeypatch.setitem(sys.modules, "made_up_odd", module)
    assert module_file("made_up_odd") == ""
    assert not is_user_module("made_up_odd")


def test_a_module_blocked_from_import_has_no_file(monkeypatch):
    monkeypatch.setitem(sys.modules, "made_up_blocked", None)
    assert module_file("made_up_blocked") == ""


def test_the_caller_is_the_nearest_frame_that_is_not_ours():
    namespace = {"caller": caller, "sys": sys}
    text = "def outer():\n    return inner()\ndef inner():\n    return caller(sys._getframe())\n"
    exec(compile(text, os.path.join(PACKAGE, "made_up.py"), "exec"), namespace)
    assert namespace["outer"]() is sys._getframe()
    assert caller(sys._getframe()) is sys._getframe()
    assert caller(None) is None


# ----------------------------------------------------------------------------------------------------------
# paths as a person would type them


@pytest.mark.parametrize(
    ("path", "shown"),
    [("train.py", "train.py"), ("src/train.py", "src/train.py"), ("a b/{x}.py", "a b/{x}.py")],
)
def test_a_file_below_here_is_shown_from_here(path, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shorten(str(tmp_path / path)) == os.path.normpath(shown)


@pytest.mark.parametrize("file", ["<stdin>", "", "train.py", os.path.join(os.sep, "elsewhere", "train.py")])
def test_other_names_are_shown_as_they_are(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shorten(file) == file


def test_a_file_above_here_keeps_its_full_path(tmp_path, monkeypatch):
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    assert shorten(str(tmp_path / "train.py")) == str(tmp_path / "train.py")


def gone() -> str:
    raise FileNotFoundError(2, "No such file or directory")


def test_a_path_can_be_shown_after_the_current_folder_was_deleted(monkeypatch):
    monkeypatch.setattr(os, "getcwd", gone)
    assert shorten(__file__) == __file__


def test_a_loop_can_be_watched_after_the_current_folder_was_deleted(monkeypatch):
    monkeypatch.setattr(os, "getcwd", gone)
    assert list(leakhunter.watch(range(3))) == [0, 1, 2]
