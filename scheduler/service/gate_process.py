"""The gate: accepts TCP connections, and passes on to the service those that may prove a key.

ZeroMQ accepts every connection, of which each takes a file of the process, and it aborts the
process when no file is left. The gate takes its place at the port. It knows no key and decrypts
nothing: it passes bytes on, and recognises by the answer of the service that a key was proved
(`scheduler.service.gate_connections`). The service is connected to over a socket in its
directory, so the gate limits how many connections the service has, how many of them are in their
handshake, and how many handshakes it has to answer a second.

The service opens the port and passes it on, so that it stays open when a gate is replaced. A gate
ends when its standard input is closed, which is when the service has ended.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress

from scheduler.service.gate_connections import (
    HANDSHAKE_S,
    MOST_BYTES,
    GateReport,
    Handshake,
    Limits,
    Peer,
    Refusals,
    Side,
    Unproven,
    Unread,
    Verifying,
    encode_report,
)

#: Connections that are admitted to the service a second, and at once.
ADMISSIONS_PER_S, ADMISSIONS_AT_ONCE = 250.0, 200
#: Connections that are accepted between two looks at those that are served.
ACCEPTED_AT_ONCE = 16
#: Seconds between two looks at connections that are late, and reports about refused ones; sentences
#: in each report.
LOOK_S, EXAMPLES = 0.25, 20
#: Seconds that a gate whose service has ended takes to pass on the last messages.
LINGER_S = 1.0
#: Bytes of a client after which the service is asked whether it has received a message from it, and
#: after which no more is read until it has. A message has at most 16 MiB, a frame 32 MiB.
ASK_BYTES, MOST_UNREAD_BYTES = 32 << 20, 96 << 20
#: Seconds after which a client ends from which no more is read.
UNREAD_S = 3.0
_BUFFER_BYTES = 1 << 18
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class Gate:
    """Accepts connections at a port and passes them on.

    Parameters
    ----------
    port : listening socket.
    lanes : paths of the sockets on which the service listens for the gate.
    reports : file descriptor of a pipe to the service.
    """

    def __init__(
        self, port: socket.socket, lanes: Sequence[str], reports: int, limits: Limits
    ) -> None:
        self._port, self._lanes, self._reports, self._limits = port, lanes, reports, limits
        self._epoll = select.epoll()
        self._sides: dict[int, Side] = {}
        self._unproven = Unproven(
            limits, len(lanes), ADMISSIONS_PER_S, ADMISSIONS_AT_ONCE, HANDSHAKE_S
        )
        self._served = 0
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._refused: Counter[str] = Counter()
        self._examples: list[str] = []
        self._looked_at = 0.0
        self._asked: dict[str, Peer] = {}  # of which the service has received no message yet
        self._paused: dict[Peer, float] = {}  # from which no more is read, and since when
        self._unannounced: deque[Peer] = deque()  # are verified when the pipe takes their addresses

    def run(self) -> None:
        """Serve until the standard input is closed; then pass the last messages on."""
        stdin = sys.stdin.fileno()
        for pipe in (self._reports, stdin):
            os.set_blocking(pipe, False)
        self._port.setblocking(False)
        self._epoll.register(self._port, _IN)
        self._epoll.register(stdin, _IN)
        while not self._turn(0.05 if self._unproven else LOOK_S):
            now = time.monotonic()
            self._admit(now)
            self._verify()
            if now - self._looked_at > LOOK_S:
                self._looked_at = now
                self._end_late_ones(now)
                self._report_refusals()
        self._epoll.unregister(stdin)
        self._epoll.unregister(self._port)
        self._port.close()
        until = time.monotonic() + LINGER_S
        while self._served and time.monotonic() < until:
            self._turn(0.05)

    def _end_late_ones(self, now: float) -> None:
        for peer in self._unproven.expired(now):
            self._refuse(peer, f"it has not proved a key within {HANDSHAKE_S:g} s")
        for peer, since in list(self._paused.items()):
            if now - since > UNREAD_S:
                size = f"{MOST_UNREAD_BYTES >> 20} MiB"
                self._refuse(peer, f"it sends a message of more than {size}", "message")

    def _turn(self, wait_s: float) -> bool:
        """Handle what has arrived, proven connections first; return whether the gate ends."""
        ends, accepts, others = False, False, []
        for number, events in self._epoll.poll(wait_s):
            side = self._sides.get(number)
            if side is None and number == sys.stdin.fileno():
                ends = not self._read_received()
            elif side is None:
                accepts |= number == self._port.fileno()
            elif side.peer.handshake is None:
                self._relay(side, events)
            else:
                others.append(side)
        for side in others:
            if not side.peer.is_closed:
                self._shake_hands(side)
        if accepts:
            self._accept()
        return ends

    # ------------------------------------------------------------ proven connections

    def _relay(self, side: Side, events: int) -> None:
        """Pass on what has arrived at one end; read nothing while the other end takes nothing."""
        peer, other = side.peer, side.other
        assert other is not None
        try:
            if events & _OUT:
                side.pending = side.pending[side.socket.send(side.pending) :]
                self._watch_both(peer)
            if events & ~_OUT and not other.pending:
                size = side.socket.recv_into(self._buffer)
                if size == 0 and side is peer.client:
                    self._close(peer)
                    return
                if size == 0:
                    self._refuse(peer, "ZeroMQ ended it, for what it had sent or for its silence")
                    return
                sent = _send(other.socket, self._buffer[:size])
                if sent < size:
                    other.pending = bytes(self._buffer[sent:size])
                    self._watch_both(peer)
                if side is peer.client:
                    peer.unread += size
                    if peer.unread > ASK_BYTES:
                        self._ask(peer)
        except BlockingIOError:
            return
        except OSError:
            self._close(peer)

    def _ask(self, peer: Peer) -> None:
        """Ask whether the service receives messages of a client; read no more if it does not."""
        if peer.address not in self._asked and self._report(Unread(peer.address)):
            self._asked[peer.address] = peer
        if peer.unread > MOST_UNREAD_BYTES and peer not in self._paused:
            self._paused[peer] = time.monotonic()
            self._watch_both(peer)

    def _read_received(self) -> bool:
        """Note of which clients the service has received a message; return whether it is there.

        Each line has the address of a client; it is written as a whole.
        """
        data = os.read(sys.stdin.fileno(), 1 << 16)
        for address in data.decode().split():
            peer = self._asked.pop(address, None)
            if peer is not None and not peer.is_closed:
                peer.unread = 0
                if self._paused.pop(peer, None) is not None:
                    self._watch_both(peer)
        return bool(data)

    def _watch_both(self, peer: Peer) -> None:
        """Watch a proven connection: each end is read if the other one has nothing to write."""
        client, service = peer.client, peer.client.other
        assert service is not None
        reads = not service.pending and peer not in self._paused
        self._watch(client, _IN * reads | _OUT * bool(client.pending))
        self._watch(service, _IN * (not client.pending) | _OUT * bool(service.pending))

    def _watch(self, side: Side, events: int) -> None:
        """Let epoll report events; it would report the end of a connection without any, too."""
        if events == side.watched:
            return
        if not events:
            self._epoll.unregister(side.socket)
        elif side.watched:
            self._epoll.modify(side.socket, events)
        else:
            self._epoll.register(side.socket, events)
        side.watched = events

    # ------------------------------------------------------------ unproven connections

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, address = self._port.accept()
            except OSError:  # none is left, or it has ended already
                return
            client.setblocking(False)
            with suppress(OSError):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host = address[0].removeprefix("::ffff:")
            peer = Peer(client, host, address[1], time.monotonic())
            self._add(peer.client)
            excess = self._unproven.add(peer)
            if excess is not None:
                self._refuse(excess, f"{self._limits.unproven} others have proved no key, either")

    def _add(self, side: Side) -> None:
        self._sides[side.socket.fileno()] = side
        self._watch(side, _IN)

    def _shake_hands(self, side: Side) -> None:
        """Handle bytes of a handshake."""
        peer = side.peer
        try:
            data = side.socket.recv(MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._refuse(peer, "it ended before it had proved a key")
        elif side is peer.client:
            self._on_client(peer, data)
        else:
            self._on_service(peer, data)

    def _on_client(self, peer: Peer, data: bytes) -> None:
        handshake = peer.handshake
        assert handshake is not None
        was_silent = not handshake.has_signature
        if not handshake.add(data):
            self._refuse(peer, "it does not speak ZMTP with CURVE")
            return
        if was_silent and handshake.has_signature:
            self._unproven.begin(peer)
        if peer.client.other is not None:
            self._advance(peer, handshake)

    def _advance(self, peer: Peer, handshake: Handshake) -> None:
        """Pass on what the service may get of an admitted connection now."""
        self._pass_on(peer, handshake.to_pass())
        if handshake.is_complete and not peer.is_closed:
            self._watch(peer.client, 0)  # it sends nothing until the service has answered
            self._unproven.complete(peer)

    def _on_service(self, peer: Peer, data: bytes) -> None:
        handshake = peer.handshake
        assert handshake is not None
        if _send(peer.client.socket, data) < len(data):
            self._refuse(peer, "it takes no answer")
            return
        is_granted = handshake.answer(data)
        if is_granted:
            self._unproven.remove(peer, is_proven=True)
            peer.handshake = None
            self._served += 1
            self._watch_both(peer)
        elif is_granted is False:  # the service has counted it
            self._close(peer)

    def _admit(self, now: float) -> None:
        """Connect the next ones to the service."""
        while True:
            peer, excess = self._unproven.admit(now)
            if peer is None:
                return
            if excess is not None:
                self._refuse(excess, f"{self._limits.admitted} others are in their handshake")
            if self._served >= self._limits.served:
                self._refuse(peer, f"{self._served} are open", "limit")
            else:
                self._connect(peer)

    def _connect(self, peer: Peer) -> None:
        handshake = peer.handshake
        assert handshake is not None
        try:
            service = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            self._close(peer)  # no file is left; the client tries again
            return
        side = Side(service, peer)
        peer.client.other, side.other = side, peer.client
        try:
            service.connect(self._lanes[peer.lane])
        except OSError:  # the service is about to begin or to end
            self._close(peer)
            return
        self._add(side)
        self._advance(peer, handshake)

    def _verify(self) -> None:
        """Let the service verify the next keys, after it has been told whose they are."""
        self._unannounced += self._unproven.verify()
        while self._unannounced:
            peer = self._unannounced[0]
            if not peer.is_closed:
                if not self._report(Verifying(peer.lane, peer.address)):
                    return
                assert peer.handshake is not None
                self._pass_on(peer, peer.handshake.initiate())
            self._unannounced.popleft()

    def _pass_on(self, peer: Peer, data: bytes) -> None:
        """Send bytes of a handshake to the service."""
        service = peer.client.other
        assert service is not None
        if _send(service.socket, data) < len(data):
            self._close(peer)  # such a small number is not taken only if the connection has ended

    # ------------------------------------------------------------ ends and reports

    def _refuse(self, peer: Peer, why: str, kind: str = "connection") -> None:
        self._refused[kind] += 1
        if len(self._examples) < EXAMPLES:
            self._examples.append(f"refused a connection from {peer.address}: {why}")
        self._close(peer)

    def _close(self, peer: Peer) -> None:
        if peer.is_closed:
            return
        peer.is_closed = True
        if peer.handshake is None:
            self._served -= 1
            self._paused.pop(peer, None)
            self._asked.pop(peer.address, None)
        else:
            self._unproven.remove(peer)
        for side in (peer.client, peer.client.other):
            if side is not None:
                self._sides.pop(side.socket.fileno(), None)
                side.socket.close()  # epoll forgets it

    def _report_refusals(self) -> None:
        if self._refused and self._report(Refusals(dict(self._refused), self._examples)):
            self._refused, self._examples = Counter(), []

    def _report(self, report: GateReport) -> bool:
        """Write a report; return whether the pipe has taken it.

        It takes a whole line or nothing, since a line is shorter than PIPE_BUF.
        """
        try:
            os.write(self._reports, encode_report(report))
        except BlockingIOError:
            return False
        except BrokenPipeError:  # the service has ended, which the standard input shows, too
            return True
        return True


def _send(end: socket.socket, data: bytes | memoryview) -> int:
    """Send what a socket takes now; return the number of bytes."""
    try:
        return end.send(data)
    except BlockingIOError:
        return 0
    except OSError:
        return 0  # it has ended, which reading shows


def main() -> None:
    """Run a gate; the arguments are the descriptor of the port and the lanes."""
    port, lanes = socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    Gate(port, lanes, sys.stdout.fileno(), Limits.for_files(files)).run()


if __name__ == "__main__":
    main()
