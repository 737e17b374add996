"""The live page in a real Chromium, beside a real service: a resize, hostile names, a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import LIMIT_S, wait_until
from web_server import WebServer, web_server

from reshape.topology import Topology
from scheduler.client import background
from scheduler.client.api.client import Client

OPTIONS = ["--processors", "4"]
HOSTILE = "<img src=x onerror=alert(1)>\u202e'\"&"
GROWS = [sys.executable, "-m", "apps.synthetic", "--iterations", "2000", "--seconds", "0.2"]


@pytest.fixture
def processes() -> list[subprocess.Popen[bytes]]:
    """Processes of the service, the present one last."""
    return []


@pytest.fixture
def service(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> Iterator[Path]:
    """The directory of a service with four processors."""
    directory = tmp_path / "service"
    processes.append(background.start(directory, OPTIONS))
    yield directory
    background.stop(directory, kill=True)
    for process in processes:
        process.wait(LIMIT_S)


@pytest.fixture
def server(service: Path) -> Iterator[WebServer]:
    with web_server(service) as server:
        yield server


def limited(page: Any) -> Any:
    page.set_default_timeout(1000 * LIMIT_S)
    return page


def test_a_resize_and_a_queued_job_are_seen_on_the_page(
    service: Path, server: WebServer, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    page = limited(open_page(server.link))
    page.get_by_text("live", exact=True).wait_for()
    assert "token" not in page.url
    sizes = {"max_processors": 4, "topology": Topology("arbitrary"), "cwd": tmp_path}
    with Client(service) as client:
        job = client.submit(GROWS, 2, walltime=600, name=HOSTILE, **sizes)
        page.get_by_text("<img src=x onerror=alert(1)>\\u202e'\"&").wait_for()
        page.get_by_role("button", name="Story of job 1").click()
        page.get_by_text("is to expand to 4").wait_for()
        page.get_by_text("resize 1 is done").wait_for()
        page.get_by_text("Iteration time by size").wait_for()
        page.get_by_text("4 in use, 1 running").wait_for()
        client.submit(["sleep", "60"], 3, walltime=60, name="waits", cwd=tmp_path)
        line = page.get_by_role("row").filter(has_text="waits")
        line.get_by_text("expected").wait_for()
        assert page.get_by_role("button", name="cancel").count() == 0
        job.cancel()
        page.locator("tr", has_text="CANCELLED").first.wait_for()


def test_the_page_goes_on_when_the_service_is_killed_and_comes_back(
    service: Path,
    processes: list[subprocess.Popen[bytes]],
    server: WebServer,
    open_page: Callable[..., Any],
    tmp_path: Path,
) -> None:
    page = limited(open_page(server.link))
    page.get_by_text("live", exact=True).wait_for()
    with Client(service) as client:
        client.submit(["sleep", "1"], 1, walltime=60, name="first", cwd=tmp_path).wait()
    page.locator("tr", has_text="COMPLETED").wait_for()
    processes[-1].kill()
    processes[-1].wait(LIMIT_S)
    page.get_by_text("the service does not run").wait_for()
    assert page.locator("tr", has_text="first").is_visible()
    processes.append(background.start(service, OPTIONS))
    page.get_by_text("live", exact=True).wait_for()
    with Client(service) as client:
        client.submit(["true"], 1, walltime=60, name="second", cwd=tmp_path)
    page.locator("tr", has_text="second").wait_for()


def test_a_hidden_page_closes_its_stream(server: WebServer, open_page: Callable[..., Any]) -> None:
    page = limited(open_page(server.link))
    page.get_by_text("live", exact=True).wait_for()
    hide = """isHidden => {
        Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    server.read_link()
    cookie = next(iter(page.context.cookies()))
    server.cookie = f"{cookie['name']}={cookie['value']}"

    def streams() -> int:
        return int(json.loads(server.request("/api/v1/state")[2])["viewers"])

    wait_until(lambda: streams() == 1)
    page.evaluate(hide, True)
    wait_until(lambda: streams() == 0)
    page.evaluate(hide, False)
    wait_until(lambda: streams() == 1)


def test_a_page_says_that_its_server_has_ended(
    service: Path, open_page: Callable[..., Any]
) -> None:
    with web_server(service) as server:
        page = limited(open_page(server.link))
        page.get_by_text("live", exact=True).wait_for()
    page.get_by_text("no connection").wait_for()


def test_a_wrong_token_shows_a_sentence(server: WebServer, open_page: Callable[..., Any]) -> None:
    page = open_page(server.link[:-3] + "xyz")
    assert "this link was used or is wrong" in page.locator("body").inner_text()
