"""The service's side of a reader: starts the process, forwards questions, relays answers.

There are two: the reader of the journal, and the forecaster.
"""

from __future__ import annotations

import logging
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from reshape.wire.codec import encode
from scheduler.protocol import messages as m
from scheduler.service.reading.reader_process import ANSWER, READY, ForecastQuestion, Question

log = logging.getLogger(__name__)

#: The identities of readers begin with this.
IDENTITY = b"reader "
#: Questions that may be under way; further ones are refused.
LIMIT = 1000
#: Seconds after which a question that has no answer is refused, and the reader that has it is
#: replaced; clients wait for 10 s.
PATIENCE_S = 8.0
#: Seconds between two starts of a reader.
RESTART_S = 1.0
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
    journal, endpoint : the file that the reader reads, and the socket that it connects to.
    log_file : file for the messages of the reader.
    send : sends a message at once; False if there is no such peer.
    relay : queues the frames of an answer for a peer.
    patience_s : seconds after which a question that has no answer is refused.
    """

    def __init__(
        self,
        name: str,
        journal: Path,
        endpoint: str,
        log_file: Path,
        *,
        send: Callable[[bytes, list[bytes]], bool],
        relay: Callable[[bytes, list[bytes]], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._name, self._patience_s = name, patience_s
        module = f"scheduler.service.reading.{name}_process"
        self._command = [sys.executable, "-m", module, str(journal), endpoint]
        self._log_file = log_file
        self._send, self._relay = send, relay
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = -RESTART_S  # monotonic seconds
        self._ready = False
        self.identity = b""

    def _start_if_gone(self) -> None:
        """Start a process if there are questions and none runs, at most one in `RESTART_S`."""
        ended = None if self._process is None else self._process.poll()
        gone = self._process is None or ended is not None
        if gone and self._asked and time.monotonic() - self._started_at >= RESTART_S:
            if ended is not None:
                log.warning("the %s ended with %s; another is started", self._name, ended)
            self._start()

    def _start(self) -> None:
        self._started_at, self._ready = time.monotonic(), False
        self.identity = IDENTITY + secrets.token_bytes(16)
        try:
            with self._log_file.open("ab") as output:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C is for the service
                )
            assert self._process.stdin is not None
            self._process.stdin.write(self.identity.hex().encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            log.error("the %s cannot be started: %s", self._name, error)

    def close(self) -> None:
        """End the reader."""
        if self._process is not None:
            if self._process.stdin is not None:
                try:
                    self._process.stdin.close()
                except OSError as error:
                    log.debug("the reader has ended: %s", error)
            self._process.kill()  # it keeps nothing
            self._process.wait()
            self._process = None

    def ask(self, peer: bytes, request: int, question: Question | ForecastQuestion) -> None:
        """Forward a question of a peer once the journal of this turn is written."""
        if len(self._asked) >= LIMIT:
            refusal = m.Failure(id=request, message="too many questions: ask again later")
            self._relay(peer, encode(refusal))
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
                if asked.sent_to == self.identity and self._process is not None:
                    self._process.kill()  # it may never answer
                self._fail(
                    number,
                    f"the {self._name} of the service did not answer within"
                    f" {self._patience_s:g} s: ask again later",
                )

    def _fail(self, number: int, text: str) -> None:
        asked = self._asked.pop(number)
        self._relay(asked.peer, encode(m.Failure(id=asked.request, message=text)))
