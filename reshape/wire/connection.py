"""A synchronous connection to the service: one ZeroMQ socket.

The socket queues nothing while there is no connection. A message is either sent on an existing
connection or refused at once, so that a service that starts again does not receive requests that
were given up long ago.

A service is named by its directory on this machine, or by an access file, with which it is reached
over TCP (:mod:`reshape.wire.access`).
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
import zmq

from reshape.errors import (
    AccessRefused,
    ProtocolError,
    RequestRefused,
    ReshapeError,
    ServerUnproven,
    ServiceUnavailable,
)
from reshape.files.job_folder import is_running
from reshape.wire.access import AccessFile, read_access
from reshape.wire.codec import FRAME_FACTOR, encode
from reshape.wire.messages import Failure, MessageBase

M = TypeVar("M", bound=MessageBase)

SERVER_FILE = "server.json"
#: Begin of the first frame of an event. (`zmq.utils.monitor` imports asyncio, which takes 50 ms.)
_EVENT = struct.Struct("=H")
_REFUSED_KEY = zmq.EVENT_HANDSHAKE_FAILED_AUTH
#: Handshakes that fail one after the other, in about 3 s, before the server key counts as wrong: a
#: service that ends, or is overloaded, lets single ones fail.
_MOST_FAILED = 8
#: Milliseconds between two attempts to connect; they grow to one second while nothing listens. With
#: keys each attempt that fails costs both sides a handshake.
_RECONNECT_MS, _RECONNECT_WITH_KEYS_MS = 20, 250
_FAILED = _REFUSED_KEY | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class ServerFile(msgspec.Struct):
    """The file in its directory that describes a running service; times are Unix seconds."""

    endpoint: str
    pid: int
    started_at: float


def service_in(directory: str | Path) -> ServerFile:
    """Describe the service that runs in a directory.

    Raises
    ------
    ServiceUnavailable : no service was started there, its process is gone, or the file that it left
        there is damaged.
    ReshapeError : the file cannot be read.
    """
    path = Path(directory) / SERVER_FILE
    fix = f"start it with 'reshape serve --dir {directory}', or name its directory with --dir"
    try:
        server = msgspec.json.decode(path.read_bytes(), type=ServerFile)
    except (FileNotFoundError, NotADirectoryError):
        raise ServiceUnavailable(f"no scheduler service in {directory}: {fix}") from None
    except OSError as error:
        raise ReshapeError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ServiceUnavailable(
            f"{path} is damaged ({error}): a service that runs there writes it again within a few"
            f" seconds; if none runs there, {fix}"
        ) from None
    if server.endpoint.startswith("ipc:") and not is_running(server.pid):
        raise ServiceUnavailable(
            f"the scheduler service in {directory} (process {server.pid}) is gone, or runs on"
            f" another host: {fix}, or its access file with --access"
        )
    return server


def located(service: str | Path) -> tuple[str, AccessFile | None]:
    """Endpoint of the service that a directory or an access file names, and the keys for it.

    Raises
    ------
    ServiceUnavailable : no service runs in the directory.
    ReshapeError : the file in the directory, or the access file, cannot be used.
    """
    if is_access_file(service):
        access = read_access(Path(service))
        return access.endpoint, access
    return service_in(service).endpoint, None


def is_access_file(service: str | Path) -> bool:
    """Whether a service is named by an access file, instead of its directory."""
    return Path(service).is_file()


class Connection(Generic[M]):
    """A connection to the service; it must not be shared between threads.

    Parameters
    ----------
    endpoint : ZeroMQ endpoint of the service, such as ``ipc:///run/user/1000/reshape/socket``.
    access : keys for an endpoint on TCP; None: the endpoint is that of a service directory.
    decode : decodes the frames of the messages that this peer receives, up to a size.
    max_bytes : size of the largest answer to accept.

    Raises
    ------
    ReshapeError : the endpoint is not valid.
    """

    def __init__(
        self,
        endpoint: str,
        access: AccessFile | None,
        decode: Callable[[Sequence[bytes], int], M],
        max_bytes: int,
    ) -> None:
        self.endpoint = endpoint
        self._decode, self._max_bytes = decode, max_bytes
        self._ids = count(1)
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)  # queue messages only for an existing connection
        self._socket.setsockopt(zmq.MAXMSGSIZE, FRAME_FACTOR * max_bytes)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        self._monitor: zmq.Socket[bytes] | None = None
        self._failed_handshakes = 0
        if access is not None:
            use_keys(self._socket, access)
            self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_WITH_KEYS_MS)
            self._monitor = self._socket.get_monitor_socket(_FAILED)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ReshapeError(f"{endpoint!r} is not an endpoint of a service: {error}") from None

    def __enter__(self) -> Self:
        """Return the connection; it is closed at the end of the block."""
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
        """Close the connection, after at most `linger_s` seconds for messages not sent yet."""
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
        self._socket.close(linger=round(1000 * linger_s))
        self._context.term()

    def request(self, message: MessageBase, timeout: float, connect_s: float = inf) -> M:
        """Send a message and wait for its answer; other messages that arrive are dropped.

        Parameters
        ----------
        message : its `id` is set here.
        timeout : seconds for request and answer together.
        connect_s : seconds of them to wait for a connection, if there is none at the moment.

        Raises
        ------
        ServiceUnavailable : no answer in time.
        ServerUnproven : what answers there is not the service of the access file.
        ReshapeError : the service refuses the request; the message is its reason.
        ProtocolError : the service speaks another version.
        """
        until = time.monotonic() + timeout
        number = self.send(message, min(timeout, connect_s))
        while True:
            answer = self.receive(until - time.monotonic())
            if answer is None:
                raise self.unavailable(timeout)
            if answer.id == number and isinstance(answer, Failure):
                raise RequestRefused(answer.message)
            if answer.id == number:
                return answer

    def send(self, message: MessageBase, timeout: float = 0.0, *, again: bool = False) -> int:
        """Send a message without waiting for an answer; return the `id` set in it.

        Parameters
        ----------
        timeout : seconds to wait for a connection, if there is none at the moment.
        again : let a message that was given an `id` keep it, so that each answer is to all
            sendings.

        Raises
        ------
        ServiceUnavailable : there is no connection.
        ServerUnproven : what answers there is not the service of the access file.
        AccessRefused : the service refuses the key.
        """
        if not (again and message.id):
            message.id = next(self._ids)
        if not self._can_send(timeout):
            raise self.unavailable(timeout)
        try:
            self._socket.send_multipart(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            raise self.unavailable(timeout) from None
        return message.id

    def _can_send(self, timeout: float) -> bool:
        """Wait for a connection; whether there is one."""
        if self._monitor is None:
            return bool(self._socket.poll(max(0, round(1000 * timeout)), zmq.POLLOUT))
        until = time.monotonic() + timeout
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLOUT)
        poller.register(self._monitor, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(max(0, round(1000 * (until - time.monotonic())))))
            if self._socket in ready:
                self._failed_handshakes = 0
                return True
            if not ready:
                return False
            self._failed_handshakes += 1
            description, _ = self._monitor.recv_multipart()  # zmq_socket_monitor(3)
            (event,) = _EVENT.unpack_from(description)
            if event == _REFUSED_KEY:
                raise AccessRefused(
                    f"the service at {self.endpoint} refuses the key of the access file: it has"
                    " expired, was revoked, or belongs to another service; ask for a new file"
                )
            if self._failed_handshakes >= _MOST_FAILED:
                raise self.unavailable(timeout)

    def receive(self, timeout: float) -> M | None:
        """Wait at most `timeout` seconds (0 if negative) for a message; None if there is none.

        Raises
        ------
        ProtocolError : the message is malformed or of another version.
        """
        if not self._socket.poll(max(0, round(1000 * timeout))):
            return None
        try:
            return self._decode(self._socket.recv_multipart(zmq.NOBLOCK), self._max_bytes)
        except ProtocolError as error:
            raise ProtocolError(f"{self.endpoint}: {error}") from None

    def unavailable(self, timeout: float) -> ServiceUnavailable:
        """Error that says that no answer came in this time, seconds, and what to do."""
        if self._failed_handshakes >= _MOST_FAILED:
            return ServerUnproven(
                f"{self.endpoint} answers, but does not prove the server key of the access file:"
                " the service has new keys, or another program listens there; ask for a new file"
            )
        return ServiceUnavailable(
            f"no answer from the scheduler service at {self.endpoint} within {timeout:g} s; "
            "if it has ended, start it again with 'reshape serve'"
        )


def own_address(endpoint: str) -> str:
    """Return the address of this host on the network by which it reaches a TCP endpoint."""
    parts = urlsplit(endpoint)
    try:
        address_info = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(address_info[0], socket.SOCK_DGRAM) as probe:
            probe.connect(address_info[4])  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()


def use_keys(socket: zmq.Socket[bytes], access: AccessFile) -> None:
    """Make a socket encrypt with the keys of an access file, and detect a peer that is gone."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, access.server_key.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, access.public_key.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, access.secret_key.encode())
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 5000)  # milliseconds
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15000)
