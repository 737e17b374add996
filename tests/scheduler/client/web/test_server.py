"""`reshape web` over a recorded journal: who may see it, and what it answers."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from paths import ROOT
from ports import free_port
from waiting import wait_until
from web_server import WebServer, web_server

from scheduler.client import background
from scheduler.client.api.client import Client

JOURNAL = ROOT / "tests" / "scheduler" / "journal" / "recorded_run.sqlite"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web") / "service"
    folder.mkdir()
    shutil.copy(JOURNAL, folder / "journal.db")
    return folder


@pytest.fixture(scope="module")
def server(recorded: Path) -> Iterator[WebServer]:
    with web_server(recorded) as server:
        server.enter()
        wait_until(lambda: answer(server, "/api/v1/jobs")["total"] == 7)
        yield server


def answer(server: WebServer, path: str) -> Any:
    status, _, body = server.request(path)
    assert status == 200, body
    return json.loads(body)


def test_a_link_opens_one_browser_and_no_second_one(recorded: Path) -> None:
    with web_server(recorded) as server:
        used = server.link.removeprefix(f"http://{server.host}")
        status, headers, _ = server.request(used)
        assert status == 303
        assert headers["location"] == "./"
        cookie = headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert "path=" not in cookie
        assert server.request(used)[0] == 403
        assert server.request("/?token=wrong")[0] == 403
        assert server.request("/")[0] == 403
        assert server.request("/api/v1/jobs")[0] == 403
        assert server.request("/static/page.js")[0] == 403
        server.read_link()
        server.enter()
        assert server.request("/")[0] == 200


def test_every_answer_forbids_what_the_page_does_not_need(server: WebServer) -> None:
    for path in ("/", "/static/page.js", "/api/v1/jobs", "/nowhere", "/static/..%2f__init__.py"):
        _, headers, _ = server.request(path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "http://[::1"}, 403),
        ({"Origin": "http://localhost:1", "Host": "localhost:1"}, 200),
        ({"Host": "[::1"}, 403),
        ({"Cookie": "reshape-web-0=x"}, 403),
    ],
)
def test_other_hosts_origins_and_cookies_are_refused(
    server: WebServer, headers: dict[str, str], status: int
) -> None:
    assert server.request("/api/v1/jobs", **headers)[0] == status


def test_a_proxy_may_have_another_name(recorded: Path) -> None:
    with web_server(recorded, "--allow-host", "portal.example") as server:
        server.enter()
        for names, status in (
            ({"Host": "portal.example", "Origin": "https://portal.example"}, 200),
            ({"Origin": "https://portal.example"}, 200),
            ({"Host": "portal.example", "Origin": "https://other.example"}, 403),
        ):
            assert server.request("/api/v1/state", **names)[0] == status


def test_a_change_needs_an_origin_and_the_key_of_an_administrator(server: WebServer) -> None:
    path = "/api/v1/jobs/1/cancel"
    status, _, body = server.request(path, "POST", "{}")
    assert (status, b"names no origin" in body) == (403, True)
    status, _, body = server.request(path, "POST", "{}", Origin=f"http://{server.host}")
    assert (status, b"--administrator" in body) == (403, True)
    assert answer(server, "/api/v1/state")["actions"] == []


def test_the_key_of_an_administrator_changes_jobs(tmp_path: Path) -> None:
    directory, key = tmp_path / "service", tmp_path / "key.json"
    listens = ["--processors", "1", "--listen", f"127.0.0.1:{free_port()}", "--allow-root"]
    process = background.start(directory, listens)
    try:
        invoke("access", "create", "--dir", directory, "--user", "op", "--role", "admin", "-o", key)
        with Client(directory) as client, web_server(directory, "--administrator", key) as server:
            server.enter()
            running = client.submit(["sleep", "600"], 1, walltime=900, cwd=tmp_path)
            queued = client.submit(["sleep", "600"], 1, walltime=900, cwd=tmp_path)
            origin = f"http://{server.host}"
            for job, action in ((queued, "hold"), (queued, "release"), (running, "cancel")):
                path = f"/api/v1/jobs/{job.id}/{action}"
                assert server.request(path, "POST", "{}", Origin="http://evil.example")[0] == 403
                status, _, body = server.request(path, "POST", "{}", Origin=origin)
                assert status == 200, body
            assert running.wait().state == "CANCELLED"
            status, _, body = server.request("/api/v1/jobs/1/boil", "POST", "{}", Origin=origin)
            assert (status, b"there is no action 'boil'" in body) == (404, True)
            assert "cancel" in answer(server, "/api/v1/state")["actions"]
    finally:
        background.stop(directory, kill=True)
        process.wait()


def test_jobs_come_in_pages_by_filter(server: WebServer) -> None:
    found = answer(server, "/api/v1/jobs?group=ended&text=fail")
    assert [row["number"] for row in found["rows"]] == [7]
    assert answer(server, "/api/v1/jobs?group=queued")["rows"] == []
    assert [row["number"] for row in answer(server, "/api/v1/jobs?offset=5")["rows"]] == [2, 1]


def test_a_job_has_its_row_and_its_story(server: WebServer) -> None:
    found = answer(server, "/api/v1/jobs/1")
    assert found["row"]["state"] == "COMPLETED"
    assert any("is to expand to" in line[1] for line in found["story"]["lines"])
    status, _, body = server.request("/api/v1/jobs/99")
    assert (status, b"there is no job 99" in body) == (400, True)
    assert server.request(f"/api/v1/jobs/{'9' * 30}")[0] == 400
    assert server.request("/api/v1/at?time=1e300&processor=1e300")[0] in (200, 400)


def test_a_window_is_a_document(server: WebServer) -> None:
    status, headers, body = server.request("/api/v1/window?from=0&to=7")
    assert (status, headers["content-type"]) == (200, "application/octet-stream")
    length = int.from_bytes(body[:4], "little")
    (run,) = json.loads(body[4 : 4 + length])["runs"]
    _, offset, count = run["jobs"]["number"]
    assert np.frombuffer(body, "<i4", count, 4 + length + offset).tolist() == [1, 2]
    totals = {name: run["totals"][name] for name in ("jobs", "running", "queued", "in_use")}
    assert totals == {"jobs": 7, "running": 0, "queued": 0, "in_use": 0}
    assert answer(server, "/api/v1/at?time=7&processor=3") == {"job": 2}
    assert answer(server, "/api/v1/at?time=7&processor=7") == {"job": None}


@pytest.mark.parametrize(
    "path", ["window?from=x", "window?from=nan", "at?time=1&processor=abc", "jobs?offset=inf"]
)
def test_a_wrong_number_is_named(server: WebServer, path: str) -> None:
    status, _, body = server.request(f"/api/v1/{path}")
    assert status == 400
    assert b"must be a" in body


@pytest.mark.parametrize(
    "body", ["{", '{"scenario": "--dir"}', '{"scenario": 3}', '{"scenario": "easy", "hours": -1}']
)
def test_a_wrong_what_if_is_refused(server: WebServer, body: str) -> None:
    origin = f"http://{server.host}"
    status, _, text = server.request("/api/v1/whatif", "POST", body, Origin=origin)
    assert status == 400, text


def test_what_if_simulates_the_run(server: WebServer) -> None:
    origin = f"http://{server.host}"
    body = '{"scenario": "easy", "hours": 24}'
    status, _, data = server.request("/api/v1/whatif", "POST", body, Origin=origin)
    assert status == 200, data
    header = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    assert [run["name"] for run in header["runs"]] == ["service, as it was", "simulated under easy"]


def events(server: WebServer, last: str = "") -> tuple[http.client.HTTPConnection, Any]:
    connection = http.client.HTTPConnection(server.host, timeout=60)
    headers = {"Cookie": server.cookie} | ({"Last-Event-ID": last} if last else {})
    connection.request("GET", "/api/v1/events", headers=headers)
    return connection, connection.getresponse()


def test_a_stream_goes_on_after_the_last_event(server: WebServer) -> None:
    connection, stream = events(server)
    assert stream.headers["content-type"].startswith("text/event-stream")
    lines = [stream.readline().decode().strip() for _ in range(4)]
    connection.close()
    identity = lines[2].removeprefix("id: ")
    assert json.loads(lines[3].removeprefix("data: "))["sequence"] == int(identity)
    connection, stream = events(server, last=identity)
    assert stream.readline() == b"retry: 1000\n"
    stream.readline()
    connection.sock.settimeout(1.0)
    with pytest.raises(TimeoutError):  # nothing has changed since
        stream.readline()
    connection.close()


def test_a_unix_socket_belongs_to_its_user(recorded: Path, temporary: Path) -> None:
    path = temporary / "web.sock"
    with web_server(recorded, "--socket", path) as server:
        assert server.link.startswith("http://localhost/?token=")
        assert path.stat().st_mode & 0o077 == 0
    assert not path.exists()


def test_a_directory_without_a_journal_and_a_port_in_use_are_errors(
    server: WebServer, tmp_path: Path, recorded: Path
) -> None:
    done = invoke("web", "--dir", tmp_path, code=1)
    assert "there is no journal in" in done.stderr
    port = server.host.partition(":")[2]
    done = invoke("web", "--dir", recorded, "--port", port, code=1)
    assert f"cannot listen on port {port}: Address already in use" in done.stderr
