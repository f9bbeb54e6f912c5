"""The report: one page, nothing loaded, everything escaped, predicted never passed off as measured."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autoresearch.report import collect, render, write_report
from autoresearch.supervisor import Supervisor
from tests.autoresearch.helpers import SPACE, settings, supervisor, write_script
from tests.autoresearch.test_supervisor import Listed


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Supervisor:
    folder = tmp_path_factory.mktemp("night")
    made = supervisor(folder, write_script(folder, faults={"validate stocked=3": "refuse"}), settings())
    made.run(
        Listed(
            {"in_flight": 8}, {"stocked": 10}, {"stocked": 3}, {"cuda": "<script>alert(1)</script>"}, {"ring_stages": 8}
        )
    )
    return made


class Tags(HTMLParser):
    """Collects tags and what would be loaded, and checks that tags are closed in order."""

    VOID = ("meta", "br", "line", "circle")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:  # svg writes <line></line> as <line/>
            return
        while self.open and self.open[-1] != tag and self.open[-1] in ("circle", "line"):
            self.open.pop()
        assert self.open.pop() == tag


def page_of(made: Supervisor) -> str:
    return write_report(made.study, made.subject).read_text()


def test_the_page_is_whole_and_loads_nothing(night: Supervisor) -> None:
    page = page_of(night)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.loads == []
    assert "script" not in tags.seen
    assert not re.search(r"url\(|@import|https?://", page)
    assert "<script>alert" not in page


def test_what_is_on_it(night: Supervisor) -> None:
    page = page_of(night)
    assert night.current.headline is not None
    assert f"trial {night.incumbent.number}, 12 pairs in 6 loads, in a fresh process (measured)" in page
    assert "in_flight 5 -&gt; 8" in page
    assert "stocked 6 -&gt; 10" in page
    assert "rule 4: a race" in page
    assert "schema (refused)" in page
    assert "0 of 2 comparisons" in page
    assert "Energy: 0.5000 J per token, default 0.6000 J." in page
    assert "sm_mhz 1980 to 1980" in page
    assert "Predicted, not measured" not in page


def test_predicted_is_marked(night: Supervisor) -> None:
    facts = collect(night.study.history, night.subject, SPACE)
    page = render({**facts, "predicted": True, "mode": "predicted"})
    assert "Predicted, not measured." in page


def test_a_night_without_any_result(night: Supervisor) -> None:
    other = replace(night.subject, digest="other")
    page = render(collect(night.study.history, other, SPACE))
    assert "Nothing better than the default schedule is confirmed." in page
    assert "No A/A comparison was run." in page


def test_a_path_of_its_own(night: Supervisor, tmp_path: Path) -> None:
    assert write_report(night.study, night.subject, tmp_path / "page.html").read_text().startswith("<!doctype html>")
