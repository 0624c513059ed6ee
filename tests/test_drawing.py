"""A cycle in three forms: each shows every reference once, ends where it began, and marks what to cut."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import made_up
import pytest

from leakhunter.findings import Cycle, CycleEdge, CycleNode, Fix
from leakhunter.report import drawing
from leakhunter.report.svg import shortened


def ring(count: int) -> Cycle:
    nodes = tuple(CycleNode(f"Object{i}", "module.Object", f"file.py:{i + 1}", i * 1024) for i in range(count))
    edges = tuple(CycleEdge(i, (i + 1) % count, f".to{i}", hidden=i % 2 == 1, cut=i == count - 1) for i in range(count))
    return Cycle(nodes, edges, 4096, 2, 1, "gc-pending", "LH801", "cycle", Fix("use a weak reference"))


def test_text_has_one_line_for_each_reference_and_ends_at_the_first():
    found = [line.split("  ")[0] for line in drawing.text(made_up.RING).splitlines()]
    assert [name.strip() for name in found] == [node.name for node in made_up.RING.nodes]
    lines = drawing.text(made_up.RING).splitlines()
    assert lines[0] == "Learner       .callbacks           -> list"
    assert "-> Learner  <- cut here: let the hook use a weak reference" in lines[-1]
    assert [line.count("gc does not see it") for line in lines] == [0, 0, 1, 0]


def test_dot_says_what_is_cut_hidden_and_held():
    text = drawing.dot(made_up.RING)
    assert 'n0 [label="Learner\\ntrain.Learner\\ntrain.py:12\\n18.0 MiB"];' in text
    assert 'n2 -> n3 [label=".loss.grad_fn", style=dashed];' in text
    assert 'n3 -> n0 [label="cut: closure cell `self`", color=red, fontcolor=red, penwidth=2];' in text
    assert text.count("->") == 4


def hostile() -> Cycle:
    nodes = tuple(replace(node, name=made_up.NASTY, location=made_up.NASTY) for node in made_up.RING.nodes)
    edges = tuple(replace(edge, label=made_up.NASTY) for edge in made_up.RING.edges)
    return replace(made_up.RING, nodes=nodes, edges=edges)


def test_no_name_can_end_a_label_of_dot():
    text = drawing.dot(hostile())
    string = r'"(?:[^"\\\n]|\\.)*"'
    whole = rf"digraph cycle \{{\n  label={string};\n  node \[shape=box\];\n(?:  n\d+ \[label={string}\];\n)+"
    assert re.fullmatch(whole + rf"(?:  n\d+ -> n\d+ \[label={string}[a-z0-9=, ]*\];\n)+\}}\n", text)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("cycle", [made_up.RING, hostile()], ids=["ring", "hostile"])
def test_graphviz_reads_it(cycle):
    done = subprocess.run(["dot", "-Tsvg"], input=drawing.dot(cycle), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_svg_shows_each_object_and_reference_inside_the_picture(count):
    picture = ElementTree.fromstring(drawing.svg(ring(count)))
    height = float(picture.get("viewBox").split()[3])
    boxes = [node for node in picture.iter("rect") if node.get("class") == "object"]
    assert len(boxes) == count
    assert max(float(box.get("y")) + float(box.get("height")) for box in boxes) < height
    lines = [node.get("class") for node in picture.iter("path") if "arrow" in node.get("class")]
    assert len(lines) == count
    assert lines[-1].endswith("cut")
    assert sum("hidden" in line for line in lines) == count // 2
    for place in picture.iter("text"):
        assert float(place.get("y")) <= height


def test_svg_is_told_in_words():
    picture = ElementTree.fromstring(drawing.svg(made_up.RING))
    assert picture.get("role") == "img"
    assert "3 cycles like this keep 18 tensors" in picture.get("aria-label")
    assert "cut here" in picture.get("aria-label")


def test_svg_shows_hostile_names_as_text():
    words = [node.text or "" for node in ElementTree.fromstring(drawing.svg(hostile())).iter("title")]
    assert any("<img src=x onerror=alert(1)>" in word for word in words)


def test_the_holder_of_a_held_cycle_is_named():
    held = replace(made_up.RING, state="held", holder_of_last_reference="learner")
    assert drawing.summary(held).endswith("(held, held by learner)")


def test_long_names_lose_their_middle():
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert shortened("abc", 3) == "abc"
