"""Connections that have not proved a key: their handshakes, how many there are, and who is next.

The handshake is that of ZMTP 3.1 with CURVE, as far as its bytes are plain text (RFC 37, RFC 26):

client    greeting (64 bytes), of which it sends the signature (10 bytes) first
service   greeting (64 bytes)
client    HELLO (202 bytes)
service   WELCOME (170 bytes)
client    INITIATE, which proves its key
service   READY if it grants the key, ERROR if not; it closes the connection at other faults

A connection is silent until it has sent the first bytes of a handshake; then it waits until it is
admitted, which means that the service is connected to. Hosts take turns there, so that one with
many connections delays others by one each. An admitted connection is in its handshake until the
client has done its part, and is then verified when it is its turn on its lane. A lane is one of the
sockets on which the service listens for the gate; on each lane one connection is verified at a
time.

When there are too many, the oldest silent one has to go, or else the oldest one that waits. So
connections that never send anything do not displace those that do.

The gate reports to the service which keys it is about to verify, what it has refused, and which
clients send without an end (`GateReport`).
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

import msgspec

#: Seconds in which a connection has to prove its key.
HANDSHAKE_S = 5.0
_SIGNATURE_BYTES, _GREETING_BYTES, _HELLO_BYTES, _WELCOME_BYTES = 10, 64, 202, 170
_HELLO, _INITIATE = b"\x04\xc8\x05HELLO", b"\x08INITIATE"
#: Bytes of the largest INITIATE: ZeroMQ sends about 300, with an identity up to 550.
_MOST_INITIATE_BYTES = 2048
#: Start of INITIATE among the bytes of the client, of READY or ERROR among those of the service.
_INITIATE_AT = _GREETING_BYTES + _HELLO_BYTES
_RESULT_AT = _GREETING_BYTES + _WELCOME_BYTES
#: Ends of what a client sends at a time, the last first: HELLO, greeting, version, signature.
_STEPS = (_INITIATE_AT, _GREETING_BYTES, _SIGNATURE_BYTES + 1, _SIGNATURE_BYTES)
#: Bytes that a client can have sent when its INITIATE is complete.
MOST_BYTES = _INITIATE_AT + _MOST_INITIATE_BYTES


class Handshake:
    """The bytes of one handshake.

    Attributes
    ----------
    sent : what the client has sent.
    passed : number of these bytes that were passed on to the service.
    """

    def __init__(self) -> None:
        self.sent = bytearray()
        self.passed = 0
        self._answered = bytearray()

    def add(self, data: bytes) -> bool:
        """Add bytes of the client; return whether they may be those of a handshake."""
        sent = self.sent
        sent += data
        if sent[0] != 0xFF or (self.has_signature and sent[_SIGNATURE_BYTES - 1] != 0x7F):
            return False
        begin = bytes(sent[_GREETING_BYTES : _GREETING_BYTES + len(_HELLO)])
        if not _HELLO.startswith(begin):
            return False
        if len(sent) <= _INITIATE_AT:
            return True
        end = self._initiate_end()
        return end is None or len(sent) <= end <= MOST_BYTES

    @property
    def has_signature(self) -> bool:
        """Whether the client has sent the first bytes, which it does without waiting."""
        return len(self.sent) >= _SIGNATURE_BYTES

    @property
    def is_complete(self) -> bool:
        """Whether the client has sent its part."""
        return len(self.sent) > _INITIATE_AT and len(self.sent) == self._initiate_end()

    def _initiate_end(self) -> int | None:
        """Return the end of INITIATE; None if it is not known yet, 0 for another frame."""
        frame = self.sent[_INITIATE_AT : _INITIATE_AT + 9 + len(_INITIATE)]
        is_long = frame[0] == 0x06
        header = 9 if is_long else 2
        if frame[0] not in (0x04, 0x06) or not _INITIATE.startswith(bytes(frame[header:][:9])):
            return 0
        if len(frame) < header:
            return None
        return _INITIATE_AT + header + int.from_bytes(frame[1:header], "big")

    def to_pass(self) -> bytes:
        """Return what may be passed on without a turn: the whole steps before INITIATE.

        Single bytes of a slow client would cost the service as much as whole steps.
        """
        end = next((step for step in _STEPS if step <= len(self.sent)), 0)
        part = bytes(self.sent[self.passed : end])
        self.passed += len(part)
        return part

    def initiate(self) -> bytes:
        """Return INITIATE, which is passed on when it is the turn of the connection."""
        part = bytes(self.sent[self.passed :])
        self.passed += len(part)
        return part

    def answer(self, data: bytes) -> bool | None:
        """Add bytes of the service; return whether it grants the key, None: no answer yet."""
        self._answered += data
        name = bytes(self._answered[_RESULT_AT + 2 : _RESULT_AT + 8])
        return {b"\x05READY": True, b"\x05ERROR": False}.get(name)


class Side:
    """One end of a connection through the gate: that of the client, or that of the service.

    Attributes
    ----------
    pending : bytes that the socket did not take yet.
    """

    __slots__ = ("other", "peer", "pending", "socket", "watched")

    def __init__(self, end: socket.socket, peer: Peer) -> None:
        self.socket, self.peer = end, peer
        self.other: Side | None = None
        self.pending = b""
        self.watched = 0  # events that epoll reports


class Peer:
    """A connection through the gate.

    Attributes
    ----------
    host, address : of the client; the address has the port, too.
    since : time at which it was accepted, monotonic seconds.
    lane : number of the socket on which the service is connected to.
    unread : bytes that were passed on since the service has received a whole message.
    handshake : None: the key is proved.
    """

    __slots__ = ("address", "client", "handshake", "host", "is_closed", "lane", "since", "unread")

    def __init__(self, client: socket.socket, host: str, port: int, since: float) -> None:
        self.client = Side(client, self)
        self.host, self.since = host, since
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.handshake: Handshake | None = Handshake()
        self.lane, self.unread, self.is_closed = 0, 0, False


@dataclass(frozen=True)
class Limits:
    """How many connections a gate has at a time.

    Attributes
    ----------
    served : connections that have proved a key.
    unproven : all others.
    admitted : those of the others that the service is connected to.
    """

    served: int
    unproven: int
    admitted: int

    @classmethod
    def for_files(cls, files: int) -> Limits:
        """Return the limits for a number of files that gate and service may each have open."""
        unproven = min(2048, files // 4)
        admitted = unproven // 4
        # A connection takes one file until it is admitted, and two from then on.
        served = (files - OTHER_FILES - unproven - admitted) // 2
        return cls(min(MOST_SERVED, served), unproven, admitted)


#: Most connections that are served at a time.
MOST_SERVED = 4096
#: Files that a gate has open beside its connections.
OTHER_FILES = 32


class Turns:
    """A queue in which the hosts take turns."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, OrderedDict[Peer, None]] = OrderedDict()

    def add(self, peer: Peer) -> None:
        """Add a connection behind those of the same host."""
        self._hosts.setdefault(peer.host, OrderedDict())[peer] = None

    def discard(self, peer: Peer) -> None:
        """Remove a connection, if it is there."""
        queue = self._hosts.get(peer.host, OrderedDict())
        if peer in queue:
            del queue[peer]
            if not queue:
                del self._hosts[peer.host]

    def next(self) -> Peer | None:
        """Remove and return the next connection; None if there is none."""
        if not self._hosts:
            return None
        host, queue = self._hosts.popitem(last=False)
        peer, _ = queue.popitem(last=False)
        if queue:
            self._hosts[host] = queue
        return peer


