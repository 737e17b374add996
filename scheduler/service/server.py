"""The service: one loop that reads messages, decides and answers.

Messages (`scheduler.service.requests`) become events; the core decides on the events of one turn of
the loop together (`scheduler.service.driver`); then the journal is written, and the answers and
commands of the turn are sent.

A service that starts again in its directory takes over the recorded states of its jobs. Its agents
have kept the jobs running and report all they know. A second process, the reader, answers what only
reads the journal (`scheduler.service.later_answers`).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sqlite3
import time
from collections import Counter
from types import FrameType
from typing import TypeAlias

import msgspec
import zmq

from reshape.errors import ReshapeError
from reshape.files.durable_files import write_durably
from reshape.wire.codec import encode
from reshape.wire.connection import ServerFile
from scheduler.config.settings import ServeConfig
from scheduler.journal.opening import JournalFullError
from scheduler.journal.retention import Retention
from scheduler.node.directory import Lock, ServiceDirectory
from scheduler.node.launching.prctl import survive_hangup
from scheduler.protocol import messages as m
from scheduler.service.assembly import Components
from scheduler.service.connections import Connections
from scheduler.service.driver import Driver
from scheduler.service.later_answers import IDENTITY, PATIENCE_S, ReaderLink
from scheduler.service.limits import LoopWatch, Received, raise_limit
from scheduler.service.requests import RequestHandler

log = logging.getLogger(__name__)

TICK_S = 0.25
#: Messages handled in one turn of the loop; the core decides on them together. With more, fewer
#: transactions are written; with fewer, clients receive their answers earlier and continue while
#: the service handles the next turn.
TURN_MESSAGES = 128
#: Bytes of messages in a turn, after which no further one is read.
TURN_BYTES = 32 << 20
#: Peers, and the frames of a message for each.
_Outbox: TypeAlias = list[tuple[bytes, list[bytes]]]
#: Seconds that a forecast may take.
FORECAST_S = 120.0
#: Seconds between two looks at the file with which clients find the service.
LOOK_S = 5.0
#: Thresholds of the cyclic garbage collector: a service creates many lasting objects and few
#: cycles, so that the default thresholds cost a sixth of its processor time.
GARBAGE_THRESHOLDS = 20_000, 100, 100
#: A service that failed this often within this time (seconds) ends instead of recovering again.
FAILURES, FAILURES_S = 5, 60.0


class JournalRemovedError(Exception):
    """A file of the journal was removed, so the service has to recover from the copy."""


class DirectoryTakenError(ReshapeError):
    """Another service has the directory of this one, which may write nothing there any more."""


def serve(directory: ServiceDirectory, config: ServeConfig, *, accept_loss: bool = False) -> None:
    """Run the service of a directory in the foreground until it is stopped.

    An unexpected exception discards the turn in which it was raised, of which nothing was written
    or sent; the service recovers from its journal and continues. So does an error of the operating
    system, except one that prevents the service from starting.

    Parameters
    ----------
    accept_loss : go on with a journal of which acknowledged records are missing.

    Raises
    ------
    ReshapeError : another service runs there, or the journal cannot be used.
    """
    directory.create()
    directory.keep_open()
    with directory.lock() as lock, contextlib.closing(LoopWatch()) as watch:
        if lock is None:
            raise ReshapeError(
                f"a service runs in {directory.path} already: end it with 'reshape stop --dir"
                f" {directory.path}' (with SIGTERM if its jobs have to continue), or choose another"
                " --dir"
            )
        raise_limit()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        failures: list[float] = []
        has_served = False
        while True:
            watch.busy_since, watch.deciding = time.monotonic(), tuple
            service = None
            try:
                service = Service(directory, config, lock, watch, accept_loss=accept_loss)
                accept_loss = False  # it is accepted once
                service.run()
            except ReshapeError:
                raise
            except Exception as error:
                has_served |= service is not None and service.is_serving
                if isinstance(error, OSError) and not has_served:
                    raise
                now = time.monotonic()
                failures = [at for at in failures if now - at < FAILURES_S] + [now]
                if len(failures) >= FAILURES:
                    raise
                log.exception("the service failed and recovers from its journal")
            else:
                return


class Service:
    """The service of one directory.

    Parameters
    ----------
    directory : created.
    lock : of the directory, which this process holds.
    watch : monitors the turns of the loop; the loop notes when each begins and ends.
    accept_loss : go on with a journal of which acknowledged records are missing.

    Attributes
    ----------
    is_serving : whether it has started.
    """

    def __init__(
        self,
        directory: ServiceDirectory,
        config: ServeConfig,
        lock: Lock,
        watch: LoopWatch,
        *,
        accept_loss: bool = False,
    ) -> None:
        self.directory, self.config, self._lock, self._watch = directory, config, lock, watch
        self._outbox: _Outbox = []  # leaves after the journal of the turn is written
        self._answers: _Outbox = []  # to questions; leaves also if the journal cannot be written
        self.components = Components(directory, config, self.send, accept_loss=accept_loss)
        self.core = self.components.core
        self.driver = Driver(self.components)
        watch.deciding = lambda: self.driver.deciding
        refused: Counter[str] = Counter()
        self._connections = Connections(directory, config.listen, refused)
        ways = self._send_now, self._answer_question
        self.reader = ReaderLink("reader", directory, *ways, PATIENCE_S)
        self.forecaster = ReaderLink("forecaster", directory, *ways, FORECAST_S)
        self.requests = RequestHandler(
            self.components,
            self.driver,
            refused,
            self._answer_question,
            self.reader.ask,
            self.forecaster.ask,
        )
        self._room = self.requests.room
        self.driver.cancel_as_requested()
        self.driver.register_nodes([node.name for node in config.nodes])
        self.is_serving = self._stop = self._interrupted = False
        self._signals = 0  # received and not yet handled
        self._ticked = self._looked_at = 0.0
        clock = self.components.clock
        self._retention = Retention(self.components.journal, config.journal, clock.wall)

    def send(self, identity: bytes, message: m.Message) -> None:
        """Queue a message for a peer; it leaves after the journal of this turn is written."""
        self._outbox.append((identity, encode(message)))

    def _answer_question(self, identity: bytes, frames: list[bytes]) -> None:
        self._answers.append((identity, frames))

    def _send_now(self, identity: bytes, frames: list[bytes]) -> bool:
        """Send to a peer; return whether it is there."""
        try:
            self._connections.send(identity, frames)
        except zmq.ZMQError as error:
            log.debug("cannot send to a peer: %s", error)
            return False
        return True

    def run(self) -> None:
        """Serve until stopped; call it in the main thread, which receives signals."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note_signal)
        survive_hangup()
        try:
            self._connections.bind()
        except Exception:
            self._discard()
            raise
        write_durably(self.directory.server_file, self._server_file)
        self.driver.restore_alarms()
        log.info(
            "service pid=%d scenario=%s endpoint=%s",
            os.getpid(),
            self.config.scenario,
            self.directory.endpoint,
        )
        self.is_serving = True
        try:
            self._loop()
        except DirectoryTakenError:
            self._discard()
            raise
        except ReshapeError:
            self._finish()
            raise
        except Exception:
            self._discard()
            raise
        else:
            self._finish()

    @property
    def _is_ending(self) -> bool:
        """Whether the service was asked to stop and waits for jobs and agents to end."""
        return self._interrupted or self.requests.stop_request is not None

    def _loop(self) -> None:
        while not self._stop:
            is_busy = self.requests.reads.pending or (self._room.holds and not self._room.reason)
            self._watch.busy_since = None
            self._connections.wait(0 if is_busy else round(1000 * TICK_S))
            self._watch.busy_since = time.monotonic()
            if self._signals:
                self._on_signals()
            if self._room.reason:
                self._wait_for_room()
            else:
                self._turn()

    def _turn(self) -> None:
        """Read messages, decide, write the journal, send."""
        heard_all = self._read_messages()
        now = time.monotonic()
        if now - self._ticked > TICK_S:
            self._ticked = now
            self._tick(heard_all)
        changed = self.driver.run_turn()
        if changed:
            self.requests.answer_waiting(changed)
        self.requests.reads.advance()
        self._commit()
        if now - self._looked_at > LOOK_S and not self._room.reason:
            self._looked_at = now
            self._restore_files()

    def _wait_for_room(self) -> None:
        """Decide nothing while the journal cannot be written; continue as soon as it can.

        Answers to questions leave at once; all else of the turn that was not written is kept back.
        """
        self._read_messages()
        self.requests.reads.advance()
        for reader in (self.reader, self.forecaster):
            reader.on_tick()
            reader.forward()
        self._send_answers()
        if self._is_ending:  # agents and jobs continue; the next service requests their reports
            self._stop = True
        if self._room.retry_is_due():
            self._commit()

    def _next_message(self) -> Received | None:
        """Return the next message to handle: first those that were held."""
        takes = self._room.holds and not self._room.reason
        return self._room.take() if takes else self._connections.receive()

    def _read_messages(self) -> bool:
        """Handle the next messages of a turn; return whether these were all."""
        left = TURN_BYTES
        for _ in range(TURN_MESSAGES):
            received = self._next_message() if left > 0 else None
            if received is None:
                return left > 0
            peer, frames, sender = received
            left -= sum(map(len, frames))
            if not (peer.startswith(IDENTITY) and self._is_of_reader(peer, frames)):
                self.requests.handle(peer, frames, sender)
        return False

    def _is_of_reader(self, peer: bytes, frames: list[bytes]) -> bool:
        """Handle a message of a reader; return whether it is one."""
        for reader in (self.reader, self.forecaster):
            if peer == reader.identity:
                reader.on_message(frames)
                return True
        return False

    def _tick(self, heard_all: bool) -> None:
        self._keep_lock()
        self.reader.on_tick()
        self.forecaster.on_tick()
        self._retention.step()
        if not self._is_ending or self.core.live:
            self.driver.tick(start_agents=not self._is_ending, heard_all=heard_all)
            self._end_with_allocation()
        elif self.components.monitor.stop_agents():
            self.components.pools.give_all_back()
            self._stop = True

    def _end_with_allocation(self) -> None:
        """End, and keep the queue, when the Slurm allocation of all nodes has ended."""
        components = self.components
        has_ended = components.nodes.is_allocation_over(components.clock())
        if has_ended and not components.pools.pools and not self._is_ending:
            log.warning(
                "the service ends, because all of its nodes were in the Slurm allocation that has"
                " ended; 'reshape serve --slurm' in the next one continues with the queue"
            )
            self._interrupted = True

    def _commit(self) -> None:
        """Write the journal, then send; a peer that is gone loses its message and asks again."""
        try:
            self.components.journal.commit()
        except JournalFullError as error:
            self._room.note_failure(str(error))
            self._send_answers()
            return
        self._room.note_success()
        self.reader.forward()
        self.forecaster.forward()
        outbox, self._outbox = self._outbox, []
        for identity, frames in outbox:
            self._send_now(identity, frames)
        self._send_answers()

    def _send_answers(self) -> None:
        answers, self._answers = self._answers, []
        for identity, frames in answers:
            self._send_now(identity, frames)

    @property
    def _server_file(self) -> bytes:
        endpoint, started_at = self.directory.endpoint, self.requests.started_at
        file = ServerFile(endpoint=endpoint, pid=os.getpid(), started_at=started_at)
        return msgspec.json.encode(file)

    def _keep_lock(self) -> None:
        """Lock the directory again if the file of the lock was removed.

        Raises
        ------
        DirectoryTakenError : another service has locked it meanwhile.
        """
        with contextlib.suppress(OSError):  # the directory was removed, or cannot be written
            if not self._lock.keep():
                raise DirectoryTakenError(
                    f"another service was started in {self.directory.path} after its file 'lock'"
                    " was removed: this one ends, and its jobs continue"
                )

    def _restore_files(self) -> None:
        """Make files of the directory again that were removed.

        What lies at the path of a directory that was moved or removed may be of another service.

        Raises
        ------
        JournalRemovedError : the journal was removed and is there again.
        """
        if not self.directory.is_in_place:
            log.warning("%s was moved or removed: clients find no service", self.directory.path)
            return
        try:
            self.directory.restore()
        except OSError as error:
            log.warning("cannot write to %s: %s", self.directory.path, error.strerror)
        self._restore_server_file()
        self._connections.restore_sockets()
        if not self._is_ending and self._restore_journal():  # an end writes it in `_finish`
            path = self.components.journal.path
            raise JournalRemovedError(f"{path} was removed, and is written again")

    def _restore_journal(self) -> bool:
        """Write the journal again if it was removed; return whether it was and is there again."""
        journal = self.components.journal
        try:
            return journal.restore_files()
        except (OSError, sqlite3.Error) as error:
            log.error("%s was removed, and cannot be written again: %s", journal.path, error)
            return False

    def _restore_server_file(self) -> None:
        """Write the file with which clients find the service again if it was changed or removed."""
        with contextlib.suppress(OSError):
            if self.directory.server_file.read_bytes() == self._server_file:
                return
        try:
            write_durably(self.directory.server_file, self._server_file)
            log.warning("%s was damaged, and is written again", self.directory.server_file)
        except OSError as error:
            log.warning("cannot write %s: %s", self.directory.server_file, error.strerror)

    def _note_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _on_signals(self) -> None:
        """End: immediately if jobs run, which continue under their agents; else with the agents."""
        if self.core.live or self._is_ending or self._signals > 1:
            self._stop = True
        self._interrupted, self._signals = True, 0

    def _discard(self) -> None:
        """Close without writing or sending anything of the turn that failed."""
        self.components.journal.discard()
        self._close()

    def _finish(self) -> None:
        """Write and send what is left, and log which jobs continue."""
        if self.core.live:
            jobs = sorted(self.core.live)
            log.warning(
                "jobs %s continue under their agents; the next service here takes them over",
                jobs,
            )
        if self.requests.stop_request is not None:
            identity, request = self.requests.stop_request
            self.send(identity, m.Done(id=request))
        self._commit()
        if self.directory.is_in_place and self._restore_journal():
            log.warning("%s was removed, and is written again", self.components.journal.path)
        self.directory.server_file.unlink(missing_ok=True)
        self._close()
        if not self.core.live:
            self.directory.release_socket()
        log.info("service ended")

    def _close(self) -> None:
        self.components.pools.close()
        self.reader.close()
        self.forecaster.close()
        self._connections.close()
        self.components.journal.close()
