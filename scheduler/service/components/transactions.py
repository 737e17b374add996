"""The transactions of the resizes of jobs with their phases, and what else is kept of a job.

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
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

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
    joiner : peer of the new groups, and the request with which it waits.
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
    joiner: tuple[bytes, int] | None = None
    port: str = ""
    start_s: float = 0.0
    times: ResizeTimes | None = None
    died: float | None = None
    cancelled: float | None = None

    @property
    def in_background(self) -> bool:
        """Whether the job computes while new groups come up."""
        return self.phase in ("starting", "ready")


@dataclass
class KeptJob:
    """What the components keep in memory of a job that holds processors.

    Attributes
    ----------
    point : its last message at a resize point; None: none since it started.
    is_ahead : whether it has done a resize that the journal lacks.
    faults : error of its program, by group.
    culprit : the group that failed first.
    ending_since : when its first group ended well.
    asked : when the agent was asked how a group ended, by group.
    ports : MPI port of each group that assembles with others, on which the earlier ones accept it.
    waiting : peer and request of each group that waits for its port.
    came : groups that have waited for a port.
    waited_since : when a group waited first, by the first group of the start.
    """

    point: m.AtResizePoint | None = None
    is_ahead: bool = False
    faults: dict[int, str] = field(default_factory=dict)
    culprit: m.GroupStatus | None = None
    ending_since: float | None = None
    asked: dict[int, float] = field(default_factory=dict)
    ports: dict[int, str] = field(default_factory=dict)
    waiting: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    came: set[int] = field(default_factory=set)
    waited_since: dict[int, float] = field(default_factory=dict)


#: What is kept of each job, by its number.
KeptJobs: TypeAlias = defaultdict[int, KeptJob]
#: Phase of the journal with the number of a group and its port.
_RECONNECTING = "reconnecting"


class Transactions:
    """The transactions of all jobs, at most one for each, and the ports of groups that assemble.

    Parameters
    ----------
    send : queues a message for a peer, named by its socket identity.
    clock : the service's clock, Unix seconds.
    kept : has the ports.

    Attributes
    ----------
    open : transactions under way, by job.
    """

    def __init__(
        self,
        journal: Journal,
        send: Callable[[bytes, m.Message], None],
        clock: Callable[[], float],
        kept: KeptJobs,
    ) -> None:
        self._journal, self._send, self._clock, self._kept = journal, send, clock, kept
        self.open: dict[int, Transaction] = {}

    def of(self, job: Job) -> Transaction:
        """Return the transaction of a job's resize, opened if the core has just begun the resize.

        Precondition: the job is resized.
        """
        resize = job.resize
        assert resize is not None, f"job {job.id} is resized"
        transaction = self.open.get(job.id)
        if transaction is None or transaction.serial != resize.serial:
            now = time.monotonic()
            phase = "starting" if resize.expands else "leaving"
            transaction = self.open[job.id] = Transaction(resize.serial, phase, now, now)
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

    # ------------------------------------------------------------------ groups that assemble

    def assembles(self, job: Job, group: int) -> bool:
        """Whether earlier groups accept a group: of a start, a restart, or those that join."""
        if group not in job.groups or job.state in FINAL:
            return False
        if job.resize is not None and group in job.resize.joining:
            return group != job.resize.group
        return group != next(iter(job.groups))

    def has_ports(self, job: Job) -> bool:
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
        kept, now = self._kept[job.id], time.monotonic()
        if first not in kept.waited_since:
            if not any(self._port(job, group) for group in others):
                return None
            kept.waited_since[first] = now  # it waited for an earlier run of the service
        if now - kept.waited_since[first] <= limit_s:
            return None
        late = [group for group in others if group not in kept.came]
        return late[0] if late else first

    def on_assembly_port(self, job: Job, group: int, port: str) -> None:
        """Note the port on which a group is accepted, and send it if the group waits."""
        kept = self._note_wait(job)
        if kept.ports.get(group) != port:
            kept.ports[group] = port
            phase, detail = _RECONNECTING, f"{group} {port}"
            self._journal.add_phase(job.id, job.resizes, self._clock(), phase, detail)
        if group in kept.waiting:
            peer, request = kept.waiting.pop(group)
            self._send(peer, m.Connect(id=request, port=port))

    def on_assembling_group(self, job: Job, peer: bytes, message: m.GroupReady) -> m.Connect | None:
        """Return the port for a group; None as long as there is none."""
        kept = self._note_wait(job)
        kept.came.add(message.group)
        if port := self._port(job, message.group):
            kept.waiting.pop(message.group, None)
            return m.Connect(id=message.id, port=port)
        kept.waiting[message.group] = peer, message.id
        return None

    def _note_wait(self, job: Job) -> KeptJob:
        kept = self._kept[job.id]
        kept.waited_since.setdefault(next(iter(job.groups)), time.monotonic())
        return kept

    def _port(self, job: Job, group: int) -> str:
        """Port for a group, perhaps noted by an earlier run of the service; empty: none."""
        ports = self._kept[job.id].ports
        if group not in ports:
            for phase in self._journal.phases_of(job.id):
                number, _, name = phase.detail.partition(" ")
                if phase.phase == _RECONNECTING and number == str(group):
                    ports[group] = name
        return ports.get(group, "")
