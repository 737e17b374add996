"""The resize transactions that are under way, and their phases in the journal.

    expand      starting   the new groups come up and assemble while the job computes
                ready      they wait for the job's next resize point
                joining    the job writes its restart point, accepts them and moves its data
                accepting  (journal only) the port on which the job accepts; empty: no port is open
                committed
    assembly    reconnecting (journal only) the port on which a group is accepted
    contract    leaving    the data moves off the groups that leave
                committed  their processes end

A service that starts again continues each transaction in the phase that the journal has. The port
is part of that: without it, the service could not release a job that waits for a group which ended
while there was no service.

Groups assemble if a job starts or restarts with several of them, and if several join it together:
they connect to each other. They may be on different hosts, so they find each other through the
service. A group reports that it waits (`GroupReady`) until it is given the port that the earlier
groups have opened for it (`JoinPort` with its number). The first of the groups that join together
reports for all of them that they wait for the job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container
from dataclasses import dataclass

from reshape.wire.messages import ResizeTimes
from scheduler.journal.journal import Journal
from scheduler.model.job import FINAL, Job
from scheduler.protocol import messages as m

log = logging.getLogger(__name__)


@dataclass
class Transaction:
    """The steps of one resize so far. Times are monotonic seconds.

    Attributes
    ----------
    since : when the present phase began; begun : when the transaction began.
    joiner, joiner_request : peer of the new groups, and the request with which it waits.
    port : MPI port on which the job accepts; empty if it does not.
    start_s : time from the decision until the new group was up, seconds.
    times : what the application measured, once it has reported.
    died : when a new group was found to have ended.
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

    @property
    def in_background(self) -> bool:
        """Whether the job computes while new groups come up."""
        return self.phase in ("starting", "ready")


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


class AssemblyPorts:
    """Gives each group that assembles with others the port on which the earlier ones accept it.

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
        self._came: set[tuple[int, int]] = set()  # groups that have waited for a port
        self._since: dict[tuple[int, int], float] = {}  # by job and first group, when one waited

    def concerns(self, job: Job, group: int) -> bool:
        """Whether earlier groups accept a group: of a start, a restart, or those that join."""
        if group not in job.groups or job.state in FINAL:
            return False
        if job.resize is not None and group in job.resize.joining:
            return group != job.resize.group
        return group != next(iter(job.groups))

    def are_known(self, job: Job) -> bool:
        """Whether each group of a job but the first has been given a port, or has joined it."""
        _, *others = job.groups
        return all(self._port(job, group) for group in others)

    def overdue_group(self, job: Job, limit_s: float) -> int | None:
        """Return the group for which the others of a start have waited too long; None: not yet.

        Parameters
        ----------
        limit_s : from the moment at which one of them waits, s.
        """
        first, *others = job.groups
        key, now = (job.id, first), time.monotonic()
        if key not in self._since:
            if not any(self._port(job, group) for group in others):
                return None
            self._since[key] = now  # it waited for an earlier run of the service
        if now - self._since[key] <= limit_s:
            return None
        late = [group for group in others if (job.id, group) not in self._came]
        return late[0] if late else first

    def on_port(self, job: Job, group: int, port: str) -> None:
        """Note the port on which a group is accepted, and send it if the group waits."""
        key = job.id, group
        self._note_wait(job)
        if self._ports.get(key) != port:
            self._ports[key] = port
            self._journal.add_phase(job.id, job.resizes, self._clock(), _PHASE, f"{group} {port}")
        if key in self._waiting:
            peer, request = self._waiting.pop(key)
            self._send(peer, m.Connect(id=request, port=port))

    def on_group_ready(self, job: Job, peer: bytes, message: m.GroupReady) -> m.Connect | None:
        """Return the port for a group; None as long as there is none."""
        key = job.id, message.group
        self._note_wait(job)
        self._came.add(key)
        if port := self._port(job, message.group):
            self._waiting.pop(key, None)
            return m.Connect(id=message.id, port=port)
        self._waiting[key] = peer, message.id
        return None

    def keep_only(self, jobs: Container[int]) -> None:
        """Forget the ports of other jobs."""
        self._ports = {key: port for key, port in self._ports.items() if key[0] in jobs}
        self._waiting = {key: peer for key, peer in self._waiting.items() if key[0] in jobs}
        self._since = {key: since for key, since in self._since.items() if key[0] in jobs}
        self._came = {key for key in self._came if key[0] in jobs}

    def _note_wait(self, job: Job) -> None:
        self._since.setdefault((job.id, next(iter(job.groups))), time.monotonic())

    def _port(self, job: Job, group: int) -> str:
        """Port for a group, perhaps noted by an earlier run of the service; empty: none."""
        key = job.id, group
        if key not in self._ports:
            for phase in self._journal.phases_of(job.id):
                number, _, name = phase.detail.partition(" ")
                if phase.phase == _PHASE and number == str(group):
                    self._ports[key] = name
        return self._ports.get(key, "")
