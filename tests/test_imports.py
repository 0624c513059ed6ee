"""What importing leakhunter loads, and which layer may know which."""

from __future__ import annotations

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "leakhunter"
HEAVY = ("scipy", "objgraph", "executing", "rich", "jinja2", "pytest")
HEAVY += ("lightning", "transformers", "ignite", "accelerate")

# From left to right; none imports one that stands to its right.
LAYERS = ["units", "origin", "slots", "findings", "options", "series", "growth", "meters", "probe", "heap"]
LAYERS += ["source", "patterns", "hunt", "report", "watching", "testing", "pytest_plugin"]


def test_importing_it_loads_no_heavy_library(run_python):
    code = (
        "import sys, torch; before = set(sys.modules); import leakhunter\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules) - before))"
    )
    assert run_python(code).stdout.strip() == "[]"


@pytest.mark.parametrize("first", ["import leakhunter", "import leakhunter.options", "import leakhunter.findings"])
def test_torch_is_loaded_when_something_is_watched_and_not_before(first, run_python):
    asked = "print('torch' in sys.modules)"
    code = f"{first}\nimport sys, leakhunter\n{asked}\nleakhunter.watch\n{asked}"
    assert run_python(code).stdout.split() == ["False", "True"]


@pytest.mark.parametrize("first", ["leakhunter.watching", "leakhunter.hunt", "leakhunter.report.text", "leakhunter"])
def test_the_public_names_are_the_same_whatever_was_imported_first(first, run_python):
    code = (
        f"import {first}\nimport leakhunter\nfrom leakhunter import *\n"
        "print(watch is leakhunter.watch, callable(leakhunter.watch), sorted(set(leakhunter.__all__) - set(dir())))\n"
        "print(set(leakhunter.__all__) <= set(dir(leakhunter)))"
    )
    assert run_python(code).stdout.split("\n")[:2] == ["True True []", "True"]


def test_a_name_that_is_none_is_said_to_be_none(run_python):
    assert "module 'leakhunter' has no attribute 'wach'" in run_python("import leakhunter; leakhunter.wach").stderr


def test_a_healthy_loop_loads_none_either(run_python):
    code = (
        "import sys, torch, leakhunter\n"
        "for _ in leakhunter.watch(range(60)): pass\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules)))"
    )
    assert run_python(code).stdout.strip() == "[]"


REPORT = [f"report/{path.name}" for path in sorted((PACKAGE / "report").glob("*.py"))]


@pytest.mark.parametrize("name", ["findings.py", "growth.py", "source.py", *REPORT])
def test_the_core_does_without_torch(name):
    assert "torch" not in imported(PACKAGE / name)


def imported(path: pathlib.Path) -> set[str]:
    """The names of modules that a file imports when it is loaded."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def layer(module: str) -> int | None:
    parts = module.split(".")
    return LAYERS.index(parts[1]) if parts[0] == "leakhunter" and len(parts) > 1 and parts[1] in LAYERS else None


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_layer_imports_one_to_its_right(path):
    name = ".".join(["leakhunter", *path.relative_to(PACKAGE).with_suffix("").parts])
    own = layer(name)
    if own is None:
        return
    for other in imported(path):
        found = layer(other)
        assert found is None or found <= own, f"{name} imports {other}"
