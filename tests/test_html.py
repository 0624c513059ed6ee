"""The page as text: every name is shown and none is obeyed, nothing is fetched, and nothing empty has a heading."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import made_up
import pytest
from hypothesis import HealthCheck, given, settings
from test_findings import REPORT, reports

from leakhunter import oom
from leakhunter.findings import Breakdown, Evidence, Report, Series, Verdict
from leakhunter.report import charts, html, parts

VOID = {"meta", "br", "img", "link", "input", "hr"}
TAGS = {
    "a", "article", "body", "button", "caption", "code", "dd", "details", "div", "dl", "dt", "em", "figcaption",
    "figure", "g", "h1", "h2", "h3", "h4", "head", "header", "html", "li", "main", "meta", "nav", "ol", "output", "p",
    "path", "pre", "rect", "script", "section", "span", "strong", "style", "summary", "svg", "table", "tbody", "td",
    "text", "tfoot", "th", "thead", "time", "title", "tr", "ul",
}  # fmt: skip


class Page(HTMLParser):
    """What a page is made of. Fails where tags do not close as they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)
        if re.fullmatch(r"h\d", tag):
            self.headings.append((int(tag[1]), ""))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in ("script", "style"):
            self.scripts.append(data)
            return
        self.words.append(data)
        level = next((tag for tag in reversed(self._open) if re.fullmatch(r"h\d", tag)), None)
        if level:
            self.headings[-1] = (self.headings[-1][0], self.headings[-1][1] + data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


@functools.lru_cache(maxsize=4)
def page(report_name: str) -> Page:
    return Page(SOURCES[report_name]())


SOURCES = {
    "full": functools.cache(lambda: html.render(made_up.FULL)),
    "hostile": functools.cache(lambda: html.render(made_up.hostile())),
    "small": functools.cache(lambda: html.render(REPORT)),
    "empty": functools.cache(lambda: html.render(Report("a loop", 0, 0.0))),
}
every_page = pytest.mark.parametrize("name", SOURCES)


# ----------------------------------------------------------------------------------------------------------
# what is on it


@pytest.mark.parametrize(
    "words",
    [
        "2 open findings",
        "100,000 steps of DataLoader at train.py:37, 250 ms each",
        "LH103 tensors stored with their graphs",
        "train.py:41 in train_epoch()",
        "trainer.history.append(loss)",
        "+ trainer.history.append(loss.item())",
        "item() waits for the device",
        "leaking: no",
        "reaches graphs of steps 4 to 38; the loop is at step 40",
        "7 to 9 from each of 11 steps, 28 to 38",
        "cuda:0 is full in about 181,000 steps",
        "3 cycles like this keep 18 tensors",
        "cut here: closure cell `self`",
        "unexplained 205 KiB 5.0%",
        "activations saved for backward 0 B 2.9 GiB",
        "memory grew by 58.6 GiB since warm-up",
        "malloc (glibc): flat",
        "Python's automatic gc is switched off",
        "resolved at step 60000",
        "warmup 10000",
        "torch 2.13.0",
    ],
)
def test_it_says_all_that_the_report_does(words):
    assert words in page("full").text


def splits(report: Report) -> list[parts.Split]:
    return list(parts.splits(report.series, list(html.numbered(report))))


def test_the_growth_by_finding_adds_up():
    (split,) = splits(made_up.FULL)
    assert [part.name for part in split.parts] == [
        "1 LH103 tensors stored with their graphs", "2 LH810 cycle through C++ that gc cannot free", "unexplained",
    ]  # fmt: skip
    assert sum(part.share for part in split.parts) == pytest.approx(1)
    assert split.whole == "4.0 MiB per step"


def test_findings_that_explain_more_than_there_is_share_the_growth():
    twice = [
        dataclasses.replace(made_up.HISTORY, signature=str(n), evidence=Evidence(share=0.9)) for n in range(2)
    ]
    (split,) = splits(dataclasses.replace(made_up.FULL, findings=tuple(twice)))
    assert [part.share for part in split.parts] == pytest.approx([0.5, 0.5])


def test_a_meter_that_does_not_grow_any_more_is_split_as_the_findings_tell_it():
    still = dataclasses.replace(made_up.GROWING, verdict=Verdict("flat"))
    report = dataclasses.replace(made_up.FULL, series=(still,), findings=(made_up.HISTORY,))
    (split,) = splits(report)
    assert (split.whole, split.parts[0].amount) == ("4.0 MiB per step", "3.0 MiB")
    # Bytes are not blocks.
    counted = dataclasses.replace(report, series=(dataclasses.replace(still, unit="blocks"),))
    assert splits(counted) == []


def test_the_breakdown_is_drawn_to_one_scale_with_the_remainder_last():
    (device,) = parts.devices(made_up.FULL.breakdown)
    widths = [sum(map(float, re.findall(r' width="([\d.]+)" height="20"', bar.bar))) for bar in device.bars]
    assert widths == pytest.approx([1000 * 1690 / 5084, 1000], rel=1e-3)
    category, looks, _ = device.rows[-1]
    assert (category, looks) == ("not in tensors", "rest")
    # The same name as where it is made.
    assert oom.with_remainder({}, 5) == {parts.REMAINDER: 5}


def test_more_categories_than_colours_are_all_there():
    many = Breakdown("cuda:0", "peak", 1, {f"part {n}": 1 << n for n in range(20)})
    (device,) = parts.devices([many])
    assert len(device.rows) == 20
    assert device.rows[-1][1] == f"c{charts.COLOURS - 1}"


@pytest.mark.parametrize(
    ("report", "kind", "title"),
    [
        (made_up.FULL, "leak", "2 open findings"),
        (dataclasses.replace(made_up.FULL, findings=()), "leak", "Out of memory"),
        (dataclasses.replace(made_up.FULL, findings=(), out_of_memory=(), notes=()), "ok", "No leak found"),
        (dataclasses.replace(made_up.FULL, findings=(), out_of_memory=(), series=()), "unknown", "No verdict"),
        (
            dataclasses.replace(made_up.FULL, findings=(), out_of_memory=(), notes=("too few steps",)),
            "unknown",
            "No verdict",
        ),
        (Report("a loop", 0, 0.0, notes=("the loop made no step",)), "unknown", "Nothing was watched"),
    ],
)
def test_the_verdict(report, kind, title):
    assert (html.verdict(report).kind, html.verdict(report).title) == (kind, title)


def test_what_is_empty_has_no_heading():
    assert page("empty").headings == [(1, "Nothing was watched")]
    assert page("empty").all("table") == []
    assert [words for level, words in page("small").headings if level == 2] == [
        "In short", "Memory over the steps", "Findings", "Notes", "How it was run",
    ]  # fmt: skip
    assert "Out of memory" not in page("small").text
    assert "Cycle" not in [words for _, words in page("small").headings]


def test_a_diff_has_its_colours_whether_or_not_it_names_its_file():
    whole = list(html.diff_lines("--- a.py\n+++ a.py\n@@ -1 +1 @@\n---x\n+++x\n y\n"))
    assert [kind for kind, _ in whole] == ["file", "file", "place", "removed", "added", "same"]
    assert [kind for kind, _ in html.diff_lines("-a\n+b\n")] == ["removed", "added"]


# ----------------------------------------------------------------------------------------------------------
# nothing gets out


@every_page
def test_it_has_no_tag_attribute_or_script_of_anyone_else(name):
    found = page(name)
    assert {tag for tag, _ in found.tags} <= TAGS
    assert all(not key.startswith("on") and key != "style" for _, attributes in found.tags for key in attributes)
    assert len(found.all("script")) == 2
    style, data, script = found.scripts
    assert (style, script) == (page("empty").scripts[0], page("empty").scripts[2])
    json.loads(data)


def test_hostile_names_are_shown():
    assert "/home/me/<img src=x onerror=alert(1)>.py:41" in page("hostile").text
    assert "{{7*7}}" in page("hostile").text


@every_page
def test_it_can_be_written_as_utf_8(name):
    text = SOURCES[name]()
    text.encode("utf-8")
    assert "\0" not in text
    assert "\u202e" not in text


@every_page
def test_it_fetches_nothing(name):
    for tag, attributes in page(name).tags:
        assert not {"src", "action", "srcset", "data"} & set(attributes)
        assert tag != "a" or attributes["href"].startswith("#")
        assert "http" not in attributes.get("href", "")


@every_page
def test_the_data_for_the_script_cannot_end_its_element(name):
    data = page(name).scripts[1]
    assert data.isascii()
    assert not set("<>&") & set(data)


def test_the_policy_names_the_very_style_and_script_of_the_page():
    found = page("full")
    policy = next(tag["content"] for tag in found.all("meta") if tag.get("http-equiv") == "Content-Security-Policy")
    assert policy == html._policy(found.scripts[0], found.scripts[2])
    assert "unsafe" not in policy


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reports)
def test_every_report_makes_a_whole_page(report):
    text = html.render(report)
    Page(text)
    text.encode("utf-8")


