"""The sockets of a service: one in its directory, and one on TCP if it listens there.

A peer is named by the identity that its socket has. The name of a peer on TCP also holds its public
key, so that each message in both directions is checked against the list of keys, and a revoked key
is refused at once, without any state for each peer.

TCP connections use CURVE. A peer without a key, with another key or without CURVE never gets past
the handshake, which must be done within `HANDSHAKE_S`. CURVE encrypts, authenticates and numbers
all messages of a connection; ZeroMQ reads nothing more from one on which a message is repeated.
"""

from __future__ import annotations

import logging
import os
import resource
import socket as sockets
from collections import Counter
from contextlib import suppress

import zmq
from zmq.auth import Authenticator
from zmq.utils.monitor import recv_monitor_message

from reshape.errors import ConfigError
from reshape.wire.codec import MAX_REQUEST_FRAME_BYTES
from scheduler.config.checks import parse_listen
from scheduler.node.access_keys import AccessKeys, ServerKeys
from scheduler.node.directory import ServiceDirectory
from scheduler.service.bounded_log import BoundedLog
from scheduler.service.permissions import Sender, owner

log = logging.getLogger(__name__)

#: Seconds in which a TCP connection must have proved its key.
HANDSHAKE_S = 5.0
#: Interval of the probes of TCP connections, and the silence after which one is closed, seconds.
HEARTBEAT_S, SILENCE_S = 10.0, 30.0
#: Most TCP connections that the kernel accepts before the service does; it may have a lower limit.
#: With the 100 of ZeroMQ, many agents that connect at the same moment are delayed by seconds: the
#: kernel drops the other connections, and their peers try again after 1, 3 and 7 s.
BACKLOG = 4096
#: Most TCP connections that are served at a time; half of the files that may be open, if fewer.
MAX_CONNECTIONS = 4096
#: First byte of the name of a peer on TCP. ZeroMQ begins the identities that it chooses with 0.
_REMOTE = b"T"
_KEY_BYTES = 40
#: Flags as plain numbers: arithmetic on the enumeration costs more than sending a message.
_NOW, _NOW_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)


