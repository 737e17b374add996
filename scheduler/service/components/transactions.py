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
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from reshape.wire.messages import ResizeTimes
from scheduler.model.job import Job
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
        found = self._by_job.get(job.id)
        if found is None or found.serial != resize.serial:
            now = time.monotonic()
            phase = "starting" if resize.expands else "leaving"
            found = self._by_job[job.id] = Transaction(resize.serial, phase, now, now)
            self._restore(job, found)
        return found

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
        """Note on which port the job accepts, "" if it does not accept (any more)."""
        if transaction.port != port:
            transaction.port = port
            self._note(job, transaction, "accepting", port)

    def _note(self, job: Job, transaction: Transaction, phase: str, detail: str = "") -> None:
        self._journal.add_phase(job.id, transaction.serial, self._clock(), phase, detail)