# ----------------------------------------------------------------------------------------------------------
# for everyone


@every_page
def test_ids_are_unique_and_links_lead_to_them(name):
    found = page(name)
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in found.all("a"):
        assert attributes["href"][1:] in ids
    for _, attributes in found.tags:
        assert attributes.get("aria-labelledby", "main") in ids


@every_page
def test_headings_are_in_order(name):
    levels = [level for level, _ in page(name).headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(words.strip() for _, words in page(name).headings)


@every_page
def test_pictures_and_tables_are_told_in_words(name):
    found = page(name)
    for attributes in found.all("svg"):
        assert attributes.get("aria-hidden") == "true" or attributes["aria-label"].strip()
        assert attributes.get("aria-hidden") == "true" or attributes["role"] == "img"
    assert len(found.all("caption")) == len(found.all("table"))
    assert all(attributes.get("scope") in ("row", "col") for attributes in found.all("th"))


def test_a_growing_meter_that_does_not_start_at_zero_is_not_in_the_healthy_part():
    meters = [series for series in made_up.FULL.series if not html.from_zero(series) and series.readings]
    assert [series.meter for series in meters] == ["cuda:0 allocated"]
    shaky = Series("m", "bytes", (1, 2), (1e9, 1e9 + 300), Verdict("flat"))
    assert html.from_zero(shaky)


def colours() -> list[dict[str, str]]:
    style = html._file("page.css")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in blocks]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_pictures_stand_out(scheme):
    have = colours()[scheme]
    for ground in ("page", "panel"):
        for name in ("text", "muted", "link", "leak", "growth", "note", "ok", "resolved"):
            assert contrast(have[name], have[ground]) >= 4.5, (name, ground)
        for name in ("curve", *(f"c{n}" for n in range(charts.COLOURS))):
            assert contrast(have[name], have[ground]) >= 3, (name, ground)
    for name in ("added", "removed"):
        assert contrast(have[name], have[f"{name}-back"]) >= 4.5
    assert contrast(have["text"], have["shade"]) >= 4.5
