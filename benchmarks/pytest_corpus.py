"""The pytest plugin on a corpus: ``python benchmarks/pytest_corpus.py FOLDER [FOLDER ...]``.

Makes a suite with one test for each program (see leakbench.py for what a program is) and runs it. A test of a program
that leaks should fail, the others should pass. Each way is a suite of its own: ``loop`` watches ``steps(100)`` with the
fixture, ``call`` marks a test that makes one step.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

HEAD = """
import sys
import pytest
sys.path.insert(0, {here!r})
from leakbench import load
program = load({path!r})
"""
WAYS = {
    "loop": """
def test_{name}(leakhunter):
    for _ in leakhunter.watch(program.steps({steps})):
        pass
""",
    "call": """
@pytest.fixture(scope="module")
def loop():
    steps = program.steps(1000)
    yield steps
    steps.close()


@pytest.mark.leakhunter(repeats={repeats})
def test_{name}(loop):
    next(loop)
""",
}
# Programs that leak threads cannot end in the usual way; a controller of xdist must wait for its workers itself.
CONFTEST = """
import json, os, pathlib, sys
import pytest

def pytest_terminal_summary(terminalreporter):
    found = {}
    for outcome in ("passed", "failed", "error", "leaked", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            if report.when == "call" or outcome != "passed":
                found[report.nodeid] = outcome
    pathlib.Path(__file__).with_name("outcomes.json").write_text(json.dumps(found))

@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        sys.stdout.flush()
        os._exit(0)
"""


def generate(folder: pathlib.Path, programs: list[pathlib.Path], way: str, steps: int, repeats: int) -> None:
    """Write the suite."""
    here = str(pathlib.Path(__file__).resolve().parent)
    (folder / "conftest.py").write_text(CONFTEST)
    for program in programs:
        text = HEAD.format(here=here, path=str(program))
        text += WAYS[way].format(name=program.stem, steps=steps, repeats=repeats)
        (folder / f"test_{program.stem}.py").write_text(text)


def leaks(program: pathlib.Path) -> bool:
    """Whether a program says of itself that it leaks."""
    return "\nLEAKS = True" in program.read_text(encoding="utf-8")


def outcomes(folder: pathlib.Path, arguments: list[str]) -> dict[str, str]:
    """Run the suite; the outcome of each program."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:leakhunter"]
    command += ["-p", "leakhunter.pytest_plugin", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    found: dict[str, Any] = json.loads((folder / "outcomes.json").read_text())
    return {nodeid.split("::")[0].removeprefix("test_").removesuffix(".py"): kind for nodeid, kind in found.items()}


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="+", type=pathlib.Path, help="folders of programs")
    parser.add_argument("--way", choices=sorted(WAYS), default="loop")
    parser.add_argument("--steps", type=int, default=100, help="steps of a loop")
    parser.add_argument("--repeats", type=int, default=5, help="repeats of a call")
    parser.add_argument("--pytest", default="", help="more arguments for pytest, such as '-n 2'")
    parser.add_argument("--keep", type=pathlib.Path, help="make the suite here and keep it")
    chosen = parser.parse_args()
    programs = [path.resolve() for folder in chosen.folder for path in sorted(folder.glob("*.py"))]
    if not programs:
        parser.error("there is no program in these folders")
    with tempfile.TemporaryDirectory() as made:
        folder = chosen.keep or pathlib.Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        generate(folder, programs, chosen.way, chosen.steps, chosen.repeats)
        found = outcomes(folder, chosen.pytest.split())
    right = {True: 0, False: 0}
    total = {True: 0, False: 0}
    for program in programs:
        bad, outcome = leaks(program), found.get(program.stem, "missing")
        total[bad] += 1
        if (outcome in ("failed", "leaked")) if bad else outcome == "passed":
            right[bad] += 1
        else:
            print(f"{program.stem:40} {'leaks' if bad else 'healthy'} and {outcome}")
    print(
        json.dumps(
            {
                "way": chosen.way,
                "leaks": total[True],
                "failed": right[True],
                "healthy": total[False],
                "passed": right[False],
            }
        )
    )


if __name__ == "__main__":
    main()
