"""`reshape serve` with points for faults, a clock that jumps, and messages that get lost.

    python served.py serve --dir DIR ...

Everything is injected from here, so that a service in production has no code for it.
"""

from __future__ import annotations

import os
import random
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import zmq
from faults import FOLDER_VARIABLE, Round

from scheduler.journal.journal import Journal
from scheduler.node.directory import ServiceDirectory
from scheduler.service import connections
from scheduler.service.components.transactions import Transactions
from scheduler.service.connections import Connections

around = Round(Path(os.environ[FOLDER_VARIABLE]))
directory = ServiceDirectory(around.folder / "service")
directory.create()
endpoint = directory.endpoint
wall, send = time.time, connections._send


def jumping() -> float:
    """Return the wall time, with the jumps of the round."""
    elapsed = around.elapsed
    jumps = (f.amount for f in around.faults if f.kind == "clock" and 0 <= f.at <= elapsed)
    return wall() + sum(jumps)


class Wire:
    """The socket of the service; it loses, repeats and reorders messages.

    Parameters
    ----------
    socket : ROUTER socket that carries the messages.
    """

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._numbers = random.Random(sum(map(ord, str(around.faults))))
        self._late: list[list[bytes]] = []  # received and to be delivered later
        self._frames: list[SimpleNamespace] = []  # of the message that is being delivered

    def __getattr__(self, name: str) -> Any:
        """Return other members of the socket."""
        return getattr(self._socket, name)

    def send(self, identity: bytes, frames: list[bytes]) -> None:
        """Send a message; it may be lost or be sent twice."""
        around.reach("step before sending", endpoint)
        for _ in range(self._copies()):
            send(self._socket, identity, frames)
        around.reach("step after sending", endpoint)

    def recv(self, flags: int = 0, copy: bool = False) -> SimpleNamespace:
        """Receive a frame of the next message."""
        if not self._frames:
            parts = self._message(flags)
            last = len(parts) - 1
            self._frames = [SimpleNamespace(bytes=p, more=k < last) for k, p in enumerate(parts)]
        return self._frames.pop(0)

    def _message(self, flags: int) -> list[bytes]:
        """Receive a message; it may be lost, come twice, or come after later ones."""
        while True:
            try:
                frames: list[bytes] = self._socket.recv_multipart(flags)
            except zmq.Again:
                if self._late and self._numbers.random() < 0.5:
                    return self._late.pop(self._numbers.randrange(len(self._late)))
                raise
            copies = self._copies()
            if copies == 2:
                self._late.append(frames)
            if copies and self._is_hit():
                self._late.append(frames)
            elif copies:
                return frames

    def _is_hit(self) -> bool:
        return any(self._numbers.random() < each.amount for each in around.present("messages"))

    def _copies(self) -> int:
        return self._numbers.choice((0, 0, 2)) if self._is_hit() else 1


def patch() -> None:
    """Put the points and the faults of the environment into the service."""
    time.time = jumping
    commit, note, start = Journal.commit, Transactions._note, Connections.__init__

    def slow_commit(self: Journal) -> None:
        if not (self._pending or self._executed):
            commit(self)
            return
        around.reach("step before journal", endpoint)
        for fault in around.present("slow journal"):
            time.sleep(fault.amount)
        commit(self)
        around.reach("step after journal", endpoint)

    def noted(self: Transactions, job: Any, transaction: Any, phase: str, detail: str = "") -> None:
        note(self, job, transaction, phase, detail)
        around.reach(f"phase {phase}", endpoint, job.id)

    def started(self: Connections, *args: Any) -> None:
        start(self, *args)
        self._local = Wire(self._local)  # type: ignore[assignment]

    def sent(router: Any, identity: bytes, frames: list[bytes]) -> None:
        if isinstance(router, Wire):
            router.send(identity, frames)
        else:
            send(router, identity, frames)

    replace: Callable[[Any, str, Any], None] = setattr
    replace(connections, "_send", sent)
    replace(Journal, "commit", slow_commit)
    replace(Transactions, "_note", noted)
    replace(Connections, "__init__", started)


patch()
sys.argv[0] = "reshape"
runpy.run_module("reshape", run_name="__main__")
