"""The handshake of ZMTP 3.1 with CURVE, as far as its bytes are not encrypted (RFC 37, RFC 26).

client    greeting (64 bytes), of which it sends the signature (10 bytes) first
service   greeting (64 bytes)
client    HELLO (202 bytes)
service   WELCOME (170 bytes)
client    INITIATE, which proves its key
service   READY if it grants the key, ERROR if not; it closes the connection at other faults
"""

from __future__ import annotations

import socket
from enum import Enum

_SIGNATURE_BYTES, _GREETING_BYTES, _HELLO_BYTES, _WELCOME_BYTES = 10, 64, 202, 170
_HELLO, _INITIATE = b"\x04\xc8\x05HELLO", b"\x08INITIATE"
#: Bytes of the largest INITIATE: ZeroMQ sends about 300, with an identity up to 550.
_MOST_INITIATE_BYTES = 2048
#: Begin of INITIATE among the bytes of the client, of READY or ERROR among those of the service.
_INITIATE_AT = _GREETING_BYTES + _HELLO_BYTES
_RESULT_AT = _GREETING_BYTES + _WELCOME_BYTES
#: Ends of what a client sends at a time, the last first: HELLO, greeting, version, signature.
_STEPS = (_INITIATE_AT, _GREETING_BYTES, _SIGNATURE_BYTES + 1, _SIGNATURE_BYTES)
#: Bytes that a client can have sent when its INITIATE is complete.
MOST_BYTES = _INITIATE_AT + _MOST_INITIATE_BYTES


class HandshakeResult(Enum):
    """What the service has answered to a handshake."""

    OPEN = "no answer yet"
    PROVEN = "the key is granted"
    DENIED = "the key is not granted"


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

    def answer(self, data: bytes) -> HandshakeResult:
        """Add bytes of the service; return what it has answered."""
        self._answered += data
        name = bytes(self._answered[_RESULT_AT + 2 : _RESULT_AT + 8])
        if name == b"\x05READY":
            return HandshakeResult.PROVEN
        if name == b"\x05ERROR":
            return HandshakeResult.DENIED
        return HandshakeResult.OPEN


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
