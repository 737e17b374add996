"""Answers that are given later: those that take long to compute, and those to `reshape wait`.

Long answers are spread over the turns of the service's loop. Only what reads is computed here: the
descriptions of the jobs that have not ended. Each turn spends a few milliseconds on it, so that
requests of other peers do not wait.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from reshape.errors import ReshapeError
from scheduler.protocol import messages as m

log = logging.getLogger(__name__)

#: Seconds that one turn may spend.
TURN_S = 0.004
#: Answers that may be under way; further questions are refused.
LIMIT = 1000
#: Jobs that one peer may wait for at a time.
PEER_LIMIT = 1000


class _Read(NamedTuple):
    """An answer under way: its remaining steps, and what builds the answer after the last."""

    peer: bytes
    request: int
    steps: Iterator[object]
    finish: Callable[[], m.Message | None]


class Reads:
    """Computes long answers in turn and sends each when it is complete.

    Parameters
    ----------
    send : queues a message for a peer.
    """

    def __init__(self, send: Callable[[bytes, m.Message], None]) -> None:
        self._send = send
        self._under_way: deque[_Read] = deque()

    @property
    def pending(self) -> bool:
        """Whether an answer is under way."""
        return bool(self._under_way)

    def add(
        self,
        peer: bytes,
        request: int,
        steps: Iterator[object],
        finish: Callable[[], m.Message | None],
    ) -> None:
        """Begin an answer; it is refused if too many are under way.

        Parameters
        ----------
        steps : computes the answer, one step at a time.
        finish : returns the answer after the last step; None if it is sent in another way.
        """
        if len(self._under_way) >= LIMIT:
            self._send(peer, m.Failure(id=request, message="too many questions: ask again later"))
            return
        self._under_way.append(_Read(peer, request, steps, finish))

    def advance(self, seconds: float = TURN_S) -> None:
        """Work on the answers in turn for about this long, one step at least."""
        until = time.monotonic() + seconds
        while self._under_way:
            read = self._under_way.popleft()
            if not self._is_complete(read, until):
                self._under_way.append(read)
            if time.monotonic() >= until:
                return

    def _is_complete(self, read: _Read, until: float) -> bool:
        """Take steps of an answer until a time; send the answer after the last step."""
        answer: m.Message | None
        try:
            for _ in read.steps:
                if time.monotonic() >= until:
                    return False
            answer = read.finish()
        except Exception as error:  # one question must not end the service
            log.exception("a question could not be answered")
            answer = m.Failure(message=f"internal error of the service: {error!r}; see its log")
        if answer is None:
            return True
        answer.id = read.request
        self._send(read.peer, answer)
        return True


class Waits:
    """Which peers wait for which jobs.

    A peer that repeats its question replaces it. An entry ends with the answer, or when the peer is
    found to be gone.

    Parameters
    ----------
    limit : most jobs that one peer may wait for at a time.
    """

    def __init__(self, limit: int = PEER_LIMIT) -> None:
        self._limit = limit
        self._requests: dict[int, dict[bytes, int]] = {}  # job -> peer -> its latest request
        self._jobs: dict[bytes, set[int]] = {}  # peer -> jobs; the next to probe comes first

    def __len__(self) -> int:
        """Return the number of entries."""
        return sum(map(len, self._requests.values()))

    def add(self, job: int, peer: bytes, request: int) -> None:
        """Note that a peer waits for a job.

        Raises
        ------
        ReshapeError : the peer waits for as many jobs as one may.
        """
        jobs = self._jobs.get(peer, set())
        if job not in jobs and len(jobs) >= self._limit:
            raise ReshapeError(
                f"this connection waits for {self._limit} jobs already, which is the limit: wait"
                " for the others after these have ended"
            )
        self._jobs.setdefault(peer, jobs).add(job)
        self._requests.setdefault(job, {})[peer] = request

    def jobs_among(self, numbers: set[int]) -> set[int]:
        """Return those of the given jobs that a peer waits for."""
        return self._requests.keys() & numbers

    def between(self, first: int, last: int) -> set[int]:
        """Return those jobs from one number to another that a peer waits for."""
        return {number for number in self._requests if first <= number <= last}

    def pop(self, job: int) -> list[tuple[bytes, int]]:
        """Remove a job; return (peer, request) of all peers that waited for it."""
        waiting = list(self._requests.pop(job, {}).items())
        for peer, _ in waiting:
            self._jobs[peer].discard(job)
            if not self._jobs[peer]:
                del self._jobs[peer]
        return waiting

    def drop(self, peer: bytes) -> None:
        """Remove a peer that is gone."""
        for job in self._jobs.pop(peer, ()):
            waiting = self._requests[job]
            del waiting[peer]
            if not waiting:
                del self._requests[job]

    def next_to_probe(self, count: int) -> list[bytes]:
        """Return at most `count` waiting peers, all of them in turn over repeated calls."""
        peers = list(islice(self._jobs, count))
        for peer in peers:
            self._jobs[peer] = self._jobs.pop(peer)
        return peers
