"""Answers that take long to compute, spread over the turns of the service's loop.

Only what reads is computed here: the descriptions of the jobs that have not ended. Each turn spends
a few milliseconds on it, so that requests of other peers do not wait.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from scheduler.protocol import messages as m

log = logging.getLogger(__name__)

#: Seconds that one turn may spend.
TURN_S = 0.004
#: Answers that may be under way; further questions are refused.
LIMIT = 1000


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