class Unproven:
    """The connections that have not proved a key.

    Parameters
    ----------
    lanes : number of lanes.
    rate, burst : connections that are admitted a second, and at once, apart from those that have
        proved a key. Each costs the service about half a millisecond of processor time, most of it
        in a thread of ZeroMQ.
    patience_s : seconds in which a connection has to prove its key.
    """

    def __init__(
        self, limits: Limits, lanes: int, rate: float, burst: int, patience_s: float
    ) -> None:
        self._limits, self._rate, self._burst = limits, rate, burst
        self._patience_s = patience_s
        self._silent: OrderedDict[Peer, None] = OrderedDict()
        self._waiting: OrderedDict[Peer, None] = OrderedDict()
        self._in_handshake: OrderedDict[Peer, None] = OrderedDict()
        self._to_verify: list[OrderedDict[Peer, None]] = [OrderedDict() for _ in range(lanes)]
        self._verified: list[Peer | None] = [None] * lanes
        self._completed = 0  # are in the last two
        self._admissions: Turns = Turns()
        self._next_lane = 0
        self._allowance, self._at = float(burst), 0.0

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._silent) + len(self._waiting) + self._admitted

    @property
    def _admitted(self) -> int:
        return len(self._in_handshake) + self._completed

    def add(self, peer: Peer) -> Peer | None:
        """Add a connection; return the one that has to go, if there are too many."""
        self._silent[peer] = None
        if len(self) <= self._limits.unproven:
            return None
        return next(iter(self._silent if len(self._silent) > 1 else self._waiting), peer)

    def begin(self, peer: Peer) -> None:
        """Note that a silent connection has sent its first bytes."""
        del self._silent[peer]
        self._waiting[peer] = None
        self._admissions.add(peer)

    def admit(self, now: float) -> tuple[Peer | None, Peer | None]:
        """Return the next connection to admit, and one that has to go for it; None: there is none.

        The lane of the connection is set. Call it until it admits none.
        """
        self._allowance = min(self._burst, self._allowance + self._rate * (now - self._at))
        self._at = now
        is_full = self._admitted >= self._limits.admitted
        if self._allowance < 1 or (is_full and not self._in_handshake):
            return None, None
        peer = self._admissions.next()
        if peer is None:
            return None, None
        self._allowance -= 1
        excess = next(iter(self._in_handshake)) if is_full else None
        peer.lane, self._next_lane = self._next_lane, (self._next_lane + 1) % len(self._verified)
        del self._waiting[peer]
        self._in_handshake[peer] = None
        return peer, excess

    def complete(self, peer: Peer) -> None:
        """Note that the client has done its part of the handshake."""
        del self._in_handshake[peer]
        self._to_verify[peer.lane][peer] = None
        self._completed += 1

    def verify(self) -> list[Peer]:
        """Return the connections to verify now; their lanes are occupied until they are removed."""
        if not self._completed:
            return []
        turns = []
        for lane, queue in enumerate(self._to_verify):
            if queue and self._verified[lane] is None:
                peer, _ = queue.popitem(last=False)
                self._verified[lane] = peer
                turns.append(peer)
        return turns

    def remove(self, peer: Peer, *, is_proven: bool = False) -> None:
        """Remove a connection that has proved its key, or has ended."""
        if is_proven:
            self._allowance += 1
        for group in (self._silent, self._waiting, self._in_handshake):
            group.pop(peer, None)
        self._admissions.discard(peer)
        if peer in self._to_verify[peer.lane]:
            del self._to_verify[peer.lane][peer]
            self._completed -= 1
        if self._verified[peer.lane] is peer:
            self._verified[peer.lane] = None
            self._completed -= 1

    def expired(self, now: float) -> list[Peer]:
        """Return the connections whose clients have not done their part in time."""

        def is_late(peer: Peer) -> bool:
            return now - peer.since > self._patience_s

        late = list(takewhile(is_late, self._silent))  # the others are in another order
        return [*late, *filter(is_late, self._waiting), *filter(is_late, self._in_handshake)]


