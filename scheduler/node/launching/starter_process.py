"""The process beside an agent that forks the processes which it starts; see `starter.py`."""

from __future__ import annotations

import errno
import marshal
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from scheduler.node.launching.prctl import become_subreaper, die_with_parent
from scheduler.node.launching.starter import NUMBER_BYTES

if TYPE_CHECKING:
    from scheduler.node.launching.starter import StartRequest

_STARTER = str(Path(__file__).with_name("starter.py"))
#: Seconds within which a process is forked, the start of the one that forks it included.
LIMIT_S = 5.0


class StarterProcess:
    """Starts processes as children of this one, which becomes their subreaper.

    The process that forks them is started with the first of them, and again if it has ended.

    Raises
    ------
    OSError : this process cannot become a subreaper.
    """

    def __init__(self) -> None:
        become_subreaper()
        self._connection: socket.socket | None = None

    def start(self, request: StartRequest, descriptors: list[int]) -> int:
        """Return the number of a new process.

        Parameters
        ----------
        descriptors : for the new process, that of the status first.

        Raises
        ------
        OSError : there is none.
        """
        plain: Any = request
        data = marshal.dumps(plain)
        # Without an answer nothing was started, so that a second request is no second start.
        answer = self._ask(data, descriptors) or self._ask(data, descriptors)
        if not answer:
            raise OSError(errno.EAGAIN, "the process that starts others does not answer")
        number = int.from_bytes(answer, "little", signed=True)
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number

    def _ask(self, data: bytes, descriptors: list[int]) -> bytes:
        """Send a request and return its answer; empty, and disconnected, if there is none."""
        connection = self._connection or self._open()
        answer = b""
        try:
            length = len(data).to_bytes(NUMBER_BYTES, "little")
            socket.send_fds(connection, [length], descriptors)
            connection.sendall(data)
            answer = connection.recv(NUMBER_BYTES)
        except TimeoutError:
            connection.shutdown(socket.SHUT_RDWR)  # a process that cannot answer does not start
            answer = connection.recv(NUMBER_BYTES)
            self._kill()
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        if not answer:
            self.close()
        return answer

    def _open(self) -> socket.socket:
        own, other = socket.socketpair()
        with other:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", _STARTER, str(other.fileno())],
                env={},
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - the agent has one Python thread
            )
        self._process = psutil.Process(process.pid)
        process.returncode = 0  # the agent waits for all its children elsewhere
        own.settimeout(LIMIT_S)
        self._connection = own
        return own

    def _kill(self) -> None:
        """End a process that does not answer, which may have received descriptors of a start."""
        with suppress(psutil.Error):
            self._process.kill()  # verifies the start time of the process first
        self.close()

    def close(self) -> None:
        """Let the process end."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
