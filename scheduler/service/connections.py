"""The sockets of a service: one in its directory, and one behind its gate if it listens on TCP.

A peer is named by the identity that its socket has. The name of a peer on TCP also holds its public
key, so that each message in both directions is checked against the list of keys, and a revoked key
is refused at once, without any state for each peer.

TCP connections use CURVE. A peer without a key, with another key or without CURVE never gets past
the handshake, most of them not even past the gate (`scheduler.service.gate_process`). CURVE
encrypts, authenticates and numbers all messages of a connection; ZeroMQ reads nothing more from one
on which a message is repeated.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import zmq
from zmq.utils import z85

from reshape.errors import ConfigError, ReshapeError
from reshape.files.private_folder import make_private
from reshape.wire.codec import MAX_REQUEST_FRAME_BYTES, encode
from reshape.wire.messages import Failure
from scheduler.config.checks import parse_listen
from scheduler.node.access_keys import AccessKeys, ServerKeys
from scheduler.node.directory import ServiceDirectory
from scheduler.node.logs import BoundedLog
from scheduler.protocol.messages import request_of
from scheduler.service.child_process import ChildProcess
from scheduler.service.gate_connections import (
    HANDSHAKE_S,
    GateReport,
    Refusals,
    Unread,
    decode_report,
)
from scheduler.service.limits import MemoryGuard, SpareFiles
from scheduler.service.permissions import Sender, owner

log = logging.getLogger(__name__)

#: Interval of the probes of TCP connections, and the silence after which one is closed, seconds.
HEARTBEAT_S, SILENCE_S = 10.0, 30.0
#: First byte of the name of a peer on TCP. ZeroMQ begins the identities that it chooses with 0.
_REMOTE = b"T"
_KEY_BYTES = 40
#: Frames of a message that are kept: one more than those of the longest one, of a reader.
MOST_FRAMES = 5
#: Name of the property of each message on TCP that has the address of its sender.
_ADDRESS = "X-Address"
#: Messages after which handshakes are answered, also within a turn of the service: as many keys as
#: there are lanes wait for it, and then those of the next connections.
ANSWER_EVERY = 8
#: Flags as plain numbers: arithmetic on the enumeration costs more than sending a message.
_NOW, _NOW_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
#: Sends a frame without the options of `zmq.Socket.send`, which take as long as the sending.
_send_frame = zmq.backend.Socket.send
#: Most TCP connections that the kernel accepts before the gate does; it may have a lower limit.
#: If it is small, many agents that connect at the same moment are delayed by seconds: the kernel
#: drops the other connections, and their peers try again after 1, 3 and 7 s.
BACKLOG = 4096
#: Seconds in which the gate of a service that was killed closes the port.
RELEASE_S = 2.0
#: Seconds in which a gate ends when its service does.
END_S = 3.0


class GateLink:
    """Keeps one gate running.

    Parameters
    ----------
    listen : ``HOST:PORT``.
    lanes : paths of the sockets on which the service listens for the gate.
    log_file : file for the messages of the gate, of which there are none as long as it works.

    Attributes
    ----------
    process : the gate; a line to it is the address of a client that it has asked about, of which
        the service has received a message.
    reports : file descriptor that is readable when the gate has reported something.
    address : numeric address of the port.

    Raises
    ------
    ConfigError : `listen` is invalid or in use.
    """

    def __init__(self, listen: str, lanes: Sequence[Path], log_file: Path) -> None:
        self._port = _open_port(listen)
        host, port = self._port.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.reports, self._reporting = os.pipe()
        os.set_blocking(self.reports, False)
        self._read = b""
        port = self._port.fileno()
        self.process = ChildProcess("gate", [port, *lanes], log_file, self._reporting, [port])

    def read(self) -> list[GateReport]:
        """Return what the gate has reported."""
        try:
            self._read += os.read(self.reports, 1 << 16)
        except BlockingIOError:
            return []
        *lines, self._read = self._read.split(b"\n")
        return [decode_report(line) for line in lines]

    def close(self) -> None:
        """Close the port, and end the gate after it has passed on the last messages."""
        self._port.close()
        self.process.end(END_S)
        os.close(self.reports)
        os.close(self._reporting)


def _open_port(listen: str) -> socket.socket:
    """Listen on a TCP port, on all addresses of both protocols if the host is ``*`` or ``[::]``."""
    host, number = parse_listen(listen)
    try:
        family, address = _address(host, number)
    except OSError as error:
        raise ConfigError(
            f"cannot find the address of {host!r}: {error.strerror}", field="listen"
        ) from None
    has_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    until = time.monotonic() + RELEASE_S
    while True:
        try:
            return socket.create_server(
                address, family=family, backlog=BACKLOG, dualstack_ipv6=has_both
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                why = os.strerror(error.errno) if error.errno else str(error)
                raise ConfigError(
                    f"cannot listen on {listen}: {why}; choose another port, or end what listens"
                    " there",
                    field="listen",
                ) from None
            time.sleep(0.05)


def _address(host: str, number: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the numeric address of a host; an OSError says that there is none."""
    if host == "*":
        has_both = socket.has_dualstack_ipv6()
        return (socket.AF_INET6, ("::", number)) if has_both else (socket.AF_INET, ("", number))
    family, _, _, _, address = socket.getaddrinfo(
        host.strip("[]"), number, type=socket.SOCK_STREAM
    )[0]
    return family, (str(address[0]), number)


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
        self._memory = MemoryGuard()
        self._remote: zmq.Socket[bytes] | None = None
        self._questions: zmq.Socket[bytes] | None = None  # of ZeroMQ, whether a key may connect
        self._gate: GateLink | None = None
        self._server_keys: ServerKeys | None = None
        #: Address of the connection to which the next question about each lane belongs.
        self._verifying: dict[int, str] = {}
        self._unread: set[str] = set()  # addresses of whose next message the gate is told
        self._poller = zmq.Poller()
        self._remote_first = False
        self._until_answers = 0
        self._files = SpareFiles([directory.socket, *directory.lanes])
        # By path: the socket that is bound there, its domain of keys, and the file.
        self._bound: dict[Path, tuple[zmq.Socket[bytes], bytes, os.stat_result]] = {}

    def bind(self) -> None:
        """Open the sockets.

        Raises
        ------
        ReshapeError : `listen` is invalid or in use, or the keys cannot be used.
        """
        self._bind_local()
        if self._listen is not None:
            self._bind_remote(self._listen)

    def _bind_local(self) -> None:
        _limit(self._local)
        self._bind_at(self._directory.socket, self._local)
        self._poller.register(self._local, zmq.POLLIN)

    def _bind_remote(self, listen: str) -> None:
        gate = self._gate = GateLink(listen, self._directory.lanes, self._directory.log("gate"))
        host, port = parse_listen(listen)
        public_host = socket.gethostname() if host in ("*", "0.0.0.0", "[::]") else host
        self._server_keys = self._keys.prepare(f"tcp://{public_host}:{port}")
        self._bind_lanes(self._server_keys)
        self._poller.register(gate.reports, zmq.POLLIN)
        gate.process.keep_running()
        log.info(
            "listening on tcp://%s with CURVE; access files in %s", gate.address, self._keys.folder
        )

    def _bind_lanes(self, keys: ServerKeys) -> None:
        """Open the socket behind the gate, and the one at which ZeroMQ asks about keys."""
        self._questions = self._context.socket(zmq.ROUTER)
        self._questions.bind("inproc://zeromq.zap.01")
        self._remote = self._context.socket(zmq.ROUTER)
        _limit(self._remote)
        _secure(self._remote, keys)
        for number, lane in enumerate(self._directory.lanes):
            self._bind_at(lane, self._remote, str(number).encode())
        for readable in (self._questions, self._remote):
            self._poller.register(readable, zmq.POLLIN)

    def _bind_at(self, path: Path, router: zmq.Socket[bytes], domain: bytes = b"") -> None:
        """Bind a socket in place of what the path names.

        ZeroMQ removes the file of the name that it knows at any time after it has closed a socket,
        so it knows another name.
        """
        draft = path.with_name(f"~{path.name[1:]}")
        if domain:
            router.setsockopt(zmq.ZAP_DOMAIN, domain)
        router.bind(f"ipc://{draft}")
        draft.rename(path)
        self._bound[path] = router, domain, os.stat(path)

    def restore_sockets(self) -> None:
        """Bind sockets again whose files were removed, as by a program that cleans up /tmp."""
        for path, (router, domain, bound) in list(self._bound.items()):
            if self._files.withholds or _is_same(path, bound):
                continue
            try:
                make_private(path.parent)
                self._bind_at(path, router, domain)
            except (OSError, zmq.ZMQError, ReshapeError) as error:
                log.warning("%s was removed, and cannot be made again: %s", path, error)
                return  # the others are in the same folder
            log.warning("%s was removed, and is made again", path)

    def _reset(self, growth: int) -> None:
        """Close all connections, and with them the messages that ZeroMQ keeps for their peers."""
        self._refuse(
            "message",
            "the memory of the service has grown by %d MiB, possibly by messages without an end or"
            " unread answers: all connections are closed, and their peers connect again",
            growth >> 20,
        )
        self._files.restore()
        for router in self._routers:
            self._poller.unregister(router)
            router.close(linger=0)
        self._context.term()
        self._context = zmq.Context()
        self._local = self._context.socket(zmq.ROUTER)
        self._bind_local()
        if self._server_keys is not None:
            self._bind_lanes(self._server_keys)
        self._memory.accept()

    @property
    def _routers(self) -> list[zmq.Socket[bytes]]:
        """The open sockets."""
        routers = (self._questions, self._remote, self._local)
        return [router for router in routers if router is not None]

    def wait(self, milliseconds: int) -> None:
        """Wait until a message has arrived; answer the handshakes of TCP connections."""
        self._poller.poll(milliseconds)
        self._files.keep()
        if growth := self._memory.growth():
            self._reset(growth)
        if self._gate is not None:
            self._gate.process.keep_running()
            self._read_reports(self._gate)
            self._answer_questions(self._gate)

    def _read_reports(self, gate: GateLink) -> None:
        for report in gate.read():
            if isinstance(report, Refusals):
                self.refused.update(report.counts)
                for example in report.examples:
                    self._refusals.warning("%s", example)
            elif isinstance(report, Unread):
                self._unread.add(report.address)
            else:
                self._verifying[report.lane] = report.address

    def _answer_questions(self, gate: GateLink) -> None:
        """Answer ZeroMQ whether keys may connect (ZAP, RFC 27)."""
        assert self._questions is not None
        while True:
            try:
                frames = self._questions.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._read_reports(gate)  # the gate has reported the address before ZeroMQ asked
            sender, _, version, request, lane, _, _, _, credentials = frames
            key, address = z85.encode(credentials), self._verifying.get(int(lane), "")
            status = b"200" if self._may_connect(key.decode(), address) else b"400"
            properties = _property(_ADDRESS, address.encode())
            self._questions.send_multipart(
                [sender, b"", version, request, status, b"", key, properties]
            )

    def _may_connect(self, key: str, address: str) -> bool:
        if self._keys.grant_of(key) is not None:
            return True
        fault = self._keys.fault_of(key)
        self._refuse("key", "refused a connection from %s: %s", address, fault)
        return False

    def _refuse(self, kind: str, text: str, *values: object) -> None:
        self.refused[kind] += 1
        self._refusals.warning(text, *values)

    def receive(self) -> tuple[bytes, list[bytes], Sender] | None:
        """Return the peer, frames and sender of a message that has arrived; None if there is none.

        Both sockets are read in turn, so that many messages at one do not delay those at the other.
        """
        if self._remote is None or self._gate is None:
            return self._receive_local()
        self._until_answers -= 1
        if self._until_answers <= 0:
            self._until_answers = ANSWER_EVERY
            self._answer_questions(self._gate)
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
        identity, frames = frame.bytes, list[bytes]()
        while frame.more:
            frame = receive(_NOW, copy=False)
            if len(frames) < MOST_FRAMES:
                frames.append(frame.bytes)
        return identity, frames, self._owner

    def _receive_remote(self) -> tuple[bytes, list[bytes], Sender] | None:
        assert self._remote is not None
        while True:
            frames: list[zmq.Frame] = []
            try:
                frames.append(self._remote.recv(_NOW, copy=False))
            except zmq.Again:
                return None
            while frames[-1].more:
                frame = self._remote.recv(_NOW, copy=False)
                del frames[MOST_FRAMES:]
                frames.append(frame)
            identity, last = frames[0].bytes, frames[-1]
            key, address = str(last.get("User-Id")), str(last.get(_ADDRESS))
            granted = self._keys.grant_of(key)
            if address in self._unread and self._gate is not None:
                self._unread.remove(address)
                self._gate.process.write(address)
            if granted is None:
                fault = self._keys.fault_of(key)
                self._refuse("key", "refused a message from %s: %s", address, fault)
                if self._keys.is_readable:  # else the key may be granted again in a moment
                    self._tell_refusal(identity, [frame.bytes for frame in frames[1:]])
            elif not identity.startswith(b"\0"):
                fault = "its sender chose an identity"
                self._refuse("message", "refused a message from %s: %s", address, fault)
            else:
                peer = _REMOTE + key.encode() + identity
                sender = Sender(
                    granted.user,
                    frozenset((granted.role,)),
                    f"{address} with key {granted.number}",
                    is_remote=True,
                )
                return peer, [frame.bytes for frame in frames[1:]], sender

    def _tell_refusal(self, identity: bytes, frames: list[bytes]) -> None:
        """Answer a message over a connection whose key was granted when it was opened."""
        assert self._remote is not None
        why = "the key of the access file was revoked, or has expired: ask for a new file"
        with suppress(zmq.ZMQError):  # the peer is gone, or reads no answers
            _send(self._remote, identity, encode(Failure(id=request_of(frames), message=why)))

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
        self._files.close()
        self._memory.close()
        for router in self._routers:
            router.close(linger=1000)
        self._context.term()
        for path, (_, _, bound) in self._bound.items():
            if _is_same(path, bound):
                path.unlink()
        if self._gate is not None:
            self._gate.close()


