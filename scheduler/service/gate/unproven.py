"""Connections that have not proved a key: how many there are, and which of them comes next.

A connection is silent until it has sent the first bytes of a handshake; then it waits until it is
admitted, which means that the service is connected to. Hosts take turns there, so that one with
many connections delays others by one each. An admitted connection is in its handshake until the
client has done its part, and is then verified when it is its turn on its lane. A lane is one of the
sockets on which the service listens for the gate; on each lane one connection is verified at a
time.

When there are too many, the oldest silent one has to go, or else the oldest one that waits. So
connections that never send anything do not displace those that do.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, Protocol, TypeVar


class Candidate(Protocol):
    """A connection, as far as its handshake is concerned."""

    host: str
    since: float
    lane: int


PeerT = TypeVar("PeerT", bound=Candidate)


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


class Turns(Generic[PeerT]):
    """A queue in which the hosts take turns."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, OrderedDict[PeerT, None]] = OrderedDict()

    def add(self, peer: PeerT) -> None:
        """Add a connection behind those of the same host."""
        self._hosts.setdefault(peer.host, OrderedDict())[peer] = None

    def discard(self, peer: PeerT) -> None:
        """Remove a connection, if it is there."""
        queue = self._hosts.get(peer.host, OrderedDict())
        if peer in queue:
            del queue[peer]
            if not queue:
                del self._hosts[peer.host]

    def next(self) -> PeerT | None:
        """Remove and return the next connection; None if there is none."""
        if not self._hosts:
            return None
        host, queue = self._hosts.popitem(last=False)
        peer, _ = queue.popitem(last=False)
        if queue:
            self._hosts[host] = queue
        return peer


class Unproven(Generic[PeerT]):
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
        self._silent: OrderedDict[PeerT, None] = OrderedDict()
        self._waiting: OrderedDict[PeerT, None] = OrderedDict()
        self._in_handshake: OrderedDict[PeerT, None] = OrderedDict()
        self._to_verify: list[OrderedDict[PeerT, None]] = [OrderedDict() for _ in range(lanes)]
        self._verified: list[PeerT | None] = [None] * lanes
        self._completed = 0  # are in the last two
        self._admissions: Turns[PeerT] = Turns()
        self._next_lane = 0
        self._allowance, self._at = float(burst), 0.0

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._silent) + len(self._waiting) + self._admitted

    @property
    def _admitted(self) -> int:
        return len(self._in_handshake) + self._completed

    def add(self, peer: PeerT) -> PeerT | None:
        """Add a connection; return the one that has to go, if there are too many."""
        self._silent[peer] = None
        if len(self) <= self._limits.unproven:
            return None
        return next(iter(self._silent if len(self._silent) > 1 else self._waiting), peer)

    def begin(self, peer: PeerT) -> None:
        """Note that a silent connection has sent its first bytes."""
        del self._silent[peer]
        self._waiting[peer] = None
        self._admissions.add(peer)

    def admit(self, now: float) -> tuple[PeerT | None, PeerT | None]:
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

    def complete(self, peer: PeerT) -> None:
        """Note that the client has done its part of the handshake."""
        del self._in_handshake[peer]
        self._to_verify[peer.lane][peer] = None
        self._completed += 1

    def verify(self) -> list[PeerT]:
        """Return the connections to verify now; their lanes are occupied until they are removed."""
        if not self._completed:
            return []
        chosen = []
        for lane, queue in enumerate(self._to_verify):
            if queue and self._verified[lane] is None:
                peer, _ = queue.popitem(last=False)
                self._verified[lane] = peer
                chosen.append(peer)
        return chosen

    def remove(self, peer: PeerT, *, is_proven: bool = False) -> None:
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

    def expired(self, now: float) -> list[PeerT]:
        """Return the connections whose clients have not done their part in time."""

        def is_late(peer: PeerT) -> bool:
            return now - peer.since > self._patience_s

        late = list(takewhile(is_late, self._silent))  # the others are in another order
        return [*late, *filter(is_late, self._waiting), *filter(is_late, self._in_handshake)]
