"""What a job's first rank says to the scheduler service, and what it hears.

The application never depends on an answer: with the service away, every question costs a moment
and the job computes on. What must not get lost is repeated until the service has noted it.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TypeAlias

from reshape.errors import ProtocolError, ServiceUnavailable
from reshape.topology import Topology
from reshape.wire.client import Client
from reshape.wire.identity import Identity
from reshape.wire.messages import (
    Abandon,
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
    Message,
    Proceed,
    ResizeReport,
    Welcome,
)
from reshape.wire.outcome import ResizeOutcome

Decision: TypeAlias = Proceed | Join | Leave

FIRST_CONTACT_S = 2.0  # the service may just be restarting
PATIENCE_S = 0.25  # for an answer at a resize point, while the service is known to be there
GLIMPSE_S = 0.002  # for the same while it is known to be away
PORT_NOTED_S = 2.0
LAST_WORDS_S = 2.0  # at the end of the program, for what the service has not noted yet
READY_EVERY_S = 2.0
GIVE_UP_S = 600.0  # a group that nobody claims for so long ends by itself

log = logging.getLogger(__name__)


class Link:
    """The connection of one rank to the service; opened when it is first used.

    Parameters
    ----------
    who : identity of this process.
    """

    def __init__(self, who: Identity) -> None:
        self._who = who
        self._opened: Client | None = None
        self._heard = True  # whether the service answered when it was last asked
        self._unnoted: list[Message] = []  # repeated until the service says Done
        self._sent: dict[int, Message] = {}  # which of them went out under which id

    @property
    def _client(self) -> Client:
        if self._opened is None:
            self._opened = Client(self._who.server)
        return self._opened

    def hello(self, size: int, topology: Topology | None) -> Welcome | None:
        """Present the job; None if the service does not answer: then it computes on its own.

        Raises
        ------
        ReshapeError : the service answers that it does not want this job.
        """
        message = Hello(
            job=self._who.job,
            group=self._who.group,
            token=self._who.token,
            size=size,
            pid=os.getpid(),
            topology=topology,
        )
        try:
            answer = self._client.request(message, FIRST_CONTACT_S)
        except ServiceUnavailable as error:
            log.warning("job %d starts without its service: %s", self._who.job, error)
            self._heard = False
            return None
        return answer if isinstance(answer, Welcome) else None

    def ask(
        self,
        *,
        epoch: int,
        size: int,
        registered_bytes: int,
        iteration: int,
        iteration_s: float,
        topology: Topology | None,
    ) -> Decision:
        """Ask what to do at this resize point; Proceed if no answer comes soon.

        The service repeats what it wants at every resize point, so an answer that comes too late
        is dropped without harm.
        """
        question = AtResizePoint(
            job=self._who.job,
            token=self._who.token,
            epoch=epoch,
            size=size,
            registered_bytes=registered_bytes,
            iteration=iteration,
            iteration_s=iteration_s,
            topology=topology,
        )
        try:
            while self._receive(until=0.0) is not None:  # what came since the last time
                self._heard = True
            self._repeat()
            # A connection just opened needs a moment to stand.
            number = self._client.send(question, PATIENCE_S if self._heard else 0.0)
            until = time.monotonic() + (PATIENCE_S if self._heard else GLIMPSE_S)
            while (message := self._receive(until)) is not None:
                if not self._heard:
                    self._heard = True
                    until = time.monotonic() + PATIENCE_S
                if message.id == number and isinstance(message, Proceed | Join | Leave):
                    return message
                if message.id == number:
                    log.warning("job %d at a resize point: unexpected %r", self._who.job, message)
                    return Proceed()
        except (ServiceUnavailable, ProtocolError) as error:
            if self._heard:
                log.warning("job %d computes on: %s", self._who.job, error)
        self._heard = False
        return Proceed()

    def announce(self, serial: int, port: str) -> None:
        """Say on which port the job is about to accept a group, and wait until that is noted.

        A job that accepted while nobody sends the group would hang until it is killed.

        Raises
        ------
        ReshapeError : the service does not answer, or refuses.
        """
        message = JoinPort(job=self._who.job, token=self._who.token, serial=serial, port=port)
        self._client.request(message, PORT_NOTED_S)

    def report(self, outcome: ResizeOutcome) -> None:
        """Say how a resize went."""
        self._keep(
            ResizeReport(
                job=self._who.job,
                token=self._who.token,
                serial=outcome.serial,
                ok=not outcome.why,
                why=outcome.why,
                times=outcome.times,
            )
        )

    def facts(self, facts: dict[str, bool | int | float | str]) -> None:
        """Say what people shall know of the job."""
        self._keep(Facts(job=self._who.job, token=self._who.token, facts=facts))

    def wait_for_port(self, size: int) -> Connect | Abandon:
        """Say that this group is ready until the service says where to connect, or to end."""
        give_up = time.monotonic() + GIVE_UP_S
        while time.monotonic() < give_up:
            ready = GroupReady(
                job=self._who.job,
                group=self._who.group,
                token=self._who.token,
                size=size,
                pid=os.getpid(),
            )
            try:
                self._client.send(ready, timeout=READY_EVERY_S)
            except ServiceUnavailable:
                continue
            until = time.monotonic() + READY_EVERY_S
            while (message := self._receive(until)) is not None:
                if isinstance(message, Connect | Abandon):
                    return message
                if isinstance(message, Failure):
                    return Abandon(why=message.message)
        return Abandon(why=f"the service gave no port within {GIVE_UP_S:g} s")

    def close(self) -> None:
        """Close the connection; what the service has not noted yet gets a last chance."""
        if self._opened is None:
            return
        until = time.monotonic() + LAST_WORDS_S
        try:
            while self._unnoted and time.monotonic() < until:
                self._repeat(until - time.monotonic())
                pause = min(until, time.monotonic() + PATIENCE_S)
                while self._unnoted and self._receive(pause) is not None:
                    pass
        except (ServiceUnavailable, ProtocolError) as error:
            log.warning("job %d: the service has not noted how it ended: %s", self._who.job, error)
        self._opened.close(linger_s=PATIENCE_S)
        self._opened = None

    def _keep(self, message: Message) -> None:
        """Send a message, now and again, until the service has noted it."""
        self._unnoted.append(message)
        try:
            self._sent[self._client.send(message, PATIENCE_S if self._heard else 0.0)] = message
        except ServiceUnavailable:
            log.debug("%s will be repeated", type(message).__name__)

    def _repeat(self, timeout: float = 0.0) -> None:
        for message in self._unnoted:
            self._sent[self._client.send(message, timeout)] = message

    def _receive(self, until: float) -> Message | None:
        """Give the next message before `until` (monotonic); Done is taken note of on the way."""
        message = self._client.receive(until - time.monotonic())
        noted = self._sent.pop(message.id, None) if isinstance(message, Done | Failure) else None
        if noted in self._unnoted:
            self._unnoted.remove(noted)
            if isinstance(message, Failure):
                log.warning("the service refuses %s: %s", type(noted).__name__, message.message)
        if not self._unnoted:
            self._sent.clear()
        return message
