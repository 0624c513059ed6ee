"""Every command and snippet of the README and the docs does what it says, and tables say what the code says."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from leakhunter import findings
from leakhunter.options import PREFIX, Options
from leakhunter.patterns import allocator
from leakhunter.patterns.catalogue import CATALOGUE
from leakhunter.testing.settings import Settings

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# What a reader has at hand where a snippet begins.
CONTEXT = """
import torch
net = torch.nn.Linear(4, 1)
loader = torch.utils.data.DataLoader(torch.randn(640, 4), batch_size=8)
def train_step(batch):
    net.zero_grad()
    net(batch).square().mean().backward()
"""


def blocks(language: str) -> list:
    return [
        pytest.param(path, text, id=f"{path.name}-{number}")
        for path in DOCS
        for number, (found, text) in enumerate(BLOCK.findall(path.read_text(encoding="utf-8")))
        if found == language
    ]


def run(command: str, folder: pathlib.Path = ROOT) -> str:
    words = shlex.split(command, comments=True)
    if words[0] == "python":
        words[0] = sys.executable
    env = {**os.environ, "COLUMNS": "120"}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=280, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(("path", "text"), blocks("python"))
def test_a_snippet_runs(path, text, tmp_path):
    program = tmp_path / "snippet.py"
    program.write_text(CONTEXT + text, encoding="utf-8")
    if "import pytest" in text:
        plugin = "-p no:leakhunter -p leakhunter.pytest_plugin"
        assert "failed" not in run(f"python -m pytest {plugin} {program}", tmp_path)
    else:
        run(f"python {program}", tmp_path)


def masked(line: str) -> str:
    """A line without its numbers, and without what wraps differently when they are longer."""
    return re.sub(r"[\d.,]+", "0", " ".join(line.split()))


@pytest.mark.parametrize(("path", "text"), blocks("console"))
def test_the_output_shown_is_that_of_the_command(path, text):
    command, *shown = text.splitlines()
    assert command.startswith("$ ")
    words = " ".join(masked(line) for line in run(command[2:]).splitlines())
    missing = [line for line in shown if masked(line) not in words and "forecast" not in line]
    assert not missing


def commands(heading: str) -> list[str]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for language, text in BLOCK.findall(section) if language == "sh" for line in text.splitlines()]


def test_the_example_of_the_readme_finds_its_leak():
    (command,) = commands("See it find something")
    assert "LH101 loss accumulated with its graph" in run(command)


def test_two_commands_set_up_and_one_tests():
    # They are run by .ci/run, which has a machine of its own to set up.
    assert len(commands("Set up")) == 2
    assert len(commands("Test it")) == 1


@pytest.mark.parametrize("command", commands("Benchmarks"))
def test_a_benchmark_of_the_readme_exists_and_explains_itself(command):
    script = shlex.split(command)[1]
    assert "usage:" in run(f"python {script} --help")


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
        assert "://" in target or (path.parent / target).exists()


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_files_that_are_named_exist(path):
    for name in re.findall(r"`((?:leakhunter|tests|examples|benchmarks|docs|\.ci)/[\w./]*)`", path.read_text()):
        assert (ROOT / name).exists()


def rows(path: str) -> list[list[str]]:
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_every_pattern_has_its_row():
    table = [row for row in rows("docs/patterns.md") if row[0].startswith("LH")]
    expected = sorted(
        [p.id, p.name, p.severity if isinstance(p.severity, str) else "by case", p.why]
        for p in (*CATALOGUE, *allocator.PATTERNS)
    )
    assert table == expected


def test_every_option_has_its_row_with_its_default():
    table = {row[0].strip("`"): row for row in rows("docs/options.md") if row[0].startswith("`")}
    for option in dataclasses.fields(Options):
        _, default, variable, meaning = table.pop(option.name)
        assert default == f"`{option.default!r}`"
        assert variable == f"`{PREFIX}{option.name.upper()}`"
        assert meaning
    assert not table


def test_every_option_of_the_marker_has_its_row_with_its_default():
    table = [(row[0].strip("`"), row[1].strip("`")) for row in rows("docs/pytest.md") if len(row) == 3]
    fields = dataclasses.fields(Settings)
    expected = [(field.name, repr(getattr(Settings(), field.name))) for field in fields]
    assert [row for row in table if row[0] not in ("marker", "---")] == expected


def test_every_key_of_the_report_is_documented():
    table = rows("docs/report.md")
    told = [row[0].strip("`") for row in table if len(row) == 3] + [row[1].strip("`") for row in table if len(row) == 4]
    kinds = [findings.Report, findings.Finding, findings.Holder, findings.Node, findings.Frame, findings.Fix]
    kinds += [findings.Evidence, findings.Series, findings.Verdict, findings.OutOfMemory, findings.Held]
    kinds += [findings.Cycle, findings.CycleNode, findings.CycleEdge, findings.Breakdown]
    fields = [field.name for kind in kinds for field in dataclasses.fields(kind)]
    assert sorted(name for name in told if name not in ("key", "---")) == sorted(fields)


def test_the_changelog_knows_this_version():
    import leakhunter

    assert f"\n## {leakhunter.__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
