"""The service: one socket, one loop.

What a message means (`scheduler.service.requests`) becomes events; the events of one turn of the
loop are decided on together (`scheduler.service.driver`); then the journal is written, and what was
to be said is sent.

Started again after its death, the service replays its journal and meets agents that kept the jobs
running and tell it all they know.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time

import msgspec
import zmq
import zmq.asyncio

from reshape.errors import ReshapeError
from reshape.wire import messages as m
from reshape.wire.client import ServerFile
from scheduler.config.settings import ServeConfig
from scheduler.node.directory import ServiceDirectory
from scheduler.service.assembly import assemble
from scheduler.service.driver import Gate
from scheduler.service.requests import Answers

log = logging.getLogger(__name__)

TICK_S = 0.25
#: Messages taken in one turn of the loop: what arrived together is decided together.
TURN = 256


def serve(directory: ServiceDirectory, config: ServeConfig) -> None:
    """Run the service of a directory in the foreground until it is stopped.

    Raises
    ------
    ReshapeError : another service runs there, or the journal cannot be used.
    """
    directory.create()
    with directory.lock() as free:
        if not free:
            raise ReshapeError(
                f"a service runs in {directory.path} already: "
                f"end it with 'reshape stop --dir {directory.path}', or choose another --dir"
            )
        asyncio.run(Service(directory, config).run())


class Service:
    """The service of one directory.

    Parameters
    ----------
    directory : created, and locked for this process.
    """

    def __init__(self, directory: ServiceDirectory, config: ServeConfig) -> None:
        self.directory, self.config = directory, config
        self._outbox: list[tuple[bytes, m.Message]] = []
        self.parts = assemble(directory, config, self.send)
        self.core = self.parts.core
        self.gate = Gate(self.parts)
        self.answers = Answers(self.parts, self.gate)
        self.gate.install([node.name for node in config.nodes])
        self._stop = asyncio.Event()
        self._interrupted = False
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._plain: zmq.Socket[bytes] = zmq.Socket.shadow(
            self._socket
        )  # for draining without a coroutine a message

    def send(self, identity: bytes, message: m.Message) -> None:
        """Send to a peer at the end of the turn, when all it may follow from is in the journal."""
        self._outbox.append((identity, message))

    async def run(self) -> None:
        """Serve until stopped."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        path = self.directory.endpoint.removeprefix("ipc://")
        if os.path.exists(path):
            os.unlink(path)
        self._socket.bind(self.directory.endpoint)
        self._write_server_file()
        self.gate.open()
        log.info(
            "service pid=%d scenario=%s at %s",
            os.getpid(),
            self.config.scenario,
            self.directory.endpoint,
        )
        try:
            await self._loop()
        finally:
            self._farewell()

    @property
    def _is_ending(self) -> bool:
        """Told to stop: waits for jobs and agents to be gone."""
        return self._interrupted or self.answers.asked_to_stop is not None

    async def _loop(self) -> None:
        ticked = 0.0
        while not self._stop.is_set():
            await self._socket.poll(round(1000 * TICK_S))
            for _ in range(TURN):
                try:
                    frames = self._plain.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                self.answers.take(frames[0], frames[1:])
            now = time.monotonic()
            if now - ticked > TICK_S:
                ticked = now
                self._tick()
            if self.gate.turn():
                self.answers.tell_waiting()
            self._commit()

    def _tick(self) -> None:
        if not self._is_ending or self.core.live:
            self.gate.tick(hire=not self._is_ending)
        elif self.parts.monitor.dismiss():
            self._stop.set()

    def _commit(self) -> None:
        """Write the journal, then send; a peer that is gone loses its message and asks again."""
        self.parts.journal.commit()
        outbox, self._outbox = self._outbox, []
        for identity, message in outbox:
            try:
                self._plain.send_multipart([identity, *m.encode(message)], zmq.NOBLOCK)
            except zmq.ZMQError as error:
                log.debug("cannot send %s: %s", type(message).__name__, error)

    def _write_server_file(self) -> None:
        file = ServerFile(
            endpoint=self.directory.endpoint, pid=os.getpid(), started_at=self.answers.started_at
        )
        draft = self.directory.server_file.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(file))
        draft.replace(self.directory.server_file)

    def _on_signal(self) -> None:
        """End: at once if jobs run, which go on under their agents; else with the agents."""
        if self.core.live or self._is_ending:
            self._stop.set()
        self._interrupted = True

    def _farewell(self) -> None:
        if self.core.live:
            jobs = sorted(self.core.live)
            log.warning("jobs %s go on under their agents; serve again to take them up", jobs)
        if self.answers.asked_to_stop is not None:
            identity, request = self.answers.asked_to_stop
            self.send(identity, m.Done(id=request))
        self._commit()
        self.directory.server_file.unlink(missing_ok=True)
        self._socket.close(linger=1000)
        self._context.term()
        self.parts.journal.close()
        log.info("service ended")
