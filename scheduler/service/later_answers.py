"""Answers that are given later.

The reader and the forecaster, two processes, answer what only reads the journal (`ReaderLink`).
Descriptions of the jobs that have not ended are computed here: long answers are spread over the
turns of the service's loop, each of which spends a few milliseconds on them, so that requests of
other peers do not wait (`Reads`). `reshape wait` is answered when its job has ended (`Waits`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator

import msgspec

from reshape.errors import ReshapeError
from reshape.wire.codec import encode
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.service.child_process import ChildProcess
from scheduler.service.reader_process import ANSWER, READY, ForecastQuestion, Question

log = logging.getLogger(__name__)

#: Seconds that one turn may spend.
TURN_S = 0.004
#: Answers that may be under way here, and at each reader, in all and for one peer; further
#: questions are refused.
LIMIT, LIMIT_OF_PEER = 1000, 10
#: Jobs that one peer may wait for at a time.
PEER_LIMIT = 1000
#: Seconds after which a peer that has not repeated its question is taken to be gone.
REPEATED_S = 300.0


class Reads:
    """Computes long answers in turn, each of which is sent by its last step.

    Parameters
    ----------
    send : queues a message for a peer.
    """

    def __init__(self, send: Callable[[bytes, m.Message], None]) -> None:
        self._send = send
        self._under_way: deque[tuple[bytes, int, Iterator[object]]] = deque()

    @property
    def pending(self) -> bool:
        """Whether an answer is under way."""
        return bool(self._under_way)

    def add(self, peer: bytes, request: int, steps: Iterator[object]) -> None:
        """Begin an answer; it is refused if too many are under way.

        Parameters
        ----------
        steps : computes the answer, one step at a time, and sends it in the end.
        """
        if _are_too_many([other for other, _, _ in self._under_way], peer):
            self._send(peer, _too_many_questions(request))
            return
        self._under_way.append((peer, request, steps))

    def advance(self, seconds: float = TURN_S) -> None:
        """Work on the answers in turn for about this long, one step at least."""
        until = time.monotonic() + seconds
        while self._under_way:
            peer, request, steps = self._under_way.popleft()
            try:
                for _ in steps:
                    if time.monotonic() >= until:
                        self._under_way.append((peer, request, steps))
                        break
            except Exception as error:  # one question must not end the service
                log.exception("a question could not be answered")
                text = f"internal error of the service: {error!r}; see its log"
                self._send(peer, m.Failure(id=request, message=text))
            if time.monotonic() >= until:
                return


def _are_too_many(peers: list[bytes], peer: bytes) -> bool:
    """Whether a further question of a peer is refused beside those of these peers.

    Peers may be gone, or read no answers, and the others wait for each answer that is under way.
    """
    return len(peers) >= LIMIT or peers.count(peer) >= LIMIT_OF_PEER


def _too_many_questions(request: int) -> m.Failure:
    """Refuse a question because too many are under way."""
    return m.Failure(id=request, message="too many questions: ask again later")


class Waits:
    """Which peers wait for which jobs.

    A peer that repeats its question replaces it. An entry ends with the answer, or when it was not
    repeated for `REPEATED_S`: clients repeat it every few seconds, unless they are gone.

    Parameters
    ----------
    limit : most jobs that one peer may wait for at a time.
    """

    def __init__(self, limit: int = PEER_LIMIT) -> None:
        self._limit = limit
        self._requests: dict[int, dict[bytes, int]] = {}  # job -> peer -> its latest request
        self._asked_at: dict[tuple[int, bytes], float] = {}  # monotonic seconds, ascending
        self._counts: Counter[bytes] = Counter()  # of the jobs that a peer waits for

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._asked_at)

    def add(self, job: int, peer: bytes, request: int) -> None:
        """Note that a peer waits for a job.

        Raises
        ------
        ReshapeError : the peer waits for as many jobs as one may.
        """
        now = time.monotonic()
        while self._asked_at and next(iter(self._asked_at.values())) < now - REPEATED_S:
            self._remove(*next(iter(self._asked_at)))
        if (job, peer) in self._asked_at:
            self._remove(job, peer)
        if self._counts[peer] >= self._limit:
            raise ReshapeError(
                f"this connection waits for {self._limit} jobs already, which is the limit: wait"
                " for the others after these have ended"
            )
        self._asked_at[job, peer] = now
        self._requests.setdefault(job, {})[peer] = request
        self._counts[peer] += 1

    def _remove(self, job: int, peer: bytes) -> int:
        """Remove an entry; return its request."""
        del self._asked_at[job, peer]
        request = self._requests[job].pop(peer)
        if not self._requests[job]:
            del self._requests[job]
        self._counts[peer] -= 1
        if not self._counts[peer]:
            del self._counts[peer]
        return request

    def jobs_among(self, numbers: set[int]) -> set[int]:
        """Return those of the given jobs that a peer waits for."""
        return self._requests.keys() & numbers

    def between(self, first: int, last: int) -> set[int]:
        """Return those jobs from one number to another that a peer waits for."""
        return {number for number in self._requests if first <= number <= last}

    def pop(self, job: int) -> list[tuple[bytes, int]]:
        """Remove a job; return (peer, request) of all peers that waited for it."""
        return [(peer, self._remove(job, peer)) for peer in list(self._requests.get(job, ()))]


#: The identities of readers begin with this.
IDENTITY = b"reader "
#: Seconds after which a question that has no answer is refused, and the reader that has it is
#: replaced. On a loaded machine it takes tens of seconds to start; clients wait longer.
PATIENCE_S = 60.0
#: Readers that may end while they have the same question.
MOST_TRIES = 2

_encoder = msgspec.msgpack.Encoder()


class _Asked(msgspec.Struct):
    """A question under way; `sent_to` is the identity of the reader that has it."""

    peer: bytes
    request: int
    question: bytes
    asked_at: float
    sent_to: bytes = b""
    tries: int = 0


class ReaderLink:
    """Keeps one reader process running, from its first question on.

    Parameters
    ----------
    name : "reader" or "forecaster", for messages; the module of the process is named after it.
    send : sends a message at once; False if there is no such peer.
    relay : queues the frames of an answer for a peer.
    patience_s : seconds after which a question that has no answer is refused.
    """

    def __init__(
        self,
        name: str,
        directory: ServiceDirectory,
        send: Callable[[bytes, list[bytes]], bool],
        relay: Callable[[bytes, list[bytes]], None],
        patience_s: float,
    ) -> None:
        self._name, self._patience_s = name, patience_s
        self._send, self._relay = send, relay
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        arguments = [directory.journal, directory.endpoint]
        self._process = ChildProcess(name, arguments, directory.log(name))
        self._ready = False
        self.identity = b""

    def _start_if_gone(self) -> None:
        """Start a process if there are questions and none runs."""
        if self._asked and self._process.keep_running():
            self._ready, self.identity = False, IDENTITY + secrets.token_bytes(16)
            self._process.write(self.identity.hex())

    def close(self) -> None:
        """End the reader, which keeps nothing."""
        self._process.end()

    def ask(self, peer: bytes, request: int, question: Question | ForecastQuestion) -> None:
        """Forward a question of a peer once the journal of this turn is written."""
        if _are_too_many([asked.peer for asked in self._asked.values()], peer):
            self._relay(peer, encode(_too_many_questions(request)))
            return
        self._number += 1
        blob = _encoder.encode(question)
        self._asked[self._number] = _Asked(peer, request, blob, time.monotonic())
        self._start_if_gone()

    def forward(self) -> None:
        """Send the questions that the present reader does not have yet."""
        if not self._ready:
            return
        for number, asked in list(self._asked.items()):
            if asked.sent_to == self.identity:
                continue
            if asked.tries >= MOST_TRIES:
                self._fail(
                    number,
                    f"the question ended the {self._name} of the service: see {self._name}.log",
                )
                continue
            frames = [str(number).encode(), str(asked.request).encode(), asked.question]
            if self._send(self.identity, frames):
                asked.sent_to, asked.tries = self.identity, asked.tries + 1

    def on_message(self, frames: list[bytes]) -> None:
        """Handle a message of the reader: it is ready, or an answer."""
        if frames[:1] == [READY]:
            self._ready = True
        elif frames[:1] == [ANSWER]:
            asked = self._asked.pop(int(frames[1]), None)
            if asked is not None:
                self._relay(asked.peer, frames[2:])

    def on_tick(self) -> None:
        """Start a new process if there is none; refuse the questions that have waited too long."""
        now = time.monotonic()
        self._start_if_gone()
        for number, asked in list(self._asked.items()):
            if now - asked.asked_at > self._patience_s:
                if asked.sent_to == self.identity:
                    self._process.end()  # it may never answer
                verb = "answer" if self._ready else "start"
                self._fail(
                    number,
                    f"the {self._name} of the service did not {verb} within {self._patience_s:g} s:"
                    f" the machine may be overloaded; see {self._name}.log, and ask again later",
                )

    def _fail(self, number: int, text: str) -> None:
        asked = self._asked.pop(number)
        self._relay(asked.peer, encode(m.Failure(id=asked.request, message=text)))
