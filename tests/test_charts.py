"""Pictures of numbers: round ticks that enclose the readings, bars that add up, labels that do not overlap."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakhunter.findings import Series, Verdict
from leakhunter.report import charts

amounts = st.floats(-charts.LARGEST, charts.LARGEST)


@given(amounts, amounts, st.integers(1, 10), st.booleans())
def test_ticks_enclose_what_they_measure(first, second, count, binary):
    low, high = sorted((first, second))
    found = charts.ticks(low, high, count, binary)
    # Numbers of this size are not exact.
    slack = 1e-9 * max(abs(low), abs(high))
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert 2 <= len(found) <= 2 * count + 4


@pytest.mark.parametrize(
    ("low", "high", "unit", "expected"),
    [
        (0, 2.2e9, "bytes", ["0.0 GiB", "0.5 GiB", "1.0 GiB", "1.5 GiB", "2.0 GiB", "2.5 GiB"]),
        (0, 500, "bytes", ["0 B", "128 B", "256 B", "384 B", "512 B"]),
        (0, 900, "bytes", ["0.00 KiB", "0.25 KiB", "0.50 KiB", "0.75 KiB", "1.00 KiB"]),
        (1_045_970, 1_057_462, "blocks", ["1,045,000", "1,050,000", "1,055,000", "1,060,000"]),
        (5, 5, "blocks", ["5", "6"]),
    ],
)
def test_ticks_have_round_names(low, high, unit, expected):
    assert charts.names(charts.ticks(low, high, 4, unit == "bytes"), unit) == expected


def test_names_tell_neighbours_apart_on_top_of_a_large_base():
    names = charts.names(charts.ticks(2e9, 2e9 + 5000, 4, True), "bytes")
    assert len(set(names)) == len(names)


def lines(picture: str, kind: str) -> list[ElementTree.Element]:
    return [node for node in ElementTree.fromstring(picture).iter() if node.get("class") == kind]


def test_a_peak_of_one_step_in_100_000_is_drawn():
    picture = charts.memory(made_up.GROWING, label="memory", from_zero=False)
    ((curve,),) = [lines(picture, "line")]
    heights = {int(x.split(".")[0]): float(y) for x, y in re.findall(r"([\d.]+) ([\d.]+)", curve.get("d"))}
    points = re.findall(r"([\d.]+) ([\d.]+)", curve.get("d"))
    assert len(points) <= 2 * 760
    # Where the peak is, the curve rises well above both of its neighbours.
    ys = [float(y) for _, y in points]
    jumps = [min(ys[i - 1], ys[i + 1]) - ys[i] for i in range(1, len(ys) - 1)]
    assert max(jumps) > 30
    assert heights


def test_a_series_of_one_reading_can_be_drawn():
    one = Series("m", "bytes", (3,), (7.0,), Verdict("flat"))
    assert "<svg" in charts.memory(one, label="one", from_zero=True)


def test_readings_that_are_no_memory_of_this_world_are_left_out():
    series = Series("m", "bytes", (1, 2, 3), (float("nan"), 1e300, 5.0), Verdict("flat"))
    assert charts.points(series, 10) == ([3], [5.0])
    empty = Series("m", "bytes", (1,), (float("inf"),), Verdict("flat"))
    assert charts.memory(empty, label="none", from_zero=True) == ""


def spans(picture: str) -> list[tuple[float, float, float]]:
    """Where the labels of marks are: height, left, right, as wide as the letters are at least."""
    found = []
    for node in ElementTree.fromstring(picture).iter("text"):
        if "found" in (node.text or ""):
            x, wide = float(node.get("x")), 5.5 * len(node.text)
            left = x if node.get("text-anchor") == "start" else x - wide
            found.append((float(node.get("y")), left, left + wide))
    return found


def test_labels_of_marks_do_not_lie_on_one_another():
    marks = [charts.Mark(step, f"{step} LH101 found", "found") for step in (10, 12, 30_000, 99_000, 100_000)]
    boxes = spans(charts.memory(made_up.GROWING, label="memory", from_zero=True, marks=marks))
    assert len(boxes) == 5
    for i, (y, left, right) in enumerate(boxes):
        for other_y, other_left, other_right in boxes[:i]:
            assert y != other_y or right < other_left or other_right < left


def test_the_warmup_is_shaded_up_to_its_last_step():
    (band,) = lines(charts.memory(made_up.GROWING, label="m", from_zero=True, warmup=50_000), "warmup")
    assert float(band.get("width")) == pytest.approx((760 - 78 - 26) / 2, rel=0.01)
    assert not lines(charts.memory(made_up.GROWING, label="m", from_zero=True), "warmup")


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=9))
def test_the_parts_of_a_bar_are_as_long_as_they_are_large(parts):
    picture = charts.stack([("c0", part) for part in parts], label="parts")
    widths = [float(node.get("width")) for node in ElementTree.fromstring(picture).iter("rect")]
    whole = max(sum(parts), 1e-12)
    assert widths == pytest.approx([1000 * part / whole for part in parts], rel=1e-4, abs=1e-6)


def test_bars_of_many_births_are_joined_and_none_is_lost():
    picture = charts.births([(step, 2) for step in range(1, 1001)], label="births")
    bars = list(ElementTree.fromstring(picture).iter("rect"))
    assert len(bars) == charts.MOST_BARS
    assert charts.births([], label="none") == ""
