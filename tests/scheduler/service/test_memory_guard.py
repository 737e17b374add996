"""A message without an end on the socket in the service directory."""

from __future__ import annotations

import socket
import sys
import threading
from typing import Any

import psutil
from waiting import LIMIT_S, wait_until

from scheduler import Client
from scheduler.service.limits import MOST_GROWTH_BYTES

#: The begin of a connection without keys, and of a message (ZMTP 3.1).
GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL" + bytes(48)
READY = b"\4\x29\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0"
ANSWER_BYTES = 100  # of the service: at least its greeting and the begin of READY
PROTOCOL_FRAME = b"\1\x09reshape/2"
FRAME_BYTES = 16 << 20
#: Waits until there is a file of the name it was given.
WAITER = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


def send_without_end(path: str) -> None:
    """Send frames of one message until the service closes the connection."""
    frame = b"\3" + FRAME_BYTES.to_bytes(8, "big") + bytes(FRAME_BYTES)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(LIMIT_S)
        peer.connect(path)
        try:
            peer.sendall(GREETING + READY)
            peer.recv(ANSWER_BYTES, socket.MSG_WAITALL)  # no frame may come before the answer
            peer.sendall(PROTOCOL_FRAME)
            for _ in range(2 * MOST_GROWTH_BYTES // FRAME_BYTES):
                peer.sendall(frame)
            while peer.recv(1024):  # until it is closed
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass


def test_a_message_without_an_end_is_given_up_and_nothing_else(served: Any) -> None:
    served.start("--processors", "2")
    service = psutil.Process(served.process.pid)
    job = served.submit([sys.executable, "-c", WAITER, "end"], 1)
    served.until(job, "RUNNING")
    ends: list[Any] = []

    def wait() -> None:
        with Client(served.directory) as client:
            ends.append(client.job(job).wait())

    waiter = threading.Thread(target=wait)
    waiter.start()
    before = service.memory_info().rss

    def given_up() -> bool:
        """Send again if a slow machine has ended the connection before it began to send."""
        send_without_end(served.endpoint.removeprefix("ipc://"))
        return "closed, and their peers connect again" in served.place.log("serve").read_text()

    wait_until(given_up)
    wait_until(lambda: service.memory_info().rss < before + MOST_GROWTH_BYTES)
    other = served.submit(["true"], 1)
    assert served.wait(other).state == "COMPLETED"
    assert served.job(job).state == "RUNNING"
    (served.work / "end").touch()
    waiter.join(LIMIT_S)
    assert ends[0].state == "COMPLETED"
