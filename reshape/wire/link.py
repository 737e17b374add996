"""The connection between a job's first rank and the scheduler service.

The application never depends on an answer. While the service does not answer, a request takes a
few milliseconds and the job continues to compute. Messages that must not be lost are repeated until
the service confirms them.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from reshape.errors import ProtocolError, ReshapeError, ServiceUnavailable
from reshape.topology import Topology
from reshape.wire.codec import MAX_REQUEST_BYTES, decode_application
from reshape.wire.identity import Identity
from reshape.wire.messages import (
    MOST_FACTS,
    Abandon,
    ApplicationMessage,
    AtResizePoint,
    Connect,
    Done,
    Facts,
    Failure,
    GroupReady,
    Hello,
    Join,
    JoinPort,
    Leave,
    Proceed,
    ProgramFault,
    ResizeOutcome,
    ResizeReport,
    Welcome,
)

if TYPE_CHECKING:
    from reshape.wire.connection import Connection

PointAnswer: TypeAlias = Proceed | Join | Leave

HELLO_LIMIT_S = 2.0  # the service may just be restarting
ANSWER_LIMIT_S = 0.25  # for an answer at a resize point, if the last request was answered
ABSENT_LIMIT_S = 0.002  # for the same if the last request was not answered
PORT_LIMIT_S = 2.0
FAULT_LIMIT_S = 1.0  # the program ends with an error, whether the service learns of it or not
CLOSE_LIMIT_S = 2.0  # at the end of the program, for messages without a confirmation
READY_EVERY_S = 2.0

log = logging.getLogger(__name__)


class Link:
    """The connection of one rank to the service; opened when it is first used.

    Parameters
    ----------
    who : identity of this process.
    """

    def __init__(self, who: Identity) -> None:
        self.who = who
        self._proof: dict[str, Any] = {"job": who.job, "token": who.token}
        self._hello_limit_s = who.patience_s or HELLO_LIMIT_S
        self._answer_limit_s = who.patience_s or ANSWER_LIMIT_S
        self._opened: Connection[ApplicationMessage] | None = None
        self._answers = True  # whether the service answered the last request
        # Messages that are repeated, each with its id, until the service answers Done.
        self._unconfirmed: list[ApplicationMessage] = []

    @property
    def _client(self) -> Connection[ApplicationMessage]:
        if self._opened is None:
            # Programs without a service do not load ZeroMQ.
            from reshape.wire.connection import Connection, located

            server = self.who.server
            endpoint, access = located(server) if server.startswith("/") else (server, None)
            self._opened = Connection(endpoint, access, decode_application, MAX_REQUEST_BYTES)
        return self._opened

    def hello(self, size: int, topology: Topology | None) -> Welcome | None:
        """Introduce the job; None if the service does not answer, and the job starts without it.

        Raises
        ------
        ReshapeError : the service refuses the job.
        """
        message = Hello(
            **self._proof, group=self.who.group, size=size, pid=os.getpid(), topology=topology
        )
        try:
            answer = self._client.request(message, self._hello_limit_s)
        except ServiceUnavailable as error:
            log.warning("job %d starts without its service: %s", self.who.job, error)
            self._answers = False
            return None
        return answer if isinstance(answer, Welcome) else None

    def ask(self, question: AtResizePoint) -> PointAnswer:
        """Ask for the decision at a resize point; Proceed if no answer comes in time.

        The service repeats its decision at every resize point, so an answer that comes too late is
        dropped.
        """
        try:
            while self._receive(until=0.0) is not None:  # answers to earlier requests
                self._answers = True
            self._repeat()
            # A connection that was just opened may take a moment.
            number = self._client.send(question, self._answer_limit_s if self._answers else 0.0)
            until = time.monotonic() + (self._answer_limit_s if self._answers else ABSENT_LIMIT_S)
            while (message := self._receive(until)) is not None:
                if not self._answers:
                    self._answers = True
                    until = time.monotonic() + self._answer_limit_s
                if message.id == number and isinstance(message, Proceed | Join | Leave):
                    return message
                if message.id == number:
                    log.warning("job %d at a resize point: unexpected %r", self.who.job, message)
                    return Proceed()
        except (ServiceUnavailable, ProtocolError) as error:
            if self._answers:
                log.warning("job %d continues without its service: %s", self.who.job, error)
        self._answers = False
        return Proceed()

    def announce(self, serial: int, port: str) -> None:
        """Announce the port on which the job is about to accept a group, and wait for an answer.

        A job that accepted while the service sends no group there would hang until it is killed.

        Raises
        ------
        ReshapeError : the service does not answer, or refuses.
        """
        self._client.request(JoinPort(**self._proof, serial=serial, port=port), PORT_LIMIT_S)

    def announce_group(self, group: int, port: str) -> None:
        """Announce the port on which another group is accepted, with which this one assembles.

        There is no time limit, as for `wait_for_port`.

        Raises
        ------
        ReshapeError : the service refuses.
        """
        message = JoinPort(**self._proof, serial=0, port=port, group=group)
        while True:
            try:
                self._client.request(message, READY_EVERY_S)
            except ServiceUnavailable as error:
                log.warning("job %d starts and waits: %s", self.who.job, error)
                time.sleep(READY_EVERY_S / 10)
                continue
            return

    def report(self, outcome: ResizeOutcome) -> None:
        """Report the outcome of a resize."""
        serial, why, times = outcome.serial, outcome.why, outcome.times
        self._keep(ResizeReport(**self._proof, serial=serial, ok=not why, why=why, times=times))

    def facts(self, facts: dict[str, bool | int | float | str]) -> None:
        """Report facts of the job's result, in place of unconfirmed ones of the same names."""
        earlier = [message for message in self._unconfirmed if isinstance(message, Facts)]
        if len(facts.keys() | {name for message in earlier for name in message.facts}) > MOST_FACTS:
            log.warning(
                "job %d: a job has at most %d facts: report fewer", self.who.job, MOST_FACTS
            )
            return
        for message in earlier:
            message.facts = {n: fact for n, fact in message.facts.items() if n not in facts}
            if not message.facts:
                self._unconfirmed.remove(message)
        self._keep(Facts(**self._proof, facts=facts))

    def fault(self, why: str) -> None:
        """Report the error with which this process ends its group, once."""
        message = ProgramFault(**self._proof, group=self.who.group, why=why)
        try:
            self._client.request(message, FAULT_LIMIT_S)
        except ReshapeError as error:
            log.debug("the error is not reported: %s", error)

    def wait_for_port(self, size: int) -> Connect | Abandon:
        """Report that this group is ready until the service answers with a port, or to end.

        There is no time limit, as an iteration of the job may take hours. The process is ended with
        its job by the node agent that started it, and ends with that agent.

        Raises
        ------
        ProtocolError : the service is of another version.
        """
        ready = GroupReady(**self._proof, group=self.who.group, size=size, pid=os.getpid())
        while True:
            try:
                self._client.send(ready, timeout=READY_EVERY_S)
            except ServiceUnavailable as error:  # at once if the file that names it is gone
                log.debug("job %d is ready to join and waits: %s", self.who.job, error)
                time.sleep(READY_EVERY_S / 10)
                continue
            until = time.monotonic() + READY_EVERY_S
            while (message := self._receive(until)) is not None:
                if isinstance(message, Connect | Abandon):
                    return message
                if isinstance(message, Failure):
                    return Abandon(why=message.message)

    def close(self) -> None:
        """Send what the service has not confirmed once more, and close the connection."""
        if self._opened is None:
            return
        until = time.monotonic() + CLOSE_LIMIT_S
        try:
            while self._unconfirmed and time.monotonic() < until:
                self._repeat(until - time.monotonic())
                pause = min(until, time.monotonic() + ANSWER_LIMIT_S)
                while self._unconfirmed and self._receive(pause) is not None:
                    pass
        except (ServiceUnavailable, ProtocolError) as error:
            log.warning(
                "job %d: the service has not confirmed its last messages: %s", self.who.job, error
            )
        self._opened.close(linger_s=ANSWER_LIMIT_S)
        self._opened = None
        self._unconfirmed.clear()

    def _keep(self, message: ApplicationMessage) -> None:
        """Send a message now, and again until the service confirms it."""
        self._unconfirmed.append(message)
        try:
            self._client.send(message, ANSWER_LIMIT_S if self._answers else 0.0)
        except ServiceUnavailable:
            log.debug("%s will be repeated", type(message).__name__)

    def _repeat(self, timeout: float = 0.0) -> None:
        for message in self._unconfirmed:
            self._client.send(message, timeout, again=True)

    def _receive(self, until: float) -> ApplicationMessage | None:
        """Receive the next message before `until` (monotonic clock); Done confirms a message."""
        message = self._client.receive(until - time.monotonic())
        if isinstance(message, Done | Failure):
            for confirmed in [kept for kept in self._unconfirmed if kept.id == message.id]:
                self._unconfirmed.remove(confirmed)
                if isinstance(message, Failure):
                    kind = type(confirmed).__name__
                    log.warning("the service refuses %s: %s", kind, message.message)
        return message
