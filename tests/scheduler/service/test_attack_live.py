"""A real service with few open files: under attack, without a file left, and without its gate."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from handshakes import GREETING, HELLO
from ports import free_port
from process_words import words_of

from reshape.errors import ServiceUnavailable
from scheduler.client import background
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import connect

#: Files that the service may have open; connections that send nothing, and that begin a handshake.
FILES, SILENT, BEGINNING = 256, 500, 100
PATIENCE_S = 60.0


class Limited:
    """A service that may have few files open."""

    def __init__(self, folder: Path) -> None:
        self.place, self.port = ServiceDirectory(folder / "service"), free_port()
        self.log = folder / "serve.log"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "reshape", "serve", "--dir", str(self.place.path)]
        command += ["--processors", "1", "--listen", f"127.0.0.1:{self.port}", "--allow-root"]
        limits = f"ulimit -Sn {FILES // 4} && ulimit -Hn {FILES}"  # the service raises the first
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                ["sh", "-c", f'{limits} && exec "$@"', "sh", *command],
                stdout=output,
                stderr=output,
            )
        assert until(lambda: self.info(self.admin).pid == self.process.pid)
        assert until(lambda: self.info(self.place.path).nodes[0][2] == "up")

    @property
    def admin(self) -> Path:
        return self.place.path / "access" / "admin.json"

    def info(self, service: Path, timeout: float = 5.0) -> m.Info:
        with connect(service) as client:
            answer = client.request(m.ServerInfo(), timeout)
        assert isinstance(answer, m.Info)
        return answer

    def gates(self) -> list[psutil.Process]:
        """Return the processes of its gate."""
        children = psutil.Process(self.process.pid).children()
        return [p for p in children if "scheduler.service.gate_process" in words_of(p)]

    def set_limit(self, files: int) -> None:
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (files, FILES))


def until(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds; while the service is not there, it does not."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(ServiceUnavailable, FileNotFoundError):
            if condition():
                return True
        time.sleep(0.01)
    return False


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    made = Limited(tmp_path_factory.mktemp("limited"))
    yield made
    background.stop(made.place.path, kill=True)  # with its agent, which would stay for a minute
    assert made.process.wait(PATIENCE_S) == 0
    assert not made.place.memory.exists()


def test_more_connections_than_files_end_nothing(limited: Limited) -> None:
    before = limited.info(limited.admin)
    with ExitStack() as stack:
        for number in range(SILENT + BEGINNING):
            peer = stack.enter_context(socket.socket())
            peer.bind((f"127.0.1.{1 + number % 5}", 0))
            peer.connect(("127.0.0.1", limited.port))
            if number >= SILENT:
                peer.sendall(GREETING + HELLO)
        for service in (limited.place.path, limited.admin):
            assert limited.info(service, PATIENCE_S).pid == before.pid
    more = SILENT + BEGINNING + before.refused.get("connection", 0)
    assert until(lambda: limited.info(limited.admin).refused.get("connection", 0) >= more)
    assert "refused a connection from 127.0.1." in limited.log.read_text()


def test_a_service_without_a_file_left_goes_on_and_takes_no_connection(limited: Limited) -> None:
    before, socket_file = limited.info(limited.admin), limited.place.socket
    lowest = len(os.listdir(f"/proc/{limited.process.pid}/fd"))
    limited.set_limit(lowest)
    try:
        assert until(lambda: not socket_file.exists())
        with pytest.raises(ServiceUnavailable):
            limited.info(limited.place.path, 1.0)  # several ticks, which cannot open a file
    finally:
        limited.set_limit(FILES)
    assert until(socket_file.exists)
    for service in (limited.place.path, limited.admin):
        after = limited.info(service, PATIENCE_S)
        assert (after.pid, after.started_at) == (before.pid, before.started_at)
        assert after.nodes[0][2] == "up"


def test_a_gate_that_dies_is_replaced(limited: Limited) -> None:
    before, (first,) = limited.info(limited.admin), limited.gates()
    first.kill()
    assert until(lambda: [gate for gate in limited.gates() if gate.pid != first.pid] != [])
    after = limited.info(limited.admin, PATIENCE_S)
    assert (after.pid, after.started_at) == (before.pid, before.started_at)


def test_a_service_that_was_killed_starts_again_at_its_port(limited: Limited) -> None:
    first = limited.info(limited.admin).pid
    limited.process.kill()
    limited.process.wait()
    limited.start()
    assert limited.info(limited.admin, PATIENCE_S).pid != first
