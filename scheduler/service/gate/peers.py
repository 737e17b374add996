"""The connections that pass through a gate."""

from __future__ import annotations

import socket

from scheduler.service.gate.handshake import Handshake


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
