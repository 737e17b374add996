"""The resize transactions that are under way, and their phases in the journal.

    expand      starting   the new group comes up while the job computes
                ready      it waits for the job's next resize point
                joining    the job writes its restart point, accepts the group and moves its data
                accepting  (journal only) the port on which the job accepts; empty: no port is open
                committed
    restart     reconnecting (journal only) the port on which a group is accepted
    contract    leaving    the data moves off the groups that leave
                committed  their processes end

A service that starts again continues each transaction in the phase that the journal has. The port
is part of that: without it, the service could not release a job that waits for a group which ended
while there was no service.

The groups of a job that restarts connect to each other. They may be on different hosts, so they
find each other through the service. A group reports that it waits (`GroupReady`) until it is given
the port that the earlier groups have opened for it (`JoinPort` with its number).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container
from dataclasses import dataclass

from reshape.wire.messages import ResizeTimes
from scheduler.model.job import FINAL, Job
from scheduler.protocol import messages as m
from scheduler.service.record.journal import Journal

log = logging.getLogger(__name__)


@dataclass
class Transaction:
    """The steps of one resize so far. Times are monotonic seconds.

    Attributes
    ----------
    since : when the present phase began; begun : when the transaction began.
    joiner, joiner_request : peer of the new group, and the request with which it waits.
    port : MPI port on which the job accepts; empty if it does not.
    start_s : time from the decision until the new group was up, seconds.
    times : what the application measured, once it has reported.
    died : when the new group was found to have ended.
    cancelled : when the job was released from accepting.
    """

    serial: int
    phase: str
    since: float
    begun: float
    joiner: bytes | None = None
    joiner_request: int = 0
    port: str = ""
    start_s: float = 0.0
    registered_bytes: int = 0
    times: ResizeTimes | None = None
    died: float | None = None
    cancelled: float | None = None


class Transactions:
    """The transactions of all jobs, at most one for each.

    Parameters
    ----------
    clock : the service's clock, Unix seconds.
    """

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        self._journal, self._clock = journal, clock
        self._by_job: dict[int, Transaction] = {}

    def jobs(self) -> list[int]:
        """Return the numbers of the jobs that have a transaction."""
        return list(self._by_job)

    def close(self, job: int) -> None:
        """Forget the transaction of a job, if there is one."""
        self._by_job.pop(job, None)

    def of(self, job: Job) -> Transaction | None:
        """Return the transaction of a job's resize, opened if the core has just begun the resize.

        None if the job is not resized; a transaction that it had is closed then.
        """
        resize = job.resize
        if resize is None:
            self.close(job.id)
            return None
        transaction = self._by_job.get(job.id)
        if transaction is None or transaction.serial != resize.serial:
            now = time.monotonic()
            phase = "starting" if resize.expands else "leaving"
            transaction = self._by_job[job.id] = Transaction(resize.serial, phase, now, now)
            self._restore(job, transaction)
        return transaction

    def _restore(self, job: Job, transaction: Transaction) -> None:
        """Continue where an earlier service stood; note the first phase if there was none."""
        noted = [p for p in self._journal.phases_of(job.id) if p.serial == transaction.serial]
        if not noted:
            self._note(job, transaction, transaction.phase)
        for phase in noted:
            if phase.phase in ("joining", "committed"):
                transaction.phase = phase.phase
            elif phase.phase == "accepting":
                transaction.port = phase.detail

    def enter(self, job: Job, transaction: Transaction, phase: str, detail: str = "") -> None:
        """Go to a phase."""
        transaction.phase, transaction.since = phase, time.monotonic()
        self._note(job, transaction, phase, detail)
        log.info("resize job=%d serial=%d %s", job.id, transaction.serial, phase)

    def set_port(self, job: Job, transaction: Transaction, port: str) -> None:
        """Note on which port the job accepts; "" if it does not accept."""
        if transaction.port != port:
            transaction.port = port
            self._note(job, transaction, "accepting", port)

    def _note(self, job: Job, transaction: Transaction, phase: str, detail: str = "") -> None:
        self._journal.add_phase(job.id, transaction.serial, self._clock(), phase, detail)


#: Phase of the journal with the number of a group and its port.
_PHASE = "reconnecting"


class RestartPorts:
    """Gives each group of a restarted job the port on which the earlier groups accept it.

    Parameters
    ----------
    send : queues a message for a peer, named by its socket identity.
    clock : the service's clock, Unix seconds.
    """

    def __init__(
        self,
        journal: Journal,
        send: Callable[[bytes, m.Message], None],
        clock: Callable[[], float],
    ) -> None:
        self._journal, self._send, self._clock = journal, send, clock
        self._ports: dict[tuple[int, int], str] = {}  # by job and group
        self._waiting: dict[tuple[int, int], tuple[bytes, int]] = {}  # peer and request

    def concerns(self, job: Job, group: int) -> bool:
        """Whether a group belongs to a job that has restarted, and does not join it in a resize."""
        joining = None if job.resize is None else job.resize.group
        is_own = group in job.groups and group != joining
        return is_own and job.restarts > 0 and job.state not in FINAL

    def on_port(self, job: Job, group: int, port: str) -> None:
        """Note the port on which a group is accepted, and send it if the group waits."""
        key = job.id, group
        if self._ports.get(key) != port:
            self._ports[key] = port
            self._journal.add_phase(job.id, job.resizes, self._clock(), _PHASE, f"{group} {port}")
        if key in self._waiting:
            peer, request = self._waiting.pop(key)
            self._send(peer, m.Connect(id=request, port=port))

    def on_group_ready(self, job: Job, peer: bytes, message: m.GroupReady) -> m.Connect | None:
        """Return the port for a group; None as long as there is none."""
        key = job.id, message.group
        port = self._ports.get(key) or self._noted(job, message.group)
        if port:
            self._waiting.pop(key, None)
            return m.Connect(id=message.id, port=port)
        self._waiting[key] = peer, message.id
        return None

    def keep_only(self, jobs: Container[int]) -> None:
        """Forget the ports of other jobs."""
        self._ports = {key: port for key, port in self._ports.items() if key[0] in jobs}
        self._waiting = {key: peer for key, peer in self._waiting.items() if key[0] in jobs}

    def _noted(self, job: Job, group: int) -> str:
        """Port that an earlier run of the service has noted; empty if there is none."""
        port = ""
        for phase in self._journal.phases_of(job.id):
            number, _, name = phase.detail.partition(" ")
            if phase.phase == _PHASE and number == str(group):
                port = name
        return port