class Connections:
    """Receives and sends the messages of a service.

    Parameters
    ----------
    directory : holds the local socket and the keys.
    listen : ``HOST:PORT`` of the TCP socket; None: there is none.
    refused : counts refused connections and messages, by kind.
    """

    def __init__(
        self, directory: ServiceDirectory, listen: str | None, refused: Counter[str]
    ) -> None:
        self.refused = refused
        self._directory, self._listen = directory, listen
        self._owner = owner(directory.owner)
        self._keys = AccessKeys(directory.path, directory.owner)
        self._refusals = BoundedLog(log)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._local = self._context.socket(zmq.ROUTER)
        _limit(self._local)
        self._remote: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._authenticator: Authenticator | None = None
        self._poller = zmq.Poller()
        self._remote_first = False
        self._events: Counter[int] = Counter()  # of TCP connections
        self._denied = 0  # connections whose key was shown and refused
        self._most = MAX_CONNECTIONS

    def bind(self) -> None:
        """Open the sockets.

        Raises
        ------
        ReshapeError : `listen` is invalid or in use, or the keys cannot be used.
        """
        path = self._directory.endpoint.removeprefix("ipc://")
        if os.path.exists(path):
            os.unlink(path)
        self._local.bind(self._directory.endpoint)
        self._poller.register(self._local, zmq.POLLIN)
        if self._listen is not None:
            self._bind_remote(self._listen)

    def _bind_remote(self, listen: str) -> None:
        host, port = parse_listen(listen)
        address = _address(host, port)
        public_host = sockets.gethostname() if host in ("*", "0.0.0.0", "[::]") else host
        keys = self._keys.prepare(f"tcp://{public_host}:{port}")
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files != resource.RLIM_INFINITY:
            self._most = min(MAX_CONNECTIONS, files // 2)
        self._authenticator = Authenticator(self._context)
        self._authenticator.configure_curve_callback(credentials_provider=self)
        self._authenticator.start()
        remote = self._remote = self._context.socket(zmq.ROUTER)
        _limit(remote)
        _secure(remote, keys)
        remote.monitor("inproc://monitor", _EVENTS)
        self._monitor = self._context.socket(zmq.PAIR)
        self._monitor.setsockopt(zmq.RCVHWM, 100_000)  # ZeroMQ would block on more events
        self._monitor.connect("inproc://monitor")
        try:
            remote.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            raise ConfigError(
                f"cannot listen on {listen}: {error.strerror}; choose another port, or end what"
                " listens there",
                field="listen",
            ) from None
        for each in (self._authenticator.zap_socket, remote, self._monitor):
            self._poller.register(each, zmq.POLLIN)
        log.info("listening on tcp://%s with CURVE; access files in %s", address, self._keys.folder)

    def callback(self, domain: str, key: bytes) -> bool:
        """Decide whether a public key may connect; ZeroMQ asks this in the handshake."""
        if self._keys.grant_of(key.decode()) is None:
            self._refuse("key", "refused a connection: its key was never granted, or is revoked")
        elif self._open > self._most:
            self._refuse("limit", "refused a connection: %d are open", self._open)
        else:
            return True
        self._denied += 1
        return False

    def _refuse(self, kind: str, text: str, *values: object) -> None:
        self.refused[kind] += 1
        self._refusals.warning(text, *values)

    def wait(self, milliseconds: int) -> None:
        """Wait until a message has arrived; answer the handshakes of TCP connections."""
        self._poller.poll(milliseconds)
        if self._authenticator is not None:
            _answer_handshakes(self._authenticator)
            self._read_monitor()

    def _read_monitor(self) -> None:
        """Count connections and handshakes.

        ZeroMQ does not say which connection has ended. The number of refused ones is therefore the
        number of ended connections beyond the proven ones, a lower bound while proven ones are
        open.
        """
        assert self._monitor is not None
        while True:
            try:
                event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            except zmq.Again:
                return
            self._events[event] += 1
            ended = self._events[zmq.EVENT_DISCONNECTED]
            proven = self._events[zmq.EVENT_HANDSHAKE_SUCCEEDED]
            failed = self._events[zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL]
            failed += self._events[zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL]
            refused = max(failed, ended - proven - self._denied)
            if refused > self.refused["connection"]:
                self.refused["connection"] = refused
                self._refusals.warning("refused a connection: it does not complete CURVE")

    @property
    def _open(self) -> int:
        """Number of TCP connections."""
        return self._events[zmq.EVENT_ACCEPTED] - self._events[zmq.EVENT_DISCONNECTED]

    def receive(self) -> tuple[bytes, list[bytes], Sender] | None:
        """Return the peer, frames and sender of a message that has arrived; None if there is none.

        Both sockets are read in turn, so that many messages at one do not delay those at the other.
        """
        if self._remote is None:
            return self._receive_local()
        self._remote_first = not self._remote_first
        if self._remote_first:
            return self._receive_remote() or self._receive_local()
        return self._receive_local() or self._receive_remote()

    def _receive_local(self) -> tuple[bytes, list[bytes], Sender] | None:
        receive = self._local.recv
        try:
            frame = receive(_NOW, copy=False)
        except zmq.Again:
            return None
        identity, frames = frame.bytes, []
        while frame.more:
            frame = receive(_NOW, copy=False)
            frames.append(frame.bytes)
        return identity, frames, self._owner

    def _receive_remote(self) -> tuple[bytes, list[bytes], Sender] | None:
        assert self._remote is not None
        while True:
            try:
                frames = self._remote.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            identity = frames[0].bytes
            key = str(frames[-1].get("User-Id"))
            granted = self._keys.grant_of(key)
            if granted is None:
                self._refuse("key", "refused a message: its key is revoked or has expired")
            elif not identity.startswith(b"\0"):
                self._refuse("message", "refused a message: its sender chose an identity")
            else:
                peer = _REMOTE + key.encode() + identity
                sender = Sender(granted.user, frozenset((granted.role,)), is_remote=True)
                return peer, [frame.bytes for frame in frames[1:]], sender

    def send(self, peer: bytes, frames: list[bytes]) -> None:
        """Send a message without waiting.

        Raises
        ------
        zmq.ZMQError : the peer is gone or not served any more; `zmq.Again`: its queue is full.
        """
        if not (peer.startswith(_REMOTE) and len(peer) > _KEY_BYTES):
            _send(self._local, peer, frames)
            return
        key, identity = peer[1 : 1 + _KEY_BYTES], peer[1 + _KEY_BYTES :]
        if self._remote is None or self._keys.grant_of(key.decode()) is None:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        _send(self._remote, identity, frames)

    def close(self) -> None:
        """Close the sockets; what was sent last gets one second to leave."""
        if self._authenticator is not None:
            self._authenticator.stop()
        if self._remote is not None and self._monitor is not None:
            self._remote.disable_monitor()  # first: ZeroMQ blocks on events that no socket takes
            self._monitor.close(linger=0)
            self._remote.close(linger=1000)
        self._local.close(linger=1000)
        self._context.term()


def _send(socket: zmq.Socket[bytes], identity: bytes, frames: list[bytes]) -> None:
    socket.send(identity, _NOW_MORE)
    for frame in frames[:-1]:
        socket.send(frame, _NOW_MORE)
    socket.send(frames[-1], _NOW)


def _address(host: str, port: int) -> str:
    """Return the numeric address to bind, because ZeroMQ does not look up names there."""
    if host == "*":
        return f"*:{port}"
    try:
        found = sockets.getaddrinfo(host.strip("[]"), port, type=sockets.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(
            f"cannot find the address of {host!r}: {error.strerror}", field="listen"
        ) from None
    number = found[0][4][0]
    return f"[{number}]:{port}" if ":" in str(number) else f"{number}:{port}"


def _answer_handshakes(authenticator: Authenticator) -> None:
    """Answer the requests of ZeroMQ whether keys may connect (ZAP, RFC 27)."""
    while True:
        try:
            frames = authenticator.zap_socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        answering = authenticator.handle_zap_message(frames)
        with suppress(StopIteration):  # it ends at once: the callback is no coroutine
            answering.send(None)


def _limit(router: zmq.Socket[bytes]) -> None:
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # sending to a peer that is gone raises
    router.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_FRAME_BYTES)


def _secure(remote: zmq.Socket[bytes], keys: ServerKeys) -> None:
    """Set CURVE and the limits of a socket on TCP."""
    remote.setsockopt(zmq.CURVE_SERVER, 1)
    remote.setsockopt(zmq.CURVE_SECRETKEY, keys.secret_key.encode())
    remote.setsockopt(zmq.HANDSHAKE_IVL, round(1000 * HANDSHAKE_S))
    remote.setsockopt(zmq.HEARTBEAT_IVL, round(1000 * HEARTBEAT_S))
    remote.setsockopt(zmq.HEARTBEAT_TIMEOUT, round(1000 * SILENCE_S))
    remote.setsockopt(zmq.BACKLOG, BACKLOG)
    remote.setsockopt(zmq.IPV6, 1)
