"""The synchronous side of the wire: one ZeroMQ socket of an application or of a command.

The socket queues nothing for a service that is away. A message either goes into a connection that
stands or is refused at once, so that a service which comes back is not met by questions that were
given up long ago.
"""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path
from types import TracebackType

import msgspec
import zmq

from reshape.errors import ProtocolError, ReshapeError, ServiceUnavailable
from reshape.wire.codec import MAX_ANSWER_BYTES, decode, encode
from reshape.wire.messages import Failure, Message

SERVER_FILE = "server.json"


class ServerFile(msgspec.Struct):
    """What a running service tells about itself in its directory; times are Unix seconds."""

    endpoint: str
    pid: int
    started_at: float


def endpoint_of(directory: str | Path) -> str:
    """Find the ZeroMQ endpoint of the service that runs in a directory.

    Raises
    ------
    ServiceUnavailable : no service was started there, or its process is gone.
    ReshapeError : the file it left there cannot be read.
    """
    path = Path(directory) / SERVER_FILE
    mend = f"start it with 'reshape serve --dir {directory}', or name its directory with --dir"
    try:
        server = msgspec.json.decode(path.read_bytes(), type=ServerFile)
    except (FileNotFoundError, NotADirectoryError):
        raise ServiceUnavailable(f"no scheduler service in {directory}: {mend}") from None
    except OSError as error:
        raise ReshapeError(f"cannot read {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ReshapeError(f"{path} is damaged ({error}): {mend}") from None
    if server.endpoint.startswith("ipc:") and not _alive(server.pid):
        raise ServiceUnavailable(
            f"the scheduler service in {directory} (process {server.pid}) is gone: {mend}"
        )
    return server.endpoint


def _alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and whom nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


class Client:
    """A connection to the service; several threads must not share one.

    Parameters
    ----------
    endpoint : ZeroMQ endpoint of the service, such as ``ipc:///run/user/1000/reshape/socket``.
    identity : name the service sees as sender; a random one if None.

    Raises
    ------
    ReshapeError : the endpoint is not one.
    """

    def __init__(self, endpoint: str, identity: bytes | None = None) -> None:
        self.endpoint = endpoint
        self._ids = count(1)
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)  # queue only into a connection that stands
        self._socket.setsockopt(zmq.RECONNECT_IVL, 20)  # milliseconds
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        if identity is not None:
            self._socket.setsockopt(zmq.IDENTITY, identity)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ReshapeError(f"{endpoint!r} is no endpoint of a service: {error}") from None

    def __enter__(self) -> Client:
        """Give itself; the connection is closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self, linger_s: float = 0.0) -> None:
        """Close the connection; what was sent last gets at most `linger_s` seconds to leave."""
        self._socket.close(linger=round(1000 * linger_s))
        self._context.term()

    def request(self, message: Message, timeout: float) -> Message:
        """Send a message and wait for its answer; other messages met on the way are dropped.

        Parameters
        ----------
        message : its `id` is set here.
        timeout : seconds for both directions together.

        Raises
        ------
        ServiceUnavailable : no answer in time.
        ReshapeError : the service answers that it cannot be done, and why.
        ProtocolError : the service speaks another version.
        """
        until = time.monotonic() + timeout
        number = self.send(message, timeout)
        while True:
            answer = self.receive(until - time.monotonic())
            if answer is None:
                raise self._unavailable(timeout)
            if answer.id == number and isinstance(answer, Failure):
                raise ReshapeError(answer.message)
            if answer.id == number:
                return answer

    def send(self, message: Message, timeout: float = 0.0) -> int:
        """Send a message without waiting for an answer; give the `id` set in it.

        Parameters
        ----------
        timeout : seconds to wait for a connection, if there is none at the moment.

        Raises
        ------
        ServiceUnavailable : nobody to send it to.
        """
        message.id = next(self._ids)
        if not self._socket.poll(max(0, round(1000 * timeout)), zmq.POLLOUT):
            raise self._unavailable(timeout)
        try:
            self._socket.send_multipart(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            raise self._unavailable(timeout) from None
        return message.id

    def receive(self, timeout: float) -> Message | None:
        """Wait at most `timeout` seconds (0 if negative) for a message; None if there is none.

        Raises
        ------
        ProtocolError : what came is malformed or of another version.
        """
        if not self._socket.poll(max(0, round(1000 * timeout))):
            return None
        try:
            return decode(self._socket.recv_multipart(zmq.NOBLOCK), MAX_ANSWER_BYTES)
        except ProtocolError as error:
            raise ProtocolError(f"{self.endpoint}: {error}") from None

    def _unavailable(self, timeout: float) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"no answer from the scheduler service at {self.endpoint} within {timeout:g} s; "
            "if it has ended, start it again with 'reshape serve'"
        )
