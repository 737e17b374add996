"""The gate between real sockets: what it passes on, in which order, and how connections end."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from handshakes import GREETING, HELLO, INITIATE, WELCOME
from ports import free_port

from scheduler.service.connections import GateLink
from scheduler.service.gate_connections import GateReport, Refusals, Unread, Verifying

PATIENCE_S = 30.0
READY = b"\x04\x41\x05READY" + bytes(59)


class Behind:
    """A gate, and the sockets on both sides of it."""

    def __init__(self, folder: Path) -> None:
        self.port, lane = free_port(), folder / "gate-0"
        self.service = socket.socket(socket.AF_UNIX)
        self.service.bind(str(lane))
        self.service.listen(100)
        self.service.settimeout(PATIENCE_S)
        self.link = GateLink(f"127.0.0.1:{self.port}", [lane], folder / "gate.log")
        self.reports: list[GateReport] = []
        self.link.process.keep_running()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def accept(self) -> socket.socket:
        admitted, _ = self.service.accept()
        admitted.settimeout(PATIENCE_S)
        return admitted

    def next_report(self) -> GateReport:
        end, poller = time.monotonic() + PATIENCE_S, select.poll()  # for any file descriptor
        poller.register(self.link.reports, select.POLLIN)
        while not self.reports:
            assert time.monotonic() < end
            poller.poll(1000)
            self.reports += self.link.read()
        return self.reports.pop(0)

    def proven(self) -> tuple[socket.socket, socket.socket]:
        """Make a connection that has proved its key; return both ends."""
        client = self.connect()
        client.sendall(GREETING + HELLO)
        admitted = self.accept()
        assert _read(admitted, 266) == GREETING + HELLO
        client.sendall(INITIATE)
        assert isinstance(self.next_report(), Verifying)
        assert _read(admitted, len(INITIATE)) == INITIATE
        admitted.sendall(WELCOME + READY)
        assert _read(client, len(WELCOME + READY)) == WELCOME + READY
        return client, admitted


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    made = Behind(tmp_path_factory.mktemp("gate"))
    yield made
    made.link.close()
    made.service.close()


def _read(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        assert part
        data += part
    return data


def test_a_key_is_verified_after_its_address_was_reported(behind: Behind) -> None:
    client = behind.connect()
    client.sendall(GREETING + HELLO + INITIATE)
    admitted = behind.accept()
    assert _read(admitted, 266) == GREETING + HELLO
    assert behind.next_report() == Verifying(0, f"127.0.0.1:{client.getsockname()[1]}")
    assert _read(admitted, len(INITIATE)) == INITIATE
    second = behind.connect()
    second.sendall(GREETING + HELLO + INITIATE)
    other = behind.accept()
    assert _read(other, 266) == GREETING + HELLO
    other.setblocking(False)
    with pytest.raises(BlockingIOError):  # the key of the first one is still being verified
        other.recv(1)
    other.setblocking(True)
    admitted.sendall(WELCOME + b"\x04\x0a\x05ERROR\x03400")
    assert _read(client, len(WELCOME)) == WELCOME
    assert client.recv(100) == b"\x04\x0a\x05ERROR\x03400"
    assert client.recv(1) == b""
    assert behind.next_report() == Verifying(0, f"127.0.0.1:{second.getsockname()[1]}")
    assert _read(other, len(INITIATE)) == INITIATE
    other.close()
    assert second.recv(1) == b""
    refused = behind.next_report()
    assert isinstance(refused, Refusals)
    assert refused.counts == {"connection": 1}
    assert f"127.0.0.1:{second.getsockname()[1]}" in refused.examples[0]
    for end in (client, second, admitted):
        end.close()


def test_bytes_pass_in_both_directions_however_slowly_they_are_read(behind: Behind) -> None:
    client, admitted = behind.proven()
    data = bytes(range(256)) * (32 << 10)  # more than all buffers on the way
    threads = [threading.Thread(target=end.sendall, args=(data,)) for end in (client, admitted)]
    for thread in threads:
        thread.start()
    for end in (admitted, client):
        assert _read(end, len(data)) == data
    for thread in threads:
        thread.join()
    admitted.sendall(b"the last words")
    admitted.close()
    assert _read(client, 14) == b"the last words"
    assert client.recv(1) == b""
    client.close()
    refused = behind.next_report()
    assert isinstance(refused, Refusals)
    assert "ZeroMQ ended it" in refused.examples[0]


def test_the_end_of_a_client_reaches_the_service(behind: Behind) -> None:
    client, admitted = behind.proven()
    client.sendall(b"the last words")
    client.close()
    assert _read(admitted, 14) == b"the last words"
    assert admitted.recv(1) == b""
    admitted.close()


def test_what_is_no_handshake_never_reaches_the_service(behind: Behind) -> None:
    with behind.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
    refused = behind.next_report()
    assert isinstance(refused, Refusals)
    assert "does not speak ZMTP" in refused.examples[0]
    behind.service.settimeout(0)
    with pytest.raises(BlockingIOError):
        behind.service.accept()
    behind.service.settimeout(PATIENCE_S)


def test_a_client_goes_on_only_if_the_service_receives_whole_messages(behind: Behind) -> None:
    client, admitted = behind.proven()
    address = f"127.0.0.1:{client.getsockname()[1]}"
    received = 0

    def send() -> None:
        with suppress(OSError):  # the gate closes the connection in the end
            while True:
                client.sendall(bytes(1 << 20))

    def read(until: int) -> None:
        nonlocal received
        while received < until and (part := admitted.recv(1 << 20)):
            received += len(part)

    sender = threading.Thread(target=send)
    sender.start()
    read(40 << 20)
    assert behind.next_report() == Unread(address)
    behind.link.process.write(address)
    read(110 << 20)  # more than the gate passes on without the note
    assert behind.next_report() == Unread(address)
    read(1 << 40)
    assert received < 150 << 20
    sender.join()
    refused = behind.next_report()
    assert isinstance(refused, Refusals)
    assert refused.counts == {"message": 1}
    for end in (client, admitted):
        end.close()
