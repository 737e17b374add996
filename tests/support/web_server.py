"""A `reshape web` of its own process, and requests to it without a browser."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from waiting import LIMIT_S


class WebServer:
    """The process, and the link that it has printed last."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.cookie = ""
        self.read_link()

    def read_link(self) -> str:
        """Read the next link that it prints."""
        assert self.process.stdout is not None
        self.link = self.process.stdout.readline().strip()
        assert self.link.startswith("http://"), self.link
        return self.link

    @property
    def host(self) -> str:
        return urlsplit(self.link).netloc

    def enter(self) -> None:
        """Use up the link, and keep the cookie."""
        status, headers, _ = self.request(self.link.removeprefix(f"http://{self.host}"))
        assert status == 303, status
        self.cookie = headers["set-cookie"].partition(";")[0]
        self.read_link()

    def request(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request with the cookie; names of headers have underscores for hyphens."""
        connection = http.client.HTTPConnection(self.host, timeout=LIMIT_S)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent.setdefault("Cookie", self.cookie)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()


@contextmanager
def web_server(directory: Path, *options: object) -> Iterator[WebServer]:
    """Run `reshape web` for a directory."""
    words = [sys.executable, "-m", "reshape", "web", "--dir", str(directory), "--port", "0"]
    with subprocess.Popen(
        [*words, *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield WebServer(process)
        finally:
            process.terminate()
            process.wait(LIMIT_S)
