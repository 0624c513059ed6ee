"""The example: a real loss that falls, and every planted mistake named on its own line."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples" / "train_text.py"

# The mistake, its pattern, what holds, and the start of the line to change.
PLANTED = {
    "total": ("LH101", "trainer.total_loss", "trainer.total_loss += loss"),
    "average": ("LH102", "trainer.average", "trainer.average = 0.98"),
    "history": ("LH103", "trainer.history", "trainer.history.append("),
    "masks": ("LH304", "trainer.masks", "trainer.masks[batch] ="),
    "hooks": ("LH401", "norm._forward_hooks", "trainer.model.norm.register_forward_hook"),
    "cache": ("LH302", "positions", "@functools.cache"),
    "penalty": ("LH811", ".grad", "loss.backward(create_graph=True)"),
    "failures": ("LH501", "trainer.failures", "trainer.failures.append(error)"),
}


def train(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def losses(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"^step +\d+  loss ([\d.]+)$", output, re.MULTILINE)]


def test_the_loss_falls_and_a_healthy_run_is_not_accused():
    output = train("--steps", "150")
    assert losses(output)[-1] < 0.6 * losses(output)[0]
    assert "no leak found" in output


def test_the_losses_are_the_same_without_the_watch():
    watched, bare = train("--steps", "50"), train("--steps", "50", "--no-watch")
    assert losses(watched) == losses(bare)
    assert "leakhunter" not in bare


@pytest.mark.parametrize("leak", PLANTED)
def test_a_planted_mistake_is_named_with_its_holder_on_its_line(leak):
    pattern, holder, text = PLANTED[leak]
    output = train("--leak", leak, "--steps", "100")
    title = next(line for line in output.splitlines() if pattern in line and not line.startswith("leakhunter"))
    line = int(re.search(r"train_text\.py:(\d+) ", title).group(1))
    assert EXAMPLE.read_text(encoding="utf-8").splitlines()[line - 1].strip().startswith(text)
    assert holder in output.split("held by", 1)[1].splitlines()[0]
    assert "1 open finding" in output


def test_it_learns_from_the_files_it_is_given(tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 60, encoding="utf-8")
    output = train("--steps", "50", "--no-watch", str(text))
    assert losses(output)[-1] < losses(output)[0]


def test_too_short_a_text_is_refused_in_a_sentence(tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("too short", encoding="utf-8")
    done = subprocess.run([sys.executable, str(EXAMPLE), str(text)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "give a longer text" in done.stderr
    assert "Traceback" not in done.stderr
