"""The page in a browser: it runs without a complaint, zooms, is used by keyboard, and reads well without scripts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import chromium
import made_up
import pytest
from test_findings import REPORT

from leakhunter.report import html

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.REASON)

REPORTS = {"full": made_up.FULL, "small": REPORT, "hostile": made_up.hostile()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, report in REPORTS.items():
        (folder / f"{name}.html").write_text(html.render(report), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in REPORTS}


@pytest.fixture(scope="module")
def chrome() -> Iterator[chromium.Browser]:
    with chromium.browser() as started:
        yield started


@pytest.fixture
def tab(chrome):
    chrome.without_scripts(False)
    return chrome


def is_true(tab: chromium.Browser, expression: str) -> bool:
    """Whether it becomes true soon."""
    end = time.monotonic() + 10
    while not tab.ask(expression):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize(("width", "dark"), [(1000, False), (1000, True), (390, False), (320, True)])
def test_it_shows_without_a_complaint_and_fits(tab, files, name, width, dark):
    tab.open(files[name], width=width, dark=dark)
    assert tab.ask("document.querySelectorAll('.uplot canvas').length") > 0
    assert tab.complaints == []
    assert tab.requests == [files[name].as_uri()]
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
    ground = tab.ask("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(20, 23, 28)") == dark


@pytest.mark.parametrize("width", [1000, 390, 320])
@pytest.mark.parametrize("name", REPORTS)
def test_it_reads_well_without_scripts(tab, files, name, width):
    tab.without_scripts()
    tab.open(files[name], width=width)
    assert tab.complaints == []
    assert tab.ask("document.querySelector('.tools').offsetHeight") == 0
    drawn = "[...document.querySelectorAll('svg.memory')].filter((one) => one.clientHeight > 100).length"
    assert tab.ask(drawn) == sum(bool(series.readings) for series in REPORTS[name].series)
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
    # Text is not scaled down to be unreadable.
    heights = "[...document.querySelectorAll('svg text')].map((one) => one.getBoundingClientRect().height || 99)"
    assert tab.ask(f"Math.min(...{heights})") >= 10


def test_a_hostile_name_is_shown_and_not_run(tab, files):
    tab.open(files["hostile"])
    assert "<img src=x onerror=alert(1)>.py" in tab.ask("document.body.innerText")
    assert tab.ask("document.images.length") == 0
    assert tab.ask("document.scripts.length") == 2
    assert tab.complaints == []


def test_every_link_leads_to_its_place(tab, files):
    tab.open(files["full"])
    count = tab.ask("document.links.length")
    assert count > 10
    for index in range(count):
        tab.ask("scrollTo({top: 0, behavior: 'instant'})")
        tab.ask(f"document.links[{index}].click()")
        at_the_end = "scrollY + innerHeight >= document.documentElement.scrollHeight - 2"
        top = "document.querySelector(location.hash).getBoundingClientRect().top"
        assert is_true(tab, f"Math.abs({top}) < 2 || ({at_the_end} && {top} < innerHeight)"), tab.ask("location.hash")


def middle(tab: chromium.Browser, share: float) -> tuple[float, float]:
    """A point inside the first chart, ``share`` of the way across it."""
    tab.ask("document.querySelector('.u-over').scrollIntoView({block: 'center', behavior: 'instant'})")
    box = tab.ask("document.querySelector('.u-over').getBoundingClientRect().toJSON()")
    return box["x"] + share * box["width"], box["y"] + box["height"] / 2


def test_dragging_zooms_all_charts_and_a_double_click_shows_all_again(tab, files):
    tab.open(files["full"])
    tab.drag(middle(tab, 0.5), middle(tab, 0.6))
    first, last = tab.ask("leakhunter.shown()")
    assert first == pytest.approx(50_000, abs=500)
    assert last == pytest.approx(60_000, abs=500)
    scales = tab.ask("leakhunter.plots.map((plot) => [plot.scales.x.min, plot.scales.x.max])")
    assert len(scales) == 5
    assert all(scale == [first, last] for scale in scales)
    # The peak of a single step is there to be seen.
    assert tab.ask("leakhunter.plots[0].scales.y.max") > made_up.GROWING.readings[made_up.PEAK - 1]
    x, y = middle(tab, 0.5)
    for count in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)
    assert tab.ask("leakhunter.shown()") == [1, made_up.STEPS]
    assert tab.complaints == []


def test_the_keyboard_zooms_and_moves(tab, files):
    tab.open(files["full"])
    tab.ask("document.querySelector('[data-zoom=in]').focus()")
    tab.key("Enter")
    first, last = tab.ask("leakhunter.shown()")
    assert last - first == pytest.approx(made_up.STEPS / 2, rel=0.01)
    assert "steps 25,001 to 75,000" in tab.ask("document.querySelector('output').textContent")
    for name, key in (("on", "Enter"), ("back", " "), ("all", "Enter")):
        tab.ask(f"document.querySelector('[data-zoom={name}]').focus()")
        tab.key(key)
        moved = tab.ask("leakhunter.shown()")
        assert moved[0] > first if name == "on" else moved[0] <= first
    assert tab.ask("leakhunter.shown()") == [1, made_up.STEPS]


def test_the_first_tab_offers_to_skip_to_the_report_and_focus_is_seen(tab, files):
    tab.open(files["full"])
    tab.key("Tab")
    assert tab.ask("document.activeElement.className") == "skip"
    assert tab.ask("document.activeElement.getBoundingClientRect().left") >= 0
    assert tab.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.key("Enter")
    assert tab.ask("location.hash") == "#main"


def test_a_screen_reader_has_names_for_all_pictures_and_controls(tab, files):
    tab.open(files["full"])
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = {"image", "button", "link", "region", "article", "navigation", "table"}
    seen = set()
    for node in nodes:
        role = node.get("role", {}).get("value")
        if role in named and not node.get("ignored"):
            seen.add(role)
            assert node["name"]["value"].strip(), node
    assert named <= seen
    assert {"banner", "main"} <= {node.get("role", {}).get("value") for node in nodes}


def test_the_charts_follow_the_width_of_the_window(tab, files):
    tab.open(files["full"], width=1000)
    tab.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
    assert is_true(tab, "leakhunter.plots.every((plot) => plot.width < 380)")
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
