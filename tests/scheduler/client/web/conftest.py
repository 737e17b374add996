"""A real Chromium, without which the tests of pages are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")  # its loop must not run in tests of other modules
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("PAGES ARE NOT TESTED: there is no Chromium; apt-get install chromium")
    api = pytest.importorskip(
        "playwright.sync_api", reason="PAGES ARE NOT TESTED: pip install playwright"
    )
    with api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address; errors of its scripts, and what a policy refuses, fail the test."""
    contexts, errors = [], list[str]()

    def opened(url: str, width: int = 1200, height: int = 800, scheme: str = "light") -> Any:
        size = {"width": width, "height": height}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda line: errors.append(line.text) if "Security Policy" in line.text else None,
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []
