"""A report in a real Chromium: pointer, keyboard, names, narrow and dark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from paths import ROOT
from waiting import wait_until

JOURNAL = ROOT / "tests" / "scheduler" / "journal" / "recorded_run.sqlite"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "run.html"
    assert invoke("report", JOURNAL, "-o", path).stdout.strip() == str(path)
    assert path.stat().st_size < 200_000
    return path.as_uri()


def test_a_click_opens_the_story_of_a_job(report: str, open_page: Callable[..., Any]) -> None:
    page = open_page(report)
    chart = page.locator("canvas.gantt")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 40)
    page.locator("#tip").get_by_text("job 1").wait_for()
    page.mouse.down()
    page.mouse.up()
    story = page.get_by_role("complementary", name="Job 1")
    story.get_by_text("is to expand to").first.wait_for()
    assert "Iteration time by size" in story.inner_text()
    assert "Resizes and their pauses" in story.inner_text()
    page.keyboard.press("Escape")
    assert story.is_hidden()


def test_the_keyboard_reaches_each_job(report: str, open_page: Callable[..., Any]) -> None:
    page = open_page(report)
    page.get_by_role("application", name="8 processors over time").focus()
    for _ in range(3):
        page.keyboard.press("n")
    assert page.locator("#spoken").text_content().startswith("Job 3 ")
    assert page.locator("tr.lit button").inner_text() == "3"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Job 3").wait_for()


def test_zooming_changes_what_is_shown(report: str, open_page: Callable[..., Any]) -> None:
    page = open_page(report)
    page.locator("canvas.gantt").first.wait_for()
    picture = "document.querySelector('canvas.gantt').toDataURL()"
    page.get_by_role("button", name="All").click()
    page.evaluate("new Promise(requestAnimationFrame)")
    whole = page.evaluate(picture)
    page.get_by_role("button", name="Zoom in").click()
    wait_until(lambda: page.evaluate(picture) != whole)
    page.get_by_role("button", name="All").click()
    wait_until(lambda: page.evaluate(picture) == whole)


def test_jobs_are_filtered(report: str, open_page: Callable[..., Any]) -> None:
    page = open_page(report)
    assert page.locator("tbody tr").count() == 7
    page.get_by_label("Filter").fill("failed")
    page.get_by_text("1 to 1 of 1").wait_for()
    assert page.get_by_role("button", name="Story of job 7").is_visible()


def test_a_narrow_dark_window_shows_everything(report: str, open_page: Callable[..., Any]) -> None:
    page = open_page(report, width=380, scheme="dark")
    page.get_by_role("button", name="Story of job 1").click()
    page.get_by_role("heading", name="Job 1").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(21, 25, 30)"


def test_two_simulations_are_one_page(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    trace = ROOT / "examples" / "traces" / "synthetic.swf"
    for policy in ("easy", "fcfs"):
        invoke("simulate", trace, "--policy", policy, "--jobs", 200, "--out", tmp_path / policy)
    invoke("report", tmp_path, "-o", tmp_path / "both.html")
    page = open_page((tmp_path / "both.html").as_uri())
    assert page.locator("canvas.gantt").count() == 2
    page.locator("#run").select_option(label=page.locator("h2").nth(1).inner_text())
    page.get_by_text("1 to 100 of 200").wait_for()
    page.get_by_text("lowest rows that are free").first.wait_for()