class Verifying(msgspec.Struct, tag=True):
    """The service is about to be asked whether it grants the key of a connection.

    The gate reports it before it passes the bytes on that make ZeroMQ ask, and passes those of the
    next connection of the same lane on when this one is answered. So the service knows the address
    of the connection that ZeroMQ asks about, which ZeroMQ cannot know behind the gate.

    Attributes
    ----------
    lane : number of the socket at which the connection arrives; ZeroMQ names it when it asks.
    address : ``HOST:PORT`` of the client.
    """

    lane: int
    address: str


class Refusals(msgspec.Struct, tag=True):
    """Connections that the gate has refused since its last report.

    Attributes
    ----------
    counts : how many, by kind: "connection" (no or broken handshake) and "limit".
    examples : sentences about the first ones of them.
    """

    counts: dict[str, int]
    examples: list[str]


class Unread(msgspec.Struct, tag=True):
    """A client has sent much since the service is known to have received a whole message from it.

    The service writes the address to the gate when it receives the next message of this client.
    ZeroMQ would keep all parts of a message in memory until the last one has come.

    Attributes
    ----------
    address : ``HOST:PORT`` of the client.
    """

    address: str


GateReport: TypeAlias = Verifying | Refusals | Unread

_encoder = msgspec.json.Encoder()
decode_report = msgspec.json.Decoder(GateReport).decode


def encode_report(report: GateReport) -> bytes:
    """Encode a report as one line."""
    return _encoder.encode(report) + b"\n"