def _is_same(path: Path, status: os.stat_result) -> bool:
    """Whether a path leads to a file that was there before."""
    with suppress(OSError):
        return os.path.samestat(os.stat(path), status)
    return False


def _property(name: str, value: bytes) -> bytes:
    """Encode a property that ZeroMQ adds to each message of a connection (RFC 27)."""
    return bytes([len(name)]) + name.encode() + len(value).to_bytes(4, "big") + value


def _send(router: zmq.Socket[bytes], identity: bytes, frames: list[bytes]) -> None:
    _send_frame(router, identity, _NOW_MORE)
    for frame in frames[:-1]:
        _send_frame(router, frame, _NOW_MORE)
    _send_frame(router, frames[-1], _NOW)


def _limit(router: zmq.Socket[bytes]) -> None:
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # sending to a peer that is gone raises
    router.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_FRAME_BYTES)


def _secure(remote: zmq.Socket[bytes], keys: ServerKeys) -> None:
    """Set CURVE and the limits of the socket behind the gate."""
    remote.setsockopt(zmq.CURVE_SERVER, 1)
    remote.setsockopt(zmq.CURVE_SECRETKEY, keys.secret_key.encode())
    remote.setsockopt(zmq.HANDSHAKE_IVL, round(1000 * HANDSHAKE_S))
    remote.setsockopt(zmq.HEARTBEAT_IVL, round(1000 * HEARTBEAT_S))
    remote.setsockopt(zmq.HEARTBEAT_TIMEOUT, round(1000 * SILENCE_S))
    remote.setsockopt(zmq.BACKLOG, BACKLOG)
